"""The layouts, under vLLM's rules and defaults: which there are, what they do at a load, what load they stand."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, fsum, inf, sqrt
from typing import NamedTuple

from lib import capacity, parallelism
from lib.capacity import Busy
from lib.decide.case import Case, Load
from lib.goodput import SLO, met
from lib.hardware import A100_80GB, GPU, Link
from lib.roofline import step_time
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
from lib.steady import MOST, settle

GIB = 2**30
SMALL_STEPS = (512, 256)  # token budgets to try before a split
NEAR = 8  # splits that are played, of those that their capacity is best for
SEARCHED = 512  # requests at most, where a rate or a number of GPUs is searched
PRICE = step_time


class Pool(NamedTuple):
    """One pool for both phases: engines of so many GPUs; `budget`: tokens a step, None: vLLM's default."""

    count: int
    degree: int
    budget: int | None = None

    def __str__(self) -> str:
        said = f"{self.count} x TP{self.degree}"
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
    return Engine(
        case.model,
        case.gpu,
        tensor_parallel=degree,
        token_budget=budget or tokens,
        max_num_seqs=min(seqs, budget or seqs),
        price=PRICE,
        efficiency=case.reached,
        policy=vllm,
        asynchronous=True,
        link=parallelism.interconnect(case.gpu) if degree > 1 else None,
    )


def together(case: Case, pool: Pool) -> Deployment:
    """Return engines side by side, requests to the least loaded, as vLLM routes them."""
    return Collocated(engine(case, pool.degree, pool.budget), pool.count, least_loaded)


def apart(case: Case, split: Split, copy: float | Link) -> Deployment:
    """Return engines for prompts, and others for answers, which pull the caches."""
    prefill, decode = engine(case, split.prefill_degree), engine(case, split.decode_degree)
    return Disaggregated(prefill, decode, split.n_prefill, split.n_decode, Pull(copy), least_loaded)


# ------------------------------------------------------------------ what they do at a load


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
    judged: slice = slice(0)

    @property
    def overloaded(self) -> Busy | None:
        """The busiest pool, if its queue would grow without end."""
        worst = max(self.busy, key=lambda pool: pool.share)
        return worst if worst.overloaded else None


def seen(case: Case, deployment: Deployment, rate: float | None = None, most: int = MOST) -> Seen:
    """Return what a layout does at a rate: at the load's own if None. The last few are kept."""
    return played(deployment, case.load, rate or case.load.rate, case.slo, case.target, most)


@lru_cache(maxsize=32)
def played(deployment: Deployment, load: Load, rate: float, slo: SLO, target: float, most: int) -> Seen:
    """Return the same of a deployment and a load by themselves."""
    busy = capacity.busy(deployment, rate, load.sample)
    if any(pool.overloaded for pool in busy):
        return Seen(0.0, 0.0, 0.0, 0.0, busy)
    found = settle(deployment, partial(load.draw, rate), slo, target, max(most, load.recorded or 0))
    trace, rows = found.trace, found.judged
    gaps = gaps_alone(slo)
    first = met(trace, SLO(slo.ttft))[rows] if slo.ttft is not None else [True]
    rest = met(trace, gaps)[rows] if gaps else [True]
    return Seen(
        found.share, found.spread, sum(first) / len(first), sum(rest) / len(rest), busy, found.steady, trace, rows
    )  # fmt: skip


def gaps_alone(slo: SLO) -> SLO | None:
    """Return what the SLO says of gaps; None if that is nothing."""
    gaps = (slo.tpot, slo.itl, slo.gap)
    return SLO(None, *gaps) if any(gaps) else None


def passes(case: Case, deployment: Deployment, rate: float | None = None, most: int = SEARCHED) -> bool:
    """Return whether enough requests keep the targets."""
    return seen(case, deployment, rate, most).share >= case.target


