"""What others measured: a set-up as fields, the figures measured on it, and where both stand.

`measurements()` gives the book's own, of `lib/data/measurements/`; `read(path)` a file in the same form, or
in the looser one of `lib.loose`. A file is one source. Everything in it is a fact of that source; what the
source leaves open is listed under `taken`.

    [source]
    id = "nim"                    # letters, digits, hyphens; the name of the file
    title = "…"                   # who says it
    address = "https://…"         # where
    published = "2025-08"         # when, as far as known: YYYY, YYYY-MM or YYYY-MM-DD (optional)
    seen = 2026-12-01             # the day on which it was read

    [[measurement]]
    id = "nim-llama-70b-5000"     # starts with the source's id
    locator = "…"                 # table, row or heading: where in the source the figures stand
    note = "…"                    # arithmetic, contradictions (optional)

The set-up, which is required unless a default is given:

    model = "Llama-3.1-70B"       # as in `lib.models` where it is there, without the precision
    precision = "fp8"             # of the weights: one of PRECISIONS
    cache_precision = "fp8"       # of the cache (default "bf16")
    mxfp4 = "marlin"              # how experts in MXFP4 are computed, where not as usual: one of WAYS
    gpu = "H100 SXM"              # as in `lib.hardware`, one of OTHER_GPUS, or "unknown"
    engine = "vLLM"               # one of ENGINES
    version = "0.11.0"            # or "unknown"
    instances = 2                 # replicas that share prompts and answers (default 1), each with
    tensor_parallel = 4           #   these degrees (default 1): tensor_parallel, expert_parallel,
    expert_parallel = 4           #   data_parallel (of attention), pipeline_parallel; an instance has
                                  #   tensor x data x pipeline GPUs
    prefill = { instances = 8 }   # in place of those five: pools apart, both with the same five fields,
    decode = { instances = 2, tensor_parallel = 4 }
    link = "400 Gb/s RDMA"        # between the pools, and its bytes a second in one direction
    link_bytes_per_s = 50e9
    prompt_tokens = 8192          # all the same; or { max = 8192, share = 0.8 }: evenly from share to all of
    output_tokens = { mean = 371 }  # max; or { mean = 371 }: the spread is not known (output: 1 by default)
    shared_tokens = 0             # tokens with which every prompt begins (default 0)
    context_tokens = 8192         # cached tokens of each stream, where a step alone was timed
    prefix_caching = false        # (default)
    token_budget = 8192           # of a step, and sequences of a step: the engine's default if not given
    max_sequences = 256
    graphs = true                 # recorded CUDA graphs (default); false: launched one by one
    front = 1                     # servers that a request passes (default 1, or 2 where pools are apart);
                                  #   0: timed inside the engine
    by_layer = true               # prefill sends each layer's cache at once (default: all at the end)
    route = "random"              # to a replica: one of ROUTES (default "in turn")
    requests = 500                # how many, or for how long, if known
    duration_s = 120

The load, one of:

    rate = 4.0                    # req/s, with arrivals = "poisson" (default) or "constant",
    burst = 45                    #   burst (default 1) requests at the same moment
    streams = 8                   # a closed loop: each stream sends when it has its answer; 1: one at a time
    batch = 64                    # that many together from start to end, nobody joins; 1: an idle engine
    offline = true                # all `requests` at once
    highest_rate = true           # the rate is what is sought, under a promise:
    promise = { ttft_s = 0.4, tpot_ms = 40, share = 0.9 }   # ttft_s, itl_ms, tpot_ms; share of the requests

Any of these may be a list: a series. All lists of a measurement have one length, and their n-th items belong
together. The figures:

    ttft_mean_ms = [406, 546]     # ttft, tpot, itl, e2e; mean, min, max, p50, p99 …; ms or s; tail: over the
                                  #   requests, the 99th percentile of a request's own gaps
    prefill_ms, step_ms           # one prompt, one step of decode
    kv_transfer_ms, pull_ms       # a cache to the other pool, or from a neighbour, with what goes with it
    batch_s                       # a batch from start to end
    output_tokens_per_s           # requests, input_tokens, output_tokens, total_tokens; also …_per_s_per_gpu
    met_percent                   # requests that kept the promise
    itl_p99_lowest_ms = 25        # lowest, highest: one number, over the whole series
    layer_compute_growth = 2.15   # last over first of a series whose times cannot be predicted

What is known of how they may be used:

    taken = { prompt_tokens = "why" }   # fields that the source does not state; without (and with lengths of
                                        #   known spread) the set-up is known
    chosen_late = ["prompt_tokens"]     # fields that were chosen, or looked up, after a look at a miss
    constant = ["ttft_mean_ms/0"]       # figures that gave a constant of the model: no test of it
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from lib import loose
from lib.hardware import GPUS
from lib.kernels import WAYS

PRECISIONS = ("bf16", "fp16", "fp8", "mxfp4", "nvfp4", "int8", "int4")
ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "DistServe", "unknown")
ROUTES = ("in turn", "random", "least loaded")
ARRIVALS = ("poisson", "constant")
OTHER_GPUS = ("H20",)
GPU_NAMES = (*(gpu.name for gpu in GPUS), *OTHER_GPUS, "unknown")
LOADS = ("rate", "streams", "batch", "offline", "highest_rate")
MOST = 10**15
CROWD = (
    100_000  # streams, sequences of a batch, requests at one moment: more than anybody serves, or can play
)
FIGURE = re.compile(
    r"(?P<what>(?:ttft|tpot|itl|tail|e2e)_(?:mean|min|max|p(?!00)\d\d)|prefill|step|kv_transfer|pull|batch)"
    r"(?P<over>_lowest|_highest)?_(?P<unit>ms|s)"
    r"|(?P<rate>requests|input_tokens|output_tokens|total_tokens)_per_s(?P<gpu>_per_gpu)?"
    r"|(?P<percent>met_percent)|(?P<growth>layer_(?:transfer|compute)_growth)"
)
WHAT_FIGURES = "a time such as ttft_mean_ms or step_ms, a rate such as output_tokens_per_s, or met_percent"

Number = Decimal | int


@dataclass(frozen=True)
class Source:
    """Who says it, where and when."""

    id: str
    title: str
    address: str
    seen: date
    published: str = ""


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt or an answer: the mean, and the ends of an even spread; None: not known."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Pool:
    """Equal instances and the degrees in which each divides its model."""

    instances: int = 1
    tensor_parallel: int = 1
    expert_parallel: int = 1
    data_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def gpus(self) -> int:
        """The GPUs of all instances; experts are divided over those that are there."""
        return self.instances * self.tensor_parallel * self.data_parallel * self.pipeline_parallel


@dataclass(frozen=True)
class Promise:
    """What is to be kept: seconds to the first token, milliseconds a gap or a token, by which share."""

    ttft_s: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class Setup:
    """One point: all that is known of how it was measured. Fields as in the file, but for those below.

    Either `shared` or both `prefill` and `decode` are given. `load` is one of LOADS, `amount` its req/s,
    streams or sequences of a batch; 0 where it has none.
    """

    model: str
    precision: str
    gpu: str
    engine: str
    version: str
    prompt_tokens: Lengths
    load: str
    amount: float
    cache_precision: str = "bf16"
    mxfp4: str = ""
    output_tokens: Lengths = field(default=Lengths(1, 1, 1))
    shared: Pool | None = None
    prefill: Pool | None = None
    decode: Pool | None = None
    link: str = ""
    link_bytes_per_s: float | None = None
    by_layer: bool = False
    shared_tokens: int = 0
    context_tokens: int | None = None
    prefix_caching: bool = False
    token_budget: int | None = None
    max_sequences: int | None = None
    graphs: bool = True
    front: int = 1
    route: str = "in turn"
    arrivals: str = "poisson"
    burst: int = 1
    requests: int | None = None
    duration_s: float | None = None
    promise: Promise | None = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that there are: one, or prefill and decode."""
        return tuple(pool for pool in (self.shared, self.prefill, self.decode) if pool)


