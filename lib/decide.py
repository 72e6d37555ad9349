"""Split or not: the guide's table as data, the questions in their order, and an answer with its numbers.

`decide` plays the workload on both layouts under vLLM's rules and walks the questions; `python -m lib.decide`
does it from a command line. Prompts are computed whole (no prefix caching), and every cache has the link to
itself. What the answer hangs on is tried as well: efficiencies, this book's typical errors, the handoff.
"""

import argparse
import random
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate, chain, repeat
from math import ceil, fsum, inf, log, sqrt
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from lib import calibration, checks, data, hf_config, measured, parallelism, workload
from lib.deployment import Collocated, Deployment, Disaggregated, Pull, least_loaded
from lib.engine import Engine, prices
from lib.goodput import SLO, Workload, attainment, mean_of, met
from lib.hardware import A100_80GB, GPU, GPUS, L40S, LINKS, PCIE_4, Link
from lib.kv_cache import BLOCK_TOKENS, transfer_time
from lib.models import MODELS, QWEN2_5_7B, Model
from lib.parallelism import USABLE_MEMORY
from lib.roofline import Efficiency, decode, ideal_time, prefill
from lib.scheduler import vllm
from lib.simulator import percentile, simulate
from lib.trace import Trace
from lib.workload import Request

STAY = "stay collocated"
SPLIT = "disaggregate"
FIX = "fix the transfer first"
MEASURE = "measure first"
NOTHING = "no layout meets the targets"
TOO_BIG = "does not fit"

SMALL_CHUNKS = 512  # tokens a step: what to try before a split
GIB = 2**30


# ---------------------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class Load:
    """Requests at `rate` a second; `draw(rate, seed)` makes them, at other rates as well.

    `alike`: whether every seed makes the same.
    """

    rate: float
    draw: Workload
    alike: bool = False

    def __post_init__(self) -> None:
        checks.positive("Load", rate=self.rate)


def poisson(
    rate: float, prompt: int = 8192, output: int = 256, spread: float = 0.0, count: int | None = None
) -> Load:
    """Return a load that arrives at random, with lengths in tokens that have these means.

    `spread` is their standard deviation over their mean: 0, all alike; else lognormal, at least 1 token.
    `count` requests; None: 100, or as many as come in 30 s if that is more, but at most 1,000.
    """
    checks.positive("poisson", rate=rate)
    checks.counts("poisson", prompt=prompt, output=output)
    checks.not_negative("poisson", spread=spread)
    if count is not None:
        checks.counts("poisson", count=count)

    def draw(rate: float, seed: int) -> Sequence[Request]:
        number = count or max(100, min(1000, ceil(30 * rate)))
        equal = workload.poisson(rate, number, seed, prompt, output)
        if not spread:
            return equal
        dice = random.Random(f"lengths {seed}")
        return [
            Request(request.arrival, about(prompt, spread, dice), about(output, spread, dice))
            for request in equal
        ]

    return Load(rate, draw)


def about(mean: float, spread: float, dice: random.Random) -> int:
    """Return a whole number of at least 1, lognormal with that mean and that deviation over the mean."""
    variance = log(1 + spread**2)
    return max(1, round(mean * dice.lognormvariate(-variance / 2, sqrt(variance))))


def recorded(requests: Iterable[Request]) -> Load:
    """Return the load of requests as they came; at another rate the same ones, closer or further apart."""
    rows = workload.check(requests)
    duration = rows[-1].arrival - rows[0].arrival
    if len(rows) < 2 or not duration:
        raise ValueError("recorded: all requests arrive at once; use at least two at different times")
    own = (len(rows) - 1) / duration

    def draw(rate: float, seed: int) -> Sequence[Request]:
        del seed  # there is one recording only
        return [replace(row, arrival=(row.arrival - rows[0].arrival) * own / rate) for row in rows]

    return Load(own, draw, alike=True)


