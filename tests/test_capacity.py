import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lib.capacity import (
    OVERLOADED,
    POWERS,
    busy,
    carries,
    drawn,
    full,
    hands_over,
    mean_held,
    most,
    reads,
    refusal,
    smallest,
    starts,
)
from lib.hardware import H100_SXM, H200, L4, L40S, NVLINK, PCIE_4, RDMA_400G
from lib.models import LLAMA_3_1_8B, LLAMA_3_1_70B, NEMOTRON_3_NANO, OPT_13B, QWEN2_5_7B, QWEN3_235B_FP8
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


# ------------------------------------------------------------------ does it start?

FITS = (LLAMA_3_1_8B, H100_SXM, 2, 8000)


def test_what_starts_is_not_refused():
    starts("it", *FITS)
    reads("it", LLAMA_3_1_8B, LLAMA_3_1_8B.context)
    carries("it", L40S, PCIE_4)
    carries("it", H100_SXM, RDMA_400G)
    hands_over("it", LLAMA_3_1_8B, 1, 4)


@pytest.mark.parametrize(
    ("model", "gpu", "degree", "longest", "words"),
    [
        (LLAMA_3_1_8B, H100_SXM, 3, 8000, "32 heads, which 3 GPUs cannot share; use 1 or 2 or 4 or 8"),
        (QWEN2_5_7B, L40S, 8, 8000, "28 heads, which 8 GPUs cannot share; use 1 or 2 or 4"),
        (QWEN3_235B_FP8, H200, 8, 8000, "192 on each .*; use 2 or 4"),  # blocks of 128
        (LLAMA_3_1_8B, H100_SXM, 16, 8000, "8 H100 SXM do; use 1 or 2 or 4 or 8"),
        (LLAMA_3_1_70B, H100_SXM, 1, 8000, "141.1 GB of weights in 72.0 GB usable .*; use 2 or 4 or 8"),
        (LLAMA_3_1_8B, L40S, 1, 210_000, "the longest request has 210,000; use 2 or 4 or 8"),
        (LLAMA_3_1_70B, L4, 1, 10**6, "use a smaller model, shorter requests or a larger GPU"),
        (LLAMA_3_1_8B, H100_SXM, 0, 8000, "tensor_parallel=0"),
    ],
)
def test_an_engine_that_would_not_start_is_refused_with_the_degrees_that_would_do(
    model, gpu, degree, longest, words
):
    with pytest.raises(ValueError, match=words) as refused:
        starts("it", model, gpu, degree, longest)
    assert str(refused.value).startswith("it: ")
    named = re.search(r"; use ([\d or]+)$", str(refused.value))
    for able in named[1].split(" or ") if named else ():
        starts("it", model, gpu, int(able), longest)


@pytest.mark.parametrize("model", [QWEN2_5_7B, LLAMA_3_1_70B, QWEN3_235B_FP8])
def test_the_smallest_engine_is_the_first_that_starts(model):
    degree = smallest(model, H200, 9000)
    starts("it", model, H200, degree, 9000)
    assert all(refusal(model, H200, less, 9000) for less in POWERS if less < degree)


def test_a_request_longer_than_what_the_model_reads_is_refused():
    with pytest.raises(ValueError, match="2,049 tokens, prompt and answer, but OPT-13B reads 2,048"):
        reads("it", OPT_13B, 2049)
    reads("it", replace(OPT_13B, context=None), 10**9)


@pytest.mark.parametrize(
    ("gpu", "link", "words"),
    [(L40S, NVLINK, "and no NVLink; use"), (L40S, RDMA_400G, "use a link of at most 200 Gb/s")],
)
def test_a_link_that_the_card_cannot_feed_is_refused(gpu, link, words):
    with pytest.raises(ValueError, match=words):
        carries("it", gpu, link)


@pytest.mark.parametrize(
    ("model", "degrees", "words"),
    [
        (LLAMA_3_1_8B, (4, 6), "neither divides the other"),
        (NEMOTRON_3_NANO, (1, 2), "between equal degrees only"),
    ],
)
def test_degrees_between_which_no_cache_is_handed_over_are_refused(model, degrees, words):
    for both in (degrees, degrees[::-1]):
        with pytest.raises(ValueError, match=words):
            hands_over("it", model, *both)
    hands_over("it", model, degrees[0], degrees[0])
