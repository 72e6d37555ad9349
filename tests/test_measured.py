"""What others measured: kept predictions, the command, the page, and what the book's typical error is."""

import re
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import data, measured, measurements, predict
from lib.hardware import GPUS, H100_SXM, H200, L40S
from lib.measured import factors, off
from lib.models import GPT_OSS_120B, LLAMA_3_1_70B, MODELS, QWEN2_5_7B

ROWS = measured.compare()
FRESH = (  # measurements whose predictions are worked out again here: each load, engine and kind of model
    "guide-l40s-split-first-token", "distserve-profile-decode", "splitwise-h100-tp8", "mori-mi300x-tp8",
    "oracle-405b-latency", "qwen2.5-speed-7b-int4", "gpustack-qwen3-8b-sglang", "inferencex-870-h200",
    "mooncake-vllm-h800", "fabric-lib-layer", "vllm-buildkite-latency", "trtllm-0.6-first-llama-7b-l40s",
)  # fmt: skip


def test_every_figure_has_a_prediction_or_a_reason_why_not():
    every = [figure for one in measurements.measurements().values() for figure in one.figures]
    assert [row.figure for row in ROWS] == every
    assert all((row.new is None) == bool(row.why) for row in ROWS)
    assert sum(row.new is not None for row in ROWS) > 0.95 * len(ROWS)


@pytest.mark.parametrize("one", FRESH)
def test_kept_predictions_are_those_that_are_worked_out(one):
    kept = {row.name: row for row in ROWS if row.measurement.id == one}
    found = measurements.measurements()[one]
    both = zip(measured.predictions(found, predict.OLD), measured.predictions(found), strict=True)
    for (figure, old, _), (_, new, _) in both:
        row = kept["/".join(figure.path)]
        assert (row.old, row.new) == (pytest.approx(old, rel=1e-5), pytest.approx(new, rel=1e-5))


def test_predictions_of_other_data_are_refused(monkeypatch):
    monkeypatch.setattr(measured, "fingerprint", lambda: "another")
    with pytest.raises(ValueError, match="--write"):
        measured._kept(measured.FILE)


def test_the_first_nine_benchmarks_are_found_again():
    first = [row for row in ROWS if measured.is_first(row)]
    assert 59 <= len(first) <= 150
    assert median(factors(first)) < median(factors(first, old=True))


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_half_and_twice_are_as_far_off(predicted, known):
    assert off(predicted, known) == off(known, predicted) >= 1
    assert off(known / 2, known) == pytest.approx(off(known * 2, known)) == 2


def test_what_gave_a_constant_is_no_test():
    constants = [row for row in ROWS if row.figure.constant]
    assert constants
    assert not any(row.tests for row in constants)


# ------------------------------------------------------------------ the typical error


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(GPUS),
    st.sampled_from(["first token", "between tokens", "whole"]),
)
def test_there_is_a_typical_error_for_every_model_and_gpu(model, gpu, phase):
    for old in (False, True):
        error = measured.typical_error(model, gpu, phase, old)
        assert 1 <= error.median <= error.ninth
        assert error.figures >= measured.ENOUGH
        assert error.sources
        assert error.alike.startswith("models with experts" if model.experts else "dense models")


def test_the_typical_error_is_of_the_same_gpu_where_there_are_figures():
    error = measured.typical_error(GPT_OSS_120B, H200, "between tokens")
    some = [
        row
        for row in ROWS
        if row.tests and row.experts and row.setup.gpu == "H200" and row.kind == "between tokens"
    ]
    assert (error.figures, error.median) == (len(some), median(factors(some)))
    assert error.alike == "models with experts on H200"
    assert measured.typical_error(LLAMA_3_1_70B, H100_SXM).median < 1.5
    assert measured.typical_error(QWEN2_5_7B, L40S).alike == "dense models on L40S"


def test_a_phase_that_is_none_is_refused():
    with pytest.raises(ValueError, match="phase='decode'"):
        measured.typical_error(QWEN2_5_7B, L40S, "decode")


# ------------------------------------------------------------------ the command

LOOSE = """
[[measurement]]
id = "mine"
source = "a test"
setup = "Llama-3.1-8B, vllm 0.20.0, h100_sxm, outputs 20; closed loop"
in_512_tp1 = { streams = [1, 2], ttft_mean_ms = [40, 50], tpot_mean_ms = [6.5, 7.0] }
[[measurement]]
id = "nobody"
source = "a test"
setup = "Falcon-9000B bf16, vllm 0.20.0, h100_sxm, outputs 20, prompts 100, 4 req/s"
ttft_mean_ms = 3
[[measurement]]
id = "nothing"
source = "a test"
setup = "some model somewhere"
ttft_mean_ms = 3
"""