@dataclass(frozen=True)
class Case:
    """Everything that an answer depends on; `decide` says what the parts are."""

    model: Model
    gpu: GPU
    load: Load
    slo: SLO
    link: Link | None
    handoff_s: float | None
    cpu_s_per_request: float | None
    history_can_change: bool
    gpus: int
    tensor_parallel: int
    new_tokens: int | None
    efficiency: Efficiency
    timed: bool  # whether that was measured
    target: float
    price_per_gpu_hour: float | None
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        checks.counts("decide", gpus=self.gpus, tensor_parallel=self.tensor_parallel)
        checks.shares("decide", target=self.target)
        if self.new_tokens is not None:
            checks.counts("decide", new_tokens=self.new_tokens)
        for name in ("handoff_s", "cpu_s_per_request", "price_per_gpu_hour"):
            if getattr(self, name) is not None:
                checks.not_negative("decide", **{name: getattr(self, name)})
        if self.gpus % self.tensor_parallel or self.gpus < 2 * self.tensor_parallel:
            raise ValueError(
                f"decide: gpus={self.gpus} will not do for tensor_parallel={self.tensor_parallel}; use a "
                f"multiple of it, and at least {2 * self.tensor_parallel}, for a split needs two engines"
            )
        if self.link is None and self.handoff_s is None:
            raise ValueError("decide: neither link nor handoff_s; give a link, or the handoff as measured")
        if max(request.output_tokens for request in self.requests) == 1:
            raise ValueError("decide: every answer has one token, so nothing is decoded; use longer answers")
        if self.new_tokens is not None and self.new_tokens > self.prompt:
            raise ValueError(
                f"decide: new_tokens={self.new_tokens} exceed the mean prompt of {self.prompt:.0f} tokens; "
                "use what a turn adds to its history, or none"
            )
        if self.link is not None and self.handoff_s is not None and self.handoff_s < self.wire / 2:
            raise ValueError(
                f"decide: handoff_s={self.handoff_s!r} is less than half of what {self.link.name} takes for "
                f"a mean prompt's cache, {self.wire:.3g} s; use a faster link, or measure again"
            )

    @cached_property
    def requests(self) -> Sequence[Request]:
        """The requests of the first seed, at the load's own rate."""
        return self.load.draw(self.load.rate, self.seeds[0])

    @cached_property
    def prompt(self) -> float:
        """Mean prompt, tokens."""
        return sum(request.prompt_tokens for request in self.requests) / len(self.requests)

    @cached_property
    def output(self) -> float:
        """Mean answer, tokens."""
        return sum(request.output_tokens for request in self.requests) / len(self.requests)

    @cached_property
    def longest(self) -> int:
        """Most tokens that a request of any seed has to cache."""
        drawn = [request for seed in self.seeds for request in self.load.draw(self.load.rate, seed)]
        return max(request.prompt_tokens + request.output_tokens for request in drawn)

    @property
    def wire(self) -> float:
        """Seconds that the link takes for the cache of a mean prompt; 0 without a link."""
        return transfer_time(self.model, round(self.prompt), self.link) if self.link else 0.0

    @property
    def handoff(self) -> float:
        """Seconds of a mean prompt's copy: measured, else predicted."""
        return self.wire if self.handoff_s is None else self.handoff_s

    @property
    def copy(self) -> float | Link:
        """The copy as the simulator wants it: the same for all if measured, else by each prompt's size."""
        if self.handoff_s is not None:
            return self.handoff_s
        return self.link or 0.0

    @property
    def engines(self) -> int:
        """How many copies of the model the GPUs hold."""
        return self.gpus // self.tensor_parallel


# ---------------------------------------------------------------------------------------- what is answered


@dataclass(frozen=True)
class Fork:
    """One question of the flow, its answer, the number behind it, and the rows of the table that it is."""

    question: str
    answer: bool
    number: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Option:
    """A layout at the asked load: latencies in seconds (means over the seeds), shares of requests in time.

    `goodput` in requests/s; `cost` per million output tokens at that rate, None without a price or goodput.
    """

    layout: str
    n_prefill: int
    n_decode: int
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    attainment: float
    goodput: float
    cost: float | None


@dataclass(frozen=True)
class Stress:
    """What the answer would be if something were otherwise."""

    name: str
    recommendation: str
    measure: str


@dataclass(frozen=True)
class Advice:
    """The recommendation and how it came about.

    - `meets`: whether any of the two layouts keeps the targets as given;
    - `leaning`: the answer if all numbers were right; it is the recommendation unless that is to measure;
    - `measure`: what to measure, if the answer hangs on it;
    - `also`: what holds besides: a render tier, the way back, a guard, smaller chunks first;
    - `handoff`, `handoff_limit`: seconds of the copy, and up to how many the split keeps the targets (None:
      not even without a copy);
    - `stresses`: what was tried.

    Without a layout that fits, `collocated` and `disaggregated` are None.
    """

    recommendation: str
    reason: str
    forks: tuple[Fork, ...]
    collocated: Option | None
    disaggregated: Option | None
    leaning: str
    meets: bool = False
    measure: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    handoff: float = 0.0
    handoff_limit: float | None = None
    stresses: tuple[Stress, ...] = ()


# ---------------------------------------------------------------------------------------- layouts


def default_limits(gpu: GPU) -> tuple[int, int]:
    """Return vLLM's token budget and its limit of requests at once on such a GPU (`vllm serve`, 0.33.0)."""
    if gpu.memory >= 160 * GIB:
        return 16384, 1024
    if gpu.memory >= 70 * GIB and gpu != A100_80GB:
        return 8192, 1024
    return 2048, 256


def engine(case: Case, budget: int | None = None) -> Engine:
    """Return one engine of the case, with vLLM's rules and defaults, or another token budget."""
    tokens, seqs = default_limits(case.gpu)
    return Engine(
        case.model,
        case.gpu,
        tensor_parallel=case.tensor_parallel,
        token_budget=budget or tokens,
        max_num_seqs=min(seqs, budget or seqs),
        efficiency=case.efficiency,
        policy=vllm,
        asynchronous=True,
        link=parallelism.between(case.gpu) if case.tensor_parallel > 1 else None,
    )


def together(case: Case, budget: int | None = None) -> Deployment:
    """Return all engines side by side, requests to the least loaded, as vLLM routes them."""
    return Collocated(engine(case, budget), case.engines, least_loaded)


def apart(case: Case, n_prefill: int, copy: float | Link) -> Deployment:
    """Return `n_prefill` engines for prompts, the others for answers, which pull the caches."""
    one = engine(case)
    return Disaggregated(one, one, n_prefill, case.engines - n_prefill, Pull(copy), least_loaded)


@lru_cache(maxsize=64)
def played(deployment: Deployment, rate: float, draw: Workload, seed: int) -> Trace:
    """Return the trace of one draw of a load; the last few are kept."""
    return simulate(draw(rate, seed), deployment)