@dataclass(frozen=True)
class Figure:
    """A measured number: its path within the measurement, its unit, and the points that it is about.

    `setups` is one point; for `_lowest`, `_highest` and `_growth` all points of the series. `constant` says
    that it gave a constant of the model.
    """

    path: tuple[str, ...]
    unit: str
    printed: Number
    setups: tuple[Setup, ...]
    constant: bool = False

    @property
    def measured(self) -> float:
        """The measured number as a float."""
        return float(self.printed)


@dataclass(frozen=True)
class Measurement:
    """The figures of one set-up, or of a series of them."""

    id: str
    source: Source
    locator: str
    figures: tuple[Figure, ...]
    note: str = ""
    taken: Mapping[str, str] = field(default_factory=dict)
    chosen_late: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the source states all of the set-up: nothing is taken, and the lengths' spread is told."""
        points = {setup for figure in self.figures for setup in figure.setups}
        spread = [lengths.low for one in points for lengths in (one.prompt_tokens, one.output_tokens)]
        return not self.taken and None not in spread


@cache
def measurements() -> dict[str, Measurement]:
    """Return the book's measurements: id -> measurement, by file and then in the file's order."""
    folder = files("lib.data").joinpath("measurements")
    texts = {file.name: file.read_text("utf8") for file in folder.iterdir() if file.name.endswith(".toml")}
    every = [found for name in sorted(texts) for found in parse(texts[name], name)]
    return {found.id: found for found in every}


