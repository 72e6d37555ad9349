"""From a set-up's fields to its figures: engines, load, what is played, and what is read off.

`predict(setup, names)` plays one point of `lib.measurements` once and returns a prediction for each figure
asked for. Nothing here was fitted to a figure that it predicts. What an engine's rules are where a source
does not say is decided by its name and year: `rules`. Where a load is too long to play, a shorter one stands
for it, and `play` says which.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from json import loads
from math import fsum
from typing import Any

from lib import calibration, kernels, kv_cache
from lib.goodput import SLO, attainment, goodput
from lib.hardware import GPU, GPUS, PCIE_4, Link
from lib.kernels import ByKernels, Runtime
from lib.measurements import FIGURE, Lengths, Pool, Setup
from lib.models import MODELS, Latent, Model, PerWeight, read
from lib.names import ALIASES, plain
from lib.parallelism import interconnect, room
from lib.roofline import Efficiency, prefill, step_time
from lib.scheduler import Policy, separate, vllm
from lib.simulator import (
    Collocated,
    Deployment,
    Disaggregated,
    Drawn,
    Engine,
    Pull,
    Streamed,
    Trace,
    alternate,
    least_loaded,
    percentile,
    simulate,
)
from lib.simulator.deployment import Route
from lib.workload import ClosedLoop, Request, bursts, lengths, poisson

MOST = 900  # requests that are played of a load at a rate
WAVES = 4  # requests of each stream that are played of a closed loop
USUAL = 10  # requests of each stream, where a source does not say: InferenceX's
SEEDS = (0, 1, 2)
OF_LINE_RATE = 0.87  # of an RDMA link: 87 of 100 GB/s over 4 x 200 Gb/s, Mooncake's README
BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": (4 + 20 / 128) / 8, "nvfp4": 4.5 / 8}
ARITHMETIC = {"fp8": "fp8", "nvfp4": "fp4"}
ENDINGS = re.compile(r"(-(instruct|it|chat|hf|base|fp8|fp4|bf16|nvfp4|mxfp4|int4|gptq|awq|hybrid))+$", re.I)


@dataclass(frozen=True)
class Parts:
    """What a prediction takes into account: all of it, unless a part is switched off.

    - `kernels`: a step is the sum of its kernels (`lib.kernels`); else the roofline's one maximum at
      calibrated efficiencies, with all-reduces at the wire's rate.
    - `front`: what a request spends outside the engine, at each server that it passes.
    - `cpu`: the CPU between two steps of engines of 2023 and 2024, and launches where nothing is recorded.
    - `apart`: prompts in steps of their own, where an engine does that.
    - `wire`: RDMA at 87 % of its line rate.
    - `uneven`: whole experts on GPUs of their own, where a set-up has that.
    - `copies`: heads of a cache that several GPUs hold, each of which sends them.
    - `late`: what was chosen after a look at a miss (`chosen_late` of a measurement).
    """

    kernels: bool = True
    front: bool = True
    cpu: bool = True
    apart: bool = True
    wire: bool = True
    uneven: bool = True
    copies: bool = True
    late: bool = True


NEW = Parts()
OLD = Parts(**dict.fromkeys(Parts.__dataclass_fields__, False))


# ---------------------------------------------------------------------------------------- models and GPUs


@cache
def known(name: str) -> Model | None:
    """Return the model of that plain name: of the catalogue, or of `lib/data/models.json`; None: neither."""
    for model in MODELS:
        if plain(ENDINGS.sub("", model.name.replace(" ", "-"))) == name:
            return model
    said = others().get(name)
    return replace(read(said["config"], said["name"]), source=said["source"]) if said else None


@cache
def others() -> dict[str, dict[str, Any]]:
    """Return the entries of `lib/data/models.json` by plain name."""
    text = files("lib.data").joinpath("models.json").read_text("utf8")
    return {
        plain(ENDINGS.sub("", name.replace(" ", "-"))): {"name": name, **said}
        for name, said in loads(text).items()
    }


@cache
def model_of(name: str, precision: str = "bf16", cache_precision: str = "bf16") -> Model:
    """Return the model of that name with weights and cache of those precisions.

    In MXFP4 experts alone, in the others all layers; embedding and head stay as they are. ValueError where
    the name is not known.
    """
    aliases = {plain(alias): plain(ENDINGS.sub("", own.replace(" ", "-"))) for alias, own in ALIASES.items()}
    bare = re.sub(
        r"^meta-(?=llama)", "", ENDINGS.sub("", name.rpartition("/")[2].replace(" ", "-")), flags=re.I
    )
    tried = [plain(bare), aliases.get(plain(name), ""), aliases.get(plain(bare), "")]
    found = next((model for one in tried if (model := known(one))), None)
    if found is None:
        raise ValueError(f"model={name!r} is not known; add its config.json to lib/data/models.json")
    cached = BYTES.get(cache_precision, 2)
    if precision == "mxfp4" and found.arithmetic == "bf16" and not _whole(found):
        return replace(found, cache_bytes=cached)
    each = BYTES.get(precision, (4 + 8 / 32) / 8)
    kinds = PerWeight(experts=each) if precision == "mxfp4" else PerWeight(mixer=each, ffn=each, experts=each)
    groups = tuple(replace(group, bytes=kinds) for group in found.groups)
    named = f"{found.name.removesuffix(' FP8').removesuffix(' Int4')} {precision.upper()}"
    arithmetic = ARITHMETIC.get(precision, "bf16")
    return replace(found, name=named, groups=groups, arithmetic=arithmetic, cache_bytes=cached)


def _whole(model: Model) -> bool:
    return all(group.bytes.experts == 2 for group in model.groups)


def gpu_of(name: str) -> GPU:
    """Return the GPU of that name. ValueError where it is not known."""
    for gpu in GPUS:
        if gpu.name == name:
            return gpu
    raise ValueError(f"gpu={name!r} is not known, so no time can be predicted")


# ---------------------------------------------------------------------------------------- engines


@dataclass(frozen=True)
class Rules:
    """How an engine fills and starts its steps where a set-up does not say."""

    policy: Policy
    runtime: Runtime
    asynchronous: bool
    token_budget: int
    max_sequences: int


def old(setup: Setup, year: str = "", parts: Parts = NEW) -> bool:
    """Say whether an engine in Python is of 2023 or 2024: by its version, else by when it was published.

    vLLM 0.6 of late 2024 is not: its release is what took the CPU's time out of a step. (Chosen late: until
    its figures were seen to come out too slow, it counted as one.)
    """
    if setup.engine == "TensorRT-LLM":
        return False
    if setup.engine == "vLLM" and re.match(r"0\.6\.", setup.version):
        return not parts.late
    if setup.engine == "vLLM" and re.match(r"0\.[1-5]\.", setup.version):
        return True
    if said := re.search(r"20\d\d", setup.version):
        return said[0] <= "2024"
    return setup.version == "unknown" and bool(year) and year[:4] <= "2024"


def rules(setup: Setup, gpu: GPU, year: str = "", parts: Parts = NEW) -> Rules:
    """Return an engine's rules.

    Prompts in steps of their own: SGLang, and engines in Python of 2023 and 2024. Tokens of a step and
    sequences in progress are vLLM's defaults for the GPU's memory (0.31.0), 2,048 sequences elsewhere. A step
    is composed while the one before runs from vLLM 0.14 on, in SGLang and TensorRT-LLM.
    """
    past, wide = old(setup, year, parts), gpu.memory >= 75e9 and "A100" not in gpu.name
    alone = parts.apart and (past or setup.engine == "SGLang")
    runtime = kernels.OF_2024 if past and parts.cpu else kernels.TODAY
    if setup.engine == "SGLang" and gpu.memory < 35e9 and parts.cpu:
        runtime = replace(runtime, recorded=24)  # the most streams of its CUDA graphs on such a card
    if not setup.graphs and parts.cpu:
        runtime = replace(runtime, recorded=0)
    runtime = replace(runtime, mxfp4=setup.mxfp4)
    early = re.match(r"0\.([0-9]|1[0-3])\.", setup.version) is not None
    ahead = not past and not (setup.engine == "vLLM" and early)
    sequences = 2048 if setup.engine != "vLLM" else 1024 if wide and not past else 256
    return Rules(separate if alone else vllm, runtime, ahead, 8192 if wide else 2048, sequences)


@dataclass(frozen=True)
class PlusCPU:
    """The roofline's price, and so many seconds of CPU between two steps."""

    cpu: float

    def seconds_on(self, engine: Any) -> Callable[[Any, int, int], float]:
        """Return the seconds of a step on that engine."""
        from lib.simulator.engine import ByWork

        alone = ByWork(step_time).seconds_on(engine)
        return lambda chunks, batch, context: alone(chunks, batch, context) + self.cpu