def test_a_file_is_predicted_figure_by_figure_and_what_cannot_be_is_one_sentence(tmp_path, capsys):
    (tmp_path / "new.toml").write_text(LOOSE, "utf8")
    assert measured.main([str(tmp_path / "new.toml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("factor" in line and line.startswith("mine") for line in lines) == 4
    assert sum(line.startswith("nobody") for line in lines) == 1
    assert any("nobody" in line and "not known" in line for line in lines)
    assert any("nothing" in line and "lacks" in line for line in lines)
    assert re.fullmatch(r"4 figures: median factor [\d.]+, nine in ten within [\d.]+, worst .*", lines[-1])


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "file.toml"
    path.write_bytes(content)
    assert measured.main([str(path)]) in (0, 2)


def test_what_is_no_file_is_refused(tmp_path, capsys):
    assert measured.main([str(tmp_path / "missing.toml")]) == 2
    assert measured.main([str(tmp_path)]) == 2
    assert measured.main([]) == 2
    assert "Traceback" not in capsys.readouterr().err


# ------------------------------------------------------------------ models, corrections


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Llama-3.1-405B", 405.9), ("meta-llama/Llama-3.1-70B-Instruct", 70.6), ("MiniMax-M2.5", 228.7),
        ("Qwen2.5-72B-Instruct", 72.7), ("Llama-2-7b-chat-hf", 6.74), ("Qwen3-235B-A22B-FP8", 235.1),
        ("DeepSeek-R1", 671.0), ("Mixtral-8x7B-Instruct", 46.7), ("openai/gpt-oss-120b", 116.8),
    ],
)  # fmt: skip
def test_models_are_found_by_the_names_that_people_write(name, billions):
    assert predict.model_of(name).params / 1e9 == pytest.approx(billions, rel=2e-3)


def test_a_precision_is_that_of_the_weights():
    whole, half = (predict.model_of("Llama-3.1-70B", name) for name in ("bf16", "fp8"))
    assert half.params == whole.params
    layers = whole.params - 2 * whole.vocab * whole.d_model
    assert whole.resident_bytes - half.resident_bytes == pytest.approx(layers, rel=1e-3)
    assert half.arithmetic == "fp8"
    assert predict.model_of("gpt-oss-120b", "mxfp4").resident_bytes == GPT_OSS_120B.resident_bytes
    assert predict.model_of("Qwen2.5-7B", "bf16", "fp8").cache_bytes == 1


def test_the_corrections_arithmetic_holds():
    first, lengths, twice, experts, rate = data.read("corrections.toml")["correction"]
    numbers = {key: float(value) for key, value in first["numbers"].items()}
    share = 2 * (numbers["gpus"] - 1) / numbers["gpus"] * numbers["bytes_each"]
    small = share * numbers["elements_of_64_mib"] / (numbers["ms_of_64_mib"] * 1e-3) / 1e9
    assert (
        round(share * numbers["elements"] / (numbers["ms"] * 1e-3) / 1e9)
        == first["arithmetic"]["bus_gb_per_s"]
    )
    assert round(small) == first["arithmetic"]["bus_gb_per_s_of_64_mib"]
    assert round(100 * small / numbers["nvlink_gb_per_s"]) == first["arithmetic"]["percent_of_64_mib"]
    told = lengths["numbers"]
    gaps = [
        float((e2e - ttft) / itl)
        for e2e, ttft, itl in zip(told["e2e_mean_ms"], told["ttft_mean_ms"], told["itl_mean_ms"], strict=True)
    ]
    assert [round(gap, 1) for gap in gaps] == [float(gap) for gap in lengths["arithmetic"]["gaps"]]
    slow, fast = twice["numbers"]["ttft_mean_ms"]
    assert round(slow / fast, 1) == float(twice["arithmetic"]["factor"])
    held = [experts["numbers"]["experts"] // gpus for gpus in experts["numbers"]["gpus"]]
    assert held == experts["arithmetic"]["experts_per_gpu"]
    prefill = float(rate["numbers"]["prefill_ms"]) / 1e3
    assert round(1 / prefill, 1) == float(rate["arithmetic"]["most_req_per_s"])
    assert round(100 * prefill * float(rate["numbers"]["req_per_s"])) == rate["arithmetic"]["busy_percent"]


def test_every_cause_of_a_miss_belongs_to_a_source():
    sources = {row.measurement.source.id for row in ROWS}
    assert set(data.read("misses.toml")) <= sources


def test_the_page_shows_the_median_of_all():
    record = (Path(__file__).parents[1] / "book" / "printed" / "measured.txt").read_text("utf8")
    assert f"{len(ROWS)} figures" in record
    assert f"| {median(factors(ROWS)):.2f} | " in record


# ------------------------------------------------------------------ parts, one by one


def test_every_part_is_tried_alone_and_left_out():
    names = {f"{word} {part}" for word in ("only", "without") for part in measured.PARTS}
    assert set(measured.suspects()) == {"old", "new"} | names
    sizes = {len(factors) for factors in measured.suspects().values()}
    assert sizes == {len([row for row in ROWS if measured.is_first(row) and row.tests])}


def test_kept_variants_are_those_that_are_worked_out():
    kept = {(line["measurement"], line["figure"]): line for line in measured._kept(measured.OF_PARTS)}
    header = ("old", "new", *measured.variants())
    for name in ("splitwise-h100-tp8", "mooncake-vllm-h800", "guide-l40s-split-first-token"):
        for measurement, figure, *values in measured._of_parts(measurements.measurements()[name]):
            assert [kept[measurement, figure][column] for column in header] == values


def test_heads_that_several_gpus_keep_are_sent_by_each():
    wide, few = predict.model_of("Qwen3-8B"), predict.model_of("Qwen3-235B-A22B")
    assert [predict.copies(wide, degree) for degree in (1, 8)] == [1, 1]
    assert [predict.copies(few, degree) for degree in (1, 4, 8)] == [1, 1, 2]
    assert predict.copies(predict.model_of("DeepSeek-R1"), 8) == 1


def test_experts_where_there_are_none_are_refused():
    one = measurements.measurements()["mooncake-vllm-h800"].figures[0].setups[0]
    with pytest.raises(ValueError, match="expert_parallel=8 will not do: Qwen3-8B BF16 has no experts"):
        predict.engine(one, measurements.Pool(tensor_parallel=8, expert_parallel=8))