def traces(case: Case, deployment: Deployment, rate: float | None = None) -> list[Trace]:
    """Return the traces of the load, one for each seed, at that rate: at its own if None."""
    return [played(deployment, rate or case.load.rate, case.load.draw, seed) for seed in case.seeds]


def share(case: Case, deployment: Deployment, slo: SLO | None = None, rate: float | None = None) -> float:
    """Return the share of requests that keep to the SLO at that rate: at the load's own if None."""
    return mean_of(attainment, traces(case, deployment, rate), slo or case.slo)


def passes(case: Case, deployment: Deployment, rate: float | None = None) -> bool:
    """Return whether that share is at least the target. A draw that can no longer help is not played."""
    shares: list[float] = []
    for seed in case.seeds:
        trace = played(deployment, rate or case.load.rate, case.load.draw, seed)
        shares.append(attainment(trace, case.slo))
        at_most = fsum([*shares, len(case.seeds) - len(shares)]) / len(case.seeds)
        if at_most < case.target:
            return False
    return True


def best_split(case: Case) -> int:
    """Return how many engines to give to prompts: the split that holds out longest as the load rises.

    The load rises by 30 % at a time; of those that hold out equally long, the one that then keeps most. Who
    fails at a load is taken to fail at higher ones. Copies take no time here: what they cost is another
    question.
    """
    splits = range(1, case.engines)
    if len(splits) == 1:
        return 1
    rates = tuple(accumulate(repeat(1.3, 11), mul, initial=case.load.rate))

    @cache
    def shares(n: int, place: int) -> float:
        return share(case, apart(case, n, 0.0), rate=rates[place])

    top = 0  # place of the first load at which none of those tried so far passes
    for n in splits:
        while top < len(rates) - 1 and shares(n, top) >= case.target:
            top += 1
    longest = [n for n in splits if not top or shares(n, top - 1) >= case.target]
    return max(longest, key=lambda n: shares(n, top))


def sustained(case: Case, deployment: Deployment) -> float:
    """Return the goodput to 5 %: all seeds together, found from the load's own rate up or down.

    At most 64 times that rate; 0 where not even a 64th passes.
    """

    def stands(rate: float) -> bool:
        return passes(case, deployment, rate)

    most = 6  # doublings, or halvings
    passed, failed = (0, most + 1) if stands(case.load.rate) else (-most - 1, 0)
    while failed - passed > 1:
        middle = (passed + failed) // 2
        passed, failed = (middle, failed) if stands(case.load.rate * 2.0**middle) else (passed, middle)
    if passed == most or failed == -most:
        return case.load.rate * 2.0**most if passed == most else 0.0
    low, high = case.load.rate * 2.0**passed, case.load.rate * 2.0**failed
    while high > 1.05 * low:
        mean = sqrt(low * high)
        if stands(mean):
            low = mean
        else:
            high = mean
    return low


def option(case: Case, layout: str, deployment: Deployment, pools: tuple[int, int]) -> Option:
    """Return what a layout does at the load, and how much load it stands."""
    seen = traces(case, deployment)
    best = sustained(case, deployment)
    spent = case.gpus * (case.price_per_gpu_hour or 0) / 3600  # a second
    return Option(
        layout,
        *pools,
        ttft_p50=mean_of(lambda trace: percentile(trace.ttft, 50), seen),
        ttft_p99=mean_of(lambda trace: percentile(trace.ttft, 99), seen),
        itl_p50=mean_of(Trace.itl, seen, 50),
        itl_p99=mean_of(Trace.itl, seen, 99),
        attainment=mean_of(attainment, seen, case.slo),
        goodput=best,
        cost=1e6 * spent / (best * case.output) if case.price_per_gpu_hour and best else None,
    )


# ---------------------------------------------------------------------------------------- the questions


@dataclass(frozen=True)
class Verdict:
    """Where the flow ends for a case, and what it has seen on the way: shares of requests in time."""

    recommendation: str
    together: float
    first: float  # together, first tokens alone
    rest: float  # together, gaps alone
    apart: float
    free: float  # apart, if copies took no time


def verdict(case: Case, n_prefill: int) -> Verdict:
    """Return where the flow ends, with that many engines for prompts."""
    both = share(case, together(case))
    first = share(case, together(case), SLO(ttft=case.slo.ttft)) if case.slo.ttft is not None else 1.0
    gaps = gaps_alone(case.slo)
    rest = share(case, together(case), gaps) if gaps else 1.0
    split, free = (share(case, apart(case, n_prefill, copy)) for copy in (case.copy, 0.0))
    late = first < case.target <= rest
    if both >= case.target:
        end = STAY
    elif late:  # the first token is what is late, and a split adds to every one of them
        end = MEASURE if split >= case.target else STAY
    elif split >= case.target:
        end = SPLIT
    else:
        end = FIX if free >= case.target else NOTHING
    return Verdict(end, both, first, rest, split, free)


def gaps_alone(slo: SLO) -> SLO | None:
    """Return what the SLO says of gaps; None if that is nothing."""
    gaps = (slo.tpot, slo.itl, slo.gap)
    return SLO(None, *gaps) if any(gaps) else None


def handoff_limit(case: Case, n_prefill: int) -> float | None:
    """Return up to how many seconds of copy, the same for all, the split keeps the targets, to 1 %.

    None: not even without a copy. Infinite: there is no target for first tokens.
    """
    if not passes(case, apart(case, n_prefill, 0.0)):
        return None
    if case.slo.ttft is None:
        return inf
    near, margin = left_for_copies(case, n_prefill)
    low, high = halved(case, n_prefill, near - margin, near + margin)
    if passes(case, apart(case, n_prefill, low)) and not passes(case, apart(case, n_prefill, high)):
        return low
    return halved(case, n_prefill, 0.0, inf)[0]