def read(path: str | Path, refused: list[str] | None = None) -> list[Measurement]:
    """Return the measurements of a TOML file, in the form of this module or the looser one of `lib.loose`.

    Raise ValueError at the first that cannot be read; or, where a list `refused` is given, append there what
    is the matter with each and return the others.
    """
    return parse(Path(path).read_text("utf-8-sig"), Path(path).name, refused)


def parse(text: str, file: str, refused: list[str] | None = None) -> list[Measurement]:
    """Return the measurements in a file's text; `file` is its name, for errors. Otherwise like `read`."""
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}; use valid TOML") from None
    at = Place(file, "")
    entries = at.tables("measurement", tables.pop("measurement", None))
    source = _source(at, tables.pop("source", None)) if "source" in tables else None
    if not all(loose.is_loose(entry) for entry in entries):
        at.refuse_others(tables, ("source", "measurement"))
    found: dict[str, Measurement] = {}

    def add(work: Callable[[], Measurement]) -> None:
        try:
            one = work()
            if one.id in found:
                raise Place(file, one.id).error("id", one.id, "use an id that is not yet taken")
            found[one.id] = one
        except ValueError as error:
            if refused is None:
                raise
            refused.append(str(error))

    for entry in entries:
        if loose.is_loose(entry):
            _add_loose(file, entry, add)
        else:
            add(partial(_measurement, Place(file, str(entry.get("id", ""))), source, entry))
    return list(found.values())


def _add_loose(file: str, entry: dict[str, Any], add: Callable[[Callable[[], Measurement]], None]) -> None:
    """Add the tables of an entry whose set-up is prose, each as a measurement."""
    tables: dict[str, dict[str, Any]] = {}

    def one(key: str) -> Measurement:
        fielded = loose.fielded(entry, key, tables[key], GPU_NAMES, file)
        source = Source(entry["id"], entry["source"], "", date.min)
        return _measurement(Place(file, fielded["id"]), source, fielded)

    def first() -> Measurement:
        tables.update(loose.tables(entry, file, lambda name: FIGURE.fullmatch(name) is not None))
        return one(next(iter(tables)))

    add(first)
    for key in list(tables)[1:]:
        add(partial(one, key))


# ---------------------------------------------------------------------------------------- checks of one field


