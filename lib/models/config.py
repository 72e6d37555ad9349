"""A Hugging Face config.json read as a `Model`; what is not covered is refused by name."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from lib.models import quantization
from lib.models.families import FAMILIES, OUTER, Layer, Shape
from lib.models.fields import Fields
from lib.models.harmless import is_harmless
from lib.models.model import Layers, Model, PerWeight
from lib.models.parts import Experts
from lib.models.quantization import Quantization

Config = Mapping[str, Any]

LARGEST = 50_000_000  # bytes of a file
TYPES = ("bfloat16", "float16", "float32", "half", "float", "auto")  # all of them served in 16 bits
INSIDE = ("text_config", "language_config", "llm_config")  # where multimodal files keep the language model
ARCHITECTURES = {"QWenLMHeadModel": "qwen", "RWForCausalLM": "falcon", "PhiForCausalLM": "phi"}
LENGTHS = (
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length",
    "max_sequence_length", "max_seq_length", "seq_len", "max_target_positions",
)  # fmt: skip
CONTEXTS = {  # transformers' default, for files that name none
    "llama": 2048, "mistral": 131_072, "qwen2": 32_768, "qwen3": 32_768, "gpt2": 1024, "gpt_bigcode": 1024,
    "gptj": 2048, "gpt_neo": 2048, "gpt_neox": 2048, "opt": 2048, "falcon": 2048, "mpt": 2048,
    "falcon_h1": 8192, "jamba": 262_144, "granite": 2048, "gemma": 8192, "gemma2": 8192,
    "gemma3_text": 131_072, "mixtral": 131_072, "bamba": 262_144, "phi3": 4096, "phi": 2048,
}  # fmt: skip
LLAMA_7B: Config = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000,
}  # fmt: skip
DEFAULTS: dict[str, Config] = {  # transformers', for the families whose published files lean on them
    "gemma3_text": {
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    },
}  # fmt: skip


def parse(text: str | bytes, what: str = "config.json") -> Config:
    """Return the fields of a config.json. ValueError, which names `what`, where the text is none."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-16" if text[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{what} is no UTF-8 text; use a model's config.json") from None
    try:
        config = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON ({error}); use a model's config.json") from None
    if not isinstance(config, dict):
        raise ValueError(f"{what} holds no object; use a model's config.json")
    return config


def language(config: Config) -> tuple[Config, Config]:
    """Return the fields of the language model, and those around it (none, in a file of text only)."""
    outer = config
    if isinstance(config.get("thinker_config"), Mapping):
        outer = config["thinker_config"]
    for key in INSIDE:
        inner = outer.get(key)
        if isinstance(inner, Mapping) and inner:
            inner = dict(inner)
            kind = outer.get("model_type")
            if not inner.get("model_type") and isinstance(kind, str) and kind in OUTER:
                inner["model_type"] = OUTER[kind]
            return inner, outer
    return config, {}


def kind_of(config: Config) -> str:
    """Return the model_type, which must be one of those covered."""
    kind = config.get("model_type")
    listed = config.get("architectures")
    if kind is None and isinstance(listed, list) and listed and isinstance(listed[0], str):
        kind = ARCHITECTURES.get(listed[0])
    if kind is None:
        raise ValueError("config.json: model_type is missing; give its value")
    if not isinstance(kind, str) or kind not in FAMILIES:
        close = get_close_matches(str(kind), FAMILIES, n=3, cutoff=0.6) or ["llama", "qwen3", "deepseek_v3"]
        raise ValueError(
            f"config.json: model_type={kind!r} is not covered; use one of {len(FAMILIES)} others, such as "
            f"{', '.join(close)}"
        )
    return kind


def read(config: Config, name: str = "", beside: object = None) -> Model:
    """Return the model that `config`, a parsed config.json, describes.

    `beside`: the parsed hf_quant_config.json that stands beside it. A ValueError names the field that is
    missing, whose value will not do, or which nobody here knows. Of a multimodal model the language model
    is read; layers for multi-token prediction are left out. Weights in float32 are served in 16 bits, as
    vLLM's dtype auto does.
    """
    try:
        return understood(config, name, beside)[0]
    except (TypeError, AttributeError, OverflowError, RecursionError, KeyError, IndexError) as error:
        raise ValueError(f"config.json: a field is of another kind than usual ({error})") from None


def needed(config: Config) -> Config:
    """Return the fields that count: those that `read` looks at."""
    inner, _ = language(config)
    if inner is not config and inner:
        return config
    used = understood(config, "", None)[1]
    return {key: value for key, value in config.items() if key in used}


def understood(config: Config, name: str, beside: object) -> tuple[Model, set[str]]:
    """Return the model, and the keys that were read for it."""
    inner, outer = language(config)
    kind = kind_of(inner)
    f = Fields(
        {**inner, "model_type": kind}, DEFAULTS.get(kind, LLAMA_7B if outer and kind == "llama" else {})
    )
    if outer and "tie_word_embeddings" not in f and outer.get("tie_word_embeddings") is not None:
        f = Fields({**f.config, "tie_word_embeddings": outer["tie_word_embeddings"]}, f.defaults)
    check_types(f, outer)
    shape = FAMILIES[kind](f)
    said = quantized(f, outer, beside)
    limit = context(f, kind)
    vocab = f.size("vocab_size", "padded_vocab_size")
    f.used.update(("model_type", "vocab_size", "_name_or_path", "padded_vocab_size"))
    if not inner.get("model_type"):
        f.used.add("architectures")  # says the kind in its place
    if unknown := [key for key in f.rest() if not is_harmless(key)]:
        raise ValueError(
            f"config.json: {', '.join(unknown[:3])} of model_type={kind!r} says something that is not known "
            "here; use a model without it"
        )
    called = config.get("_name_or_path")
    d = f.size("hidden_size", "n_embd", "d_model", "n_embed")
    head, _ = said.weight("lm_head")
    embedding, _ = said.weight("embed_tokens")
    groups, arithmetic = grouped(shape, d, said)
    vectors = shape.vectors + (projector(outer, d) if outer.get("model_type") == "kimi_k25" else 0)
    model = Model(
        name=name or (called if isinstance(called, str) and called.strip() else kind),
        d_model=d, vocab=vocab, groups=groups, tied=shape.tied, vectors=vectors, lookups=shape.lookups,
        embedding_bytes=embedding, head_bytes=head, arithmetic=arithmetic, context=limit,
        block=said.block,
        cache_bytes=2.0 if said.cache is None else said.cache, source="config.json",
    )  # fmt: skip
    return model, f.used


def projector(outer: Config, d: int) -> int:
    """Return the parameters of what leads Kimi's images into its language model; a checkpoint counts it."""
    said = outer.get("vision_config")
    vision = Fields(said if isinstance(said, Mapping) else {})
    wide = vision.size("vt_hidden_size", "mm_hidden_size", default=1152)
    patch = 4 * wide  # 2 x 2 patches are merged
    return 2 * wide + patch * (patch + 1) + (patch + 1) * d


def check_types(f: Fields, outer: Config) -> None:
    """Refuse a data type that nobody serves so."""
    kinds = (f.get("dtype"), f.get("torch_dtype"), outer.get("dtype"), outer.get("torch_dtype"))
    for kind in kinds:
        if kind is not None and (not isinstance(kind, str) or kind.removeprefix("torch.") not in TYPES):
            raise ValueError(f"config.json: dtype={kind!r} is not covered; use one of {', '.join(TYPES)}")


def quantized(f: Fields, outer: Config, beside: object) -> Quantization:
    """Return what is said of quantization: in the file, around it or beside it."""
    said = [
        where[key]
        for where in (f.config, outer)
        for key in ("quantization_config", "compression_config")
        if where.get(key)
    ]
    f.used.update(("quantization_config", "compression_config"))
    found = quantization.read(said[0]) if said else None
    if beside is not None:
        other = quantization.beside(beside)
        if found is None:
            return other
        if found.cache is None:
            return replace(found, cache=other.cache)
    return found or Quantization()


def grouped(shape: Shape, d: int, said: Quantization) -> tuple[tuple[Layers, ...], str]:
    """Return the layers, equal ones together, with the bytes of their weights; and what they compute in."""
    counts: Counter[tuple[Layer, PerWeight]] = Counter()
    computing: Counter[str] = Counter()
    for i, layer in enumerate(shape.layers):
        mixers, part, _ = layer
        names: dict[str, int] = {}
        for mixer in mixers:
            for module, count in mixer.matrices(d).items():
                names[module] = names.get(module, 0) + count
        outer = part.matrices(d) if part else {}
        routed = {}
        if isinstance(part, Experts):
            one = part.expert(d) // part.factor
            matrices = ("gate_proj", "up_proj", "down_proj") if part.gated else ("up_proj", "down_proj")
            routed = {f"{part.module}.experts.0.{name}".lstrip("."): one for name in matrices}
        each = []
        for kind in (names, outer, routed):
            total, nbytes = 0, 0.0
            for module, count in kind.items():
                size, arithmetic = said.weight(f"model.layers.{i}.{module.lstrip('.')}")
                total, nbytes = total + count, nbytes + count * size
                active = part.top_k if kind is routed and isinstance(part, Experts) else 1
                computing[arithmetic] += count * active
            each.append(nbytes / total if total else 2.0)
        counts[layer, PerWeight(mixer=each[0], ffn=each[1], experts=each[2])] += 1
    groups = tuple(
        Layers(count=count, mixers=mixers, ffn=part, vectors=vectors, bytes=per)
        for ((mixers, part, vectors), per), count in counts.items()
    )
    return groups, max(computing, key=computing.__getitem__, default="bf16")


def context(f: Fields, kind: str) -> int | None:
    """Return the most tokens of a request, as vLLM derives it: the least length named, times rope's."""
    lengths = [f.get(key) for key in LENGTHS]
    known = [int(n) for n in lengths if isinstance(n, int) and not isinstance(n, bool) and 0 < n < 10**9]
    if not known:
        default = CONTEXTS.get(kind)
        return default
    longest = min(known)
    said = f.get("rope_scaling") or f.get("rope_parameters")
    f.used.update(("rope_scaling", "rope_parameters", "original_max_position_embeddings"))
    if not isinstance(said, Mapping) or "gemma3" in kind:
        return longest
    for one in [said, *(inner for inner in said.values() if isinstance(inner, Mapping))]:
        form = one.get("rope_type", one.get("type"))
        factor = one.get("factor", 1.0)
        real = isinstance(factor, int | float) and not isinstance(factor, bool) and isfinite(factor)
        if form in ("su", "longrope", "llama3", None) or not real or not 1 <= factor < 10**6:
            continue
        original = one.get("original_max_position_embeddings")
        if form in ("yarn", "deepseek_yarn") and isinstance(original, int) and 0 < original < 10**9:
            longest = original
        return int(longest * factor)
    return longest


def read_file(path: str | Path) -> Model:
    """Return the model that the config.json at `path` describes, and the hf_quant_config.json beside it.

    That of FILE.json may be called FILE.hf_quant_config.json too. ValueError where a file cannot be read.
    """
    path = Path(path)
    name = path.resolve().parent.name if path.name == "config.json" else path.name.removesuffix(".json")
    beside = None
    for other in (path.with_name(f"{name}.hf_quant_config.json"), path.with_name("hf_quant_config.json")):
        if other.is_file():
            beside = parse(content(other), str(other))
            break
    return read(parse(content(path), str(path)), name, beside)


def content(path: Path) -> bytes:
    """Return the bytes of a file. ValueError where it cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} is too large for a config.json; give a model's own")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); give a config.json") from None
