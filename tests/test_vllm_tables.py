"""The review's benchmark under vLLM's own rules, against what vLLM's scheduler made of it."""

from dataclasses import replace
from functools import cache
from math import fsum

import pytest

from lib.data import vllm_tables
from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.roofline import PUBLISHED, Efficiency, InSeries, in_series, step_time
from lib.scheduler import vllm
from lib.simulator import Collocated, Disaggregated, Engine, Pull, percentile, simulate
from lib.workload import poisson

TABLES = vllm_tables()
REAL = Engine(QWEN2_5_7B, L40S, policy=vllm)
REFITTED = Efficiency(compute=0.5283, bandwidth=0.75, overhead=0.002)  # the same TTFT with slower attention
PRICES = {
    "one maximum": (step_time, PUBLISHED),
    "in series": (in_series, PUBLISHED),
    "attention at 25 %": (InSeries(attention=0.25), REFITTED),
    "attention at 25 %, cache read twice": (InSeries(attention=0.25, rereads=2), REFITTED),
    "attention at 25 %, cache read three times": (InSeries(attention=0.25, rereads=3), REFITTED),
    "steps with prompts 15 % slower": (InSeries(slowdown=1.15), PUBLISHED),
    "1 ms a request": (InSeries(per_request=0.001), PUBLISHED),
}


def mean(statistic, traces):
    return fsum([statistic(trace) for trace in traces]) / len(traces)


def play(deployment, rate):
    return [simulate(poisson(rate, 100, seed), deployment) for seed in range(5)]


@cache
def collocated(rate, asynchronous, price, efficiency):
    engine = replace(REAL, asynchronous=asynchronous, price=price, efficiency=efficiency)
    return play(Collocated(engine, 2), rate)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("row", range(6))
def test_the_rules(mode, row):
    rate, ttft, median, tail = TABLES["rules"][mode][row]
    traces = collocated(rate, mode == "asynchronous", step_time, PUBLISHED)
    assert mean(lambda trace: percentile(trace.ttft, 50), traces) == pytest.approx(ttft, abs=0.0005)
    assert 1000 * mean(lambda trace: trace.itl(50), traces) == pytest.approx(median, abs=0.05)
    assert 1000 * mean(lambda trace: trace.itl(99), traces) == pytest.approx(tail, abs=0.05)


@pytest.mark.parametrize("name", PRICES)
@pytest.mark.parametrize("column", range(3))
def test_the_prices(name, column):
    traces = collocated((0.4, 1.0, 2.0)[column], True, *PRICES[name])
    for table, q in (("prices", 99), ("prices_median", 50)):
        if name in TABLES[table]:
            found = 1000 * mean(lambda trace, q=q: trace.itl(q), traces)
            assert round(found) == TABLES[table][name][column]


@pytest.mark.parametrize("name", TABLES["handoff"])
@pytest.mark.parametrize("row", range(6))
def test_the_handoff(name, row):
    rate, beyond, ttft = TABLES["handoff"][name][row]
    copy = float(name.split()[0]) / 1000
    engine = replace(REAL, asynchronous=" asynchronous" in name)
    traces = play(Disaggregated(engine, engine, handoff=Pull(copy)), rate)

    def handed(trace):
        moments = zip(trace.first_token, trace.prefill_end, strict=True)
        return percentile([first - done - copy for first, done in moments], 50)

    assert 1000 * mean(handed, traces) == pytest.approx(beyond, abs=0.06)
    assert mean(lambda trace: percentile(trace.ttft, 50), traces) == pytest.approx(ttft, abs=0.0051)


def test_a_refitted_efficiency_leaves_the_time_to_first_token_where_it_was():
    slow, plain = (
        mean(lambda trace: percentile(trace.ttft, 50), collocated(0.4, True, *PRICES[name]))
        for name in ("attention at 25 %", "in series")
    )
    assert slow == pytest.approx(plain, abs=0.001)