def left_for_copies(case: Case, free: Seen) -> float | None:
    """Return how many seconds a copy may take, as what was seen without copies leaves them; about.

    The share that is asked still keeps its first tokens and gaps then. None: not even without a copy.
    Infinite: there is no target for first tokens.
    """
    if free.trace is None or free.share < case.target:
        return None
    if case.slo.ttft is None:
        return inf
    gaps = gaps_alone(case.slo)
    calm = met(free.trace, gaps) if gaps else [True] * len(free.trace)
    left = [
        case.slo.ttft - ttft if ok else -inf
        for ttft, ok in zip(free.trace.ttft[free.judged], calm[free.judged], strict=True)
    ]
    return sorted(left, reverse=True)[ceil(case.target * len(left)) - 1]


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
    """Yield each split of the GPUs between which an engine hands over, and the requests/s that it does at most."""
    asked = (case.prefill_tensor_parallel, case.decode_tensor_parallel)
    ways = [(degree,) if degree else case.degrees for degree in asked]
    sample = capacity.drawn(case.load.sample)
    most = {
        (role, degree): capacity.most(engine(case, degree), sample, role)[0]
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
                    yield min(count * most["prefill", prefill], left * most["decode", decode]), split


def best_split(case: Case) -> Split | None:
    """Return the split that holds out longest as the load rises; None if there is none.

    The load rises by 30 % at a time, and who does not do so much is not played. Copies take no time here:
    what they cost is another question. Where none keeps the targets at the load, the one that keeps most.
    """
    found = splits(case)
    if len(found) < 2:
        return found[0] if found else None
    best, rate = None, case.load.rate
    shares: dict[Split, float] = {}
    for split in found:
        free = apart(case, split, 0.0)
        shares[split] = seen(case, free, rate, SEARCHED).share
        while shares[split] >= case.target:
            best, rate = split, 1.3 * rate
            shares[split] = seen(case, free, rate, SEARCHED).share
    return best or max(found, key=lambda split: shares[split])


# ------------------------------------------------------------------ how much load, how few GPUs


def sustained(case: Case, deployment: Deployment) -> float:
    """Return the goodput to 5 %: the highest rate at which enough requests keep the targets.

    Looked for between a thousandth of what the deployment does at most and that, whatever load is asked;
    0 where not even a thousandth passes.
    """
    most = capacity.OVERLOADED * capacity.highest(deployment, case.load.sample)
    if passes(case, deployment, most):
        return most
    low, high = most / 1000, most
    if not passes(case, deployment, low):
        return 0.0
    while high > 1.05 * low:
        middle = high / 2 if high > 4 * low else sqrt(low * high)
        low, high = (middle, high) if passes(case, deployment, middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Fewest:
    """The fewest GPUs that keep the targets; None: none of those that were tried. And what any run needs."""

    one: Pool | None
    one_floor: int
    two: Split | None = None
    two_floor: tuple[int, int] | None = None


def fewest(case: Case, pool: Pool, split: Split | None) -> Fewest:
    """Return the fewest GPUs with which one pool and two keep the targets, with engines as these."""
    (alone,) = capacity.busy(together(case, pool), case.load.rate, case.load.sample)
    found = smallest(alone.floor // pool.degree, lambda n: passes(case, together(case, pool._replace(count=n))))
    one = pool._replace(count=found) if found else None
    if split is None:
        return Fewest(one, alone.floor)
    prefill, decode = capacity.busy(apart(case, split, case.copy), case.load.rate, case.load.sample)
    least = (prefill.floor // split.prefill_degree, decode.floor // split.decode_degree)

    def keep(n_prefill: int, n_decode: int) -> bool:
        sized = split._replace(n_prefill=n_prefill, n_decode=n_decode)
        return passes(case, apart(case, sized, case.copy))

    ample = 2 * least[1] + 1
    n_prefill = smallest(least[0], lambda n: keep(n, ample))
    n_decode = smallest(least[1], lambda n: keep(n_prefill, n)) if n_prefill else None
    two = split._replace(n_prefill=n_prefill, n_decode=n_decode) if n_prefill and n_decode else None
    return Fewest(one, alone.floor, two, (prefill.floor, decode.floor))


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


def option(case: Case, layout: Pool | Split) -> Option:
    """Return what a layout does at the load, and how much load it stands."""
    deployment = together(case, layout) if isinstance(layout, Pool) else apart(case, layout, case.copy)
    found, best = seen(case, deployment), sustained(case, deployment)
    gpus = sum(pool.count * pool.engine.tensor_parallel for pool in deployment.pools)
    spent = gpus * (case.price_per_gpu_hour or 0) / 3600  # a second
    plain = Option(
        str(layout), found.busy, found.share, found.spread, found.steady, best,
        1e6 * spent / (best * case.output) if case.price_per_gpu_hour and best else None,
        overloaded=found.trace is None,
    )  # fmt: skip
    if found.trace is None:
        return plain
    ttft = found.trace.ttft[found.judged]
    return replace(
        plain,
        ttft_p50=percentile(ttft, 50),
        ttft_p99=percentile(ttft, 99),
        itl_p50=found.trace.itl(50),
        itl_p99=found.trace.itl(99),
    )