def engine(setup: Setup, pool: Pool, parts: Parts = NEW, year: str = "") -> Engine:
    """Return an engine of a pool. ValueError where it divides its model as nothing here does."""
    if pool.data_parallel > 1 or pool.pipeline_parallel > 1:
        name = "data_parallel" if pool.data_parallel > 1 else "pipeline_parallel"
        raise ValueError(f"{name}={getattr(pool, name)} within an instance is not modelled")
    degree = pool.tensor_parallel
    if pool.expert_parallel not in (1, degree):
        raise ValueError(f"expert_parallel={pool.expert_parallel} on {degree} GPUs is not modelled")
    model, gpu = model_of(setup.model, setup.precision, setup.cache_precision), gpu_of(setup.gpu)
    if pool.expert_parallel > 1 and not model.experts:
        raise ValueError(f"expert_parallel={pool.expert_parallel} will not do: {model.name} has no experts")
    own = rules(setup, gpu, year, parts)
    budget = setup.token_budget or own.token_budget
    if own.policy is separate and not setup.token_budget and old(setup, year, parts):
        budget = max(budget, round(setup.prompt_tokens.high or setup.prompt_tokens.mean))  # whole prompts
    common: dict[str, Any] = dict(
        tensor_parallel=degree, token_budget=budget, max_num_seqs=setup.max_sequences or own.max_sequences,
        kv_blocks=_squeezed(setup, pool, model, gpu), policy=own.policy, asynchronous=own.asynchronous,
        prefix_caching=setup.prefix_caching,
    )  # fmt: skip
    if parts.kernels:
        price = ByKernels(pool.expert_parallel > 1 and parts.uneven, own.runtime)
        return Engine(model, gpu, price=price, **common)
    reached: Efficiency = calibration.efficiency(gpu)
    link = interconnect(gpu, degree) if degree > 1 else None
    plain_price = PlusCPU(own.runtime.cpu) if own.runtime.cpu else step_time
    return Engine(model, gpu, efficiency=reached, link=link, price=plain_price, **common)


