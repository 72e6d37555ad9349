import tomllib
from dataclasses import replace
from decimal import Decimal
from math import fsum
from pathlib import Path

import pytest

import lib.data
from lib import capacity
from lib.goodput import SLO, Goodput, attainment, goodput, mean_of, met, play
from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.simulator import Collocated, Disaggregated, Engine, percentile, simulate
from lib.workload import Request, poisson

PUBLISHED = tomllib.loads(
    (Path(lib.data.__file__).parent / "published.toml").read_text(), parse_float=Decimal
)
REVIEW = Engine(QWEN2_5_7B, L40S, decode_context=8192 + 128)
WHOLE = replace(REVIEW, token_budget=None)
DEPLOYMENTS = {
    "collocated": Collocated(REVIEW, 2),
    "P/D, 1.3 s transfer": Disaggregated(WHOLE, REVIEW, handoff=1.3),
    "P/D, 20 ms transfer": Disaggregated(WHOLE, REVIEW, handoff=0.02),
}
SLOS = {"slo_a": SLO(ttft=2, tpot=0.030), "slo_b": SLO(ttft=2, gap=0.100)}
RATES = [float(rate) for rate in PUBLISHED["goodput"]["rates"]]


def clockwork(work, gpu, efficiency):
    return 0.125


CLOCKWORK = Collocated(Engine(QWEN2_5_7B, L40S, price=clockwork))


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize("column", range(len(RATES)))
def test_the_reviews_attainment(name, column):
    traces = [simulate(poisson(RATES[column], 100, seed), DEPLOYMENTS[name]) for seed in range(5)]
    for slo, limits in SLOS.items():
        share = fsum([attainment(trace, limits) for trace in traces]) / 5
        assert round(100 * share) == PUBLISHED["goodput"]["attainment_percent"][slo][name][column], slo


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize("slo", SLOS)
def test_the_reviews_goodput_is_the_grids_highest_rate_that_passes(name, slo):
    target = float(PUBLISHED["goodput"]["attainment_target"])
    found = goodput(DEPLOYMENTS[name], SLOS[slo], rates=RATES, target=target)
    assert found.rate == float(PUBLISHED["goodput"]["req_per_s"][slo][name])


def test_the_itl_of_a_request_is_the_99th_percentile_of_its_own_gaps():
    trace = simulate(poisson(1.0, 30, 0), DEPLOYMENTS["collocated"])
    tails = [percentile(list(gaps), 99) for gaps in trace.gaps()]
    assert any(percentile(list(gaps), 98) < tail for gaps, tail in zip(trace.gaps(), tails, strict=True))
    for tail in tails:
        limit = tail * (1 + 1e-9)  # a gap is a step's length there, and here a difference of two times
        assert met(trace, SLO(None, itl=limit)) == [one <= limit for one in tails]


def test_a_search_ends_between_the_rates_of_the_grid_around_it():
    found = goodput(DEPLOYMENTS["P/D, 20 ms transfer"], SLOS["slo_a"])
    assert 0.6 <= found.rate < 0.8
    assert found.low <= found.rate <= found.high


def test_a_rate_found_passes_and_the_next_does_not():
    deployment, slo = DEPLOYMENTS["collocated"], SLOS["slo_b"]
    found = goodput(deployment, slo, seeds=(0,))

    def share(rate):
        return attainment(simulate(poisson(rate, 100, 0), deployment), slo)

    assert share(found.rate) >= 0.9 > share(found.rate + 0.01)
    assert found.rate == found.low == found.high


def test_a_promise_that_nothing_keeps_has_no_goodput():
    slo = SLO(ttft=0.1)
    assert goodput(CLOCKWORK, slo, seeds=(0,)) == goodput(CLOCKWORK, slo, rates=[1, 2]) == Goodput(0, 0, 0)


def test_a_promise_that_everything_keeps_stops_at_the_highest_rate_asked_for():
    found = goodput(CLOCKWORK, SLO(ttft=1e6), seeds=(0,), highest=1)
    assert found.rate == pytest.approx(1)
    assert found.at_least


def test_a_search_never_returns_more_than_the_deployment_does():
    found = goodput(CLOCKWORK, SLO(ttft=1e6), seeds=(0,))
    most = capacity.highest(CLOCKWORK, poisson(1, 100, 0))
    assert most - 0.01 < found.rate <= most
    assert not found.at_least


def test_limits_are_inclusive():
    trace = simulate([Request(0, 10, 3)], CLOCKWORK)
    assert met(trace, SLO(ttft=0.125, tpot=0.125, itl=0.125, gap=0.125)) == [True]
    for limit in ("ttft", "tpot", "itl", "gap"):
        short = {"ttft": 1, limit: 0.1249}
        assert met(trace, SLO(**short)) == [False], limit


def test_itl_lets_a_hundredth_of_the_gaps_be_long_and_gap_none():
    requests = [Request(0, 10, 301), Request(5, 5000, 1)]
    engine = Engine(QWEN2_5_7B, L40S, token_budget=None)
    trace = simulate(requests, Collocated(engine))
    assert met(trace, SLO(ttft=5, itl=0.05))[0]
    assert not met(trace, SLO(ttft=5, gap=0.05))[0]


def test_the_unfinished_count_against_attainment():
    requests = [Request(0, 10, 2), Request(0, 10, 1000)]
    assert attainment(simulate(requests, CLOCKWORK, until=1), SLO(ttft=10)) == 0.5


def test_a_single_token_has_no_gap_to_be_late():
    trace = simulate([Request(0, 10, 1)], CLOCKWORK)
    assert met(trace, SLO(ttft=1, tpot=0.001, itl=0.001, gap=0.001)) == [True]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"ttft": 0}, "SLO: ttft=0"),
        ({"ttft": -1}, "SLO: ttft=-1"),
        ({"ttft": float("nan")}, "SLO: ttft=nan"),
        ({"ttft": 1, "gap": float("inf")}, "SLO: gap=inf"),
        ({"ttft": 1, "itl": 0.2, "gap": 0.1}, "gap=0.1 is below itl=0.2"),
        ({"ttft": None}, "no limit given"),
    ],
)
def test_an_impossible_slo_is_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        SLO(**limits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": 0}, "target=0"),
        ({"target": 1.1}, "target=1.1"),
        ({"seeds": ()}, "seeds is empty"),
        ({"precision": 0}, "precision=0"),
        ({"rates": []}, "rates is empty"),
    ],
)
def test_a_search_without_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        goodput(CLOCKWORK, SLO(ttft=1), **arguments)


def test_a_load_is_played_once_for_each_seed_and_averaged_over_them():
    traces = play(CLOCKWORK, 0.5, workload=lambda rate, seed: poisson(rate, seed, seed), seeds=(1, 3))
    assert [len(trace) for trace in traces] == [1, 3]
    assert mean_of(len, traces) == 2
    assert mean_of(attainment, traces, SLO(ttft=10)) == 1
    with pytest.raises(ValueError, match="traces is empty"):
        mean_of(len, [])
