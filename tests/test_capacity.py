from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lib.capacity import OVERLOADED, busy, drawn, full, mean_held, most
from lib.hardware import H100_SXM, L40S
from lib.models import QWEN2_5_7B
from lib.scheduler import vllm
from lib.simulator import Collocated, Disaggregated, Engine, Pull, simulate
from lib.workload import Request, poisson

BOX = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)
H100 = replace(BOX, gpu=H100_SXM, token_budget=8192, max_num_seqs=1024)


def at_once(count: int, prompt: int, output: int) -> list[Request]:
    """Requests of all lengths from a fifth of these to nine fifths, more than anybody could serve."""
    dice = Random(prompt)

    def about(mean: int) -> int:
        return max(1, round(mean * dice.uniform(0.2, 1.8)))

    return [Request(1e-4 * i, about(prompt), about(output)) for i in range(count)]


def sustained(deployment: Collocated | Disaggregated, requests: list[Request]) -> float:
    """Requests a second that come out while the pool is as full as it gets."""
    ends = sorted(simulate(requests, deployment).finish)
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return (last - first) / (ends[last] - ends[first])


SIZES = [(8192, 256), (1024, 256), (3000, 20), (200, 50)]


@pytest.mark.parametrize(("prompt", "output"), SIZES)
@pytest.mark.parametrize("engine", [BOX, H100, replace(BOX, token_budget=512)])
def test_a_saturated_pool_does_hardly_less_than_its_capacity_and_no_more(engine, prompt, output):
    streams = int(full(engine, prompt + output / 2))
    requests = at_once(min(6000, max(400, 12 * streams)), prompt, output)
    assert 0.9 < sustained(Collocated(engine), requests) / most(engine, drawn(requests), "shared")[0] < 1.08


@pytest.mark.parametrize(("prompt", "output"), SIZES)
def test_a_saturated_prefill_pool_does_what_its_capacity_says(prompt, output):
    requests = at_once(400, prompt, 2)
    played = sustained(Disaggregated(BOX, BOX, 1, 50), requests)
    assert played / most(BOX, drawn(requests), "prefill")[0] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("prompt", "output"), SIZES)
def test_a_saturated_decode_pool_does_at_most_what_its_capacity_says(prompt, output):
    requests = at_once(min(6000, 12 * int(full(BOX, prompt + output / 2))), prompt, output)
    played = sustained(Disaggregated(BOX, BOX, 400, 1, Pull(0.0)), requests)
    assert 0.8 < played / most(BOX, drawn(requests), "decode")[0] < 1.05


def test_the_fleet_of_the_book_needs_89_gpus_for_answers_at_least():
    """The reader's count: 57 streams a GPU, steps of 65.9 ms, 3.38 req/s; 300 req/s need 89 of them."""
    traffic = poisson(300, 500, 0)
    (prefill, decode) = busy(Disaggregated(BOX, BOX, 300, 80, Pull(0.01)), 300, traffic)
    assert decode.floor > 80
    assert decode.overloaded
    assert not prefill.overloaded


def test_what_a_stream_holds_is_its_prompt_and_half_its_answer():
    assert mean_held([Request(0, 100, 11), Request(1, 100, 11)]) == 105
    assert mean_held([Request(0, 100, 1), Request(1, 1000, 9)]) == pytest.approx((100 + 9 * 1004) / 10)


def test_an_engine_holds_no_more_streams_than_its_limit():
    assert full(BOX, 10) == BOX.max_num_seqs


@settings(max_examples=30, deadline=None)
@given(some.integers(1, 9000), some.integers(2, 2000), some.sampled_from(["prefill", "decode", "shared"]))
def test_longer_requests_are_never_served_at_a_higher_rate(prompt, output, role):
    short, long = ([Request(0, prompt + more, output)] for more in (0, 1000))
    assert most(BOX, long, role)[0] <= most(BOX, short, role)[0] * 1.02


@given(some.floats(0.01, 1000), some.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_more_engines_are_less_busy_and_the_floor_is_what_keeps_up(rate, count):
    (pool,) = busy(Collocated(BOX, count), rate, [Request(0, 8192, 256)])
    assert pool.share == pytest.approx(rate / (count * pool.most))
    assert rate <= OVERLOADED * pool.floor * pool.most
    assert rate > OVERLOADED * (pool.floor - 1) * pool.most


def test_a_long_load_is_drawn_from_evenly():
    assert len(drawn(poisson(1, 1000, 0))) == 200
    assert len(drawn(poisson(1, 7, 0))) == 7
