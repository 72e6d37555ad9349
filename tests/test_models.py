"""Models: parameter counts against the published totals, bytes, experts, refusals, and config.json files."""

from dataclasses import replace
from itertools import combinations, product
from math import nan
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.models import (
    DEEPSEEK_V3,
    FFN,
    GEMMA_3_27B,
    GLM_4_5,
    GPT_OSS_20B,
    GPT_OSS_120B,
    KIMI_K2,
    LLAMA_2_70B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    LLAMA_4_SCOUT,
    MISTRAL_SMALL,
    MODELS,
    NEMOTRON_3_NANO,
    OPT_13B,
    QWEN2_5_7B,
    QWEN2_5_7B_INT4,
    QWEN3_8B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN3_235B_FP8,
    Attention,
    Experts,
    Indexer,
    Latent,
    Layers,
    Recurrent,
)
from lib.page.published import agrees, find, get

every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


# ------------------------------------------------------------------ the catalogue


@pytest.mark.parametrize("name", ["Qwen2.5-7B", "Llama-3.1-70B", "DeepSeek-V3"])
def test_shapes_are_those_of_the_review(name):
    model = next(model for model in MODELS if model.name == name)
    shape = {"layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocab", "bytes_per_value"}
    published = {key: value for key, value in get("models")[name].items() if key in shape}
    assert len(published) >= 3
    assert {key: getattr(model, key) for key in published} == published


def test_matrices_of_qwen_are_counted_as_in_the_review_to_the_last_one():
    published = get("models")["Qwen2.5-7B"]
    assert QWEN2_5_7B.layer_params == published["layer_params"]
    assert QWEN2_5_7B.head_params == published["head_params"]


def test_experts_and_latent_of_deepseek_are_those_of_the_review():
    published = get("models")["DeepSeek-V3"]
    assert DEEPSEEK_V3.with_experts == published["moe_layers"]
    assert DEEPSEEK_V3.experts.count == published["experts"]
    assert DEEPSEEK_V3.experts.top_k == published["top_k"]
    assert DEEPSEEK_V3.kv_values_per_layer == published["mla_values_per_token_per_layer"]


# Elements of all tensors of the checkpoint, as counted on Hugging Face: for DeepSeek-V3 without the layer for
# multi-token prediction; for Nemotron the routers' biases are left out there.
TOTALS = {
    QWEN2_5_7B: 7_615_616_512,
    LLAMA_3_1_8B: 8_030_261_248,
    LLAMA_3_1_70B: 70_553_706_496,
    DEEPSEEK_V3: 671_026_419_200,
    NEMOTRON_3_NANO: 31_577_937_344 + 23 * 128,
    QWEN2_5_7B_INT4: 7_615_616_512,
    QWEN3_8B: 8_190_735_360,
    LLAMA_2_70B: 68_976_648_192,
    OPT_13B: 12_853_473_280,
    QWEN3_235B_FP8: 235_093_634_560,
    GPT_OSS_120B: 116_829_156_672,
    QWEN3_32B: 32_762_123_264,
    QWEN3_30B_A3B: 30_532_122_624,
    GPT_OSS_20B: 20_914_757_184,
}


@pytest.mark.parametrize("model", TOTALS, ids=lambda model: model.name)
def test_all_parameters_together_are_the_checkpoints_total(model):
    assert model.params == TOTALS[model]


@pytest.mark.parametrize(
    ("count", "on_the_model_card"),
    [
        (QWEN2_5_7B.params, 7.62e9),
        (LLAMA_3_1_8B.params, 8.03e9),
        (LLAMA_3_1_70B.params, 70.6e9),
        (DEEPSEEK_V3.params, 671e9),
        (DEEPSEEK_V3.active_params, 36.6e9),
        (NEMOTRON_3_NANO.params, 31.6e9),
        (NEMOTRON_3_NANO.active_params, 3.2e9),
        (QWEN3_235B_FP8.active_params, 22e9 - QWEN3_235B_FP8.head_params),  # theirs counts the embedding too
        (GPT_OSS_120B.active_params, 5.13e9),
        (GPT_OSS_20B.active_params, 3.61e9),
        (LLAMA_4_SCOUT.params, 107.8e9),  # of 109: the rest sees images
        (LLAMA_4_SCOUT.active_params, 17.17e9 - LLAMA_4_SCOUT.head_params),  # theirs: the embedding, too
        (GLM_4_5.params, 355e9),
        (GLM_4_5.active_params, 32.9e9),
        (KIMI_K2.params, 1.026e12),
        (KIMI_K2.active_params, 32e9),
        (GEMMA_3_27B.params, 27e9),
        (MISTRAL_SMALL.params, 23.6e9),
    ],
)
def test_parameter_counts_round_to_the_model_cards(count, on_the_model_card):
    assert count == pytest.approx(on_the_model_card, rel=0.01)


