"""Models: parameter counts against the published totals, bytes, experts, refusals, and config.json files."""

from dataclasses import fields, replace
from itertools import combinations, product
from math import inf, nan
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.models import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    LLAMA_2_70B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    MODELS,
    NEMOTRON_3_NANO,
    OPT_13B,
    QWEN2_5_7B,
    QWEN2_5_7B_INT4,
    QWEN3_8B,
    QWEN3_235B_FP8,
    Experts,
    Latent,
    Mamba,
    Model,
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
    assert DEEPSEEK_V3.experts.layers == published["moe_layers"]
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
}


@every_model
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
    ],
)
def test_parameter_counts_round_to_the_model_cards(count, on_the_model_card):
    assert count == pytest.approx(on_the_model_card, rel=0.01)


def test_bytes_per_token_are_those_of_the_review():
    wide = {model: replace(model, kv_heads=model.heads) for model in (QWEN2_5_7B, LLAMA_3_1_70B)}
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
    all_of_it = (model.layer_params + model.head_params) * model.bytes_per_weight
    assert model.streamed_bytes == (model.active_layer_params + model.head_params) * model.bytes_per_weight
    assert model.weight_bytes(10**4) == all_of_it
    sizes = [model.weight_bytes(tokens) for tokens in range(1, 300)]
    assert sizes == sorted(sizes)
    assert max(sizes) <= all_of_it


@given(count=st.integers(1, 5), tokens=st.integers(1, 3), data=st.data())
def test_visited_experts_are_the_mean_over_all_equally_likely_choices(count, tokens, data):
    top_k = data.draw(st.integers(1, count))
    choices = list(combinations(range(count), top_k))
    mean = fmean(len(set().union(*picks)) for picks in product(choices, repeat=tokens))
    assert Experts(layers=1, count=count, top_k=top_k, d_ff=8).visited(tokens) == pytest.approx(mean)


def test_smaller_weights_shrink_what_is_read_and_kept_but_not_the_cache():
    small = replace(QWEN2_5_7B, bytes_per_weight=0.5)
    assert small.streamed_bytes == QWEN2_5_7B.streamed_bytes / 4
    assert small.resident_bytes == QWEN2_5_7B.resident_bytes / 4
    assert small.kv_bytes_per_token == QWEN2_5_7B.kv_bytes_per_token


@pytest.mark.parametrize(
    ("model", "listed"), [(QWEN2_5_7B_INT4, 5.58e9), (GPT_OSS_120B, 65.3e9), (QWEN3_235B_FP8, 236e9)]
)
def test_quantized_checkpoints_are_as_large_as_their_files_are_listed(model, listed):
    assert model.resident_bytes == pytest.approx(listed, rel=0.005)


def test_only_the_weights_that_are_quantized_shrink():
    whole = replace(GPT_OSS_120B, experts=replace(GPT_OSS_120B.experts, bytes_per_weight=None))
    routed = GPT_OSS_120B.layer_params - GPT_OSS_120B.shared_layer_params
    assert whole.resident_bytes == 2 * whole.params
    assert whole.resident_bytes - GPT_OSS_120B.resident_bytes == routed * (2 - 17 / 32)
    ends = 2 * QWEN2_5_7B_INT4.head_params
    assert QWEN2_5_7B_INT4.resident_bytes - 2 * ends < 0.26 * (QWEN2_5_7B.resident_bytes - 2 * ends)


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
    assert LLAMA_3_1_8B.windowed_share(32 * 10**9) == 0
    half = replace(LLAMA_3_1_8B, windowed_layers=16, window=128)
    assert half.windowed_share(32 * 10**9) == 16 * 10**9


def test_a_model_given_by_seven_figures_is_the_catalogues():
    published = get("models")["Qwen2.5-7B"]
    shape = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocab")
    model = Model(**{name: published[name] for name in shape})
    assert model.layer_params == QWEN2_5_7B.layer_params
    assert model.kv_bytes_per_token == QWEN2_5_7B.kv_bytes_per_token


def test_another_depth_carries_over_to_every_layer():
    assert replace(QWEN2_5_7B, layers=14).layer_params * 2 == QWEN2_5_7B.layer_params


# ------------------------------------------------------------------ refusals

COUNTS = ["layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocab", "bytes_per_value"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -4, 2.5, nan, True, "8"])
def test_a_model_refuses_what_is_no_count(name, value):
    with pytest.raises(ValueError, match=f"Model: {name}=.*use a whole number of at least 1"):
        replace(QWEN2_5_7B, **{name: value})


