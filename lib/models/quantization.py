"""In how many bytes a file keeps its weights, by module, and what it computes and caches in.

Said in `quantization_config` or `compression_config` of a config.json, or in a hf_quant_config.json beside
it. Embedding and head stay in 16 bits unless they are named. Scales are counted where they are more than a
thousandth: one for 16, 32, 64 or 128 weights; those of a block of 128 x 128 or of a row are not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from lib import checks

WHOLE = 2.0  # bytes of a weight that is not quantized
FP8, NVFP4, MXFP4 = 1.0, (4 + 8 / 16) / 8, (4 + 8 / 32) / 8
MODELOPT = {  # quant_algo: bytes of a weight, and what is computed in
    "FP8": (FP8, "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": (FP8, "fp8"),
    "FP8_PB_WO": (FP8, "fp8"),
    "FP8_PB_REAL": (FP8, "fp8"),
    "MXFP8": ((8 + 8 / 32) / 8, "fp8"),
    "NVFP4": (NVFP4, "fp4"),
    "NVFP4_AWQ": (NVFP4, "fp4"),
    "NVFP4_SVDQUANT": (NVFP4, "fp4"),
    "W4A16_NVFP4": (NVFP4, "bf16"),
    "W4A8_NVFP4_FP8": (NVFP4, "fp8"),
    "W4A8_MXFP4_FP8": (MXFP4, "fp8"),
    "MXFP4": (MXFP4, "bf16"),
    "W4A16_AWQ": ((4 + 16 / 128) / 8, "bf16"),
    "INT4_AWQ": ((4 + 16 / 128) / 8, "bf16"),
    "W4A8_AWQ": ((4 + 16 / 128) / 8, "fp8"),
    "W8A16": (1.0, "bf16"),
    "INT8_SQ": (1.0, "bf16"),
}
CACHES = {"FP8": 1.0, "NVFP4": NVFP4, "INT8": 1.0}
METHODS = ("fp8", "fbgemm_fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt", "mxfp4")

Said = Mapping[str, Any]
Rule = tuple[Callable[[str], bool], float, str]  # whether it is about a module; bytes; arithmetic


@dataclass(frozen=True)
class Quantization:
    """What is quantized: rules, of which the first that is about a module holds, and exceptions.

    `block`: weights, in each direction, that share a scale and so stay on one GPU; 1: any may part.
    """

    rules: tuple[Rule, ...] = ()
    kept: tuple[str, ...] = ()  # patterns of modules that are left as they are
    cache: float | None = None
    source: str = ""
    block: int = 1

    def weight(self, module: str) -> tuple[float, str]:
        """Return the bytes of a weight of a module, and what its product is computed in."""
        if not any(names(pattern, module) for pattern in self.kept):
            for about, each, arithmetic in self.rules:
                if about(module):
                    return each, arithmetic
        return WHOLE, "bf16"


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Return a module's name below the model, in one spelling of the parts that have several."""
    name = name.replace("\\.", ".") if not name.startswith("re:") else name
    name = re.sub(r"^.*?\blayers\.", "layers.", name)
    name = name.replace("block_sparse_moe", "mlp").replace("feed_forward", "mlp")
    return re.sub(r"shared_expert(?=[.*]|$)", "shared_experts", name)