def halved(case: Case, n_prefill: int, good: float, bad: float) -> tuple[float, float]:
    """Return seconds of copy that pass and that fail, by halving from 0 and the target for first tokens.

    Those up to `good` are taken to pass, and those from `bad` on to fail.
    """
    assert case.slo.ttft is not None
    low, high = 0.0, case.slo.ttft
    while high - low > case.slo.ttft / 100:
        middle = (low + high) / 2
        if middle <= good or (middle < bad and passes(case, apart(case, n_prefill, middle))):
            low = middle
        else:
            high = middle
    return low, high


def left_for_copies(case: Case, n_prefill: int) -> tuple[float, float]:
    """Return how many seconds the targets leave for copies, if these only delay first tokens; and about.

    Copies that end within a step are noticed at its end, and who joins then makes it longer.
    """
    assert case.slo.ttft is not None
    near = shared(case.target, chain(*slack(case, n_prefill)))
    seen = traces(case, apart(case, n_prefill, 0.0))
    return near, 0.04 * case.slo.ttft + 2 * mean_of(Trace.itl, seen, 50)


def slack(case: Case, n_prefill: int) -> list[list[float]]:
    """For each draw and request how many seconds a copy might take; negative if it misses a target anyway."""
    assert case.slo.ttft is not None
    gaps, found = gaps_alone(case.slo), []
    for trace in traces(case, apart(case, n_prefill, 0.0)):
        calm = met(trace, gaps) if gaps else [True] * len(trace)
        found.append([case.slo.ttft - t if ok else -inf for t, ok in zip(trace.ttft, calm, strict=True)])
    return found


def shared(target: float, values: Iterable[float]) -> float:
    """Return the highest value that this share of all values reaches."""
    ordered = sorted(values, reverse=True)
    return ordered[ceil(target * len(ordered)) - 1]


def wire_factor() -> float:
    """Return by what factor the guide's own handoff outlasts the wire: the slowest one published."""
    theirs = float(data.read("published.toml")["kv_calculator"]["guide_measured_ms"]) / 1e3
    return theirs / transfer_time(QWEN2_5_7B, 8192, PCIE_4)


@cache
def model_error(model: Model, gpu: GPU) -> tuple[float, str]:
    """Return by what factor the book's predictions are typically off for the like, and of which benchmarks.

    The median over the figures of all published benchmarks of dense models, or of models with experts; on
    the same GPU, if there are any.
    """
    kin = [name for name in measured.ENTRIES if name != calibration.DATABASE]
    kin = [name for name in kin if (name in WITH_EXPERTS) == bool(model.experts)]
    same = [name for name in kin if gpu in measured.ENTRIES[name].gpus]
    for names in (same, kin):
        factors = {name: measured.factors(measured.predict(name)) for name in names}
        if any(factors.values()):
            break
    return median(chain(*factors.values())), ", ".join(name for name in names if factors[name])


WITH_EXPERTS = ("llm-d-h200", "mori-io-mi300x", "fabric-lib-qwen3-235b")
STEPS = "on one of your engines, the time of a mean prompt alone and of one decode step"
COPY = "the handoff: first tokens of a split at low load, less those of one engine"


def reached(
    model: Model, gpu: GPU, prompt: int, prefill_s: float, decode_s: float, tensor_parallel: int = 1
) -> Efficiency:
    """Return the efficiencies of an engine on which two things were timed, in seconds.

    A prompt of `prompt` tokens alone, and one decode step of a single stream with that context. ValueError
    where one is faster than the GPU's peak.
    """
    checks.positive("reached", prefill_s=prefill_s, decode_s=decode_s)
    ideal = [
        ideal_time(parallelism.divide(work, model, tensor_parallel), gpu)
        for work in (prefill(model, prompt), decode(model, 1, prompt))
    ]
    for name, least, given in zip(("prefill_s", "decode_s"), ideal, (prefill_s, decode_s), strict=True):
        if given < least:
            raise ValueError(
                f"reached: {name}={given!r} is less than {gpu.name} needs at its peak, {least:.3g} s for "
                f"{prompt:,} tokens; use the times of one prompt alone and of one step"
            )
    return Efficiency(ideal[0] / prefill_s, ideal[1] / decode_s)


def scaled(case: Case, factor: float) -> Case:
    """Return the case with both efficiencies times a factor, at most 1."""
    own = case.efficiency
    slower = Efficiency(min(1, own.compute * factor), min(1, own.bandwidth * factor), own.overhead)
    return replace(case, efficiency=slower)


def stresses(case: Case, n_prefill: int) -> tuple[Stress, ...]:
    """Return what the answer would be otherwise.

    At efficiencies 20 % off; unless they were measured, with this book's typical error; unless that was
    measured, with a handoff as slow as the guide's.
    """
    tried = [
        ("efficiencies 20 % lower", scaled(case, 0.8), STEPS),
        ("efficiencies 20 % higher", scaled(case, 1.2), STEPS),
    ]
    if not case.timed:
        error, _ = model_error(case.model, case.gpu)
        name = f"all steps {error:.2f} times as long, this book's typical error"
        tried.append((name, scaled(case, 1 / error), STEPS))
    if case.handoff_s is None:
        slow = case.wire * wire_factor()
        name = f"handoff {wire_factor():.0f} times the wire, {slow:.2g} s, as the guide's"
        tried.append((name, replace(case, handoff_s=slow), COPY))
    return tuple(Stress(name, verdict(other, n_prefill).recommendation, what) for name, other, what in tried)


