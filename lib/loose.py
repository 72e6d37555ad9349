"""Measurements whose set-up is prose: what can be read of it, as the fields of `lib.measurements`.

The form is that of a list of facts which others keep:

    [[measurement]]
    id = "some-model-h200"
    source = "who published it"
    setup = "gpt-oss-120b MXFP4, vllm 0.18.0, h200_sxm, outputs 1024; closed loop: so many streams"
    in_1024_tp1 = { streams = [4, 8], ttft_mean_ms = [85.74, 105.9], tpot_mean_ms = [6.332, 9.059] }

From `setup` come model, precision, GPU, engine and version, degrees (TP8; 8 x TP1 prefill + 2 x TP4 decode;
1P1D; expert parallelism), lengths (prompts 2,000, outputs 250), the load (45 req/s; one request at a time;
batch 1) and how many requests. Keys give lengths and degrees (in_1024_tp2) or a GPU (a100_tp2); lists beside
the figures give a series. What is found nowhere and cannot be left out is named in one ValueError.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lib.names import ALIASES

NOTES = ("id", "source", "setup", "state")
SERIES = ("streams", "prompt_tokens", "output_tokens", "rate", "batch", "requests", "context_tokens")
NAMES = {  # other words for the names of `lib.measurements`
    "token_ms": "step_ms",
    "decode_ms": "step_ms",
    "recompute_ms": "prefill_ms",
    "ttft_ms": "ttft_mean_ms",
    "tpot_ms": "tpot_mean_ms",
    "itl_ms": "itl_mean_ms",
    "e2e_ms": "e2e_mean_ms",
    "e2e_s": "e2e_mean_s",
    "tokens_per_s": "output_tokens_per_s",
    "prefill_tokens_per_s": "input_tokens_per_s",
    "prefill_tokens": "prompt_tokens",
    "concurrency": "streams",
}
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "tensorrt-llm": "TensorRT-LLM"}
FAMILY = "gpt-oss|llama|qwen|opt|minimax|deepseek|kimi|mixtral|mistral|glm|nemotron|gemma|phi|falcon"
MODEL = re.compile(rf"(?<![\w/])(?:[\w.]+/)?((?:meta-)?(?:{FAMILY})[\w.]*(?:-[\w.]+)*)", re.IGNORECASE)
ENDINGS = re.compile(r"-(?:fp8|fp4|nvfp4|mxfp4|bf16|fp16|int4|instruct|gptq|awq|chat)(?=-|$)", re.IGNORECASE)
PRECISION = re.compile(r"(?<![a-z])(mxfp4|nvfp4|fp8|bf16|fp16|int8|int4|fp4)(?![a-z0-9])", re.IGNORECASE)
ENGINE = re.compile(r"(?<![a-z/])(vllm|sglang|trtllm|tensorrt-llm)(?:\s+v?(\d[\w.+]*))?", re.IGNORECASE)
WHOLE = r"(\d+(?:,\d{3})*)(?![\d.])"
COUNTS = {
    "prompt_tokens": rf"(?:prompts?|inputs?)(?: of)? {WHOLE}",
    "output_tokens": rf"(?:outputs?|answers?)(?: of)? {WHOLE}",
    "requests": rf"{WHOLE} (?:requests|prompts|samples)",
    "duration_s": rf"for {WHOLE} s\b",
    "token_budget": rf"budget(?: of)? {WHOLE}",
}
LOADS = {
    "streams": rf"{WHOLE} streams|concurrency {WHOLE}",
    "batch": rf"batch(?: size)? {WHOLE}",
}
ANY_LOAD = ("streams", "batch", "rate", "offline")
POOL = re.compile(r"(?:(\d+) x )?TP(\d+)\s+(prefill|decode)", re.IGNORECASE)
DEGREE = re.compile(r"(?<![a-z])(?:TP\s?=?\s?|tensor parallelism )(\d+)(?! x| and|,? \d+ and)", re.IGNORECASE)


def is_loose(entry: Mapping[str, Any]) -> bool:
    """Say whether an entry is of this form: a set-up in prose."""
    return isinstance(entry.get("setup"), str)


def tables(
    entry: Mapping[str, Any], file: str, is_figure: Callable[[str], bool]
) -> dict[str, dict[str, Any]]:
    """Return the tables of figures of an entry: key -> figures and series, named as in `lib.measurements`.

    Figures that stand by themselves are a table without a key; tp8_ttft_ms is the ttft_ms of a table tp8.
    Raise ValueError where id or source is missing, or there are none.
    """
    named = entry.get("id")
    for name, value in (("id", named), ("source", entry.get("source"))):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{file}: {named or 'measurement'}: {name}={value!r} says nothing; use a string")
    found: dict[str, dict[str, Any]] = {}
    for key, value in entry.items():
        if key in NOTES or _name(key) in SERIES:
            continue
        if isinstance(value, dict) and not _by_statistic(value):
            found.setdefault(key, {}).update(_flat(value))
            continue
        parts = key.split("_")
        starts = [i for i in range(len(parts)) if all(map(is_figure, _flat({"_".join(parts[i:]): value})))]
        start = min(starts, default=0)
        found.setdefault("_".join(parts[:start]), {}).update(_flat({"_".join(parts[start:]): value}))
    if not found:
        raise ValueError(
            f"{file}: {named}: no figures; use a table such as in_1024_tp1 = {{ streams = […], … }}"
        )
    return found


def fielded(
    entry: Mapping[str, Any], key: str, inner: Mapping[str, Any], gpus: tuple[str, ...], file: str
) -> dict[str, Any]:
    """Return a table of an entry as the fields of `lib.measurements`.

    Raise ValueError where the key cannot be read or the set-up leaves out what is needed.
    """
    where = f"{file}: {entry['id']}" + (f": {key}" if key else "")
    told = _prose(entry["setup"], gpus)
    series = {_name(name): value for name, value in entry.items() if _name(name) in SERIES}
    beside = (series if _fits(inner, series) else {}) | dict(inner)
    if set(ANY_LOAD) & set(beside):  # a load among the figures takes the place of the one in prose
        told = {name: value for name, value in told.items() if name not in ("arrivals", *ANY_LOAD)}
    fields = told | _key(key, told, gpus, where) | beside
    named = f"{entry['id']}-{key}" if key else entry["id"]
    return _complete(fields, entry["setup"], where) | {"id": named, "locator": key or "top"}


def _name(key: str) -> str:
    return NAMES.get(key, key)


def _by_statistic(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(re.fullmatch(r"mean|min|max|p\d\d", key) for key in value)


def _flat(inner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the names of `lib.measurements`: ttft_ms = { p50 = 1 } is ttft_p50_ms = 1."""
    flat: dict[str, Any] = {}
    for key, value in inner.items():
        if isinstance(value, dict) and _by_statistic(value):
            what, _, unit = key.rpartition("_")
            flat |= {f"{what}_{statistic}_{unit}": item for statistic, item in value.items()}
        else:
            flat[_name(key)] = value
    return flat