@pytest.mark.parametrize("value", [0, -1, nan, inf, True])
def test_weights_of_no_size_are_refused(value):
    with pytest.raises(ValueError, match="Model: bytes_per_weight="):
        replace(QWEN2_5_7B, bytes_per_weight=value)


def test_kv_heads_must_divide_heads():
    with pytest.raises(
        ValueError, match="Model: kv_heads=3 does not divide heads=28; use a divisor of heads"
    ):
        replace(QWEN2_5_7B, kv_heads=3)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (QWEN2_5_7B, {"attention_layers": 29}, "attention_layers=29 exceeds layers=28"),
        (QWEN2_5_7B, {"attention_layers": -1}, "attention_layers=-1"),
        (QWEN2_5_7B, {"ffn_layers": 29}, "ffn_layers=29 exceeds layers=28"),
        (DEEPSEEK_V3, {"ffn_layers": 4}, "ffn_layers=4 and experts.layers=58 exceed layers=61 together"),
        (DEEPSEEK_V3, {"layers": 57}, "experts.layers=58 exceeds layers=57"),
        (NEMOTRON_3_NANO, {"layers": 22}, "exceeds layers=22"),
        (NEMOTRON_3_NANO, {"ffn_layers": 2}, "d_ff=0"),
        (QWEN2_5_7B, {"name": ""}, "name=''"),
        (QWEN2_5_7B, {"windowed_layers": 29, "window": 128}, "windowed_layers=29 exceeds the 28 layers"),
        (QWEN2_5_7B, {"windowed_layers": 14}, "window=None"),
        (QWEN2_5_7B, {"window": 128}, "windowed_layers=0"),
        (QWEN2_5_7B, {"bytes_per_head": 0}, "bytes_per_head=0"),
        (QWEN2_5_7B, {"other_params": -1}, "other_params=-1"),
    ],
)
def test_contradictory_layers_are_refused(model, change, message):
    with pytest.raises(ValueError, match=message):
        replace(model, **change)


def test_more_experts_per_token_than_there_are_is_refused():
    with pytest.raises(ValueError, match="top_k=9 exceeds count=8"):
        Experts(layers=2, count=8, top_k=9, d_ff=64)


@pytest.mark.parametrize("part", [DEEPSEEK_V3.experts, DEEPSEEK_V3.latent, NEMOTRON_3_NANO.mamba])
def test_parts_refuse_what_is_no_count(part):
    for field in fields(part):
        if field.name not in ("d_shared", "routing_bias", "bytes_per_weight"):
            with pytest.raises(ValueError, match=f"{type(part).__name__}: {field.name}=0"):
                replace(part, **{field.name: 0})


def test_groups_of_a_state_space_must_divide_its_heads():
    with pytest.raises(ValueError, match="groups=7 does not divide heads=64"):
        replace(NEMOTRON_3_NANO.mamba, groups=7)


# ------------------------------------------------------------------ config.json

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
QWEN2 = LLAMA | {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "sliding_window": 131072,
    "use_sliding_window": False,
}
QWEN3_MOE = LLAMA | {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
    "tie_word_embeddings": False,
}
QWEN2_INT4 = QWEN2 | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"},
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
}
NEMOTRON = {
    "model_type": "nemotron_h",
    "num_hidden_layers": 52,
    "hidden_size": 2688,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 1856,
    "vocab_size": 131072,
    "torch_dtype": "bfloat16",
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "float32",
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 3712,
}


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (QWEN2, QWEN2_5_7B),
        (LLAMA, LLAMA_3_1_8B),
        (DEEPSEEK, DEEPSEEK_V3),
        (NEMOTRON, NEMOTRON_3_NANO),
        (QWEN2_INT4, QWEN2_5_7B_INT4),
        (GPT_OSS, GPT_OSS_120B),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_config_gives_the_catalogues_model(config, model):
    read = Model.from_config(config, name=model.name)
    derived = ("params", "active_params", "layer_params", "streamed_bytes", "resident_bytes", "state_bytes")
    derived += (
        "kv_bytes_per_token",
        "flops_per_pair",
        "decode_flops_per_pair",
        "windowed_layers",
        "window",
        "d_ff",
    )
    assert {name: getattr(read, name) for name in derived} == {name: getattr(model, name) for name in derived}
    assert read.name == model.name
    assert read.source == "config.json"


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (QWEN3_MOE, 235_093_634_560),  # Qwen3-235B-A22B
        (MIXTRAL, 46_702_792_704),  # Mixtral-8x7B
        (LLAMA | {"model_type": "mistral", "vocab_size": 32768}, 7_248_023_552),  # Mistral-7B-v0.3
        (
            LLAMA
            | {
                "model_type": "qwen3",
                "num_hidden_layers": 36,
                "intermediate_size": 12288,
                "vocab_size": 151936,
            }
            | {"head_dim": 128},
            8_190_735_360,  # Qwen3-8B
        ),
    ],
    ids=["qwen3_moe", "mixtral", "mistral", "qwen3"],
)
def test_configs_of_other_architectures_give_their_published_totals(config, params):
    assert Model.from_config(config).params == params