def _squeezed(setup: Setup, pool: Pool, model: Model, gpu: GPU) -> int | None:
    """Return the cache blocks of a set-up that left less than a tenth of memory free; None: no need."""
    prompt, output, _ = sizes(setup)
    needed = kv_cache.blocks(prompt + output) + 1
    beside = gpu.memory - model.resident_bytes / pool.tensor_parallel
    if beside < 0 or room(model, gpu, pool.tensor_parallel) >= needed * kv_cache.BLOCK_TOKENS:
        return None
    return needed


def link_of(setup: Setup, parts: Parts = NEW) -> Link:
    """Return what joins the pools: its rate as given, RDMA at what it reaches; PCIe 4.0 if none is."""
    if not setup.link_bytes_per_s:
        return PCIE_4
    slow = parts.wire and not setup.link.startswith(("NVLink", "PCIe"))
    return Link(
        setup.link or "a link", setup.link_bytes_per_s * (OF_LINE_RATE if slow else 1), 0.0, "the source"
    )


def deployment(setup: Setup, parts: Parts = NEW, year: str = "", seed: int = 0) -> Deployment:
    """Return the engines of a set-up, joined."""
    ways: dict[str, Route] = {"in turn": alternate, "random": Drawn(seed), "least loaded": least_loaded}
    way = ways[setup.route]
    if setup.shared:
        return Collocated(engine(setup, setup.shared, parts, year), setup.shared.instances, way)
    assert setup.prefill is not None
    assert setup.decode is not None
    first, second = (engine(setup, pool, parts, year) for pool in (setup.prefill, setup.decode))
    link, pulls = link_of(setup, parts), setup.engine == "vLLM" and not setup.by_layer
    handoff = Streamed(link) if setup.by_layer else Pull(link) if pulls else link
    second = replace(second, policy=vllm)
    return Disaggregated(first, second, setup.prefill.instances, setup.decode.instances, handoff, way)


