"""The decision: every row of the guide's table, what users found, refusals, command and form."""

import json
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lib import measured, measurements
from lib.decide import GUIDES_BOX, ROWS, Case, Timed, decide, margin, poisson, reached, recorded, words
from lib.decide.command import asked, main, parser
from lib.decide.layouts import engine, pools, seen, together
from lib.decide.questions import FIX, MEASURE, NOTHING, SMALL, SPLIT, STAY
from lib.decide.table import STEADY, box
from lib.decide.words import report, understood
from lib.goodput import SLO
from lib.hardware import A100_80GB, H100_SXM, H200, L40S, NVLINK, RDMA_100G, RDMA_400G
from lib.live import GPU, LINK, MODEL, calculator
from lib.live.decide import STEPS
from lib.models import GPT_OSS_120B, LLAMA_3_1_8B, LLAMA_3_1_70B, OPT_13B, QWEN2_5_7B, QWEN3_235B_FP8, read
from lib.workload import Request

ASKED = {1: SMALL, 2: SMALL, 3: SMALL, 4: STAY, 5: STAY, 6: SMALL, 7: STAY}


@pytest.fixture(scope="module")
def advice():
    return {row.number: decide(row.case) for row in ROWS}


# ------------------------------------------------------------------ the guide's table


@pytest.mark.parametrize("number", ASKED)
def test_each_row_gets_an_answer_that_survives(advice, number):
    found = advice[number]
    assert found.recommendation == found.leaning == ASKED[number]
    assert {stress.recommendation for stress in found.stresses} == {ASKED[number]}
    assert any(number in fork.rows for fork in found.forks)
    assert all(fork.number for fork in found.forks)


@pytest.mark.parametrize(("number", "end"), [(1, SPLIT), (2, SPLIT), (3, SPLIT), (6, FIX)])
def test_where_small_steps_do_not_do_the_row_gets_the_tables_answer(number, end, monkeypatch):
    monkeypatch.setattr("lib.decide.layouts.SMALL_STEPS", ())
    case = replace(ROWS[number - 1].case, target=0.91)  # not the one that was asked before
    assert decide(case).leaning == end


def test_the_limit_of_the_handoff_tells_a_split_from_its_repair(monkeypatch):
    monkeypatch.setattr("lib.decide.layouts.SMALL_STEPS", ())
    case = replace(GUIDES_BOX, target=0.92)
    limit = decide(case).handoff_limit
    assert decide(replace(case, handoff_s=0.8 * limit)).leaning == SPLIT
    assert decide(replace(case, handoff_s=1.25 * limit)).leaning == FIX


def test_a_growing_context_asks_for_the_way_back_and_a_changing_history_for_a_guard(advice):
    words = " ".join(advice[3].also)
    assert "both directions" in words
    assert "guard reuse" in words
    kept = decide(box(0.05, STEADY, handoff_s=0.02, history_can_change=True))
    assert "guard reuse" in " ".join(kept.also)
    assert "both directions" not in " ".join(kept.also)


def test_the_frontend_gets_its_tier_from_one_core_on(advice):
    assert "render tier" in " ".join(advice[4].also)
    idle = decide(replace(ROWS[3].case, cpu_s_per_request=0.2))
    assert "render tier" not in " ".join(idle.also)
    assert idle.forks[-1].number == "0.8 cores busy at 4 req/s"


def test_late_first_tokens_are_no_reason_to_split_but_for_larger_engines(advice):
    assert advice[5].disaggregated.attainment < advice[5].collocated.attainment < 0.9
    any_degree = replace(ROWS[4].case, tensor_parallel=None)
    small, *_, large = (seen(any_degree, together(any_degree, pool)) for pool in pools(any_degree))
    assert large.first - small.first > large.spread + small.spread


# ------------------------------------------------------------------ the margin


def test_a_handoff_that_nobody_measured_has_to_be_measured(monkeypatch):
    monkeypatch.setattr("lib.decide.layouts.SMALL_STEPS", ())
    found = decide(replace(GUIDES_BOX, handoff_s=None))
    assert (found.recommendation, found.leaning) == (MEASURE, SPLIT)
    assert [what.split(":")[0] for what in found.measure] == ["the handoff"]
    assert found.handoff == pytest.approx(0.0188, rel=1e-2)


