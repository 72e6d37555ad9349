"""The decision: every row of the guide's table, its own box, contradictions, the command line."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import decide as deciding
from lib import measured
from lib.decide import GUIDES_BOX, ROWS, TOO_BIG, decide, handoff, layouts, margin, poisson, recorded
from lib.decide.case import about
from lib.decide.command import main, report
from lib.decide.questions import FIX, MEASURE, NOTHING, SPLIT, STAY
from lib.decide.table import STEADY, box
from lib.goodput import SLO
from lib.hardware import A100_80GB, H100_SXM, L40S, MI300X, PCIE_4
from lib.models import LLAMA_3_1_70B, QWEN2_5_7B, QWEN3_235B_FP8
from lib.workload import Request

ASKED = {1: SPLIT, 2: SPLIT, 3: SPLIT, 4: STAY, 5: STAY, 6: FIX, 7: STAY}


@pytest.fixture(scope="module")
def advice():
    return {row.number: decide(**row.case) for row in ROWS}


# ------------------------------------------------------------------ the guide's table


def test_the_table_has_seven_rows():
    assert [row.number for row in ROWS] == list(range(1, 8))


@pytest.mark.parametrize("number", ASKED)
def test_each_row_gets_the_tables_answer_and_it_survives(advice, number):
    found = advice[number]
    assert found.recommendation == found.leaning == ASKED[number]
    assert {stress.recommendation for stress in found.stresses} == {ASKED[number]}
    assert any(number in fork.rows for fork in found.forks)
    assert all(fork.number for fork in found.forks)
    assert found.reason


def test_on_the_guides_own_box_the_transfer_comes_first(advice):
    found = advice[6]
    assert decide(**GUIDES_BOX) == found
    assert found.recommendation == "fix the transfer first"
    assert not found.meets
    assert found.handoff == 1.3 > found.handoff_limit
    quick = decide(**GUIDES_BOX | {"handoff_s": 0.9 * found.handoff_limit})
    assert quick.leaning == SPLIT
    assert decide(**GUIDES_BOX | {"handoff_s": 1.1 * found.handoff_limit}).leaning == FIX


def test_a_growing_context_asks_for_the_way_back_and_a_changing_history_for_a_guard(advice):
    words = " ".join(advice[3].also)
    assert "both directions" in words
    assert "guard reuse" in words
    kept = decide(**box(0.05, STEADY, handoff_s=0.02, history_can_change=True))
    assert "guard reuse" in " ".join(kept.also)
    assert "both directions" not in " ".join(kept.also)


def test_the_frontend_gets_its_tier_from_one_core_on(advice):
    assert "render tier" in " ".join(advice[4].also)
    idle = decide(**ROWS[3].case | {"cpu_s_per_request": 0.2})
    assert not idle.also
    assert idle.forks[-1].number == "0.8 cores at 4 req/s"


def test_late_first_tokens_are_no_reason_to_split(advice):
    assert not advice[5].meets
    assert advice[5].disaggregated.attainment < advice[5].collocated.attainment
    assert "GPUs" in " ".join(advice[5].also)


# ------------------------------------------------------------------ the margin


def test_a_handoff_that_nobody_measured_has_to_be_measured():
    case = {**GUIDES_BOX, "handoff_s": None}
    found = decide(**case)
    assert (found.recommendation, found.leaning) == (MEASURE, SPLIT)
    assert [what.split(":")[0] for what in found.measure] == ["the handoff"]
    assert found.handoff == pytest.approx(0.0188, rel=1e-2)


def test_an_answer_that_hangs_on_the_efficiencies_asks_for_steps():
    found = decide(**box(0.6, SLO(ttft=2, tpot=0.030), handoff_s=0.02))
    assert found.recommendation == MEASURE != found.leaning
    assert "decode step" in found.measure[0]


def test_the_models_error_is_the_median_of_the_like():
    error, names = margin.model_error(QWEN2_5_7B, L40S)
    assert names == "guide-l40s, trtllm-0.6"
    assert error == measured.typical_error(QWEN2_5_7B, L40S, old=True).median > 1
    assert "mori-mi300x" in margin.model_error(QWEN3_235B_FP8, MI300X)[1]


# ------------------------------------------------------------------ short ways round, and the long ones


def case(**change):
    """The `Case` that `decide` makes of these arguments."""
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "answer", kept.append)
        decide(**GUIDES_BOX | change)
    return kept[0]


def halved(one, n_prefill):
    """The limit of the handoff, every step of the way played."""
    keeps = lambda copy: layouts.share(one, layouts.apart(one, n_prefill, copy)) >= one.target  # noqa: E731
    if not keeps(0.0):
        return None
    low, high = 0.0, one.slo.ttft
    while high - low > one.slo.ttft / 100:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def thinned(one):
    """The best split, all that are left played at every load."""
    rate, left = one.load.rate, list(range(1, one.engines))
    for _ in range(12):
        shares = {n: layouts.share(one, layouts.apart(one, n, 0.0), rate=rate) for n in left}
        best = max(left, key=shares.__getitem__)
        left = [n for n in left if shares[n] >= one.target]
        if len(left) < 2:
            break
        rate *= 1.3
    return left[0] if len(left) == 1 else best


LOADS = st.tuples(
    st.floats(0.1, 2.0), st.integers(500, 9000), st.integers(2, 300), st.sampled_from([0.0, 0.5, 1.0])
)
PROMISES = st.sampled_from([SLO(2, itl=0.1), SLO(4, tpot=0.03), SLO(3), SLO(0.8, gap=0.3)])


@given(LOADS, PROMISES)
@settings(max_examples=25, deadline=None, derandomize=True)  # shares need not fall with every copy
def test_knowing_about_where_the_limit_lies_does_not_move_it(load, slo):
    one = case(workload=poisson(*load, count=30), slo=slo)
    assert handoff.handoff_limit(one, 1) == halved(one, 1)


@given(LOADS, PROMISES)
@settings(max_examples=10, deadline=None, derandomize=True)  # nor with every load, when so few are played
def test_the_best_split_is_that_of_playing_all(load, slo):
    one = case(workload=poisson(*load, count=20), slo=slo, gpus=5)
    assert layouts.best_split(one) == thinned(one)


@given(LOADS, PROMISES)
@settings(max_examples=25, deadline=None)
def test_a_draw_that_cannot_help_is_not_missed(load, slo):
    one = case(workload=poisson(*load, count=20), slo=slo, seeds=(0, 1, 2))
    for deployment in (layouts.together(one), layouts.apart(one, 1, 0.1)):
        assert layouts.passes(one, deployment) == (layouts.share(one, deployment) >= one.target)


def test_a_recording_is_played_once():
    assert case(workload=[Request(float(i), 1000, 20) for i in range(5)]).seeds == (0,)


# ------------------------------------------------------------------ layouts


def test_limits_are_vllms_defaults():
    tiers = [layouts.default_limits(gpu) for gpu in (L40S, A100_80GB, H100_SXM, MI300X)]
    assert tiers == [(2048, 256), (2048, 256), (8192, 1024), (16384, 1024)]


def test_more_engines_go_to_prompts_when_prompts_are_long(monkeypatch):
    monkeypatch.setattr(deciding, "option", lambda case, layout, deployment, pools: pools)
    long, short = (
        decide(**ROWS[1].case | {"workload": poisson(0.8, *mix)}).disaggregated
        for mix in ((16384, 64), (512, 1024))
    )
    assert sum(long) == sum(short) == 4
    assert long[0] > short[0]


def test_measured_steps_take_the_place_of_the_published_error(advice):
    ideal = margin.reached(QWEN2_5_7B, L40S, 8192, 0.700, 0.0225)
    assert (round(ideal.compute, 3), round(ideal.bandwidth, 2)) == (0.475, 0.75)
    found = decide(**GUIDES_BOX, efficiency=ideal)
    assert found.recommendation == FIX
    assert len(found.stresses) == len(advice[6].stresses) - 1
    with pytest.raises(ValueError, match=r"decode_s=0\.01 is less than L40S needs at its peak, 0\.0169 s"):
        margin.reached(QWEN2_5_7B, L40S, 8192, 0.7, 0.01)


def test_cost_is_the_price_over_the_tokens_at_goodput():
    found = decide(**ROWS[0].case, price_per_gpu_hour=1.2).disaggregated
    assert found.cost == pytest.approx(1e6 * 2 * 1.2 / 3600 / (found.goodput * 256))


def test_what_does_not_fit_is_told_what_would():
    found = decide(LLAMA_3_1_70B, H100_SXM, poisson(1.0), STEADY, PCIE_4)
    assert found.recommendation == TOO_BIG
    assert found.collocated is None
    assert "tensor_parallel=2 would do" in found.reason
    assert max(len(line) for line in report(found).splitlines()) <= 78


def test_no_layout_is_an_answer():
    found = decide(**box(8.0, SLO(ttft=2, itl=0.020), handoff_s=0.02))
    assert found.leaning == NOTHING
    assert not found.meets
    assert "No layout of these GPUs meets the targets." in report(found)


def test_a_recording_is_stretched_and_played_as_it_was():
    rows = [Request(float(i), 100 + i, 5) for i in range(11)]
    load = recorded(rows)
    assert load.rate == 1.0
    assert load.draw(1.0, 0) == rows
    assert [row.arrival for row in load.draw(2.0, 7)] == [i / 2 for i in range(11)]


@given(st.floats(0.05, 2.0), st.integers(100, 9000))
@settings(max_examples=20, deadline=None)
def test_spread_lengths_keep_their_mean(spread, mean):
    rows = [row for seed in range(20) for row in poisson(1.0, mean, 50, spread).draw(1.0, seed)]
    average = sum(row.prompt_tokens for row in rows) / len(rows)
    assert abs(average / mean - 1) < 6 * spread / len(rows) ** 0.5 * max(1, spread)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": 1}, "a split needs two engines"),
        ({"gpus": 3, "tensor_parallel": 2}, "use a multiple"),
        ({"gpus": True}, "gpus=True"),
        ({"link": None, "handoff_s": None}, "neither link nor handoff_s"),
        ({"handoff_s": 0.001}, "PCIe 4.0 x16 takes"),
        ({"handoff_s": float("nan")}, "handoff_s=nan"),
        ({"target": 90}, "target=90"),
        ({"new_tokens": 9000}, "new_tokens=9000"),
        ({"cpu_s_per_request": -1}, "cpu_s_per_request=-1"),
        ({"workload": poisson(1.0, 100, 1)}, "every answer has one token"),
        ({"workload": [Request(0, 10, 10)]}, "arrive at once"),
    ],
)
def test_contradictions_are_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        decide(**GUIDES_BOX | change)


# ------------------------------------------------------------------ the command line

TRACES = Path(__file__).parent / "traces"
BASE = ["--gpu", "L40S", "--link", "PCIe 4.0", "--ttft-s", "2", "--itl-ms", "100"]
CONFIG = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_config_and_a_csv_give_what_the_catalogue_gives(tmp_path, capsys):
    config, rows = tmp_path / "config.json", tmp_path / "rows.csv"
    config.write_text(json.dumps(CONFIG))
    drawn = GUIDES_BOX["workload"].draw(0.4, 0)[:40]
    lines = [f"{row.arrival},{row.prompt_tokens},{row.output_tokens}" for row in drawn]
    rows.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    assert main(["--model", str(config), "--csv", str(rows), "--handoff-s", "1.3", *BASE]) == 0
    printed = capsys.readouterr().out
    assert "1.3 s measured" in printed
    assert "ITL p99" in printed
    same = replace(QWEN2_5_7B, name="other")
    echo, answer = printed.split("\n\n", 1)
    assert "Read rows.csv: CSV; arrivals from arrival_s (s)" in echo
    assert "40 requests" in echo
    assert report(decide(**GUIDES_BOX | {"model": same, "workload": drawn})) == answer.rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "gpt-9", "--rate", "1"], "or the path of a config.json"),
        (["--model", "qwen2.5-7b"], "--rate: missing"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--prefill-ms", "700"], "measure both"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--csv", "x"], "has its own rate; use one of the two"),
        (["--model", "qwen2.5-7b", "--prompt", "8192", "--trace", "x"], "has its own prompts"),
        (["--model", "qwen2.5-7b", "--output", "256", "--trace", "x"], "has its own answers"),
        (["--model", "qwen2.5-7b", "--spread", "0", "--trace", "x"], "has its own lengths"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--calibrate"], "--calibrate: there is no recording"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--trace-time", "ms"], "--trace-time: there is no"),
        (["--model", "qwen2.5-7b", "--trace", "{bench}", "--calibrate", "--prefill-ms", "9"], "use one of"),
        (["--model", "qwen2.5-7b", "--trace", "{bench}", "--calibrate"], "no request ran alone"),
        (["--model", "qwen2.5-7b", "--trace", "{sharegpt}"], "neither arrivals nor numbers of tokens"),
        (["--model", "qwen2.5-7b", "--csv", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--model", "nowhere.json", "--rate", "1"], "cannot be read"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--gpu", "H"], "H100 SXM"),
        (["--model", "qwen2.5-7b", "--rate", "1", "--link", "-3"], "Gbps=-3"),
        (["--model", "qwen2.5-7b", "--rate", "0"], "rate=0"),
        (["--model", "{short}", "--rate", "1"], "num_key_value_heads is missing"),
        (["--model", "{text}", "--rate", "1"], "is no JSON"),
        (["--model", "qwen2.5-7b", "--csv", "{rows}"], "rows.csv: line 3, prompt_tokens='five'"),
    ],
)
def test_the_command_line_says_what_is_wrong(tmp_path, capsys, arguments, words):
    files = {"short": tmp_path / "short.json", "text": tmp_path / "text.json", "rows": tmp_path / "rows.csv"}
    files |= {"bench": TRACES / "vllm_bench_detailed.json", "sharegpt": TRACES / "sharegpt.json"}
    files["short"].write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "num_key_value_heads"}))
    files["text"].write_text("{")
    files["rows"].write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,five,5\n")
    filled = [argument.format(**files) for argument in arguments]
    base = [word for pair in pairwise(BASE) if pair[0] not in filled for word in pair if pair[0][0] == "-"]
    assert main([*base, *filled]) == 2
    assert words in capsys.readouterr().err


def test_lengths_have_the_mean_and_the_deviation_that_were_asked_for():
    dice = random.Random(0)
    lengths = [about(1000, 0.5, dice) for _ in range(20_000)]
    assert fmean(lengths) == pytest.approx(1000, rel=0.02)
    assert pstdev(lengths) == pytest.approx(500, rel=0.05)
