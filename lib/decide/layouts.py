"""The two layouts, under vLLM's rules and defaults: what they do at a load, and how much load they stand."""

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, repeat
from math import fsum, sqrt
from operator import mul

from lib import parallelism
from lib.decide.case import Case
from lib.goodput import SLO, Workload, attainment, mean_of
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
    simulate,
)

GIB = 2**30


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
        link=parallelism.interconnect(case.gpu) if case.tensor_parallel > 1 else None,
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