@pytest.mark.parametrize("phase", ["first token", "between tokens"])
def test_the_typical_error_is_that_of_the_price_for_the_like(phase):
    case = replace(GUIDES_BOX, price="roofline")
    assert margin.typical(GUIDES_BOX, phase) == measured.typical_error(QWEN2_5_7B, L40S, phase)
    assert margin.typical(case, phase) == measured.typical_error(QWEN2_5_7B, L40S, phase, old=True)
    said = words.typical(GUIDES_BOX)
    error = measured.typical_error(QWEN2_5_7B, L40S, phase)
    assert f"{error.median:.2f} times off" in said
    assert f"nine in ten within {error.ninth:.2f}" in said


def test_measured_steps_take_the_place_of_the_published_error(advice):
    timed = Timed(8192, 0.700, 0.0225)
    ideal = reached(QWEN2_5_7B, L40S, timed)
    assert (round(ideal.compute, 3), round(ideal.bandwidth, 2)) == (0.475, 0.75)
    found = decide(replace(GUIDES_BOX, timed=timed))
    assert len(found.stresses) == len(advice[6].stresses) - 1


def test_cost_is_the_price_over_the_tokens_at_goodput():
    found = decide(replace(ROWS[0].case, price_per_gpu_hour=1.2)).disaggregated
    assert found.cost == pytest.approx(1e6 * 2 * 1.2 / 3600 / (found.goodput * 256))


# ------------------------------------------------------------------ what users found


def test_no_goodput_is_above_what_prompts_take():
    """Three A100 prefill engines do at most 6.2 req/s of these; a trial read 7.54 (A5)."""
    rows = [Request(3.0 * i, (2000, 12000)[i % 2], (300, 150)[i % 3 > 0]) for i in range(60)]
    four = Case(LLAMA_3_1_8B, A100_80GB, recorded(rows), SLO(3, itl=0.08), RDMA_100G, 4, 1, handoff_s=0.3)
    found = decide(four)
    assert found.disaggregated.goodput < 6.5
    eight = Case(GPT_OSS_120B, H200, poisson(22.5, 5000, 250), SLO(1, itl=0.05), RDMA_400G, 8, 1, n_prefill=2)
    seen = decide(eight).disaggregated  # 69.4 was read, of two engines that do 27 (A6)
    assert seen.goodput < 2 * seen.busy[0].most


def test_an_overloaded_pool_is_said_to_be_one():
    """Two prefill engines at 4 x 0.543 s are 109 % busy; a trial read 87 %, 52 % with free copies (A7)."""
    case = Case(
        LLAMA_3_1_70B, H100_SXM, poisson(4, 8192, 512), SLO(2, itl=0.06), RDMA_400G, 16, 4, n_prefill=2
    )
    found = decide(case)
    assert found.disaggregated.overloaded
    assert found.disaggregated.busiest > 0.95
    assert found.free >= found.disaggregated.attainment
    assert "prefill is overloaded" in " ".join(fork.number for fork in found.forks)
    assert "overloaded" in report(case, found)


@pytest.mark.parametrize("rates", [(0.4, 100.0), (0.1, 10.0)])
def test_a_goodput_is_the_same_whatever_load_is_asked(rates):
    """0.114 and 0.0 were read (A8); 6.4 at 0.1 req/s, where 10 gave 73.4 (goodput-cap)."""
    found = [decide(replace(ROWS[0].case, load=poisson(rate, 1000, 100))) for rate in rates]
    assert len({(one.collocated.goodput, one.disaggregated.goodput) for one in found}) == 1
    assert found[0].collocated.goodput > 0


