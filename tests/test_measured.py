"""What others measured: the file, its copies, and a prediction or a reason for every number in it."""

import re
from pathlib import Path

import pytest

from lib import calibration, data, goodput, measured
from lib.hardware import L40S
from lib.measured import ENTRIES, Figure, leaves
from lib.models import QWEN2_5_7B
from lib.page.markup import typeset
from lib.page.published import find
from lib.parallelism import all_reduce_time, divide
from lib.roofline import Efficiency, prefill, step_time
from lib.simulator import Collocated, simulate
from lib.workload import Request, poisson

BOOK = Path(__file__).parents[1] / "book"
every_entry = pytest.mark.parametrize("entry", ENTRIES)


predictions = measured.predict


# ------------------------------------------------------------------ the file


def test_every_entry_says_where_it_is_from_and_on_what_it_was_measured():
    for entry in data.measurements().values():
        assert len(entry["source"]) > 20
        assert len(entry["setup"]) > 20


def test_copies_among_the_reviews_figures_are_equal():
    ours, review = data.measurements(), find("measured")
    guide, copy = ours["guide-l40s"], review["guide"]
    assert guide["collocated_itl_p99_ms"] == copy["collocated_itl_p99_ms"]
    assert guide["itl_p50_ms_range"] == copy["itl_p50_ms"]
    assert guide["pd_itl_p99_ms_range"] == copy["pd_itl_p99_ms"]
    assert guide["ttft_p50_s_at_0_2"] == copy["ttft_p50_s_at_0_2"]
    met = ours["mori-io-mi300x"]["met_of_100"]
    assert review["mori_io"]["met_of_100"] == {"pd": met["pd_write"], "collocated": met["collocated_2xtp4"]}
    assert round(met["pd_write"] / met["collocated_2xtp4"], 1) == float(review["mori_io"]["goodput_ratio"])
    pd, collocated = ours["llm-d-h200"]["pd"], ours["llm-d-h200"]["collocated"]
    for figure, name in (("e2e_mean_s", "mean"), ("e2e_p95_s", "p95")):
        reduction = 100 * (1 - pd[figure] / collocated[figure])
        assert round(reduction) == review["llm_d"][f"{name}_e2e_reduction_percent"]
    fabric, copy = ours["fabric-lib-qwen3-235b"], find("kv_dissected.fabric_lib")
    for key in ("layer_transfer_ms", "layer_compute_ms"):
        assert fabric[key] == copy[key]


def test_distserves_last_figure_is_worked_out_from_the_two_before():
    rates = data.measurements()["distserve-a100"]["req_per_s_per_gpu"]
    ideal = min(2 * rates["prefill_only"], rates["decode_only"]) / 3
    assert round(ideal, 1) == rates["two_prefill_one_decode"]


# ------------------------------------------------------------------ the predictions


def test_every_entry_of_the_file_is_modelled():
    assert list(ENTRIES) == list(data.measurements())


@every_entry
def test_every_number_has_a_prediction_or_a_reason_why_not(entry):
    found = {figure.path: figure for figure in predictions(entry)}
    for path, number in leaves(data.measurements()[entry]):
        assert found[path].measured == float(number)
        assert found[path].predicted is not None or found[path].why
        assert found[path].unit


@every_entry
def test_predictions_are_of_the_right_order_of_magnitude_or_worse(entry):
    for figure in predictions(entry):
        if figure.counts:
            assert 1 / 30 < figure.factor < 30  # a unit mixed up would show


@pytest.mark.parametrize("entry", ["splitwise-llama2-70b", "mooncake-h800-transfer"])
def test_nothing_is_predicted_or_measured_faster_than_perfect_gpus(entry, monkeypatch):
    reached = predictions(entry)
    monkeypatch.setattr(calibration, "efficiency", lambda gpu: Efficiency())
    for perfect, real in zip(ENTRIES[entry].run(), reached, strict=True):
        if real.counts:
            assert perfect.predicted <= real.predicted
            assert perfect.predicted <= real.measured


def test_no_token_of_the_guide_is_faster_than_its_weights_can_be_read(monkeypatch):
    monkeypatch.setattr(calibration, "efficiency", lambda gpu: Efficiency())
    floor = {figure.path: figure for figure in measured.guide()}
    assert floor[("itl_p50_ms_range", "0")].predicted < floor[("itl_p50_ms_range", "0")].measured
    assert floor[("ttft_p50_s_at_0_2", "collocated")].factor < 1