@lru_cache(maxsize=4096)
def pattern_of(pattern: str) -> re.Pattern[str]:
    """Return what a pattern that says re: looks for."""
    try:
        return re.compile(pattern.removeprefix("re:"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"config.json: {pattern!r} is no regular expression ({error}); mend it") from None


@lru_cache(maxsize=1 << 16)
def names(pattern: str, module: str) -> bool:
    """Return whether the pattern is about the module: its name, a parent's, a wildcard's, or re:'s."""
    if pattern.startswith("re:"):
        return bool(pattern_of(pattern).match(module) or pattern_of(pattern).match(plain(module)))
    short, wanted = plain(module), plain(pattern)
    if "*" in wanted:
        return any(fnmatchcase(part, wanted) for part in (short, short + ".", module, module + "."))
    wanted = wanted.rstrip(".")
    for whole, parts in (
        ("qkv_proj", ("q_proj", "k_proj", "v_proj")),
        ("gate_up_proj", ("gate_proj", "up_proj")),
    ):
        if wanted.endswith(whole):
            stem = wanted.removesuffix(whole)
            return any(f".{short}.".endswith(f".{stem}{part}.".replace("..", ".")) for part in parts)
    return bool(wanted) and f".{wanted}." in f".{short}."


def linear(module: str) -> bool:
    """Return whether the module is a linear layer: all but the embedding and the head."""
    return module not in ("embed_tokens", "lm_head")


def texts(said: Said, *keys: str) -> tuple[str, ...]:
    """Return the patterns that are listed under the first of these keys that is there."""
    for key in keys:
        listed = said.get(key)
        if listed is not None:
            if (
                not isinstance(listed, Sequence)
                or isinstance(listed, str)
                or not all(isinstance(one, str) for one in listed)
            ):
                raise ValueError(f"config.json: {key}={listed!r} will not do; use a list of names")
            return tuple(listed)
    return ()


def number(said: Said, *keys: str, default: int | None = None) -> int:
    """Return the whole number under the first of these keys that is there."""
    for key in keys:
        if said.get(key) is not None:
            value = said[key]
            if value == -1 and "group" in key:
                return 0
            checks.counts("config.json", **{key: value})
            return int(value)
    if default is None:
        raise ValueError(f"config.json: {keys[0]} of the quantization is missing; give its value")
    return default


def in_groups(bits: int, group: int, scale: float) -> float:
    """Return the bytes of a weight of so many bits, with `scale` bits for every group of them (0: a row)."""
    return (bits + (scale / group if group else 0)) / 8


def read(said: object) -> Quantization:
    """Return what a quantization_config or compression_config says. ValueError names what is not covered."""
    if not isinstance(said, Mapping):
        raise ValueError(f"config.json: quantization_config={said!r} will not do; use an object")
    method = said.get("quant_method")
    if method is None and ("config_groups" in said or said.get("format")):
        method = "compressed-tensors"
    if method is None and said.get("quant_algo"):
        method = "modelopt"
    if method in ("fp8", "fbgemm_fp8"):
        found = ((linear, FP8, "fp8"),)
        kept = texts(said, "modules_to_not_convert", "ignored_layers")
        block = block_of(said.get("weight_block_size"), "weight_block_size")
        return Quantization(found, kept, cache_of(said.get("kv_cache_scheme")), "FP8", block)
    if method in ("gptq", "gptq_marlin"):
        bits, group = number(said, "bits"), number(said, "group_size")
        each = in_groups(bits, group, 16 + bits)
        head = bool(said.get("lm_head"))
        return Quantization(
            ((lambda module: linear(module) or (head and module == "lm_head"), each, "bf16"),),
            (*texts(said, "modules_to_not_convert"), "gate", "router"),
            source=f"GPTQ, {bits} bits",
            block=group or 1,
        )
    if method in ("awq", "awq_marlin"):
        bits, group = number(said, "bits", "w_bit", default=4), number(said, "group_size", "q_group_size")
        each = in_groups(bits, group, 16 + bits)
        kept = texts(said, "modules_to_not_convert")
        return Quantization(((linear, each, "bf16"),), kept, source=f"AWQ, {bits} bits", block=group or 1)
    if method == "bitsandbytes":
        return bitsandbytes(said)
    if method == "compressed-tensors":
        return compressed(said)
    if method in ("modelopt", "modelopt_fp4", "modelopt_mixed"):
        return modelopt(said, said.get("kv_cache_scheme"), said.get("kv_cache_quant_algo"))
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        rules = ((lambda module: ".experts." in module, MXFP4, "bf16"),)
        return Quantization(rules, texts(said, "modules_to_not_convert"), source="MXFP4 experts")
    raise ValueError(
        f"config.json: quantization_config.quant_method={method!r} is not covered; use one of "
        f"{', '.join(METHODS)}, or none"
    )


def bitsandbytes(said: Said) -> Quantization:
    """NF4 or FP4: a scale of 32 bits for 64 weights, itself in 8 bits if quantized twice; or INT8."""
    kept = texts(said, "llm_int8_skip_modules")
    if said.get("load_in_4bit") or said.get("_load_in_4bit"):
        twice = bool(said.get("bnb_4bit_use_double_quant"))
        each = (4 + (8 + 32 / 256 if twice else 32) / 64) / 8
        return Quantization(((linear, each, "bf16"),), kept, source="bitsandbytes, 4 bits")
    if said.get("load_in_8bit") or said.get("_load_in_8bit"):
        return Quantization(((linear, 1.0, "bf16"),), kept, source="bitsandbytes, 8 bits")
    raise ValueError(
        "config.json: quantization_config says neither load_in_4bit nor load_in_8bit; set one of them"
    )


def block_of(said: object, key: str) -> int:
    """Return the larger side of a block of weights that share a scale; 1: there are none."""
    if said is None:
        return 1
    if not isinstance(said, Sequence) or isinstance(said, str) or not said:
        raise ValueError(f"config.json: {key}={said!r} will not do; use two numbers of weights")
    for side in said:
        checks.counts("config.json", **{key: side})
    return int(max(said))


def cache_of(scheme: object) -> float | None:
    """Return the bytes of a cached value that a kv_cache_scheme says; None: it says nothing."""
    if scheme is None:
        return None
    if isinstance(scheme, str) and scheme in CACHES:
        return CACHES[scheme]
    bits = scheme.get("num_bits") if isinstance(scheme, Mapping) else None
    if bits not in (4, 8, 16):
        raise ValueError(f"config.json: kv_cache_scheme={scheme!r} is not covered; use num_bits 4, 8 or 16")
    return {4: NVFP4, 8: 1.0, 16: 2.0}[bits]


def groups(said: Said) -> list[Rule]:
    """Return the rules of config_groups."""
    listed = said.get("config_groups")
    if not isinstance(listed, Mapping) or not listed:
        raise ValueError(f"config.json: config_groups={listed!r} will not do; use an object of groups")
    found = []
    for name, group in listed.items():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise ValueError(f"config.json: config_groups.{name} says nothing of weights; give num_bits")
        form = group.get("format") or said.get("format") or ""
        found.append((about(texts(group, "targets")), *stored(weights, group.get("input_activations"), form)))
    return found


def stored(weights: Said, activations: object, form: object) -> tuple[float, str]:
    """Return the bytes of a weight, and what is computed in, of one group."""
    bits = number(weights, "num_bits")
    group, kind = number(weights, "group_size", default=0), weights.get("type", "int")
    if bits not in (2, 3, 4, 6, 8, 16) or kind not in ("int", "float"):
        raise ValueError(f"config.json: num_bits={bits!r}, type={kind!r} are not covered; use 4 or 8 bits")
    narrow = isinstance(activations, Mapping) and activations.get("num_bits")
    if kind == "float" and bits == 4:
        scale, group = (8, group or 32) if group == 32 or "mxfp4" in str(form) else (8, group or 16)
    else:
        scale = 16 if weights.get("symmetric", True) else 16 + bits
    arithmetic = "bf16"
    if kind == "float" and narrow in (4, 8):
        arithmetic = "fp4" if narrow == 4 and bits == 4 else "fp8"
    return in_groups(bits, 0 if group >= 4096 else group, scale), arithmetic


def about(targets: tuple[str, ...]) -> Callable[[str], bool]:
    """Return whether a module is one of the targets: names, re:, or the kind Linear."""
    if not targets or "Linear" in targets:
        return linear
    lone = frozenset(
        plain(target) for target in targets if "*" not in target and not target.startswith("re:")
    )
    others = tuple(target for target in targets if "*" in target or target.startswith("re:"))

    def among(module: str) -> bool:
        parts = plain(module).split(".")
        if any(".".join(parts[:n]) in lone for n in range(1, len(parts) + 1)):
            return True
        return any(names(other, module) for other in others)

    return among


def compressed(said: Said) -> Quantization:
    """compressed-tensors: groups of targets, and what is ignored."""
    cache = cache_of(said.get("kv_cache_scheme"))
    return Quantization(tuple(groups(said)), texts(said, "ignore"), cache, "compressed-tensors")


def modelopt(said: Said, scheme: object = None, cache: object = None) -> Quantization:
    """NVIDIA's Model Optimizer: one algorithm for all but what is excluded, or one for each layer."""
    algo = said.get("quant_algo")
    if cache is not None and cache not in CACHES:
        raise ValueError(f"kv_cache_quant_algo={cache!r} is not covered; use one of {', '.join(CACHES)}")
    bytes_cached = CACHES[cache] if isinstance(cache, str) else cache_of(scheme)
    kept = texts(said, "exclude_modules", "ignore")
    layers = said.get("quantized_layers")
    if isinstance(layers, Mapping):
        rules = []
        for kind in MODELOPT:
            named = tuple(
                n for n, one in layers.items() if isinstance(one, Mapping) and one.get("quant_algo") == kind
            )
            if named:
                rules.append((about(named), *MODELOPT[kind]))
        unknown = {
            str(one)
            for one in layers.values()
            if not isinstance(one, Mapping) or one.get("quant_algo") not in MODELOPT
        }
        if unknown:
            raise ValueError(f"quantized_layers: {min(unknown)} is not covered; use {', '.join(MODELOPT)}")
        return Quantization(tuple(rules), kept, bytes_cached, "modelopt, mixed")
    if said.get("config_groups") and algo not in MODELOPT:
        return Quantization(tuple(groups(said)), kept, bytes_cached, f"modelopt {algo}")
    if algo is None:
        return Quantization((), kept, bytes_cached, "modelopt, cache only")
    if algo not in MODELOPT:
        raise ValueError(f"quant_algo={algo!r} is not covered; use one of {', '.join(MODELOPT)}")
    return Quantization(((linear, *MODELOPT[algo]),), kept, bytes_cached, f"modelopt {algo}")


def beside(said: object) -> Quantization:
    """Return what a hf_quant_config.json says."""
    inner = said.get("quantization") if isinstance(said, Mapping) else None
    if not isinstance(inner, Mapping):
        raise ValueError("hf_quant_config.json: has no object `quantization`; give modelopt's own file")
    return modelopt(inner, inner.get("kv_cache_scheme"), inner.get("kv_cache_quant_algo"))