def test_fp8_is_priced_at_its_peak():
    """A prompt of 3,000 tokens of a 70B in FP8 on two H100: 347 ms at the bf16 peak, less at FP8's."""
    config = CONFIG | {
        "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
        "quantization_config": {"quant_method": "fp8"},
    }  # fmt: skip
    del config["head_dim"]
    eight = Case(read(config), H100_SXM, poisson(5, 3000, 300), SLO(0.5, tpot=0.04), RDMA_400G, 8, 2)
    assert 0.15 < engine(replace(eight, price="roofline"), 2).step_seconds(((3000, 0),)) < 0.26
    assert engine(eight, 2).step_seconds(((3000, 0),)) == pytest.approx(0.257, rel=0.2)  # AIConfigurator's
    assert "products in fp8" in understood(eight)[0]


LLM_D = ["--model", "gpt-oss-120b", "--gpu", "H200", "--gpus", "16", "--link", "400", "--rate", "45"]
LLM_D += ["--prompt", "5000", "--output", "250", "--ttft-s", "2", "--tensor-parallel", "1"]
LLM_D += ["--prefill-tensor-parallel", "1", "--decode-tensor-parallel", "4", "--prefill-engines", "8"]


def llm_d(name: str, figure: str) -> float:
    """A figure that llm-d measured on 16 H200."""
    found = measurements.measurements()[f"llm-d-h200-{name}"]
    return next(one.measured for one in found.figures if one.path == (figure,))


def test_a_split_of_llm_ds_shape_can_be_asked_and_leans_where_it_was_measured_to_be_good():
    """8 x TP1 and 2 x TP4 (B5). Between what llm-d measured apart and together only the split is in time."""
    apart = llm_d("split", "tpot_mean_ms")
    shared = (1e3 * llm_d("shared", "e2e_mean_s") - llm_d("shared", "ttft_mean_ms")) / 249
    tight, loose = 15, 50
    assert apart < tight < shared < loose
    found = decide(asked(parser().parse_args([*LLM_D, "--tpot-ms", str(tight)])))
    assert found.disaggregated.layout == "8 x TP1 for prompts, 2 x TP4 for answers"
    assert (found.leaning, found.recommendation) == (SPLIT, MEASURE)
    assert decide(asked(parser().parse_args([*LLM_D, "--tpot-ms", str(loose)]))).leaning == STAY


def test_the_rooflines_price_sees_no_need_of_llm_ds_split():
    """It takes a decode step of experts to be eight times as short as kernels do (B1), but says: measure."""
    found = decide(asked(parser().parse_args([*LLM_D, "--tpot-ms", "15", "--steps", "roofline"])))
    assert (found.leaning, found.recommendation) == (STAY, MEASURE)


def test_the_fewest_gpus_are_no_fewer_than_any_run_needs(advice):
    for found in advice.values():
        one = found.needed.one
        assert one is None or one.engines * one.degree >= found.needed.one_floor


def test_no_layout_is_an_answer():
    case = box(8.0, SLO(ttft=2, itl=0.020), handoff_s=0.02)
    found = decide(case)
    assert found.leaning == NOTHING
    assert not found.meets
    assert "No layout of these GPUs meets the targets." in report(case, found)


# ------------------------------------------------------------------ refusals

OTHER = {"model": LLAMA_3_1_8B, "gpu": A100_80GB, "link": RDMA_100G, "handoff_s": None, "gpus": 8}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": 3, "tensor_parallel": 2}, "use a multiple"),
        ({"gpus": True}, "gpus=True"),
        ({"gpus": 5000}, "use at most 1,024"),
        ({"link": None, "handoff_s": None}, "neither link nor handoff_s"),
        ({"handoff_s": 0.001}, r"PCIe 4\.0 x16 takes"),
        ({"handoff_s": float("nan")}, "handoff_s=nan"),
        ({"target": 90}, "target=90"),
        ({"new_tokens": 9000}, "new_tokens=9000"),
        ({"cpu_s_per_request": -1}, "cpu_s_per_request=-1"),
        ({"load": poisson(1.0, 100, 1)}, "every answer has one token"),
        ({"tensor_parallel": 8, "gpus": 8}, "28 heads, which 8 GPUs cannot share; use 1 or 2 or 4"),
        ({**OTHER, "tensor_parallel": 3, "gpus": 6}, "32 heads, which 3 GPUs cannot share"),
        ({**OTHER, "load": poisson(1, 200_000, 100)}, "200,100 tokens, prompt and answer, .* reads 131,072"),
        ({**OTHER, "model": OPT_13B}, "OPT-13B reads 2,048"),
        ({**OTHER, "model": LLAMA_3_1_70B, "tensor_parallel": 1}, "GB usable leave room .*; use 2 or 4 or 8"),
        ({**OTHER, "model": QWEN3_235B_FP8, "gpu": H200, "tensor_parallel": 8}, "192 on each .*use 2 or 4"),
        ({**OTHER, "gpu": H100_SXM, "tensor_parallel": 16, "gpus": 32}, "8 H100 SXM do"),
        ({"link": RDMA_400G, "handoff_s": None}, "use a link of at most 200 Gb/s"),
        ({"link": NVLINK, "handoff_s": None}, "and no NVLink"),
    ],
)
def test_what_no_engine_would_start_is_refused_with_what_would_do(change, words):
    with pytest.raises(ValueError, match=words):
        replace(GUIDES_BOX, **change)