# what is played for an entry: (GPUs, tokens a step, requests at once) of its engines, how many, and the loads
ONE = (1, 2048, 256)
SET_UPS = {
    "guide-l40s": (
        {((ONE, 2),), ((ONE, 1), (ONE, 1))},
        [poisson(rate, 100, seed, 8192, 256) for rate in (0.2, 0.4, 1, 2) for seed in range(5)],
    ),
    "mooncake-a10-tp4": (
        {(((4, 2048, 256), 2),), (((4, 2048, 256), 1), ((4, 2048, 256), 1))},
        [poisson(1, 50, seed, 8192, 512) for seed in range(5)],
    ),
    "mooncake-a10-tp2": (
        {(((2, 2048, 256), 2),), (((2, 2048, 256), 1), ((2, 2048, 256), 1))},
        [poisson(4, 200, seed, 2048, 512) for seed in range(5)],
    ),
    "mooncake-h800-transfer": (
        {(((8, 8192, 256), 1), ((8, 8192, 256), 1))},
        [[Request(0, prompt, 128)] for prompt in (512, 2048, 8192, 32768)],
    ),
    "llm-d-h200": (
        {(((1, 8192, 256), 16),), (((1, 8192, 256), 8), ((4, 8192, 256), 2))},
        [[Request(i / 45, 5000, 250) for i in range(1350)]],  # half a minute of 45 a second
    ),
    "mori-io-mi300x": (
        {
            (((8, 8192, 256), 1),),
            (((4, 8192, 256), 2),),
            (((4, 4096, 64), 1), ((4, 4096, 64), 1)),
        },
        [poisson(8, 100, seed, 2000, 1000) for seed in range(5)],
    ),
    "distserve-a100": (
        {((ONE, 1),), ((ONE, 16), (ONE, 1)), ((ONE, 2), (ONE, 1))},
        [poisson(1.6, 300, seed, 512, output) for seed in (0, 1) for output in (1, 64)],  # by search: 1.6 too
    ),
}


def played(entry, monkeypatch):
    """The deployments and the workloads that an entry's predictions are made from."""
    seen = []

    def simulate_one(requests, deployment):
        seen.append((deployment, tuple(requests)))
        return simulate(requests[:1], deployment)

    monkeypatch.setattr(measured, "simulate", simulate_one)
    monkeypatch.setattr(goodput, "simulate", simulate_one)
    ENTRIES[entry].run()
    return seen


def pools(deployment):
    """Engines and how many of them: of the one pool, or of prefill and decode."""
    if isinstance(deployment, Collocated):
        found = [(deployment.engine, deployment.replicas)]
    else:
        found = [(deployment.prefill, deployment.n_prefill), (deployment.decode, deployment.n_decode)]
    return tuple(((e.tensor_parallel, e.token_budget, e.max_num_seqs), n) for e, n in found)


@pytest.mark.parametrize("entry", SET_UPS)
def test_what_is_played_is_what_was_run(entry, monkeypatch):
    seen = played(entry, monkeypatch)
    layouts, loads = SET_UPS[entry]
    assert {pools(deployment) for deployment, _ in seen} == layouts
    expected = {tuple(load) for load in loads}
    found = {requests for _, requests in seen}
    assert expected <= found if entry == "distserve-a100" else expected == found


@pytest.mark.parametrize("entry", SET_UPS)
def test_a_load_has_the_lengths_and_the_number_that_the_source_names(entry, monkeypatch):
    setup = data.measurements()[entry]["setup"].replace("~8k", "8192")
    names = {
        r"prompts (\d+)|(\d+) prompts": 0,
        r"outputs (\d+)|(\d+) outputs": 1,
        r"(\d+) (?:Poisson )?requests": 2,
    }
    loads = [requests for _, requests in played(entry, monkeypatch)]
    for pattern, which in names.items():
        if match := re.search(pattern, setup):
            said = int(match[1] or match[match.lastindex])
            for load in loads:
                counted = (load[0].prompt_tokens, load[0].output_tokens, len(load))
                assert counted[which] == said or (entry == "distserve-a100" and counted[1] == 1)