def decide(
    model: Model,
    gpu: GPU,
    workload: Load | Sequence[Request],
    slo: SLO,
    link: Link | None,
    handoff_s: float | None = None,
    cpu_s_per_request: float | None = None,
    history_can_change: bool = False,
    gpus: int = 2,
    tensor_parallel: int = 1,
    new_tokens: int | None = None,
    efficiency: Efficiency | None = None,
    target: float = 0.9,
    price_per_gpu_hour: float | None = None,
    seeds: Sequence[int] = (0, 1),
) -> Advice:
    """Return whether to split `gpus` GPUs into a prefill and a decode pool for this workload, and why.

    - `workload`: a `Load`, or requests as recorded; `slo`: what at least `target` of them must keep to.
    - `handoff_s`: seconds of a prompt's copy as measured; None: predicted from the cache and the `link`.
    - `cpu_s_per_request`: CPU time around the engine (template, tokens, parsers), None: not asked.
    - `new_tokens`: what a turn adds to its history, on average; None: prompts have no history.
    - `history_can_change`: whether a template or a harness may edit earlier turns.
    - `tensor_parallel`: GPUs to one engine, in both pools.
    - `efficiency`: as measured (see `reached`); None: the GPU's, from `calibration`.

    ValueError where the arguments contradict each other.
    """
    load = workload if isinstance(workload, Load) else recorded(workload)
    return answer(Case(
        model, gpu, load, slo, link, handoff_s, cpu_s_per_request, history_can_change, gpus, tensor_parallel,
        new_tokens, calibration.efficiency(gpu) if efficiency is None else efficiency, efficiency is not None,
        target, price_per_gpu_hour, tuple(seeds)[:1] if load.alike else tuple(seeds),
    ))  # fmt: skip


@lru_cache(maxsize=16)
def answer(case: Case) -> Advice:
    """Return the advice for a case; the last few are kept."""
    fits = fit(case)
    if not fits.answer:
        return Advice(TOO_BIG, fits.number, (fits,), None, None, TOO_BIG)
    n_prefill = best_split(case)
    seen = verdict(case, n_prefill)
    limit = handoff_limit(case, n_prefill)
    tried = stresses(case, n_prefill)
    moved = tuple(stress for stress in tried if stress.recommendation != seen.recommendation)
    measure = tuple(dict.fromkeys(stress.measure for stress in moved))
    if seen.recommendation == MEASURE:
        measure = measure or (COPY,)
    pools = (n_prefill, case.engines - n_prefill)
    return Advice(
        recommendation=MEASURE if measure else seen.recommendation,
        reason=reason(case, seen, limit),
        forks=(fits, *forks(case, seen, limit)),
        collocated=option(case, f"{case.engines} engines for both", together(case), (0, 0)),
        disaggregated=option(
            case, f"{pools[0]} for prompts, {pools[1]} for answers", apart(case, n_prefill, case.copy), pools
        ),
        leaning=seen.recommendation,
        meets=max(seen.together, seen.apart) >= case.target,
        measure=measure,
        also=tuple(also(case, seen, n_prefill)),
        handoff=case.handoff,
        handoff_limit=limit,
        stresses=tried,
    )


def fit(case: Case) -> Fork:
    """Return whether an engine has room for the weights and the longest request; else what would have."""
    question = "Does the model fit?"
    degrees = (case.tensor_parallel, *(2**i for i in range(11) if 2**i > case.tensor_parallel))
    rooms = {degree: room(case, degree) for degree in degrees}
    needed, have = case.longest, rooms[case.tensor_parallel]
    usable = USABLE_MEMORY * case.tensor_parallel * case.gpu.memory
    weights = f"{case.model.resident_bytes / 1e9:.1f} GB of weights in {usable / 1e9:.1f} GB usable"
    if have >= needed:
        return Fork(
            question, True, f"{weights}; room for {have:,} tokens, the longest request has {needed:,}"
        )
    enough = [degree for degree in degrees if rooms[degree] >= needed]
    would = f"tensor_parallel={enough[0]} would do" if enough else "use a smaller model or a larger GPU"
    return Fork(question, False, f"{weights}; room for {max(0, have):,} of {needed:,} tokens; {would}")


def room(case: Case, degree: int) -> int:
    """Return for how many tokens an engine on `degree` GPUs has room: 0 where not even the weights fit."""
    try:
        one = Engine(case.model, case.gpu, tensor_parallel=degree)
    except ValueError:
        return 0
    return (one.blocks - 1) * BLOCK_TOKENS


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{100 * value:.0f}\u00a0%"  # not to be torn apart at the end of a line


