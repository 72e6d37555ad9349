import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import cut_points
from lib.cut_points import (
    activation_bytes,
    break_even_tokens,
    cuts,
    embedding_bytes,
    image_hops,
    patch_bytes,
    snap,
    state_bytes,
    tensor_bytes,
    tokens_per_expert,
    visual_tokens,
    wire_gbps,
)
from lib.models import DEEPSEEK_V3, NEMOTRON_3_NANO, QWEN2_5_7B
from lib.page.published import agrees, figures

CUTS, PAYLOAD = figures()["cut_points"], figures()["payload"]
KIB, MIB = 2**10, 2**20
JPEG = 285440  # bytes of the payload's image; tests/test_images.py encodes it


def assert_published(computed, printed):
    assert computed.keys() == printed.keys()
    assert {k: v for k, v in computed.items() if not agrees(v, printed[k])} == {}


def test_published_encoder_cut():
    tokens = visual_tokens(*CUTS["image_px"], CUTS["px_per_visual_token"])
    assert tokens == CUTS["visual_tokens_per_image"]
    assert agrees(embedding_bytes(QWEN2_5_7B, 1) / KIB, CUTS["embedding_kib_per_token"])
    assert agrees(embedding_bytes(QWEN2_5_7B, 4 * tokens) / MIB, CUTS["embeddings_4_images_mib"])
    assert agrees(4 * tokens * QWEN2_5_7B.kv_bytes_per_token / MIB, CUTS["kv_4_images_mib"])


def test_published_prefill_decode_cut():
    assert agrees(QWEN2_5_7B.kv_bytes_per_token / KIB, CUTS["qwen_kv_kib_per_token"])


def test_published_attention_ffn_cut():
    kv, activations = DEEPSEEK_V3.kv_bytes_per_token, activation_bytes(DEEPSEEK_V3)
    assert agrees(activations / MIB, CUTS["afd_mib_per_token_per_pass"])
    assert agrees(kv / KIB, CUTS["deepseek_kv_kib_per_token"])
    assert agrees(activations / kv, CUTS["afd_to_kv_ratio"])
    printed = CUTS["tokens_per_expert"]
    loads = {f"{r} ranks x {b}": tokens_per_expert(DEEPSEEK_V3, r, b) for r in (48, 64) for b in (32, 128)}
    assert_published(loads, printed)


def test_published_hybrid_cut():
    state = state_bytes(cut_points.POSTED_STATE, cut_points.POSTED_CONVOLUTION)
    kv = 2 * cut_points.POSTED_KV_HEADS * NEMOTRON_3_NANO.head_dim * NEMOTRON_3_NANO.bytes_per_value
    assert agrees(state / MIB, CUTS["mamba_state_mib"])
    assert agrees(kv / KIB, CUTS["attention_kv_kib_per_token_per_layer"])
    assert agrees(break_even_tokens(state, kv), CUTS["mamba_break_even_tokens"])


def test_the_posted_shapes_are_the_published_inputs():
    inputs = figures()["models"]["Nemotron-3-Nano"]
    assert list(cut_points.POSTED_STATE) == inputs["ssm_state_shape"]
    assert list(cut_points.POSTED_CONVOLUTION) == inputs["conv_state_shape"]
    assert inputs["attention_kv_heads_per_gpu"] == cut_points.POSTED_KV_HEADS


def test_a_layers_state_from_shapes_is_the_models_own():
    m = NEMOTRON_3_NANO.mamba
    layer = state_bytes((m.heads, m.head_dim, m.state), (m.kernel - 1, m.d_conv))
    assert layer * NEMOTRON_3_NANO.with_mamba == NEMOTRON_3_NANO.state_bytes


def test_published_payload():
    hops = image_hops(JPEG)
    assert hops["patches"] == patch_bytes(644, 644)
    assert visual_tokens(snap(640, 28), snap(640, 28), 28) == PAYLOAD["visual_tokens"]
    published = dict(zip(hops, PAYLOAD["mib"], strict=True))  # the same hops in the same order
    assert_published({published[k]: v / MIB for k, v in hops.items()}, PAYLOAD["mib"])
    assert_published({published[k]: v / JPEG for k, v in hops.items()}, PAYLOAD["times_jpeg"])
    for rate in (10, 100):
        computed = {
            "jpeg": wire_gbps(hops["JPEG"], rate),
            "tensors": wire_gbps(hops["patches"], rate),
        }
        assert_published(computed, PAYLOAD["wire_gbps"][f"{rate}/s"])
    assert agrees(2 * hops["patches"] / MIB, PAYLOAD["two_images_mib"])
    assert PAYLOAD["rpc_default_limit_mib"] * MIB == cut_points.RPC_LIMIT
    assert hops["patches"] > cut_points.RPC_LIMIT