# ---------------------------------------------------------------------------------------- loads


def early(setup: Setup, chosen_late: Sequence[str]) -> Setup:
    """Return the set-up without what was chosen after a look at a miss."""
    plain_values: dict[str, Any] = {"burst": 1, "route": "in turn", "mxfp4": ""}
    for name in ("prompt_tokens", "output_tokens"):
        one: Lengths = getattr(setup, name)
        longest = one.high or one.mean
        plain_values[name] = Lengths(longest, longest, longest)
    return replace(setup, **{name: plain_values[name] for name in chosen_late if name in plain_values})


def sizes(setup: Setup) -> tuple[int, int, float]:
    """Return the longest prompt and answer, and which share of both is the shortest.

    Where their spreads differ or are not known, all are as long as the mean.
    """
    both = (setup.prompt_tokens, setup.output_tokens)
    shares = {round(one.low / one.high, 3) if one.low and one.high else 1.0 for one in both if one.mean > 1}
    if len(shares) == 1 and all(one.high for one in both):
        return round(both[0].high or 1), round(both[1].high or 1), shares.pop()
    return max(1, round(both[0].mean)), max(1, round(both[1].mean)), 1.0


def arrivals(setup: Setup, seed: int, rate: float | None = None) -> Sequence[Request]:
    """Return the requests of a load at a rate: as many as were sent, at most `MOST`."""
    rate = rate or setup.amount
    prompt, output, share = sizes(setup)
    wanted = setup.requests or round((setup.duration_s or 200 / rate) * rate)
    count = max(1, min(wanted, MOST) // setup.burst)
    if setup.arrivals == "constant":
        return bursts(setup.burst, count, setup.burst / rate, prompt, output, share, seed)
    if setup.burst == 1:
        return poisson(rate, count, seed, prompt, output, share)
    drawn = iter(lengths(count * setup.burst, seed, prompt, output, share))
    starts = poisson(rate / setup.burst, count, seed)
    return [Request(one.arrival, *next(drawn)) for one in starts for _ in range(setup.burst)]


@dataclass(frozen=True)
class Run:
    """What was played of a set-up: the trace, and what stands for the whole.

    `streams`: of a closed loop, whose rate follows from its mean time for a request; 0 otherwise. `scale`: by
    how much more is done than was played (replicas of which one was). `wave`: which share of all requests of
    a closed loop is in its first wave, all at once, and in its last, after which nobody comes.
    """

    trace: Trace
    streams: int = 0
    scale: float = 1.0
    wave: float | None = None


def play(setup: Setup, parts: Parts = NEW, year: str = "", seed: int = 0) -> Run:
    """Play a set-up.

    Of a closed loop `WAVES` requests of each stream, on one replica of several; of a load at a rate at most
    `MOST` requests. All requests at once are all played if they are at most twice as many as fit together;
    otherwise a closed loop of as many as fit stands for them.
    """
    prompt, output, share = sizes(setup)
    where = deployment(setup, parts, year, seed)
    if setup.load == "rate":
        return Run(simulate(arrivals(setup, seed), where))
    if setup.load == "batch":
        if isinstance(where, Collocated):
            where = replace(where, replicas=1)
        return Run(simulate(bursts(int(setup.amount), 1, 0.0, prompt, output, share, seed), where))
    streams, copies = int(setup.amount), 1
    if setup.load == "offline":
        one = where.pools[-1]
        fit = min(one.engine.max_num_seqs, max(1, one.engine.kv_tokens // (prompt + output))) * one.count
        count = setup.requests or 1
        if count <= 2 * fit:
            return Run(simulate(bursts(count, 1, 0.0, prompt, output, share, seed), where))
        streams = fit
    if isinstance(where, Collocated) and where.replicas > 1 and streams >= where.replicas:
        copies, streams = where.replicas, streams // where.replicas
        where = replace(where, replicas=1)
    total = max(streams, (setup.requests or USUAL * streams * copies) // copies)
    loop = ClosedLoop(streams, min(WAVES * streams, total), prompt, output, share, seed)
    wave = streams / total if total > WAVES * streams else None
    return Run(simulate(loop, where), streams, copies, wave)


# ---------------------------------------------------------------------------------------- figures

Statistic = Callable[[Sequence[float]], float]


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return fsum(values) / len(values)


def statistic(name: str) -> Statistic:
    """Return the function of a name: mean, min, max, p99."""
    plain_ones: dict[str, Statistic] = {"mean": mean, "min": min, "max": max}
    if name in plain_ones:
        return plain_ones[name]
    return lambda values: percentile(values, int(name[1:]))


def over_waves(run: Run, values: Sequence[float], of: str) -> float:
    """Return a statistic over all requests of a load: each wave that was played weighs what it did."""
    if run.wave is None:
        return statistic(of)(values)
    streams, edge = run.streams, run.wave / run.streams
    middle = (1 - 2 * run.wave) / (len(values) - 2 * streams)
    weights = [edge] * streams + [middle] * (len(values) - 2 * streams) + [edge] * streams
    if of == "mean":
        return fsum([value * weight for value, weight in zip(values, weights, strict=True)])
    if of in ("min", "max"):
        return statistic(of)(values)
    counted = [(value, round(1e6 * weight)) for value, weight in zip(values, weights, strict=True)]
    return percentile(sorted(counted), int(of[1:]))


def read_off(run: Run, setup: Setup, name: str, parts: Parts) -> float:
    """Return the prediction of one figure, in its own unit."""
    trace, kind = run.trace, FIGURE.fullmatch(name)
    assert kind is not None
    prompt, *_ = sizes(setup)
    ahead = setup.front * kernels.front(prompt) if parts.front and setup.front else 0.0
    if kind["rate"]:
        return _rate(run, setup, kind["rate"], ahead) / (gpus(setup) if kind["gpu"] else 1)
    if kind["percent"]:
        asked = _slo(setup, ahead)
        return 100 * attainment(trace, asked)
    unit = 1e3 if kind["unit"] == "ms" else 1.0
    what, _, which = kind["what"].partition("_")
    if what == "batch":
        return unit * (max(trace.finish) + ahead)
    if what == "itl":
        gaps = trace.pooled_gaps
        if which != "mean":
            return unit * percentile(gaps, int(which[1:]))
        return unit * fsum(seconds * count for seconds, count in gaps) / sum(count for _, count in gaps)
    if what == "tail":
        return unit * statistic(which)([percentile(gaps, 99) for gaps in trace.gaps() if gaps])
    values = {"ttft": trace.ttft, "e2e": trace.e2e, "tpot": trace.tpot}[what]
    extra = 0.0 if what == "tpot" else ahead
    return unit * (over_waves(run, values, which) + extra)


def gpus(setup: Setup) -> int:
    """Return the GPUs of a set-up; decode's alone where nothing is promised about first tokens."""
    if setup.decode and setup.promise and setup.promise.ttft_s is None:
        return setup.decode.gpus
    return sum(pool.gpus for pool in setup.pools)


def _slo(setup: Setup, ahead: float = 0.0) -> SLO:
    told = setup.promise
    if told is None:
        raise ValueError("met_percent needs a promise, which the set-up lacks")
    first = None if told.ttft_s is None else told.ttft_s - ahead
    second, third = (None if ms is None else ms / 1e3 for ms in (told.tpot_ms, told.itl_ms))
    return SLO(first, second, third)


def _rate(run: Run, setup: Setup, what: str, ahead: float) -> float:
    """Requests or tokens a second."""
    rows = run.trace.requests
    counted: dict[str, tuple[int, int, int]] = {  # of each request, token of a prompt, token of an answer
        "requests": (1, 0, 0),
        "input_tokens": (0, 1, 0),
        "output_tokens": (0, 0, 1),
        "total_tokens": (0, 1, 1),
    }
    each, asked, said = counted[what]
    done = [each + asked * row.prompt_tokens + said * row.output_tokens for row in rows]
    if run.streams:  # as many in progress, each for so long
        return run.scale * run.streams * mean(done) / (over_waves(run, run.trace.e2e, "mean") + ahead)
    return sum(done) / (max(run.trace.finish) + ahead)


def highest(setup: Setup, parts: Parts = NEW, year: str = "") -> float:
    """Return the highest rate, in requests a second, at which the promise is kept."""
    target = setup.promise.share if setup.promise and setup.promise.share else 0.9
    ahead = setup.front * kernels.front(sizes(setup)[0]) if parts.front else 0.0
    load = replace(setup, requests=300)
    found = goodput(
        deployment(setup, parts, year),
        _slo(setup, ahead),
        lambda rate, seed: arrivals(load, seed, rate),
        target=target,
        seeds=(0, 1),
        precision=0.2,
    )
    return found.rate


def copies(model: Model, degree: int) -> float:
    """Return how often a cache crosses whose heads are too few for so many GPUs: each GPU sends its own.

    Latents are the same on all of them, and cross once.
    """
    latent = any(isinstance(mixer, Latent) for group in model.groups for mixer in group.mixers)
    return 1.0 if latent else model.copies(degree)


def alone(setup: Setup, name: str, parts: Parts = NEW, year: str = "") -> float | None:
    """Return the seconds of a step or a copy by itself; None for a figure that has to be played."""
    prompt, *_ = sizes(setup)
    if name.startswith(("kv_transfer", "pull")):
        model = model_of(setup.model, setup.precision, setup.cache_precision)
        link = link_of(setup, parts)
        if not setup.link_bytes_per_s:
            raise ValueError("a transfer over a link whose rate is not given is not predicted")
        sender = setup.pools[0].tensor_parallel if parts.copies else 1
        return link.time(copies(model, sender) * kv_cache.size(model, prompt))
    one = engine(setup, setup.pools[-1], parts, year) if name.startswith(("step", "prefill")) else None
    if one is None:
        return None
    batch = int(setup.amount) if setup.load in ("batch", "streams") else 1
    if name.startswith("step"):
        return one.step_seconds((), batch, batch * (setup.context_tokens or prompt))
    ahead = setup.front * kernels.front(prompt) if parts.front and setup.front else 0.0
    trace = simulate(bursts(batch, 1, 0.0, prompt, 1), Collocated(replace(one, asynchronous=False)))
    return max(trace.finish) + ahead


def predict(
    setup: Setup, names: Sequence[str], parts: Parts = NEW, year: str = "", seeds: Sequence[int] = SEEDS
) -> dict[str, float | str]:
    """Return for each figure of these names, measured at one point, a prediction in the figure's unit.

    Or, a sentence, why there is none. What is played at a rate is played once for each seed, and the mean is
    taken.
    """
    found: dict[str, float | str] = {}
    rest = []
    for name in names:
        try:
            seconds = alone(setup, name, parts, year)
            if seconds is None:
                rest.append(name)
            else:
                found[name] = seconds * (1e3 if name.endswith("_ms") else 1)
        except ValueError as error:
            found[name] = str(error)
    try:
        played = _played(setup, rest, parts, year, seeds) if rest else {}
    except ValueError as error:
        return found | dict.fromkeys(rest, str(error))
    return found | played


def _played(
    setup: Setup, names: Sequence[str], parts: Parts, year: str, seeds: Sequence[int]
) -> dict[str, float]:
    if setup.load == "highest_rate":
        if other := [name for name in names if not name.startswith("requests_per_s")]:
            raise ValueError(f"{other[0]} at the highest rate is not predicted")
        rate = highest(setup, parts, year)
        return {name: rate / (gpus(setup) if name.endswith("gpu") else 1) for name in names}
    runs = [play(setup, parts, year, seed) for seed in (seeds if setup.load == "rate" else seeds[:1])]
    return {name: mean([read_off(run, setup, name, parts) for run in runs]) for name in names}


def growth(name: str, setups: Sequence[Setup]) -> float:
    """Return how a layer's transfer or arithmetic grows from the first point of a series to the last."""
    one = model_of(setups[0].model, setups[0].precision, setups[0].cache_precision)
    first, last = (round(setup.prompt_tokens.mean) for setup in (setups[0], setups[-1]))
    if name.startswith("layer_transfer"):
        return kv_cache.size(one, last) / kv_cache.size(one, first)
    return prefill(one, last).flops / prefill(one, first).flops