def lasting(seconds: float) -> str:
    """Return seconds in words, with three digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def within(limit: float | None) -> str:
    """Return a handoff limit in words."""
    if limit is None:
        return "no handoff is short enough at this load"
    return "first tokens have no target" if limit == inf else f"the targets leave {lasting(limit)}"


def forks(case: Case, seen: Verdict, limit: float | None) -> Iterable[Fork]:
    """Yield the questions of the flow in their order, to its end; then those that are asked anyway."""
    how = "measured" if case.handoff_s is not None else "predicted"
    quick = limit is not None and case.handoff <= limit
    yield Fork("Is the handoff fast enough?", quick, f"{lasting(case.handoff)} {how}; {within(limit)}", (6,))
    calm = seen.together >= case.target
    kept = f"{percent(seen.together)} keep the targets, {percent(case.target)} asked"
    yield Fork("Does one pool keep the targets at this load?", calm, kept, (7,))
    if not calm:
        late = seen.first < case.target <= seen.rest
        parts = f"first tokens in time: {percent(seen.first)}; gaps in time: {percent(seen.rest)}"
        yield Fork("Is only the first token late?", late, parts, (5,))
        if not late:
            yield prompts_collide(case)
        better = seen.apart >= case.target
        number = f"{percent(seen.apart)} keep the targets apart, {percent(seen.free)} if copies took no time"
        yield Fork("Do two pools keep them, with this handoff?", better, number, (1, 2, 6))
    if case.new_tokens is not None:
        yield context_grows(case)
    if case.history_can_change:
        yield Fork("Can history change?", True, "as you say; a cache is right for one token sequence only")
    if case.cpu_s_per_request is not None:
        cores = case.cpu_s_per_request * case.load.rate
        number = f"{cores:.3g} cores at {case.load.rate:.3g} req/s"
        yield Fork("Does the frontend show in the GPU nodes' CPU profile?", cores >= 1, number, (4,))


def prompts_collide(case: Case) -> Fork:
    """Return how many gaps have somebody's prompt in their step, and what share of time prompts take."""
    gaps = mean_of(Trace.share_with_prefill, traces(case, together(case)), 2)
    alone = simulate([Request(0, round(case.prompt), 1)], Collocated(engine(case))).ttft[0]
    busy = case.load.rate * alone / case.engines
    number = f"{100 * gaps:.1f} % of gaps carry a prompt; {lasting(alone)} each, {percent(busy)} of the time"
    return Fork("Do prompts stall the answers?", gaps > 0.01, number, (1, 2))


def context_grows(case: Case) -> Fork:
    """Return what a turn's prefill takes if the last answer is pulled back, and if it is computed again."""
    assert case.new_tokens is not None
    one = Collocated(engine(case))
    answer = min(round(case.output), round(case.prompt) - case.new_tokens)
    back, again, whole = (prefill_seconds(one.engine, tokens, round(case.prompt)) for tokens in (
        case.new_tokens, case.new_tokens + answer, round(case.prompt)))  # fmt: skip
    number = (
        f"{case.new_tokens:,} of {case.prompt:,.0f} tokens are new: {lasting(back)} of prefill if all before "
        f"is kept, {lasting(again)} if the last answer is computed again, {lasting(whole)} if everything is"
    )
    return Fork("Does the context grow from turn to turn?", case.new_tokens < case.prompt, number, (3,))


def prefill_seconds(one: Engine, tokens: int, prompt: int) -> float:
    """Return the seconds in which an engine computes the last tokens of a prompt, in one step."""
    return prices(one).seconds(((tokens, prompt - tokens),), 0, 0)


def reason(case: Case, seen: Verdict, limit: float | None) -> str:
    """Return in a sentence why the flow ends where it does."""
    one, two, first = percent(seen.together), percent(seen.apart), percent(seen.first)
    copy = lasting(case.handoff)
    if seen.recommendation == STAY and seen.together >= case.target:
        return f"one pool keeps the targets for {one} of requests"
    if seen.recommendation == STAY:
        return f"the first token is late ({first} in time), and a split adds {copy} to each ({two} in time)"
    if seen.recommendation == MEASURE:
        return f"the first token is late ({first} in time); a split helps ({two}) if the handoff is as said"
    if seen.recommendation == SPLIT:
        return f"two pools keep the targets for {two} of requests, one pool for {one}"
    if seen.recommendation == FIX:
        return f"a split would keep the targets, but the handoff takes {copy} and {within(limit)}"
    return f"one pool keeps the targets for {one} of requests, two pools for {two}"


def also(case: Case, seen: Verdict, n_prefill: int) -> Iterable[str]:
    """Yield what holds besides the recommendation."""
    budget = default_limits(case.gpu)[0]
    if seen.together < case.target and budget > SMALL_CHUNKS:
        small = share(case, together(case, SMALL_CHUNKS))
        if small >= case.target:
            yield (
                f"try first: one pool in steps of {SMALL_CHUNKS} tokens keeps the targets for "
                f"{percent(small)} (this model understates what small steps cost)"
            )
    if max(seen.together, seen.apart) < case.target:
        yield more_gpus(case, n_prefill)
    if case.new_tokens is not None and case.new_tokens < case.prompt:
        yield "if split: transfer in both directions, or offload to a shared cache, so that answers return"
    if case.history_can_change:
        yield "guard reuse: compare token IDs, and reuse up to the first difference; or leave it off"
    if case.cpu_s_per_request is not None and case.cpu_s_per_request * case.load.rate >= 1:
        yield "give the frontend a render tier of its own"


def more_gpus(case: Case, n_prefill: int) -> str:
    """Return with how many times the GPUs, up to eight, the targets would be kept."""
    for times in (2, 4, 8):
        larger = replace(case, gpus=times * case.gpus)
        layouts = {"one pool": together(larger), "two pools": apart(larger, times * n_prefill, case.copy)}
        for name, layout in layouts.items():
            if passes(larger, layout):
                return f"{larger.gpus} GPUs in {name} would keep the targets"
    return f"{8 * case.gpus} GPUs would not keep the targets either: ask for less, or for another GPU"