@pytest.mark.parametrize(
    "config", [LLAMA, QWEN2, QWEN3_MOE, MIXTRAL, GPT_OSS, DEEPSEEK, NEMOTRON], ids=lambda c: c["model_type"]
)
def test_a_missing_field_is_named(config):
    optional = {
        "head_dim",
        "tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "quantization_config",
        "sliding_window",
    }
    optional |= {"use_sliding_window", "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers"}
    optional |= {"mamba_ssm_cache_dtype"}
    unused = {"deepseek_v3": {"num_key_value_heads"}, "nemotron_h": {"intermediate_size"}}
    optional -= {"sliding_window"} if config is GPT_OSS else set()
    for key in config.keys() - optional - unused.get(config["model_type"], set()):
        with pytest.raises(ValueError, match=f"config.json: {key} is missing"):
            Model.from_config({name: value for name, value in config.items() if name != key})


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (LLAMA, {"model_type": "gpt2"}, "model_type='gpt2' is not covered; use one of llama, "),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size='4096'"),
        (
            LLAMA,
            {"num_attention_heads": 24},
            "num_attention_heads=24 does not divide hidden_size=4096; give head_dim",
        ),
        (LLAMA, {"num_key_value_heads": 5}, "kv_heads=5 does not divide heads=32"),
        (LLAMA, {"torch_dtype": "int3"}, "torch_dtype='int3'"),
        (LLAMA, {"attention_bias": True}, "attention_bias=True is not covered"),
        (LLAMA, {"quantization_config": {"quant_method": "awq"}}, "quant_method='awq' is not covered"),
        (LLAMA, {"quantization_config": {"quant_method": "mxfp4"}}, "quant_method='mxfp4' is not covered"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "group_size is missing"),
        (GPT_OSS, {"layer_types": ["full_attention"]}, "full_attention for each of 36 layers"),
        (GPT_OSS, {"mlp_bias": True}, "mlp_bias=True is not covered"),
        (LLAMA | {"model_type": "mistral"}, {"sliding_window": 4096}, "sliding_window=4096 is not covered"),
        (QWEN2, {"use_sliding_window": True}, "sliding_window=131072 is not covered"),
        (DEEPSEEK, {"moe_layer_freq": 2}, "moe_layer_freq=2 is not covered"),
        (NEMOTRON, {"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern='MEX'"),
        (NEMOTRON, {"num_hidden_layers": 51}, "use 51 letters"),
        (NEMOTRON, {"mamba_ssm_cache_dtype": "int1"}, "mamba_ssm_cache_dtype='int1'"),
        (NEMOTRON, {"moe_latent_size": 1024}, "moe_latent_size=1024"),
    ],
)
def test_what_the_arithmetic_does_not_cover_is_refused_by_name(config, change, message):
    with pytest.raises(ValueError, match=message):
        Model.from_config(config | change)


def test_dense_layers_among_experts_are_counted_as_the_config_says():
    model = Model.from_config(QWEN3_MOE | {"decoder_sparse_step": 2, "mlp_only_layers": [1]})
    assert (model.with_experts, model.with_ffn) == (46, 48)


def test_a_hybrid_without_experts_has_plain_ffns():
    config = NEMOTRON | {"num_hidden_layers": 4, "hybrid_override_pattern": "M-*-"}
    model = Model.from_config(config)
    assert model.experts is None
    assert (model.with_mamba, model.with_attention, model.with_ffn) == (1, 1, 2)


def test_parts_can_be_built_by_hand():
    assert Mamba(layers=1, heads=2, head_dim=4, groups=1, state=8, kernel=4).d_conv == 8 + 16
    assert Latent(kv_rank=4, d_rope=2, d_nope=4, d_value=4, q_rank=8).kv_rank == 4


def test_decode_of_mla_scores_and_adds_up_latents_for_every_head():
    latent, heads = 512, 128
    assert DEEPSEEK_V3.decode_flops_per_pair == 2 * 61 * heads * (latent + 64 + latent)
    assert QWEN2_5_7B.decode_flops_per_pair == QWEN2_5_7B.flops_per_pair