def test_cuts_are_priced_in_order_of_what_one_request_sends():
    table = cuts()
    totals = [cut.total for cut in table if "hybrid" not in cut.name]
    assert totals == sorted(totals)
    assert len({cut.name for cut in table}) == len(table)
    by_name = {cut.name: cut for cut in table}
    assert by_name["encoder | prefill"].total == embedding_bytes(QWEN2_5_7B, 1600)
    assert by_name["prefill | decode"].total == 8192 * QWEN2_5_7B.kv_bytes_per_token
    assert by_name["attention | FFN"].bytes == activation_bytes(DEEPSEEK_V3)
    assert by_name["attention | FFN"].times == 8192 + 255
    hybrid = by_name["prefill | decode, hybrid"]
    assert hybrid.total == NEMOTRON_3_NANO.state_bytes + 8192 * NEMOTRON_3_NANO.kv_bytes_per_token


def test_token_ids_fit_their_bound():
    frontend = cuts()[0]
    assert frontend.bytes == len("152063,")


@given(st.integers(1, 5000), st.integers(1, 64))
def test_snap_finds_the_nearest_multiple(px, unit):
    snapped = snap(px, unit)
    assert snapped % unit == 0
    assert snapped >= unit
    assert px < unit or abs(snapped - px) <= unit / 2
    assert snap(snapped, unit) == snapped


@given(st.integers(1, 30), st.integers(1, 30))
def test_patches_hold_the_plain_tensor_once_per_frame(across, down):
    width, height = 28 * across, 28 * down
    assert patch_bytes(width, height, frames=1) == tensor_bytes(width, height)
    assert patch_bytes(width, height) == 2 * tensor_bytes(width, height)


@given(st.integers(1, 200), st.integers(1, 512))
def test_experts_share_out_every_choice(ranks, batch):
    moe = DEEPSEEK_V3.experts
    assert tokens_per_expert(DEEPSEEK_V3, ranks, batch) * moe.count == ranks * batch * moe.top_k


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: visual_tokens(640, 640, 28), "width=640.*resize to 644"),
        (lambda: visual_tokens(0, 640, 32), "width=0"),
        (lambda: snap(10, 0), "px_per_token=0"),
        (lambda: tensor_bytes(-1, 1), "width=-1"),
        (lambda: patch_bytes(28, 28, frames=0), "frames=0"),
        (lambda: embedding_bytes(QWEN2_5_7B, -1), "tokens=-1"),
        (lambda: image_hops(0), "jpeg_bytes=0"),
        (lambda: wire_gbps(float("nan"), 1), "nbytes=nan"),
        (lambda: wire_gbps(1, float("inf")), "per_second=inf"),
        (lambda: activation_bytes(QWEN2_5_7B), "Qwen2.5-7B.*no experts"),
        (lambda: tokens_per_expert(QWEN2_5_7B, 1, 1), "no experts"),
        (lambda: tokens_per_expert(DEEPSEEK_V3, 0, 1), "ranks=0"),
        (lambda: state_bytes((48, 0, 128), (3, 3072)), r"state\[1\]=0"),
        (lambda: state_bytes((), (3, 3072)), "state=.. is empty"),
        (lambda: break_even_tokens(1, 0), "kv_bytes_per_token=0"),
        (lambda: cuts(prompt_tokens=1000), "images=4.*1600.*prompt_tokens=1000"),
        (lambda: cuts(output_tokens=True), "output_tokens=True"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_requests_crossings_weigh_24_times_the_cache_of_the_same_model():
    crossings = cuts(prompt_tokens=8192, output_tokens=256, images=4)[4]
    cache = 8192 * DEEPSEEK_V3.kv_bytes_per_token
    assert crossings.model == DEEPSEEK_V3.name
    assert crossings.total / cache == pytest.approx(58 * 2 * 7168 / (61 * 576) * 8447 / 8192)
    assert round(crossings.total / cache) == 24
