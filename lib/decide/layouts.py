"""The layouts, under vLLM's rules and defaults: what they do at a load, and how much they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import ceil, floor, inf, log
from typing import NamedTuple

from lib import capacity, parallelism
from lib.capacity import Busy
from lib.decide.case import Case, Load
from lib.decide.prices import alone, priced
from lib.goodput import SLO, met
from lib.hardware import A100_80GB, GPU, Link
from lib.scheduler import vllm
from lib.simulator import (
    Collocated,
    Deployment,
    Disaggregated,
    Engine,
    Pull,
    Trace,
    least_loaded,
    percentile,
)
from lib.steady import FIRST, MOST, settle

GIB = 2**30
ROUGH = 0.1  # to what a share is known that is shown
AMPLE = 8  # times as many engines as could keep up, at most
SMALL_STEPS = (512, 256)  # token budgets to try before a split
NEAR = 8  # splits that are played, of those that their capacity is best for
SEARCHED = 256  # requests at most, where a rate or a number of GPUs is searched
FINE = 1.1  # between two rates that are told apart
RISE = 1.3  # of the load, where splits are told apart


class Pool(NamedTuple):
    """One pool for both phases: engines of so many GPUs; `budget`: tokens a step, None: vLLM's default."""

    engines: int
    degree: int
    budget: int | None = None

    def __str__(self) -> str:
        said = f"{self.engines} x TP{self.degree}"
        return said if self.budget is None else f"{said}, --max-num-batched-tokens {self.budget}"


class Split(NamedTuple):
    """Two pools: engines for prompts and for answers, and the GPUs of one."""

    n_prefill: int
    prefill_degree: int
    n_decode: int
    decode_degree: int

    def __str__(self) -> str:
        return (
            f"{self.n_prefill} x TP{self.prefill_degree} for prompts, "
            f"{self.n_decode} x TP{self.decode_degree} for answers"
        )


Sight = tuple[Pool | Split, bool]  # a layout, and whether its copies take no time
Known = Callable[[Pool | Split, bool], "Seen | None"]


def default_limits(gpu: GPU) -> tuple[int, int]:
    """Return vLLM's token budget and its limit of requests at once on such a GPU (`vllm serve`, 0.33.0)."""
    if gpu.memory >= 160 * GIB:
        return 16384, 1024
    if gpu.memory >= 70 * GIB and gpu != A100_80GB:
        return 8192, 1024
    return 2048, 256


def engine(case: Case, degree: int, budget: int | None = None) -> Engine:
    """Return one engine of the case, with vLLM's rules and defaults, or another token budget."""
    tokens, seqs = default_limits(case.gpu)
    price, efficiency = priced(case.price, case.model, case.gpu, case.timed, case.longer, tokens)
    return Engine(
        case.model,
        case.gpu,
        tensor_parallel=degree,
        token_budget=budget or tokens,
        max_num_seqs=min(seqs, budget or seqs),
        policy=vllm,
        asynchronous=True,
        link=parallelism.interconnect(case.gpu, degree) if degree > 1 else None,
        price=price,
        efficiency=efficiency,
    )


def together(case: Case, pool: Pool) -> Deployment:
    """Return engines side by side, requests to the least loaded, as vLLM routes them."""
    return Collocated(engine(case, pool.degree, pool.budget), pool.engines, least_loaded)


def apart(case: Case, split: Split, copy: float | Link) -> Deployment:
    """Return engines for prompts, and others for answers, which pull the caches."""
    prefill, decode = engine(case, split.prefill_degree), engine(case, split.decode_degree)
    return Disaggregated(prefill, decode, split.n_prefill, split.n_decode, Pull(copy), least_loaded)


# ------------------------------------------------------------------ what they do at a load


@lru_cache(maxsize=256)
def most(one: Engine, role: str, load: Load) -> tuple[float, float]:
    """Return the requests/s of such a load that an engine does at most, and how many it then holds."""
    return capacity.most(one, capacity.drawn(load.sample), role)


def busy(deployment: Deployment, load: Load, rate: float) -> tuple[Busy, ...]:
    """Return how busy a rate of such requests keeps each pool."""
    each = [most(pool.engine, pool.role, load) for pool in deployment.pools]
    return capacity.at_rate(deployment, rate, each)


def highest(deployment: Deployment, load: Load) -> float:
    """Return the requests/s that keep no pool of a deployment overloaded."""
    return capacity.OVERLOADED / max(pool.share for pool in busy(deployment, load, 1.0))