def test_what_does_not_fit_into_the_gpus_is_told_what_would():
    with pytest.raises(ValueError, match="use 4 or 8"):
        decide(Case(LLAMA_3_1_70B, H100_SXM, poisson(1.0, 30_000), STEADY, RDMA_400G))


def test_a_recording_all_at_once_has_no_rate():
    with pytest.raises(ValueError, match="arrive at once"):
        recorded([Request(0, 10, 10)])


# ------------------------------------------------------------------ the command line

BASE = ["--gpu", "L40S", "--link", "PCIe 4.0", "--ttft-s", "2", "--itl-ms", "100"]
CONFIG = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "torch_dtype": "bfloat16",
    "head_dim": 128, "max_position_embeddings": 32768,
}  # fmt: skip


def test_a_config_and_a_csv_are_read_and_what_was_understood_is_said(tmp_path, capsys):
    config, rows = tmp_path / "config.json", tmp_path / "rows.csv"
    config.write_text(json.dumps(CONFIG))
    lines = [
        f"{row.arrival},{row.prompt_tokens},{row.output_tokens}" for row in GUIDES_BOX.load.draw(0.4, 40)
    ]
    rows.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    assert main(["--model", str(config), "--csv", str(rows), "--handoff-s", "1.3", *BASE]) == 0
    printed = capsys.readouterr().out.replace("\xa0", " ")
    said = " ".join(printed.split())
    assert "15.2 GB of weights" in said
    assert "57,344 bytes of cache a token" in said
    assert (
        "40 requests as recorded, over 117 s, repeated; played until queues are steady, 1,536 at most; "
        in said
    )
    assert "8,192 tokens a prompt, 256 an answer" in said
    assert "1.3 s measured" in said
    assert "Typical error of this book's times" in said
    assert max(len(line) for line in printed.splitlines()) <= 78


def test_progress_is_drawn_where_it_is_asked_for_and_leaves_nothing(capsys):
    given = ["--model", "qwen2.5-7b", "--rate", "0.05", *BASE]
    assert main([*given, "--progress"]) == 0
    assert "[####" in capsys.readouterr().err
    assert main(given) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "gpt-9", "--rate", "1"], "or the path of a config.json"),
        (["--model", "qwen2.5-7b"], "--rate: missing"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--prefill-ms", "700"], "measure both"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--csv", "x"], "use one of the two"),
        (["--model", "qwen2.5-7b", "--csv", "nowhere.csv"], "nowhere.csv"),
        (["--model", "nowhere.json", "--rate", "1"], "nowhere.json"),
        (["--model", "qwen2.5-7b", "--rate", "0"], "--rate 0"),
        (
            ["--model", "qwen2.5-7b", "--rate", "1", "--tensor-parallel", "3"],
            "--tensor-parallel 3: .*28 heads",
        ),
        (["--model", "qwen2.5-7b", "--rate", "1", "--handoff-s", "0.001"], "--handoff-s 0.001 is less"),
    ],
)
def test_the_command_line_says_in_its_own_words_what_is_wrong(capsys, arguments, words):
    assert main([*BASE, *arguments]) == 2
    said = capsys.readouterr().err
    assert re.search(words, said), said
    assert said.count("\n") == 1


