"""Fleets: what is judged of a run, and what a small one says of a large one."""

from dataclasses import replace
from random import Random

import pytest

from lib.capacity import busy
from lib.goodput import SLO, met
from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.scheduler import vllm
from lib.simulator import Collocated, Disaggregated, Engine, Pull, simulate
from lib.steady import judged, kept
from lib.workload import poisson

ENGINE = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)
A, B = SLO(ttft=2, tpot=0.030), SLO(ttft=2, gap=0.100)


def mixed(rate, count):
    dice = Random(0)
    return [
        replace(one, prompt=dice.choice((4096, 6144, 8192, 14336)), output_tokens=dice.choice((64, 192, 512)))
        for one in poisson(rate, count, 0)
    ]


def split(n_prefill, n_decode):
    return Disaggregated(ENGINE, ENGINE, n_prefill, n_decode, handoff=Pull(0.020))


def test_what_is_kept_is_the_share_of_those_judged():
    requests, fleet = mixed(15, 1200), split(15, 12)
    trace = simulate(requests, fleet)
    start, end = judged(trace)
    assert 300 <= start < end < 1000
    assert kept(fleet, requests, (A, B)) == tuple(
        sum(met(trace, slo)[start:end]) / (end - start) for slo in (A, B)
    )


def test_a_run_too_short_to_be_steady_is_judged_by_its_later_half():
    requests, fleet = mixed(15, 60), split(15, 6)
    trace = simulate(requests, fleet)
    assert judged(trace)[0] == judged(trace)[1]
    assert kept(fleet, requests, (B,)) == (sum(met(trace, B)[30:]) / 30,)


def test_below_its_floor_a_decode_pool_keeps_less_the_longer_one_looks():
    assert busy(split(15, 4), 15, mixed(15, 200))[1].floor > 4
    short, longer = (kept(split(15, 4), mixed(15, count), (B,))[0] for count in (375, 1500))
    assert short > 0.7 > 0.3 > longer


@pytest.mark.parametrize("layout", [lambda n: split(18 * n, 10 * n), lambda n: Collocated(ENGINE, 24 * n)])
def test_a_fleet_of_a_fifth_keeps_what_the_whole_does(layout):
    shares = [kept(layout(n), mixed(15 * n, 1500 * n), (A, B)) for n in (1, 5)]
    assert shares[0] == pytest.approx(shares[1], abs=0.05)