def test_bytes_per_token_are_those_of_the_review():
    pair = (QWEN2_5_7B, LLAMA_3_1_70B)
    wide = {model: model.mixed(lambda a: replace(a, kv_heads=a.heads)) for model in pair}
    published = find("kv_calculator")
    assert agrees(LLAMA_3_1_70B.kv_bytes_per_token / 1024, published["llama_kib_per_token"])
    assert agrees(QWEN2_5_7B.kv_bytes_per_token / 1024, published["qwen_kib_per_token"])
    assert agrees(wide[LLAMA_3_1_70B].kv_bytes_per_token / 1024, published["llama_kib_per_token_mha"])
    assert agrees(wide[QWEN2_5_7B].kv_bytes_per_token / 1024, published["qwen_kib_per_token_mha"])
    assert agrees(DEEPSEEK_V3.kv_bytes_per_token / 1024, find("cut_points.deepseek_kv_kib_per_token"))


def test_a_hybrid_caches_in_its_attention_layers_only_and_keeps_a_state_besides():
    assert NEMOTRON_3_NANO.kv_bytes_per_token == 6 * 2 * 2 * 128 * 2
    assert NEMOTRON_3_NANO.state_bytes == 23 * (64 * 64 * 128 * 4 + 3 * (64 * 64 + 2 * 8 * 128) * 2)
    assert {model.name for model in MODELS if model.state_bytes} == {NEMOTRON_3_NANO.name}


def test_half_of_the_convolution_state_of_nemotron_is_the_shape_of_the_review():
    kernel, channels = get("models")["Nemotron-3-Nano"]["conv_state_shape"]
    assert (NEMOTRON_3_NANO.mamba.kernel - 1, NEMOTRON_3_NANO.mamba.d_conv // 2) == (kernel, channels)


@every_model
def test_every_model_is_within_physical_bounds(model):
    assert 0.5 < model.heads * model.head_dim / model.d_model < 3
    assert model.layer_params > 0.9 * model.params - 2 * model.head_params
    assert model.small_params < 2e-3 * model.params
    assert model.streamed_bytes < model.resident_bytes
    assert model.active_layer_params <= model.layer_params
    assert 1024 < model.kv_bytes_per_token < 1024**2
    assert model.flops_per_pair % 2 == 0
    assert len(model.source) > 20


def test_names_are_unique():
    assert len({model.name for model in MODELS}) == len(MODELS)


# ------------------------------------------------------------------ what a step reads


@pytest.mark.parametrize("model", [QWEN2_5_7B, LLAMA_3_1_70B], ids=lambda model: model.name)
@given(tokens=st.integers(1, 10**5))
def test_a_dense_model_reads_all_its_matrices_whatever_the_batch(model, tokens):
    assert model.weight_bytes(tokens) == model.streamed_bytes == 2 * (model.layer_params + model.head_params)


@pytest.mark.parametrize("model", [DEEPSEEK_V3, NEMOTRON_3_NANO], ids=lambda model: model.name)
def test_a_mixture_reads_one_tokens_experts_at_first_and_all_in_the_end(model):
    group = next(group for group in model.groups if group.experts)
    spare = model.experts.count - model.experts.top_k
    unvisited = group.count * spare * model.experts.expert(model.d_model)
    all_of_it = model.streamed_bytes + group.bytes.experts * unvisited
    assert model.resident_bytes > all_of_it
    assert model.weight_bytes(10**4) == all_of_it
    sizes = [model.weight_bytes(tokens) for tokens in range(1, 300)]
    assert sizes == sorted(sizes)
    assert max(sizes) <= all_of_it


@given(count=st.integers(1, 5), tokens=st.integers(1, 3), data=st.data())
def test_visited_experts_are_the_mean_over_all_equally_likely_choices(count, tokens, data):
    top_k = data.draw(st.integers(1, count))
    choices = list(combinations(range(count), top_k))
    mean = fmean(len(set().union(*picks)) for picks in product(choices, repeat=tokens))
    assert Experts(count=count, top_k=top_k, width=8).visited(tokens) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("model", "listed"), [(QWEN2_5_7B_INT4, 5.58e9), (GPT_OSS_120B, 65.3e9), (QWEN3_235B_FP8, 236e9)]
)
def test_quantized_checkpoints_are_as_large_as_their_files_are_listed(model, listed):
    assert model.resident_bytes == pytest.approx(listed, rel=0.005)