@pytest.mark.parametrize("entry", SET_UPS)
def test_percentiles_are_those_that_the_numbers_are_named_after(entry, monkeypatch):
    asked = set()

    def noting(_, q):
        asked.add(q)
        return 1.0

    monkeypatch.setattr(measured, "percentile", noting)
    monkeypatch.setattr(measured.Trace, "itl", noting)
    played(entry, monkeypatch)
    names = ["_".join(path) for path, _ in leaves(data.measurements()[entry])]
    assert asked == {int(q) for name in names for q in re.findall(r"_p(\d+)", name)}


@pytest.mark.parametrize("entry", ["mori-io-mi300x", "distserve-a100"])
def test_promises_are_those_of_the_source(entry, monkeypatch):
    promises = set()
    monkeypatch.setattr(measured, "attainment", lambda trace, slo: promises.add(slo) or 1.0)
    monkeypatch.setattr(
        measured, "goodput", lambda setup, slo, *_, **__: promises.add(slo) or goodput.Goodput(1, 1, 1)
    )
    played(entry, monkeypatch)
    setup = data.measurements()[entry]["setup"]
    ttft = float(re.search(r"TTFT (?:<= )?([\d.]+) s", setup)[1])
    gap = float(re.search(r"(?:ITL|TPOT) (?:<= )?([\d.]+) ms", setup)[1]) / 1e3
    assert {slo.ttft for slo in promises} - {None} == {ttft}
    assert {slo.itl or slo.tpot for slo in promises} - {None} == {gap}


def test_a_step_of_one_gpu_talks_to_nobody():
    work = prefill(QWEN2_5_7B, 512)
    one, two = measured.engine(QWEN2_5_7B, L40S), measured.engine(QWEN2_5_7B, L40S, 2)
    assert measured.step(work, 512, one) == step_time(work, L40S, one.efficiency)
    half = step_time(divide(work, QWEN2_5_7B, 2), L40S, two.efficiency)
    assert measured.step(work, 512, two) == half + all_reduce_time(QWEN2_5_7B, 512, 2, two.link)


def test_what_was_fitted_or_given_does_not_count():
    for entry in ("kernel-database-qwen25-7b", "fabric-lib-qwen3-235b"):
        assert not any(figure.counts for figure in predictions(entry) if figure.unit == "ms")
    assert Figure("a", ("b",), "ms", 2, 1.0).factor == 0.5
    assert not Figure("a", ("b",), "ms", 2, 1.0, "why").counts
    assert not Figure("a", ("b",), "ms", 2, None).counts


@every_entry
def test_the_page_shows_every_number_of_an_entry(entry):
    record = (BOOK / "printed" / "measured.txt").read_text("utf8")
    shown = {line.strip() for line in record.splitlines()}
    assert typeset(f"Measured on: {data.measurements()[entry]['setup']}") in shown
    assert typeset(f"Published in: {data.measurements()[entry]['source']}") in shown
    for figure in predictions(entry):
        row = typeset(f"{figure.name}, {figure.unit} | {figure.printed:,} | ")
        if figure.why != measured.GIVEN:
            assert any(line.startswith(row) for line in shown), row


def test_the_page_shows_how_fast_others_simulate():
    record = (BOOK / "printed" / "measured.txt").read_text("utf8")
    for name, (low, high) in data.read("measured.toml")["peers"]["requests_per_wall_second"].items():
        assert typeset(f"    {name} | {low:,} | {high:,}\n") in record


@every_entry
def test_figures_of_an_entry_have_names_of_their_own(entry):
    names = [figure.name for figure in predictions(entry)]
    assert len(set(names)) == len(names)


def test_too_fast_is_too_short_a_time_or_too_high_a_rate():
    assert Figure("a", ("b",), "ms", 2, 1.0).too_fast
    assert not Figure("a", ("b",), "s", 2, 3.0).too_fast
    assert Figure("a", ("b",), "req/s per GPU", 2, 3.0).too_fast
    assert not Figure("a", ("b",), "of 100", 2, 1.0).too_fast
    assert not Figure("a", ("b",), "times", 2, 3.0).too_fast
    assert not Figure("a", ("b",), "ms", 2, 1.0, "why").too_fast


def test_predictions_take_the_unit_of_the_measurement():
    for entry in ENTRIES:
        for figure in predictions(entry):
            name = re.search(r"_(ms|s)(?:_|$)", " ".join(figure.path).replace(" ", "_"))
            if name and figure.unit != "times" and "req_per_s" not in figure.path[0]:
                assert figure.unit == name[1]
