"""The layouts, under vLLM's rules and defaults: what they do at a load, and how much they stand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, floor, inf, log
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
ROUGH = 0.1  # to what a share is known that is shown
AMPLE = 8  # times as many engines as could keep up, at most
SMALL_STEPS = (512, 256)  # token budgets to try before a split
NEAR = 8  # splits that are played, of those that their capacity is best for
SEARCHED = 256  # requests at most, where a rate or a number of GPUs is searched
FINE = 1.1  # between two rates that are told apart
PRICE = step_time


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
        link=parallelism.interconnect(case.gpu, degree) if degree > 1 else None,
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
    case: Case, deployment: Deployment, rate: float | None = None, count: int = MOST, rough: float = 1.0
) -> Seen:
    """Return what a layout does at a rate: at the load's own if None. The last few are kept.

    At most `count` requests are played; a share that is clear of the target is known to `rough`.
    """
    return played(deployment, case.load, rate or case.load.rate, case.slo, case.target, count, rough)


@lru_cache(maxsize=32)
def played(
    deployment: Deployment, load: Load, rate: float, slo: SLO, target: float, count: int, rough: float
) -> Seen:
    """Return the same of a deployment and a load by themselves."""
    pools = busy(deployment, load, rate)
    if any(pool.overloaded for pool in pools):
        return Seen(0.0, 0.0, 0.0, 0.0, pools)
    found = settle(deployment, partial(load.draw, rate), slo, target, count, rough=rough)
    trace, (start, end) = found.trace, found.judged
    rows = slice(start, end)
    gaps = gaps_alone(slo)
    first = met(trace, SLO(slo.ttft))[rows] if slo.ttft is not None else [True]
    rest = met(trace, gaps)[rows] if gaps else [True]
    return Seen(
        found.share, found.spread, sum(first) / len(first), sum(rest) / len(rest), pools, found.steady, trace,
        found.judged,
    )  # fmt: skip


def gaps_alone(slo: SLO) -> SLO | None:
    """Return what the SLO says of gaps; None if that is nothing."""
    gaps = (slo.tpot, slo.itl, slo.gap)
    return SLO(None, *gaps) if any(gaps) else None


def passes(case: Case, deployment: Deployment, rate: float | None = None, count: int = SEARCHED) -> bool:
    """Return whether enough requests keep the targets."""
    return seen(case, deployment, rate, count).share >= case.target


def left_for_copies(case: Case, split: Split) -> float | None:
    """Return how many seconds a copy may take, as a run without copies leaves them; about.

    The share that is asked still keeps its first tokens and gaps then. None: not even without a copy.
    Infinite: there is no target for first tokens.
    """
    free = apart(case, split, 0.0)
    if seen(case, free).share < case.target:
        return None
    if case.slo.ttft is None:
        return inf
    found = settle(free, partial(case.load.draw, case.load.rate), case.slo, first=MOST // 2)
    gaps = gaps_alone(case.slo)
    calm = met(found.trace, gaps) if gaps else [True] * len(found.trace)
    left = [
        case.slo.ttft - ttft if ok else -inf
        for ttft, ok in list(zip(found.trace.ttft, calm, strict=True))[slice(*found.judged)]
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
    """Return the goodput to 10 %: the highest rate at which enough requests keep the targets.

    Looked for between a thousandth of what the deployment does at most and that, whatever load is asked;
    0 where not even a thousandth passes.
    """
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


def fewest(case: Case, pool: Pool, split: Split | None) -> Fewest:
    """Return the fewest GPUs with which one pool and two keep the targets, with engines as these.

    Of each, up to `AMPLE` times as many engines are tried as could keep up.
    """

    def floors(deployment: Deployment) -> list[int]:
        return [found.floor for found in busy(deployment, case.load, case.load.rate)]

    def least(gpus: int, degree: int, enough: Callable[[int], bool]) -> int | None:
        return smallest(gpus // degree, enough, AMPLE * gpus // degree)

    (alone,) = floors(together(case, pool))
    found = least(alone, pool.degree, lambda n: passes(case, together(case, pool._replace(engines=n))))
    one = pool._replace(engines=found) if found else None
    if split is None:
        return Fewest(one, alone)
    prefill, decode = floors(apart(case, split, case.copy))

    def keep(n_prefill: int, n_decode: int) -> bool:
        sized = split._replace(n_prefill=n_prefill, n_decode=n_decode)
        return passes(case, apart(case, sized, case.copy))

    ample = 2 * decode // split.decode_degree
    n_prefill = least(prefill, split.prefill_degree, lambda n: keep(n, ample))
    n_decode = least(decode, split.decode_degree, lambda n: keep(n_prefill, n)) if n_prefill else None
    two = split._replace(n_prefill=n_prefill, n_decode=n_decode) if n_prefill and n_decode else None
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


def option(case: Case, layout: Pool | Split) -> Option:
    """Return what a layout does at the load, and how much load it stands."""
    deployment = together(case, layout) if isinstance(layout, Pool) else apart(case, layout, case.copy)
    found, best = seen(case, deployment, rough=ROUGH), sustained(case, deployment)
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