# ---------------------------------------------------------------------------------------- the guide's table


@dataclass(frozen=True)
class Row:
    """A row of the guide's table in this book's words, and a case of it: arguments of `decide`."""

    number: int
    situation: str
    recommendation: str
    case: dict[str, Any]


def box(rate: float, slo: SLO, prompt: int = 8192, output: int = 256, **more: Any) -> dict[str, Any]:
    """Return arguments of `decide`: the guide's model, GPUs and bus, with a load and whatever else."""
    return {
        "model": QWEN2_5_7B,
        "gpu": L40S,
        "workload": poisson(rate, prompt, output),
        "slo": slo,
        "link": PCIE_4,
        **more,
    }


STEADY = SLO(ttft=2.0, itl=0.100)
ROWS = (
    Row(
        1,
        "the ITL p99 misses its target under the load of production",
        "split",
        box(0.4, STEADY, handoff_s=0.020),
    ),
    Row(
        2,
        "long prompts, many at once",
        "split, if the transfer is fast",
        box(0.8, SLO(ttft=5.0, itl=0.100), prompt=16384, handoff_s=0.040, gpus=4),
    ),
    Row(
        3,
        "chat or agents whose context grows from turn to turn",
        "split, with transfer both ways, or with a shared or offloaded cache",
        box(0.4, STEADY, prompt=8000, output=600, new_tokens=400, handoff_s=0.020, history_can_change=True),
    ),
    Row(
        4,
        "frontend work shows in the CPU profile of the GPU nodes",
        "a render tier of its own",
        box(4.0, SLO(ttft=2.0, itl=0.300), prompt=1024, output=128, cpu_s_per_request=0.3),
    ),
    Row(
        5,
        "the first token is what is late",
        "stay, or measure first",
        box(0.6, SLO(ttft=0.65, itl=0.300), handoff_s=0.020),
    ),
    Row(
        6,
        "the cache moves slowly",
        "mend that, or stay",
        box(0.4, STEADY, handoff_s=1.3),
    ),
    Row(
        7,
        "little traffic, or bursts, or patient users",
        "stay",
        box(0.05, SLO(ttft=10.0, tpot=0.100), handoff_s=0.020),
    ),
)
GUIDES_BOX = ROWS[5].case


# ---------------------------------------------------------------------------------------- the command line


def report(advice: Advice) -> str:
    """Return the advice as text, in lines of at most 78 characters."""
    lines = [f"Answer: {advice.recommendation}"]
    if advice.leaning != advice.recommendation:
        lines.append(f"If every number below is right: {advice.leaning}")
    lines += [f"  because {advice.reason}", *(f"  measure {what}" for what in advice.measure)]
    if advice.collocated and not advice.meets:
        lines.append("No layout of these GPUs meets the targets.")
    lines += ["", "How it came about"]
    lines += [f"  {fork.question} {'yes' if fork.answer else 'no'}: {fork.number}" for fork in advice.forks]
    if advice.also:
        lines += ["", "Besides", *(f"  {extra}" for extra in advice.also)]
    options = [option for option in (advice.collocated, advice.disaggregated) if option]
    if options:
        lines += ["", "Predicted, at the load asked", *compared(options)]
    if advice.stresses:
        lines += ["", "What the answer would be with"]
        lines += [f"  {stress.name}: {stress.recommendation}" for stress in advice.stresses]
    wrapped = [
        textwrap.wrap(line, 78, subsequent_indent="    ") if len(line) > 78 else [line] for line in lines
    ]
    return "\n".join([part for line in wrapped for part in line])


