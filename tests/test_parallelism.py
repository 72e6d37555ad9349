"""Tensor parallelism: the review's two pools, and the laws of dividing a step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.hardware import A10, A100_80GB, H100_SXM, H200, MI300X, PCIE_4, Link
from lib.models import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_1_70B, MODELS, NEMOTRON_3_NANO, QWEN2_5_7B, QWEN3_8B
from lib.page.published import agrees, find, get
from lib.parallelism import (
    ALL_REDUCE_LATENCY,
    all_reduce_bytes,
    all_reduce_time,
    all_reduces,
    decode_batch,
    decode_itl,
    divide,
    fits,
    free,
    interconnect,
    kv_shares,
    prefill_ttft,
    room,
)
from lib.roofline import Efficiency, decode, prefill
from lib.simulator import Collocated, Engine, simulate
from lib.workload import Request

POOLS = find("two_pools")
REVIEW = Efficiency(compute=0.45, bandwidth=0.75)
PARAMS = get("models")["Llama-3.1-70B"]["params"]
models = st.sampled_from(MODELS)
degrees = st.sampled_from([1, 2, 4, 8])


# ------------------------------------------------------------------ the review's figures


@pytest.mark.parametrize(("name", "degree"), [("TP4", 4), ("TP8", 8)])
def test_the_two_pools_of_the_review_are_reproduced(name, degree):
    llama = (LLAMA_3_1_70B, H100_SXM, degree)
    assert agrees(1e3 * prefill_ttft(*llama, 8192, REVIEW, PARAMS), POOLS["prefill_8192_ttft_ms"][name])
    batch, limit = decode_batch(*llama, 4096, 0.040, REVIEW, PARAMS)
    assert (batch, limit) == (POOLS["decode_batch"][name], POOLS["limited_by"][name])
    step = decode_itl(*llama, batch, 4096, REVIEW, PARAMS)
    assert agrees(1e3 * step, POOLS["decode_itl_ms"][name])
    assert agrees(batch / step / degree, POOLS["decode_tokens_per_s_per_gpu"][name])


def test_one_gpu_waits_for_its_memory_alone_and_two_for_each_other_too():
    read = 2 * QWEN2_5_7B.params + 8 * 4096 * QWEN2_5_7B.kv_bytes_per_token
    one, two = (decode_itl(QWEN2_5_7B, H100_SXM, degree, 8, 4096, Efficiency()) for degree in (1, 2))
    assert one == read / H100_SXM.bandwidth
    assert two - one / 2 == pytest.approx(2 * QWEN2_5_7B.layers * ALL_REDUCE_LATENCY)
    assert prefill_ttft(QWEN2_5_7B, H100_SXM, 1, 512, Efficiency()) == pytest.approx(
        2 * QWEN2_5_7B.params * 512 / H100_SXM.peak_flops
    )


def test_a_tight_target_is_what_limits_a_pool():
    batch, limit = decode_batch(LLAMA_3_1_70B, H100_SXM, 8, 4096, 0.012, REVIEW)
    assert limit == "ITL"
    assert decode_itl(LLAMA_3_1_70B, H100_SXM, 8, batch, 4096, REVIEW) <= 0.012
    assert decode_itl(LLAMA_3_1_70B, H100_SXM, 8, batch + 1, 4096, REVIEW) > 0.012
    assert decode_batch(LLAMA_3_1_70B, H100_SXM, 8, 4096, 0.001, REVIEW) == (0, "ITL")
    assert decode_batch(LLAMA_3_1_70B, H100_SXM, 1, 4096, 1.0, REVIEW) == (0, "memory")


# ------------------------------------------------------------------ dividing a step


@given(model=models, degree=degrees, batch=st.integers(1, 512), context=st.integers(1, 10**5))
def test_the_parts_of_a_step_add_up_to_it(model, degree, batch, context):
    whole = decode(model, batch, context)
    part = divide(whole, model, degree)
    assert part.flops * degree == pytest.approx(whole.flops)
    assert part.weight_bytes * degree == whole.weight_bytes
    cache, one = whole.kv_bytes - whole.state_bytes, part.kv_bytes - part.state_bytes
    assert one * kv_shares(model, degree) == pytest.approx(cache)
    assert part.state_bytes * degree == pytest.approx(whole.state_bytes)


@given(model=models, degree=degrees, context=st.integers(1, 10**5))
def test_what_fits_fits_and_one_more_does_not(model, degree, context):
    count, left = fits(model, H100_SXM, degree, context), free(model, H100_SXM, degree)
    assert count == 0 or count * model.held(context, degree) <= left * (1 + 1e-12)
    assert (count + 1) * model.held(context, degree) > left * (1 - 1e-12)
    assert (room(model, H100_SXM, degree) >= context) == (count >= 1)


def test_experts_are_counted_as_a_token_meets_them_and_held_as_they_are_stored():
    assert fits(GPT_OSS_120B, H200, 1, 4096) == 395
    assert decode_batch(GPT_OSS_120B, H100_SXM, 2, 4096, 0.04, REVIEW)[0] > 100
    assert decode_batch(DEEPSEEK_V3, H200, 8, 4096, 1.0, REVIEW) == (148, "memory")
    assert 0.1 < prefill_ttft(DEEPSEEK_V3, H200, 8, 8192, REVIEW) < 0.3


def test_a_key_and_value_head_is_not_cut():
    assert [kv_shares(QWEN2_5_7B, degree) for degree in (1, 2, 4, 8)] == [1, 2, 4, 4]
    assert kv_shares(DEEPSEEK_V3, 8) == 1


def test_a_transformer_adds_up_twice_a_layer_and_a_hybrid_once_a_part():
    assert all_reduces(LLAMA_3_1_70B) == 160
    assert all_reduces(DEEPSEEK_V3) == 122
    assert all_reduces(NEMOTRON_3_NANO) == 52


@given(model=models, tokens=st.integers(1, 10**5))
def test_two_gpus_send_all_activations_once_and_many_nearly_twice(model, tokens):
    activations = tokens * model.d_model * 2
    assert all_reduce_bytes(model, tokens, 1) == 0
    assert all_reduce_bytes(model, tokens, 2) == activations
    assert 1.9 * activations < all_reduce_bytes(model, tokens, 64) < 2 * activations


def test_gpus_talk_over_their_fabric_or_over_pcie():
    assert interconnect(A100_80GB).bandwidth == A100_80GB.fabric
    assert interconnect(A10).bandwidth == PCIE_4.bandwidth
    assert [interconnect(MI300X, degree).bandwidth for degree in (2, 8)] == [64e9, 448e9]


def test_one_gpu_talks_to_nobody():
    slow = Link("slow", 1e9, latency=1e-3)
    assert all_reduce_time(QWEN2_5_7B, 8192, 1, slow) == 0
    assert all_reduce_time(QWEN2_5_7B, 8192, 2, slow) > 2 * QWEN2_5_7B.layers * 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: divide(prefill(QWEN2_5_7B, 8), QWEN2_5_7B, 0), "divide: degree=0"),
        (lambda: kv_shares(QWEN2_5_7B, 1.5), "kv_shares: degree=1.5"),
        (lambda: all_reduce_bytes(QWEN2_5_7B, 0, 2), "all_reduce_bytes: tokens=0"),
        (lambda: prefill_ttft(QWEN2_5_7B, A10, True, 8, REVIEW), "prefill_ttft: degree=True"),
        (lambda: decode_itl(QWEN2_5_7B, A10, 1, -1, 8, REVIEW), "decode_itl: batch=-1"),
        (lambda: decode_batch(QWEN2_5_7B, A10, 1, 8, 0, REVIEW), "decode_batch: itl=0"),
    ],
)
def test_impossible_degrees_and_targets_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------ in the simulator


def test_an_engine_with_a_link_pays_for_every_all_reduce():
    silent = Engine(QWEN2_5_7B, A10, tensor_parallel=4)
    link = Link("slow", 1e9, 1e-5)
    requests = [Request(0, 1000, 3)]
    quiet, loud = (simulate(requests, Collocated(engine)) for engine in (silent, replace(silent, link=link)))
    first = all_reduce_time(QWEN2_5_7B, 1000, 4, link)
    assert loud.ttft[0] - quiet.ttft[0] == pytest.approx(first)
    assert loud.e2e[0] - quiet.e2e[0] == pytest.approx(first + 2 * all_reduce_time(QWEN2_5_7B, 1, 4, link))


def test_copied_heads_leave_room_for_fewer_tokens():
    four_heads = replace(QWEN3_8B, name="four KV heads").mixed(
        lambda attention: replace(attention, kv_heads=4)
    )
    four, eight = (Engine(four_heads, A100_80GB, tensor_parallel=n).blocks for n in (4, 8))
    assert eight == pytest.approx(four, rel=0.04)  # twice the memory, and every head twice in it