@dataclass(frozen=True)
class Place:
    """Where a value stands, for an error that says so."""

    file: str
    entry: str

    def error(self, name: str, value: object, do: str) -> ValueError:
        """Return the error: file, measurement, field, value and what would do."""
        where = f"{self.file}: {self.entry}" if self.entry else self.file
        shown = value if isinstance(value, Decimal) else repr(value)
        what = f"{name} is missing" if value is None else f"{name}={shown} will not do"
        return ValueError(" ".join(f"{where}: {what}; {do}".split()))

    def tables(self, name: str, value: object) -> list[dict[str, Any]]:
        """Return a list of at least one table."""
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.error(name, value, f"use at least one table [[{name}]]")
        return value

    def refuse_others(self, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Refuse a field that is not among the known ones."""
        for name, value in given.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                do = f"is {near[0]!r} meant?" if near else "it is no field: " + ", ".join(known)
                raise self.error(name, value, do)


def text(at: Place, name: str, value: object) -> str:
    """Return a string that says something."""
    if not isinstance(value, str) or not value.strip():
        raise at.error(name, value, "use a string that is not empty")
    return value


def one_of(*words: str) -> Callable[[Place, str, object], str]:
    """Return a check for one of the words."""

    def check(at: Place, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            lower = {word.lower(): word for word in words}
            near = get_close_matches(value.lower(), lower, 1) if isinstance(value, str) else []
            raise at.error(
                name, value, "use " + (repr(lower[near[0]]) if near else "one of " + ", ".join(words))
            )
        return value

    return check


def flag(at: Place, name: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise at.error(name, value, "use true or false")
    return value


def _only_true(at: Place, name: str, value: object) -> bool:
    if value is not True:
        raise at.error(name, value, "use true, or leave it out")
    return True


def number(at: Place, name: str, value: object) -> Number:
    """Return a finite number above 0 as it is printed."""
    return _between(at, name, value, MOST, "use a finite number above 0")


def positive(at: Place, name: str, value: object) -> float:
    """Return a finite number above 0 as a float."""
    return float(number(at, name, value))


def count(at: Place, name: str, value: object, least: int = 1) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < MOST:
        raise at.error(name, value, f"use a whole number of at least {least}")
    return value


def count_or_zero(at: Place, name: str, value: object) -> int:
    """Return a whole number of at least 0."""
    return count(at, name, value, 0)


def share(at: Place, name: str, value: object) -> float:
    """Return a number above 0 and at most 1."""
    return float(_between(at, name, value, 1, "use a number above 0 and at most 1"))


def _between(at: Place, name: str, value: object, most: int, do: str) -> Number:
    if isinstance(value, bool) or not isinstance(value, Decimal | int) or not Decimal(value).is_finite():
        raise at.error(name, value, do)
    if not 0 < value <= most or not float(value):
        raise at.error(name, value, do)
    return value


def lengths(at: Place, name: str, value: object) -> Lengths:
    """Return lengths in tokens: of a whole number, { max, share } or { mean }."""
    if not isinstance(value, dict):
        tokens = count(at, name, value)
        return Lengths(tokens, tokens, tokens)
    if set(value) == {"mean"}:
        return Lengths(positive(at, f"{name}.mean", value["mean"]), None, None)
    if set(value) == {"max", "share"}:
        high, low = count(at, f"{name}.max", value["max"]), share(at, f"{name}.share", value["share"])
        return Lengths(high * (1 + low) / 2, high * low, high)
    raise at.error(name, value, "use a whole number, { max = …, share = … } or { mean = … }")


def table(kind: type[Pool] | type[Promise], **checks: Callable[[Place, str, Any], Any]) -> Callable[..., Any]:
    """Return a check for a table with these fields, all of them optional, which returns a `kind`."""

    def check(at: Place, name: str, value: object) -> Any:
        if not isinstance(value, dict) or not value:
            raise at.error(name, value, "use a table with some of " + ", ".join(checks))
        at.refuse_others(value, tuple(checks))
        return kind(**{key: checks[key](at, f"{name}.{key}", item) for key, item in value.items()})

    return check


DEGREES = {item.name: count for item in fields(Pool)}
pool = table(Pool, **DEGREES)
promise = table(Promise, ttft_s=positive, itl_ms=positive, tpot_ms=positive, share=share)

REQUIRED: dict[str, Callable[[Place, str, Any], Any]] = {
    "model": text,
    "precision": one_of(*PRECISIONS),
    "gpu": one_of(*GPU_NAMES),
    "engine": one_of(*ENGINES),
    "version": text,
    "prompt_tokens": lengths,
}
OPTIONAL: dict[str, Callable[[Place, str, Any], Any]] = {
    "cache_precision": one_of(*PRECISIONS),
    "mxfp4": one_of(*WAYS),
    "output_tokens": lengths,
    **DEGREES,
    "prefill": pool,
    "decode": pool,
    "link": text,
    "link_bytes_per_s": positive,
    "by_layer": flag,
    "shared_tokens": count_or_zero,
    "context_tokens": count,
    "prefix_caching": flag,
    "token_budget": count,
    "max_sequences": count,
    "graphs": flag,
    "front": count_or_zero,
    "route": one_of(*ROUTES),
    "arrivals": one_of(*ARRIVALS),
    "burst": count,
    "requests": count,
    "duration_s": positive,
    "promise": promise,
    "rate": positive,
    "streams": count,
    "batch": count,
    "offline": _only_true,
    "highest_rate": _only_true,
}
SETUP = REQUIRED | OPTIONAL
ABOUT = ("id", "locator", "note", "taken", "chosen_late", "constant")


# ---------------------------------------------------------------------------------------- a measurement


def _source(at: Place, value: object) -> Source:
    if not isinstance(value, dict):
        raise at.error("source", value, "use a table [source]")
    at.refuse_others(value, tuple(item.name for item in fields(Source)))
    told = {name: text(at, f"source.{name}", value.get(name)) for name in ("id", "title", "address")}
    if not re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", told["id"]):
        raise at.error("source.id", told["id"], "use small letters, digits, points and hyphens")
    if not re.fullmatch(r"https?://\S+\.\S+", told["address"]):
        raise at.error("source.address", told["address"], "use an address that begins with https://")
    seen, published = value.get("seen"), value.get("published", "")
    if type(seen) is not date:
        raise at.error("source.seen", seen, "use a date such as 2026-12-01")
    if not isinstance(published, str) or not re.fullmatch(r"|\d{4}(-\d\d){0,2}", published):
        raise at.error(
            "source.published", published, 'use a date in quotes: "2025", "2025-08" or "2025-08-21"'
        )
    return Source(seen=seen, published=published, **told)


def _measurement(at: Place, source: Source | None, entry: dict[str, Any]) -> Measurement:
    if source is None:
        raise at.error("source", None, "begin the file with a table [source]")
    named = text(at, "id", entry.get("id"))
    if not named.startswith(source.id):
        raise at.error("id", named, f"begin it with the source's id, {source.id!r}")
    given = {name: value for name, value in entry.items() if FIGURE.fullmatch(name)}
    at.refuse_others(entry, (*ABOUT, *SETUP, *given))
    if not given:
        raise at.error("figures", None, f"give at least one: {WHAT_FIGURES}")
    told: dict[str, Any] = {name: value for name, value in entry.items() if name in SETUP}
    size = _size(at, told, given)
    points = tuple(_setup(at, _nth(told, index)) for index in range(size or 1))
    taken = _taken(at, entry.get("taken", {}))
    late = _names(at, "chosen_late", entry.get("chosen_late", []), tuple(taken | told))
    found = list(_figures(at, given, points, size))
    paths = tuple("/".join(figure.path) for figure in found)
    gave = _names(at, "constant", entry.get("constant", []), (*paths, *given))
    constants = {path for path in paths if path in gave or path.split("/")[0] in gave}
    return Measurement(
        id=named,
        source=source,
        locator=text(at, "locator", entry.get("locator")),
        figures=tuple(
            replace(one, constant=path in constants) for one, path in zip(found, paths, strict=True)
        ),
        note=text(at, "note", entry["note"]) if "note" in entry else "",
        taken=taken,
        chosen_late=late,
    )


def _size(at: Place, told: dict[str, Any], given: dict[str, Any]) -> int | None:
    """Return the length of a series, None where there is none: all lists must agree."""
    every = {name: value for name, value in (told | given).items() if isinstance(value, list)}
    sizes = {name: len(value) for name, value in every.items()}
    if not sizes:
        return None
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise at.error("series", shown, "use lists of one length, of at least one item")
    name = next(iter(sizes))
    if not any(one in told for one in sizes):
        raise at.error(name, every[name], "give a list in the set-up too, such as streams = […]")
    return sizes[name]


def _nth(told: Mapping[str, Any], index: int) -> dict[str, Any]:
    return {name: value[index] if isinstance(value, list) else value for name, value in told.items()}


def _setup(at: Place, told: dict[str, Any]) -> Setup:
    for name in REQUIRED:
        if name not in told:
            do = {"precision": PRECISIONS, "gpu": GPU_NAMES, "engine": ENGINES}.get(name)
            raise at.error(name, None, "give one of " + ", ".join(do) if do else f"give {name}")
    checked = {name: SETUP[name](at, name, value) for name, value in told.items()}
    loads = [name for name in LOADS if name in checked]
    if len(loads) != 1:
        raise at.error("load", " and ".join(loads) or None, "give exactly one of " + ", ".join(LOADS))
    load = loads[0]
    amount = checked.pop(load)
    for name in ("arrivals", "burst"):
        if name in checked and load not in ("rate", "highest_rate"):
            raise at.error(name, told[name], f"leave it out: a load by {load} has none")
    for name in ("streams", "batch", "burst", "instances"):
        if isinstance(told.get(name), int) and told[name] > CROWD:
            raise at.error(name, told[name], f"use at most {CROWD:,}")
    if "mxfp4" in checked and checked["precision"] != "mxfp4":
        raise at.error("mxfp4", told["mxfp4"], f"leave it out: precision={checked['precision']!r}")
    shortest = checked["prompt_tokens"].low or checked["prompt_tokens"].mean
    if checked.get("shared_tokens", 0) > shortest:
        raise at.error("shared_tokens", told["shared_tokens"], f"use at most a prompt's {shortest:g} tokens")
    if load == "offline" and "requests" not in checked:
        raise at.error("requests", None, "say how many come at once")
    if load == "highest_rate" and "promise" not in checked:
        raise at.error("promise", None, "say what the rate has to keep")
    degrees = {name: checked.pop(name) for name in DEGREES if name in checked}
    apart = [name for name in ("prefill", "decode") if name in checked]
    if len(apart) == 1:
        raise at.error("decode" if apart == ["prefill"] else "prefill", None, f"{apart[0]} needs it")
    if apart and degrees:
        name, value = next(iter(degrees.items()))
        raise at.error(name, value, "leave it out: prefill and decode have their own")
    for name in ("link", "link_bytes_per_s", "by_layer"):
        if name in checked and not apart:
            raise at.error(name, told[name], "leave it out: a link joins prefill and decode")
    checked.setdefault("front", 2 if apart else 1)
    return Setup(
        load=load,
        amount=0.0 if amount is True else amount,
        shared=None if apart else Pool(**degrees),
        **checked,
    )


def _figures(
    at: Place, given: Mapping[str, Any], points: tuple[Setup, ...], size: int | None
) -> Iterator[Figure]:
    for name, value in given.items():
        kind = FIGURE.fullmatch(name)
        assert kind is not None
        unit = _unit(kind)
        over = kind["over"] or kind["growth"]
        if over and (isinstance(value, list) or size is None):
            raise at.error(name, value, "use one number, over a series")
        if size is not None and not over and not isinstance(value, list):
            raise at.error(name, value, f"use a list of {size}, one number for each point of the series")
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            path = (name, str(index)) if isinstance(value, list) else (name,)
            about = points if over else (points[index],)
            printed = number(at, "/".join(path), item)
            _suits(at, kind, printed, about)
            yield Figure(path, unit, printed, about)


def _suits(at: Place, kind: re.Match[str], value: Number, points: tuple[Setup, ...]) -> None:
    """Refuse a figure that cannot be one of its set-up's."""
    name = kind[0]
    if kind["percent"] and value > 100:
        raise at.error(name, value, "use a percentage of at most 100")
    what = (kind["what"] or "").partition("_")[0]
    for one in points:
        if what in ("tpot", "itl", "tail") and one.output_tokens.mean <= 1:
            raise at.error(name, value, "give output_tokens: an answer of one token has no time between two")
        if what == "step" and one.load not in ("batch", "streams"):
            raise at.error(name, value, "give a batch or streams: a step is of so many sequences")


def _unit(kind: re.Match[str]) -> str:
    if kind["rate"]:
        what = "req" if kind["rate"] == "requests" else "tokens"
        return f"{what}/s per GPU" if kind["gpu"] else f"{what}/s"
    return kind["unit"] or ("%" if kind["percent"] else "times")


def _taken(at: Place, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise at.error("taken", value, "use a table: field = why")
    at.refuse_others(value, tuple(SETUP))
    return {name: text(at, f"taken.{name}", why) for name, why in value.items()}


def _names(at: Place, name: str, value: object, known: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise at.error(name, value, "use a list of names")
    for item in value:
        if item not in known:
            raise at.error(name, item, "use some of " + (", ".join(known)))
    return tuple(value)