# ------------------------------------------------------------------ one function behind all

DRAWN = 20


def drawn(place: int) -> tuple[dict[str, object], dict[str, object]]:
    """Knobs of the form that were drawn by chance and are not refused, and what the form says."""
    dice = Random(f"case {place}")
    while True:
        knobs = {
            "model": dice.choice(["Qwen2.5-7B", "Llama-3.1-8B", "gpt-oss-20b", "Qwen3-8B"]),
            "gpu": dice.choice(["L40S", "A100 80 GB SXM", "H100 SXM", "H200"]),
            "link": dice.choice(["PCIe 4.0 x16", "100 Gb/s RDMA"]),
            "gpus": dice.choice([2, 4, 8]), "degree": dice.choice(["any", "1", "2"]),
            "rate": round(dice.uniform(0.2, 8), 2), "prompt": dice.choice([500, 2000, 8192]),
            "output": dice.choice([50, 256, 1000]), "spread": dice.choice([0, 0, 0.5]),
            "hit": dice.choice([0, 0, 50]), "ttft": dice.choice([0.5, 1, 2]),
            "itl": dice.choice([0, 50, 100]),
            "handoff": dice.choice([0, 200, 1300]),
            "steps": dice.choice([*STEPS, *[next(iter(STEPS))] * 4]),
        }  # fmt: skip
        with suppress(ValueError):
            return knobs, calculator("decide")(**knobs)


@pytest.mark.parametrize("place", range(DRAWN))
def test_the_form_the_command_and_the_page_give_one_answer(place, capsys):
    """Each builds the same case of what it is told, so that one answer serves all three; and shows it."""
    knobs, shown = drawn(place)
    flags = {
        "--model": "model", "--gpu": "gpu", "--link": "link", "--gpus": "gpus", "--rate": "rate",
        "--prompt": "prompt", "--output": "output", "--spread": "spread", "--ttft-s": "ttft",
    }  # fmt: skip
    given = [word for flag, knob in flags.items() for word in (flag, str(knobs[knob]))]
    given += ["--hit-rate", str(knobs["hit"] / 100), "--steps", STEPS[knobs["steps"]]]
    given += ["--tensor-parallel", knobs["degree"]] if knobs["degree"] != "any" else []
    given += ["--itl-ms", str(knobs["itl"])] if knobs["itl"] else []
    given += ["--handoff-s", str(knobs["handoff"] / 1e3)] if knobs["handoff"] else []
    assert main(given) == 0
    printed = " ".join(capsys.readouterr().out.split())
    page = Case(
        MODEL[knobs["model"]], GPU[knobs["gpu"]],
        poisson(knobs["rate"], knobs["prompt"], knobs["output"], knobs["spread"], knobs["hit"] / 100),
        SLO(knobs["ttft"], itl=knobs["itl"] / 1e3 or None), LINK[knobs["link"]], knobs["gpus"],
        None if knobs["degree"] == "any" else int(knobs["degree"]),
        handoff_s=knobs["handoff"] / 1e3 or None, price=STEPS[knobs["steps"]],
    )  # fmt: skip
    chapter = decide(page)
    answer = shown["say"][0].split(":")[0].lower()
    assert f"Answer: {answer} " in printed
    assert chapter.recommendation == answer
    assert shown["table"] == words.table(chapter)
    for column in ("one pool", "two pools"):
        for name, value in zip(shown["table"]["at this load"], shown["table"][column], strict=True):
            assert value == "–" or (value if isinstance(value, str) else f"{value:.3g}") in printed, name
    for number in shown["more"]["number"]:
        assert number == "–" or " ".join(number.split()) in printed.replace("- ", "-"), number
    assert words.typical(page) in " ".join(shown["say"])
    assert " ".join(words.typical(page).split()) in printed


def test_the_readme_shows_what_the_command_prints(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf8")
    given, shown = re.search(r"\n\$ python -m lib\.decide (.*?[^\\])\n(.*?)\n```", readme, re.S).groups()
    assert main(shlex.split(given.replace("\\\n", " "))) == 0
    assert capsys.readouterr().out.replace("\xa0", " ").strip() == shown.strip()