def _fits(inner: Mapping[str, Any], series: Mapping[str, Any]) -> bool:
    """Say whether the entry's own series belongs to a table: a list of it is as long."""
    sizes = {len(value) for value in series.values() if isinstance(value, list)}
    return any(isinstance(value, list) and len(value) in sizes for value in inner.values())


def _whole(words: str) -> int:
    return int(words.replace(",", ""))


def _prose(prose: str, gpus: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that a set-up in prose states."""
    told: dict[str, Any] = {"taken": {}}
    if model := MODEL.search(prose):
        told["model"] = ENDINGS.sub("", model[1])
    if precision := PRECISION.search(prose):
        word = precision[1].lower()
        told["precision"] = {"fp4": "nvfp4"}.get(word, word)
    told |= _gpu(prose, gpus)
    if engine := ENGINE.search(prose):
        told |= {"engine": ENGINES[engine[1].lower()], "version": engine[2] or "unknown"}
    for name, pattern in COUNTS.items():
        if words := re.search(pattern, prose):
            told[name] = _whole(words[1])
    if "prefix caching on" in prose:
        told["prefix_caching"] = True
    return told | _degrees(prose) | _load(prose)


def _gpu(words: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """Return the GPU named first, by its name or an alias: 16 H200 and h200_sxm are the H200."""
    found = []
    for called, name in [*((name, name) for name in gpus), *ALIASES.items()]:
        pattern = re.escape(called).replace(r"\ ", "[ _-]?")
        place = re.search(rf"(?<![a-z0-9]){pattern}s?(?![a-z0-9])", words, re.IGNORECASE)
        if place and name in gpus:
            found.append((place.start(), -len(called), name))
    return {"gpu": min(found)[-1]} if found else {}


def _degrees(prose: str) -> dict[str, Any]:
    """Return the degree of one pool, or of both: 8 x TP1 prefill + 2 x TP4 decode; TP8, 1P1D."""
    pools = {
        kind.lower(): {"instances": int(many or 1), "tensor_parallel": int(degree)}
        for many, degree, kind in POOL.findall(prose)
    }
    if set(pools) == {"prefill", "decode"}:
        return pools
    found = DEGREE.search(prose)
    degrees = {"tensor_parallel": int(found[1])} if found else {}
    if pairs := re.search(r"(\d+)P(\d+)D", prose):
        both = zip(("prefill", "decode"), pairs.groups(), strict=True)
        return {kind: {"instances": int(many)} | degrees for kind, many in both}
    return degrees


def _load(prose: str) -> dict[str, Any]:
    if "one request at a time" in prose:
        return {"streams": 1}
    for name, pattern in LOADS.items():
        if words := re.search(pattern, prose):
            return {name: _whole(next(filter(None, words.groups())))}
    if words := re.search(r"(\d+(?:\.\d+)?) req/s", prose):
        steady = "constant" if re.search("constant rate|evenly", prose) else "poisson"
        return {"rate": Decimal(words[1]), "arrivals": steady}
    return {"offline": True} if re.search("offline|all at once", prose) else {}


def _key(key: str, told: Mapping[str, Any], gpus: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return what a key says: in_1024_tp1, tp8, a100_tp2, pd, or the name of an engine."""
    found: dict[str, Any] = {}
    for part in re.findall(r"(?:in|out)_\d+|[a-z0-9]+", key):
        if words := re.fullmatch(r"in_(\d+)", part):
            found["prompt_tokens"] = int(words[1])
        elif words := re.fullmatch(r"out_(\d+)", part):
            found["output_tokens"] = int(words[1])
        elif words := re.fullmatch(r"tp(\d+)", part):
            found["tensor_parallel"] = int(words[1])
        elif part == "two":
            found["instances"] = 2
        elif gpu := _gpu(part, gpus):
            found |= gpu
        elif part in ENGINES:
            found["engine"] = ENGINES[part]
        elif part == "pd" and "prefill" in told:
            continue
        else:
            raise ValueError(
                f"{where}: {part!r} in the key cannot be read; use in_N, tpN, a GPU or an engine"
            )
    return found


def _complete(fields: dict[str, Any], prose: str, where: str) -> dict[str, Any]:
    """Return the fields with what may be taken where nothing is said; refuse what lacks more."""
    taken = dict(fields["taken"])
    if "prefill" in fields and "tensor_parallel" in fields:
        fields = {name: value for name, value in fields.items() if name != "tensor_parallel"}
    if {"prefill_ms", "step_ms"} & set(fields):
        together = fields.get("batch", fields.get("streams", 1))
        fields = {name: value for name, value in fields.items() if name not in ("arrivals", *ANY_LOAD)}
        fields |= {"batch": together, "front": 0}
    if re.search("expert.parallel", prose, re.IGNORECASE) and "tensor_parallel" in fields:
        fields["expert_parallel"] = fields["tensor_parallel"]
    if "precision" not in fields:
        fields["precision"] = "mxfp4" if "gpt-oss" in fields.get("model", "") else "bf16"
        taken["precision"] = "not said"
    if "random length" in prose:
        said = re.search(r"(0\.\d+) to 1", prose)
        for name in ("prompt_tokens", "output_tokens"):
            if isinstance(fields.get(name), int):
                fields[name] = {"max": fields[name], "share": Decimal(said[1]) if said else 1}
                taken[name] = "random up to the length given, its share not stated"
    needs = {
        "model": "say which, such as Llama-3.1-70B",
        "gpu": "say which, such as H200",
        "prompt_tokens": "say prompts N, or in_N in the key, or give a list prompt_tokens",
        "load": "say N req/s, one request at a time, batch N or offline, or give a list streams",
    }
    has = set(fields) | ({"load"} if set(ANY_LOAD) & set(fields) else set())
    missing = [f"{name} ({do})" for name, do in needs.items() if name not in has]
    if missing:
        raise ValueError(f"{where}: the set-up lacks " + "; ".join(missing))
    fields.setdefault("version", "unknown")
    if "engine" not in fields:
        fields["engine"], taken["engine"] = "unknown", "not said"
    if "arrivals" in fields and "rate" not in fields:
        fields.pop("arrivals")
    return fields | {"taken": taken}
