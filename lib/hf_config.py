"""A Hugging Face config.json read as a `Model`; what the book's arithmetic does not cover is refused."""

import json
from collections.abc import Mapping
from typing import Any

from lib import checks
from lib.models import Experts, Latent, Mamba, Model

Config = Mapping[str, Any]

NOT_COVERED = (
    "attention_bias",
    "mlp_bias",
    "use_bias",
    "mamba_proj_bias",
    "moe_latent_size",
    "text_config",
)
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
MXFP4_BYTES = (4 + 8 / 32) / 8  # 4 bits, and a scale of 8 for every 32 weights
DEFAULTS: dict[str, Config] = {"gpt_oss": {"torch_dtype": "bfloat16"}}  # its file names none
EXPECTED = {"gpt_oss": ("attention_bias", "sliding_window")}  # what else is covered, for a model_type


def parse(text: str, what: str = "config.json") -> Config:
    """Return the fields of a config.json. ValueError, which names `what`, where the text is none."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is no JSON ({error}); use a model's config.json") from None
    if not isinstance(config, dict):
        raise ValueError(f"{what} holds no object; use a model's config.json")
    return config


def needed(config: Config) -> Config:
    """Return the fields that count: without any of them `read` gives another model, or none."""
    model, left = read(config), dict(config)
    for key in config:
        fewer = {name: value for name, value in left.items() if name != key}
        try:
            if read(fewer) == model:
                left = fewer
        except ValueError:
            pass
    return left


def read(config: Config, name: str = "") -> Model:
    """Return the model that `config`, a parsed config.json, describes.

    A ValueError names the field that is missing, or whose value is not covered: an unknown model_type, a
    sliding window (but gpt-oss's), an unknown quantization, ... Layers for multi-token prediction are left
    out. FP8 is taken to hold for all weights, though embedding, head and norms usually stay in bf16.
    """
    kind = field(config, "model_type")
    if kind not in READERS:
        raise ValueError(f"config.json: model_type={kind!r} is not covered; use one of {', '.join(READERS)}")
    config = {**DEFAULTS.get(kind, {}), **config}
    has = EXPECTED.get(kind, ())
    for key in NOT_COVERED:
        if config.get(key) and key not in has:
            raise ValueError(f"config.json: {key}={config[key]!r} is not covered; use a model without it")
    windowed = config.get("sliding_window") and "sliding_window" not in has
    if windowed and config.get("use_sliding_window", not kind.startswith("qwen")):
        raise ValueError(
            f"config.json: sliding_window={config['sliding_window']!r} is not covered; use a model without it"
        )
    return Model(
        name=name or config.get("_name_or_path") or kind,
        layers=count(config, "num_hidden_layers"),
        d_model=count(config, "hidden_size"),
        heads=count(config, "num_attention_heads"),
        vocab=count(config, "vocab_size"),
        bytes_per_value=value_bytes(config),
        tied=bool(config.get("tie_word_embeddings")),
        source="config.json",
        **weight_bytes(config),
        **READERS[kind](config),
    )


def field(config: Config, key: str) -> Any:
    """Return the field's value, which must be there."""
    if config.get(key) is None:
        raise ValueError(f"config.json: {key} is missing; give its value")
    return config[key]


def count(config: Config, key: str) -> int:
    """Return the field's value, which must be a whole number of at least 1."""
    value = field(config, key)
    checks.counts("config.json", **{key: value})
    return int(value)


def count_or_zero(config: Config, key: str) -> int:
    """Return the field's value, which must be a whole number of at least 0."""
    value = field(config, key)
    checks.counts_or_zero("config.json", **{key: value})
    return int(value)


def type_bytes(config: Config, key: str) -> int:
    """Return the bytes of a value of the data type that the field names."""
    kind = field(config, key)
    if kind not in BYTES:
        raise ValueError(f"config.json: {key}={kind!r} is not covered; use one of {', '.join(BYTES)}")
    return BYTES[kind]


def value_bytes(config: Config) -> int:
    """Return the bytes of a value of the model's data type, which newer files call dtype."""
    return type_bytes(config, "dtype" if config.get("dtype") else "torch_dtype")


def weight_bytes(config: Config) -> dict[str, Any]:
    """Return the bytes of a weight, and of one of the embedding and the head where that differs.

    FP8: one byte. GPTQ: `bits` for a layer's weight, and for every `group_size` of them a scale of 16 bits
    and a zero point; embedding and head stay. MXFP4: that is about experts, and for their reader to say.
    """
    quantization = config.get("quantization_config")
    if not quantization:
        return {"bytes_per_weight": value_bytes(config)}
    method = quantization.get("quant_method")
    if method == "fp8":
        return {"bytes_per_weight": 1}
    if method == "gptq":
        bits, group = count(quantization, "bits"), count(quantization, "group_size")
        return {"bytes_per_weight": (bits + (16 + bits) / group) / 8, "bytes_per_head": value_bytes(config)}
    if method == "mxfp4" and config["model_type"] == "gpt_oss":
        return {"bytes_per_weight": value_bytes(config)}
    raise ValueError(
        f"config.json: quantization_config.quant_method={method!r} is not covered; use fp8, gptq or none"
    )


# One reader for each architecture: what its fields say beyond the common ones, as arguments of Model.


def grouped(config: Config) -> dict[str, Any]:
    """Grouped-query attention; the width of a head is d_model / heads unless given."""
    width, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    if config.get("head_dim") is None and width % heads:
        raise ValueError(
            f"config.json: num_attention_heads={heads} does not divide hidden_size={width}; give head_dim"
        )
    head_dim = width // heads if config.get("head_dim") is None else count(config, "head_dim")
    return {"kv_heads": count(config, "num_key_value_heads"), "head_dim": head_dim}


def dense(config: Config) -> dict[str, Any]:
    """Llama, Mistral, and the frame of the Qwens."""
    return grouped(config) | {"d_ff": count(config, "intermediate_size")}


def qwen2(config: Config) -> dict[str, Any]:
    """Biases on query, key and value."""
    return dense(config) | {"qkv_bias": True}


def qwen3(config: Config) -> dict[str, Any]:
    """Norms on query and key instead."""
    return dense(config) | {"qk_norm": True}


def qwen3_moe(config: Config) -> dict[str, Any]:
    """Experts in every `decoder_sparse_step`th layer, except those that are listed as dense."""
    config = {"decoder_sparse_step": 1} | dict(config)
    step = count(config, "decoder_sparse_step")
    dense_only = config.get("mlp_only_layers") or ()
    layers = [
        i for i in range(count(config, "num_hidden_layers")) if (i + 1) % step == 0 and i not in dense_only
    ]
    experts = Experts(
        layers=len(layers),
        count=count(config, "num_experts"),
        top_k=count(config, "num_experts_per_tok"),
        d_ff=count(config, "moe_intermediate_size"),
    )
    return qwen3(config) | {"experts": experts}


def mixtral(config: Config) -> dict[str, Any]:
    """Experts in every layer, as wide as a dense FFN would be."""
    experts = Experts(
        layers=count(config, "num_hidden_layers"),
        count=count(config, "num_local_experts"),
        top_k=count(config, "num_experts_per_tok"),
        d_ff=count(config, "intermediate_size"),
    )
    return dense(config) | {"experts": experts}


def gpt_oss(config: Config) -> dict[str, Any]:
    """Experts in every layer, in MXFP4 if quantized; some layers with a window; biases everywhere."""
    layers, width = count(config, "num_hidden_layers"), count(config, "hidden_size")
    kinds = field(config, "layer_types")
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise ValueError(
            f"config.json: layer_types={kinds!r} will not do; use sliding_attention or full_attention for "
            f"each of {layers} layers"
        )
    experts = Experts(
        layers=layers,
        count=count(config, "num_local_experts"),
        top_k=count(config, "num_experts_per_tok"),
        d_ff=count(config, "intermediate_size"),
        routing_bias=True,
        bytes_per_weight=MXFP4_BYTES if config.get("quantization_config") else None,
    )
    biases = width + count(config, "num_attention_heads") + experts.count * (2 * experts.d_ff + width)
    return grouped(config) | {
        "d_ff": 0,
        "qkv_bias": True,
        "other_params": layers * biases,  # of the output, attention's sinks, and the experts'
        "experts": experts,
        "windowed_layers": kinds.count("sliding_attention"),
        "window": count(config, "sliding_window"),
    }


def deepseek_v3(config: Config) -> dict[str, Any]:
    """Latent attention; the first layers dense, the others with experts of which some are shared."""
    if config.get("moe_layer_freq", 1) != 1:
        raise ValueError(f"config.json: moe_layer_freq={config['moe_layer_freq']!r} is not covered; use 1")
    latent = Latent(
        kv_rank=count(config, "kv_lora_rank"),
        d_rope=count(config, "qk_rope_head_dim"),
        d_nope=count(config, "qk_nope_head_dim"),
        d_value=count(config, "v_head_dim"),
        q_rank=count(config, "q_lora_rank"),
    )
    width = count(config, "moe_intermediate_size")
    experts = Experts(
        layers=count(config, "num_hidden_layers") - count_or_zero(config, "first_k_dense_replace"),
        count=count(config, "n_routed_experts"),
        top_k=count(config, "num_experts_per_tok"),
        d_ff=width,
        d_shared=count_or_zero(config, "n_shared_experts") * width,
        routing_bias=True,
    )
    return {
        "kv_heads": count(config, "num_attention_heads"),
        "head_dim": latent.d_value,
        "d_ff": count(config, "intermediate_size"),
        "latent": latent,
        "experts": experts,
    }


def nemotron_h(config: Config) -> dict[str, Any]:
    """One part a layer, by a letter of the pattern: M for Mamba-2, * attention, - FFN, E experts."""
    config = {"mamba_ssm_cache_dtype": "float32"} | dict(config)
    pattern = nemotron_pattern(config)
    parts: dict[str, Any] = {
        "gated": False,
        "d_ff": count(config, "intermediate_size") if "-" in pattern else 0,
        "attention_layers": pattern.count("*"),
        "ffn_layers": pattern.count("-"),
    }
    if "M" in pattern:
        parts["mamba"] = Mamba(
            layers=pattern.count("M"),
            heads=count(config, "mamba_num_heads"),
            head_dim=count(config, "mamba_head_dim"),
            groups=count(config, "n_groups"),
            state=count(config, "ssm_state_size"),
            kernel=count(config, "conv_kernel"),
            bytes_per_state=type_bytes(config, "mamba_ssm_cache_dtype"),
        )
    if "E" in pattern:
        parts["experts"] = Experts(
            layers=pattern.count("E"),
            count=count(config, "n_routed_experts"),
            top_k=count(config, "num_experts_per_tok"),
            d_ff=count(config, "moe_intermediate_size"),
            d_shared=count_or_zero(config, "n_shared_experts")
            * count(config, "moe_shared_expert_intermediate_size"),
            routing_bias=True,
        )
    return grouped(config) | parts


def nemotron_pattern(config: Config) -> str:
    """Return the layers' letters, which must be known ones, as many as there are layers."""
    pattern = field(config, "hybrid_override_pattern")
    layers = count(config, "num_hidden_layers")
    if not isinstance(pattern, str) or set(pattern) - set("M*-E") or len(pattern) != layers:
        raise ValueError(
            f"config.json: hybrid_override_pattern={pattern!r} will not do; use {layers} letters out of M*-E"
        )
    return pattern


READERS = {
    "llama": dense,
    "mistral": dense,
    "mixtral": mixtral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "gpt_oss": gpt_oss,
    "deepseek_v3": deepseek_v3,
    "nemotron_h": nemotron_h,
}