def compared(options: Sequence[Option]) -> list[str]:
    """Return the layout of each option, and then their numbers as lines of a table, side by side."""
    pools = ("one pool", "two pools")
    layouts = [f"  {pool}: {option.layout}" for pool, option in zip(pools, options, strict=True)]
    cells: list[tuple[str, ...]] = [("", *pools)]
    for name in ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99"):
        kind, percentile_ = name.upper().split("_")
        cells.append((f"{kind} {percentile_.lower()}", *(lasting(getattr(o, name)) for o in options)))
    cells.append(("keep the targets", *(percent(option.attainment) for option in options)))
    cells.append(("goodput", *(f"{option.goodput:.3g} req/s" for option in options)))
    if any(option.cost is not None for option in options):
        costs = ["–" if option.cost is None else f"{option.cost:.2f}" for option in options]
        cells.append(("cost, 1 M tokens", *costs))
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return layouts + [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def plain(name: str) -> str:
    """Return a name's letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


Thing = TypeVar("Thing", GPU, Link, Model)


def named(argument: str, wanted: str, catalogue: Sequence[Thing], or_else: str = "") -> Thing:
    """Return the one in the catalogue that is called so, or the only one whose name starts so."""
    exact = [thing for thing in catalogue if plain(thing.name) == plain(wanted)]
    found = exact or [thing for thing in catalogue if plain(thing.name).startswith(plain(wanted))]
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"{argument}: {wanted!r} is none; use one of {', '.join(thing.name for thing in catalogue)}{or_else}"
    )


def read_model(wanted: str) -> Model:
    """Return a model of the catalogue, or the one that a config.json describes."""
    path = Path(wanted)
    if not wanted.endswith(".json") and not path.is_file():
        return named("--model", wanted, MODELS, ", or the path of a config.json")
    try:
        config = hf_config.parse(path.read_text("utf8"), f"--model: {wanted}")
    except OSError as error:
        raise ValueError(f"--model: {wanted} cannot be read ({error.strerror}); give a path") from None
    return Model.from_config(config, name=path.parent.name if path.name == "config.json" else path.stem)


def read_link(wanted: str) -> Link:
    """Return a link of the catalogue, or one of so many Gb/s."""
    try:
        speed = float(wanted)
    except ValueError:
        return named("--link", wanted, LINKS, ", or a number of Gb/s")
    checks.positive("--link", Gbps=speed)
    return Link(f"{speed:g} Gb/s", speed * 1e9 / 8)


def read_load(arguments: argparse.Namespace) -> Load:
    """Return the load that the arguments describe: a file, or a rate and lengths."""
    if arguments.csv is None:
        if arguments.rate is None:
            raise ValueError("--rate: missing; give requests per second, or --csv FILE")
        return poisson(arguments.rate, arguments.prompt, arguments.output, arguments.spread)
    if arguments.rate is not None:
        raise ValueError("--rate and --csv: a recording has its own rate; use one of the two")
    try:
        return recorded(workload.read_csv(arguments.csv))
    except OSError as error:
        raise ValueError(f"--csv: {arguments.csv} cannot be read ({error.strerror}); give a path") from None


def read_efficiency(arguments: argparse.Namespace, model: Model, gpu: GPU) -> Efficiency | None:
    """Return the efficiencies of the times that were measured; None if none were."""
    times = (arguments.prefill_ms, arguments.decode_ms)
    if times == (None, None):
        return None
    if None in times:
        raise ValueError("--prefill-ms and --decode-ms: only one is given; measure both")
    return reached(model, gpu, arguments.prompt, times[0] / 1e3, times[1] / 1e3, arguments.tensor_parallel)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m lib.decide", description="Split prefill from decode, or not?"
    )
    add = made.add_argument
    add("--model", required=True, help="a name in the book's catalogue, or the path of a config.json")
    add("--gpu", required=True, help=", ".join(gpu.name for gpu in GPUS))
    add(
        "--link",
        help="between the pools: " + ", ".join(link.name for link in LINKS) + ", or a number of Gb/s",
    )
    add("--gpus", type=int, default=2, help="GPUs in all (2)")
    add("--tensor-parallel", type=int, default=1, help="GPUs to one engine (1)")
    add("--rate", type=float, help="requests per second, arriving at random")
    add("--prompt", type=int, default=8192, help="mean tokens of a prompt (8192)")
    add("--output", type=int, default=256, help="mean tokens of an answer (256)")
    add("--spread", type=float, default=0.0, help="standard deviation of both over the mean (0: all alike)")
    add("--csv", help="requests as recorded, in place of these: " + ", ".join(workload.COLUMNS))
    add("--new-tokens", type=int, help="tokens that a turn adds to its history, on average")
    add("--history-can-change", action="store_true", help="a template or a harness may edit earlier turns")
    add("--ttft-s", type=float, help="target: seconds to the first token")
    add("--tpot-ms", type=float, help="target: mean gap of an answer")
    add("--itl-ms", type=float, help="target: 99th percentile of an answer's gaps")
    add("--gap-ms", type=float, help="target: longest gap of an answer")
    add("--target", type=float, default=0.9, help="share of requests that must keep them (0.9)")
    add("--handoff-s", type=float, help="seconds of a cache's transfer, as measured")
    add("--prefill-ms", type=float, help="measured: a prompt of --prompt tokens alone")
    add("--decode-ms", type=float, help="measured: a decode step of one stream with that context")
    add("--cpu-ms-per-request", type=float, help="CPU time around the engine")
    add("--price", type=float, help="of a GPU, an hour")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Print the advice for the command line's arguments; 2 and a message where they will not do."""
    arguments = parser().parse_args(given)
    try:
        print(report(advise(arguments)))
    except ValueError as error:
        print(f"python -m lib.decide: {error}", file=sys.stderr)
        return 2
    return 0


def advise(arguments: argparse.Namespace) -> Advice:
    """Return the advice that the command line asks for."""
    limits = {
        name: None if value is None else value / 1e3
        for name, value in (("tpot", arguments.tpot_ms), ("itl", arguments.itl_ms), ("gap", arguments.gap_ms))
    }
    if arguments.ttft_s is None and not any(limits.values()):
        raise ValueError("no target; give at least one of --ttft-s, --tpot-ms, --itl-ms, --gap-ms")
    cpu = arguments.cpu_ms_per_request
    model, gpu = read_model(arguments.model), named("--gpu", arguments.gpu, GPUS)
    return decide(
        model,
        gpu,
        read_load(arguments),
        SLO(arguments.ttft_s, **limits),
        read_link(arguments.link) if arguments.link else None,
        handoff_s=arguments.handoff_s,
        cpu_s_per_request=None if cpu is None else cpu / 1e3,
        history_can_change=arguments.history_can_change,
        gpus=arguments.gpus,
        tensor_parallel=arguments.tensor_parallel,
        new_tokens=arguments.new_tokens,
        efficiency=read_efficiency(arguments, model, gpu),
        target=arguments.target,
        price_per_gpu_hour=arguments.price,
    )


if __name__ == "__main__":
    sys.exit(main())