@given(tokens=st.integers(1, 10**6), streams=st.integers(1, 64))
def test_a_window_bounds_what_half_of_the_layers_read(tokens, streams):
    model, per_layer = GPT_OSS_120B, 2 * 8 * 64 * 2
    read = 18 * per_layer * (tokens + min(tokens, 128 * streams))
    assert model.kv_bytes(tokens, streams) == read
    assert QWEN3_8B.kv_bytes(tokens, streams) == tokens * QWEN3_8B.kv_bytes_per_token


def test_a_tied_head_lies_in_memory_once_and_is_read_as_before():
    tied = replace(LLAMA_3_1_8B, tied=True)
    assert tied.params == LLAMA_3_1_8B.params - LLAMA_3_1_8B.head_params
    assert tied.streamed_bytes == LLAMA_3_1_8B.streamed_bytes
    for model in (LLAMA_3_1_8B, QWEN2_5_7B_INT4):  # of the second all but the ends is in 4 bits
        once = replace(model, tied=True)
        assert model.resident_bytes - once.resident_bytes == 2 * model.head_params


def test_layers_without_a_window_do_none_of_the_windowed_work():
    assert LLAMA_3_1_8B.windowed_flops_per_pair == 0
    assert 2 * GPT_OSS_120B.windowed_flops_per_pair == GPT_OSS_120B.flops_per_pair


@given(tokens=st.integers(0, 10**6), degree=st.sampled_from([1, 2, 4, 8, 16]))
@every_model
def test_what_a_group_holds_is_no_less_than_what_one_gpu_would(model, tokens, degree):
    whole = model.held(tokens)
    assert whole == pytest.approx(model.kv_bytes(tokens) + model.state_bytes)
    assert degree * model.held(tokens, degree) >= whole * (1 - 1e-12)
    assert model.held(tokens + 1, degree) >= model.held(tokens, degree)
    if model.latent:
        assert model.held(tokens, degree) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Attention(heads=8, kv_heads=3, head_dim=64), "kv_heads=3 does not divide heads=8"),
        (lambda: Experts(count=4, top_k=5, width=8), "top_k=5 exceeds count=4"),
        (lambda: FFN(width=0), "FFN: width=0"),
        (lambda: Layers(count=True), "Layers: count=True"),
        (lambda: replace(QWEN2_5_7B, vocab=2.5), "Model: vocab=2.5"),
        (lambda: replace(QWEN2_5_7B, groups=()), "has no layer"),
        (lambda: replace(QWEN2_5_7B, arithmetic="fp3"), "arithmetic='fp3'"),
        (lambda: replace(QWEN2_5_7B, head_bytes=nan), "head_bytes=nan"),
        (lambda: QWEN2_5_7B.held(-1), "held: tokens=-1"),
        (lambda: QWEN2_5_7B.held(1, 0), "held: degree=0"),
        (lambda: Latent(heads=2, kv_rank=0, d_rope=2, d_nope=4, d_value=4), "Latent: kv_rank=0"),
        (lambda: Indexer(heads=1, head_dim=1.5, top_k=1), "Indexer: head_dim=1.5"),
        (lambda: Recurrent(kind="", weights=()), "Recurrent: kind=''"),
    ],
)
def test_bad_parts_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_decode_of_mla_scores_and_adds_up_latents_for_every_head():
    latent, heads = 512, 128
    assert DEEPSEEK_V3.decode_flops_per_pair == 2 * 61 * heads * (latent + 64 + latent)
    assert QWEN2_5_7B.decode_flops_per_pair == QWEN2_5_7B.flops_per_pair