@dataclass(frozen=True)
class Seen:
    """What a layout does at a load: shares of requests that keep the targets.

    `share` keeps all of them, give or take `spread`; `first` the one of first tokens, `rest` those of gaps.
    `busy` are its pools. Where one is overloaded nothing is played: the shares are 0, there is no `trace`.
    `steady`: whether queues were.
    """

    share: float
    spread: float
    first: float
    rest: float
    busy: tuple[Busy, ...]
    steady: bool = True
    trace: Trace | None = None
    judged: tuple[int, int] = (0, 0)

    @property
    def overloaded(self) -> Busy | None:
        """The busiest pool, if its queue would grow without end."""
        worst = max(self.busy, key=lambda pool: pool.share)
        return worst if worst.overloaded else None


def seen(
    case: Case,
    deployment: Deployment,
    rate: float | None = None,
    count: int = MOST,
    rough: float = 1.0,
    first: int = FIRST,
) -> Seen:
    """Return what a layout does at a rate: at the load's own if None. The last few are kept.

    `first` to `count` requests are played; a share that is clear of the target is known to `rough`.
    """
    rate = rate or case.load.rate
    return played(deployment, case.load, rate, case.slo, case.target, count, rough, first)


@lru_cache(maxsize=32)
def played(
    deployment: Deployment,
    load: Load,
    rate: float,
    slo: SLO,
    target: float,
    count: int,
    rough: float,
    first: int,
) -> Seen:
    """Return the same of a deployment and a load by themselves."""
    pools = busy(deployment, load, rate)
    if any(pool.overloaded for pool in pools):
        return Seen(0.0, 0.0, 0.0, 0.0, pools)
    found = settle(deployment, partial(load.draw, rate), slo, target, count, first, rough)
    trace, (start, end) = found.trace, found.judged
    rows = slice(start, end)
    gaps = gaps_alone(slo)
    soon = met(trace, SLO(slo.ttft))[rows] if slo.ttft is not None else [True]
    rest = met(trace, gaps)[rows] if gaps else [True]
    return Seen(
        found.share, found.spread, sum(soon) / len(soon), sum(rest) / len(rest), pools, found.steady, trace,
        found.judged,
    )  # fmt: skip


def gaps_alone(slo: SLO) -> SLO | None:
    """Return what the SLO says of gaps; None if that is nothing."""
    gaps = (slo.tpot, slo.itl, slo.gap)
    return SLO(None, *gaps) if any(gaps) else None


def passes(case: Case, deployment: Deployment, rate: float | None = None, count: int = SEARCHED) -> bool:
    """Return whether enough requests keep the targets; not played where not even requests alone would."""
    if unhurried(deployment, case.load, case.slo) < case.target - ROUGH:
        return False
    return seen(case, deployment, rate, count).share >= case.target


@lru_cache(maxsize=256)
def unhurried(deployment: Deployment, load: Load, slo: SLO) -> float:
    """Return the share of a load's requests that would keep the targets with nobody beside them: at most.

    Of a sample. First tokens are late by their prompt's steps and the copy; no gap is shorter than the first.
    """
    first, last = deployment.pools[0].engine, deployment.pools[-1].engine
    steps = [limit for limit in (slo.tpot, slo.itl, slo.gap) if limit is not None]

    @cache
    def keeps(prompt: int, cached: int, streams: bool) -> bool:
        if streams and steps and last.step_seconds((), 1, prompt + 1) > min(steps):
            return False
        ttft = alone(first, prompt, cached) + deployment.way.seconds(last.model, prompt)
        return slo.ttft is None or ttft <= slo.ttft

    rows = capacity.drawn(load.sample)
    kept = [keeps(row.prompt_tokens, row.cached, row.output_tokens > 1) for row in rows]
    return sum(kept) / len(kept)


class Look:
    """What layouts do at the load of a case, each played once: `look(layout)`, `look(split, copy)`.

    `rough`: to what shares are known of layouts that are shown whatever they do. `known`: what need not be
    played.
    """

    def __init__(self, case: Case, rough: float = 1.0, known: Known | None = None) -> None:
        self.case, self.rough, self.known = case, rough, known or nothing_known
        self.found: dict[Sight, Seen] = {}

    def __call__(self, layout: Pool | Split, copy: float | Link | None = None) -> Seen:
        """Return what a layout does; without a `copy` of its own a split has the case's."""
        sight = layout, copy == 0
        if sight not in self.found:
            self.found[sight] = self.known(*sight) or self.play(layout, copy)
        return self.found[sight]

    def play(self, layout: Pool | Split, copy: float | Link | None) -> Seen:
        """Play it. A split with copies and without begins with as many requests: else their luck differs."""
        deployment = deployed(self.case, layout, copy)
        small = isinstance(layout, Pool) and layout.budget
        rough = 1.0 if small or copy == 0 else self.rough
        return seen(self.case, deployment, rough=rough, first=SEARCHED)


