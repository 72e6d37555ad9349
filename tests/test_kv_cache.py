"""The KV cache on the move: the review's figures, and what streaming layer by layer can and cannot hide."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import kv_cache
from lib.hardware import LINKS, NVLINK, PCIE_4, RDMA_400G, gbps
from lib.kv_cache import (
    block_bytes,
    blocks,
    exposed_after_prefill,
    exposed_by_layer,
    keep_up_bandwidth,
    prefill_rate,
    size,
    transfer_time,
)
from lib.models import LLAMA_3_1_70B, MODELS, NEMOTRON_3_NANO, QWEN2_5_7B
from lib.page.published import agrees, find, get

seconds = st.floats(0, 1e3)
layer_counts = st.integers(1, 128)


# ------------------------------------------------------------------ the review's figures


def test_the_calculator_is_reproduced():
    published = find("kv_calculator")
    assert agrees(size(LLAMA_3_1_70B, 10_000) / 1e9, published["llama_10k_prompt_gb"])
    assert agrees(
        transfer_time(LLAMA_3_1_70B, 10_000, RDMA_400G) * 1e3, published["llama_10k_prompt_ms_at_400_gbps"]
    )
    assert agrees(size(QWEN2_5_7B, 8192) / 1e6, published["qwen_8192_prompt_mb"])
    milliseconds = [transfer_time(QWEN2_5_7B, 8192, link) * 1e3 for link in (PCIE_4, RDMA_400G, NVLINK)]
    assert agrees(milliseconds, list(published["qwen_8192_ms"].values()))


def test_the_bandwidth_to_keep_up_with_prefill_is_reproduced():
    published, llama = find("kv_dissected"), get("models")["Llama-3.1-70B"]["params"]
    of_llama = keep_up_bandwidth(prefill_rate(llama, 8 * 450e12), LLAMA_3_1_70B.kv_bytes_per_token)
    assert agrees(LLAMA_3_1_70B.kv_bytes_per_token, published["llama_bytes_per_token"])
    assert agrees(gbps(of_llama), published["llama_keep_up_gbps"])
    qwen = QWEN2_5_7B.layer_params + QWEN2_5_7B.head_params
    of_qwen = keep_up_bandwidth(prefill_rate(qwen, 170e12), QWEN2_5_7B.kv_bytes_per_token)
    assert agrees(gbps(of_qwen), published["qwen_keep_up_gbps"])


def test_what_the_transfer_adds_to_the_first_token_is_reproduced():
    published, llama = find("kv_dissected"), get("models")["Llama-3.1-70B"]["params"]
    prefill = 10_000 / prefill_rate(llama, 8 * 450e12)
    transfer = transfer_time(LLAMA_3_1_70B, 10_000, RDMA_400G)
    assert agrees(prefill * 1e3, published["llama_10k_prefill_ms"])
    assert agrees(exposed_after_prefill(transfer) * 1e3, published["sent_after_prefill_ms"])
    assert agrees(
        exposed_by_layer(transfer, prefill, LLAMA_3_1_70B.layers) * 1e3, published["streamed_by_layer_ms"]
    )


def test_layers_of_fabric_lib_hide_behind_the_next_ones_computation():
    quoted = get("kv_dissected.fabric_lib")
    for transfer, compute in zip(quoted["layer_transfer_ms"], quoted["layer_compute_ms"], strict=True):
        assert exposed_by_layer(94 * transfer, 94 * compute, 94) == pytest.approx(transfer)


def test_what_bidirectional_reuse_pulls_back_is_reproduced():
    assert agrees(size(QWEN2_5_7B, 600) / 2**20, find("multi_turn.pulled_mib")[-1])


# ------------------------------------------------------------------ sizes


@given(tokens=st.integers(0, 10**6), block=st.integers(1, 1024))
def test_blocks_hold_all_tokens_and_one_fewer_would_not(tokens, block):
    n = blocks(tokens, block)
    assert (n - 1) * block < tokens <= n * block


def test_a_block_holds_sixteen_tokens_unless_told_otherwise():
    assert get("measured.nixl_defaults.block_tokens") == kv_cache.BLOCK_TOKENS
    assert block_bytes(QWEN2_5_7B) == size(QWEN2_5_7B, 16) == 16 * QWEN2_5_7B.kv_bytes_per_token
    assert block_bytes(QWEN2_5_7B, block_tokens=1) == QWEN2_5_7B.kv_bytes_per_token


@given(
    model=st.sampled_from([model for model in MODELS if not model.window]),
    first=st.integers(0, 10**6),
    second=st.integers(0, 10**6),
)
def test_size_grows_with_every_token_from_the_state_that_is_always_there(model, first, second):
    assert size(model, 0) == model.state_bytes
    assert size(model, first + second) - size(model, second) == first * model.kv_bytes_per_token


def test_a_hybrid_hands_over_its_state_with_the_shortest_prompt():
    assert size(NEMOTRON_3_NANO, 1) > 7000 * NEMOTRON_3_NANO.kv_bytes_per_token


@given(tokens=st.integers(0, 10**6), link=st.sampled_from(LINKS))
def test_a_transfer_takes_the_links_time_for_the_bytes(tokens, link):
    assert transfer_time(QWEN2_5_7B, tokens, link) == link.time(size(QWEN2_5_7B, tokens))


# ------------------------------------------------------------------ what the first token waits for


def waited(transfer: float, compute: float, layers: int) -> float:
    """The obvious version: layers compute one after another, and one link takes them in that order."""
    computed = sent = 0.0
    for _ in range(layers):
        computed += compute / layers
        sent = max(sent, computed) + transfer / layers
    return sent - computed


@given(transfer=seconds, compute=seconds, layers=layer_counts)
def test_the_formula_is_what_a_schedule_layer_by_layer_gives(transfer, compute, layers):
    expected = waited(transfer, compute, layers)
    assert exposed_by_layer(transfer, compute, layers) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(transfer=seconds, compute=seconds, layers=layer_counts)
def test_streaming_never_exposes_more_than_sending_afterwards(transfer, compute, layers):
    streamed = exposed_by_layer(transfer, compute, layers)
    assert transfer / layers <= streamed <= exposed_after_prefill(transfer) * (1 + 1e-12)


@given(transfer=seconds, layers=layer_counts)
def test_with_nothing_to_hide_behind_all_is_exposed(transfer, layers):
    assert exposed_by_layer(transfer, 0, layers) == pytest.approx(transfer)
    assert exposed_by_layer(transfer, 5 * transfer, 1) == transfer


@given(transfer=seconds, compute=seconds, more=st.floats(0, 100), layers=layer_counts)
def test_a_longer_prefill_never_exposes_more(transfer, compute, more, layers):
    assert exposed_by_layer(transfer, compute + more, layers) <= exposed_by_layer(transfer, compute, layers)


@given(params=st.floats(1e6, 1e12), flops=st.floats(1e9, 1e18), nbytes=st.integers(1, 10**7))
def test_a_link_that_keeps_up_takes_a_prompt_in_the_time_of_its_prefill(params, flops, nbytes):
    rate = prefill_rate(params, flops)
    prefill = 1000 / rate
    assert 1000 * nbytes / keep_up_bandwidth(rate, nbytes) == pytest.approx(prefill)
    assert prefill == pytest.approx(1000 * 2 * params / flops)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocks(-1), "blocks: tokens=-1"),
        (lambda: blocks(10, 0), "blocks: block_tokens=0"),
        (lambda: block_bytes(QWEN2_5_7B, 1.5), "block_bytes: block_tokens=1.5"),
        (lambda: size(QWEN2_5_7B, -1), "size: tokens=-1"),
        (lambda: prefill_rate(0, 1e12), "prefill_rate: params=0"),
        (lambda: prefill_rate(7e9, nan), "prefill_rate: flops=nan"),
        (lambda: keep_up_bandwidth(inf, 1), "keep_up_bandwidth: tokens_per_second=inf"),
        (lambda: keep_up_bandwidth(1, -1), "keep_up_bandwidth: bytes_per_token=-1"),
        (lambda: exposed_after_prefill(-1), "exposed_after_prefill: transfer=-1"),
        (lambda: exposed_by_layer(nan, 1, 1), "exposed_by_layer: transfer=nan"),
        (lambda: exposed_by_layer(1, -1, 1), "exposed_by_layer: compute=-1"),
        (lambda: exposed_by_layer(1, 1, 0), "exposed_by_layer: layers=0"),
    ],
)
def test_impossible_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