def deployed(case: Case, layout: Pool | Split, copy: float | Link | None = None) -> Deployment:
    """Return a layout as a deployment; without a `copy` of its own a split has the case's."""
    if isinstance(layout, Pool):
        return together(case, layout)
    return apart(case, layout, case.copy if copy is None else copy)


def nothing_known(layout: Pool | Split, free: bool) -> Seen | None:
    """Return that nothing is known of a layout."""
    return None


def left_for_copies(case: Case, free: Seen) -> float | None:
    """Return how many seconds a copy may take, as a run without copies leaves them; about.

    The share that is asked still keeps its first tokens and gaps then. None: not even without a copy.
    Infinite: there is no target for first tokens.
    """
    if free.share < case.target or free.trace is None:
        return None
    if case.slo.ttft is None:
        return inf
    gaps = gaps_alone(case.slo)
    calm = met(free.trace, gaps) if gaps else [True] * len(free.trace)
    left = [
        case.slo.ttft - ttft if ok else -inf
        for ttft, ok in list(zip(free.trace.ttft, calm, strict=True))[slice(*free.judged)]
    ]
    limit = sorted(left, reverse=True)[ceil(case.target * len(left)) - 1]
    return limit if limit >= 0 else None


# ------------------------------------------------------------------ which there are


def pools(case: Case) -> tuple[Pool, ...]:
    """Return the ways to run one pool: as it is first, then in small steps, then with larger engines."""
    degrees = [degree for degree in case.degrees if not case.gpus % degree]
    if not degrees:
        return ()
    own = Pool(case.gpus // degrees[0], degrees[0])
    small = [own._replace(budget=budget) for budget in SMALL_STEPS if budget < default_limits(case.gpu)[0]]
    return (own, *small, *(Pool(case.gpus // degree, degree) for degree in degrees[1:]))


def splits(case: Case) -> tuple[Split, ...]:
    """Return the splits that use the GPUs best, by the capacity of their slower pool, the best first."""
    found = sorted(candidates(case), key=lambda pair: -pair[0])
    return tuple(split for _, split in found[:NEAR])


def candidates(case: Case) -> Iterator[tuple[float, Split]]:
    """Yield each split that can hand over a cache, after the requests/s that it does at most."""
    asked = (case.prefill_tensor_parallel, case.decode_tensor_parallel)
    ways = [(degree,) if degree else case.degrees for degree in asked]
    able = {
        (role, degree): most(engine(case, degree), role, case.load)[0]
        for role, degrees in zip(("prefill", "decode"), ways, strict=True)
        for degree in degrees
    }
    for prefill in ways[0]:
        for decode in ways[1]:
            if capacity.handover(case.model, prefill, decode):
                continue
            for count in range(1, case.gpus // prefill + 1):
                left = (case.gpus - count * prefill) // decode
                if left and case.n_prefill in (None, count):
                    split = Split(count, prefill, left, decode)
                    yield min(count * able["prefill", prefill], left * able["decode", decode]), split


def best_split(case: Case) -> Split | None:
    """Return the split that holds out longest as the load rises; None if there is none.

    The load rises by 30 % at a time, and who does not do so much is not played. Where the
    one of most capacity keeps the targets at the load asked, it starts at half of what any of them does, and
    falls back where none keeps up.
    Copies take no time here: what they cost is another question. Where none keeps the targets at the load,
    the one that keeps most.
    """
    found = splits(case)
    if len(found) < 2:
        return found[0] if found else None
    free = {split: apart(case, split, 0.0) for split in found}
    most = max(highest(layout, case.load) for layout in free.values())
    high = max(0, floor(log(most / 2 / case.load.rate, RISE)) if most > 2 * case.load.rate else 0)
    levels = (high, high // 2, 0) if passes(case, free[found[0]]) else (0,)
    for level in dict.fromkeys(levels):
        best, rate = None, case.load.rate * RISE**level
        for split, layout in free.items():
            while passes(case, layout, rate):
                best, rate = split, RISE * rate
        if best:
            return best
    return max(found, key=lambda split: seen(case, free[split], None, SEARCHED).share)


# ------------------------------------------------------------------ how much load, how few GPUs


def sustained(case: Case, deployment: Deployment) -> float:
    """Return the goodput to 10 %: the highest rate at which enough requests keep the targets.

    Looked for between a thousandth of what the deployment does at most and that, whatever load is asked;
    0 where not even a thousandth passes.
    """
    if unhurried(deployment, case.load, case.slo) < case.target - ROUGH:
        return 0.0
    top = highest(deployment, case.load)
    steps = smallest(0, lambda n: passes(case, deployment, top / FINE**n), floor(log(1000, FINE)))
    return 0.0 if steps is None else top / FINE**steps


def smallest(least: int, enough: Callable[[int], bool], most: int) -> int | None:
    """Return the smallest number from `least` to `most` that is enough, if all above it are; None: none is.

    Steps get longer while it is not, and then shorter.
    """
    failed, step = least - 1, 1
    while not enough(min(failed + step, most)):
        failed += step
        step *= 4
        if failed >= most:
            return None
    found = min(failed + step, most)
    while found - failed > 1:
        middle = (failed + found) // 2
        failed, found = (failed, middle) if enough(middle) else (middle, found)
    return found


@dataclass(frozen=True)
class Fewest:
    """The fewest GPUs that keep the targets; None: none of those that were tried. And what any run needs."""

    one: Pool | None
    one_floor: int
    two: Split | None = None
    two_floor: tuple[int, int] | None = None


def fewest(case: Case, pool: Pool, split: Split | None, look: Look) -> Fewest:
    """Return the fewest GPUs with which one pool and two keep the targets, with engines as these.

    What `look` has seen is not played again. Of each, up to `AMPLE` times as many engines are tried as
    could keep up.
    """

    def keep(layout: Pool | Split) -> bool:
        known = look.found.get((layout, False))
        return known.share >= case.target if known else passes(case, deployed(case, layout))

    def floors(deployment: Deployment) -> list[int]:
        return [found.floor for found in busy(deployment, case.load, case.load.rate)]

    def least(gpus: int, degree: int, enough: Callable[[int], bool]) -> int | None:
        return smallest(gpus // degree, enough, AMPLE * gpus // degree)

    (alone,) = floors(together(case, pool))
    found = least(alone, pool.degree, lambda n: keep(pool._replace(engines=n)))
    one = pool._replace(engines=found) if found else None
    if split is None:
        return Fewest(one, alone)
    prefill, decode = floors(apart(case, split, case.copy))

    def sized(n_prefill: int, n_decode: int) -> Split:
        return split._replace(n_prefill=n_prefill, n_decode=n_decode)

    ample = 2 * decode // split.decode_degree
    n_prefill = least(prefill, split.prefill_degree, lambda n: keep(sized(n, ample)))
    n_decode = least(decode, split.decode_degree, lambda n: keep(sized(n_prefill, n))) if n_prefill else None
    two = sized(n_prefill, n_decode) if n_prefill and n_decode else None
    return Fewest(one, alone, two, (prefill, decode))


# ------------------------------------------------------------------ beside each other


@dataclass(frozen=True)
class Option:
    """A layout at the asked load: latencies in seconds, shares of requests in time.

    `goodput` in requests/s; `cost` per million output tokens at that rate, None without a price or goodput.
    Where a pool is `overloaded`, there are no latencies.
    """

    layout: str
    busy: tuple[Busy, ...]
    attainment: float
    spread: float
    steady: bool
    goodput: float
    cost: float | None
    overloaded: bool = False
    ttft_p50: float = inf
    ttft_p99: float = inf
    itl_p50: float = inf
    itl_p99: float = inf

    @property
    def busiest(self) -> float:
        """The share of its time that the busiest pool works."""
        return max(pool.share for pool in self.busy)


def option(case: Case, layout: Pool | Split, found: Seen) -> Option:
    """Return what a layout does at the load, which is `found`, and how much load it stands."""
    deployment = deployed(case, layout)
    best = sustained(case, deployment)
    gpus = sum(pool.count * pool.engine.tensor_parallel for pool in deployment.pools)
    spent = gpus * (case.price_per_gpu_hour or 0) / 3600  # a second
    plain = Option(
        str(layout), found.busy, found.share, found.spread, found.steady, best,
        1e6 * spent / (best * case.output) if case.price_per_gpu_hour and best else None,
        overloaded=found.trace is None,
    )  # fmt: skip
    if found.trace is None:
        return plain
    ttft = found.trace.ttft[slice(*found.judged)]
    return replace(
        plain,
        ttft_p50=percentile(ttft, 50),
        ttft_p99=percentile(ttft, 99),
        itl_p50=found.trace.itl(50),
        itl_p99=found.trace.itl(99),
    )
