"""Goodput: the request rate that a deployment sustains while its users still get what they were promised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Any

from lib import capacity, checks
from lib.simulator import Deployment, Trace, simulate
from lib.workload import Request, poisson


@dataclass(frozen=True)
class SLO:
    """What a request must keep to, in seconds; None: no such promise. All limits are inclusive.

    - `ttft`: its time to first token,
    - `tpot`: its mean gap between tokens,
    - `itl`: the 99th percentile of its own gaps,
    - `gap`: its longest gap.
    """

    ttft: float | None
    tpot: float | None = None
    itl: float | None = None
    gap: float | None = None

    def __post_init__(self) -> None:
        limits = {"ttft": self.ttft, "tpot": self.tpot, "itl": self.itl, "gap": self.gap}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if not given:
            raise ValueError("SLO: no limit given; use at least one of ttft, tpot, itl, gap")
        checks.positive("SLO", **given)
        if self.gap is not None and self.itl is not None and self.gap < self.itl:
            raise ValueError(f"SLO: gap={self.gap!r} is below itl={self.itl!r}; use a gap of at least itl")


def met(trace: Trace, slo: SLO) -> list[bool]:
    """For each request whether it got its last token and kept to the SLO."""
    kept = [end < inf for end in trace.finish]
    for limit, column in ((slo.ttft, "ttft"), (slo.tpot, "tpot"), (slo.gap, "worst_gap")):
        if limit is not None:
            kept = [ok and value <= limit for ok, value in zip(kept, getattr(trace, column), strict=True)]
    if slo.itl is not None:
        kept = [ok and calm for ok, calm in zip(kept, trace.itl_within(slo.itl, 99), strict=True)]
    return kept


def attainment(trace: Trace, slo: SLO) -> float:
    """Share of all requests that kept to the SLO; one that was dropped or not finished did not."""
    return sum(met(trace, slo)) / len(trace)


@dataclass(frozen=True)
class Goodput:
    """Requests per second: of all seeds together, and the lowest and highest of a single seed.

    `at_least`: the search ended at the highest rate that it was to look at, and that one passed.
    """

    rate: float
    low: float
    high: float
    at_least: bool = False


Workload = Callable[[float, int], Sequence[Request]]


SEEDS = (0, 1, 2, 3, 4)


def review_workload(rate: float, seed: int) -> Sequence[Request]:
    """100 Poisson requests of 8,192 prompt and 256 output tokens: the benchmark of the review."""
    return poisson(rate, 100, seed)


def play(
    deployment: Deployment, rate: float, workload: Workload = review_workload, seeds: Sequence[int] = SEEDS
) -> list[Trace]:
    """The traces of one load, one for each seed: the same rate, drawn as often as there are seeds."""
    return [simulate(workload(rate, seed), deployment) for seed in seeds]


def mean_of(statistic: Callable[..., float], traces: Sequence[Trace], *arguments: Any) -> float:
    """Mean over the traces of `statistic(trace, *arguments)`: how the review averages over its seeds."""
    if not traces:
        raise ValueError("mean_of: traces is empty; use at least one")
    return fsum([statistic(trace, *arguments) for trace in traces]) / len(traces)


def goodput(
    deployment: Deployment,
    slo: SLO,
    workload: Workload = review_workload,
    target: float = 0.9,
    seeds: Sequence[int] = SEEDS,
    rates: Sequence[float] | None = None,
    precision: float = 0.01,
    highest: float = 64.0,
) -> Goodput:
    """Highest rate at which, over the seeds, at least `target` of the requests keep to the SLO.

    - With `rates`: the highest of these that passes (the review's grid); 0 if none does.
    - Without: by search, to `precision` (requests per second). Attainment is taken to fall as the rate
      rises: the search doubles a passing rate until it fails, then halves the interval between. It stops at
      what the deployment does at most (`capacity.highest`), for a short load passes above that as well; at
      `highest`, and says so; and at 0 where not even `precision` passes.

    `workload(rate, seed)` makes the requests. All rates share the seeds, so that a difference between two
    rates, or two deployments, is not one of luck (common random numbers). `low` and `high` are the goodput
    of the least and the most lucky seed by itself: with 5 seeds the median over all seeds that there are
    lies between them with a probability of 94 %.
    """
    checks.shares("goodput", target=target)
    checks.positive("goodput", precision=precision, highest=highest)
    if not seeds:
        raise ValueError("goodput: seeds is empty; use at least one seed")
    if rates is not None and not rates:
        raise ValueError("goodput: rates is empty; use at least one rate, or None to search")
    known: dict[tuple[float, int], float] = {}

    def share(rate: float, seed: int) -> float:
        if (rate, seed) not in known:
            known[rate, seed] = attainment(simulate(workload(rate, seed), deployment), slo)
        return known[rate, seed]

    def best(of: Sequence[int]) -> float:
        def passes(rate: float) -> bool:
            return fsum([share(rate, seed) for seed in of]) / len(of) >= target

        if rates is not None:
            return next((rate for rate in sorted(rates, reverse=True) if passes(rate)), 0.0)
        return search(passes, precision, top)

    top = inf if rates is not None else capacity.highest(deployment, workload(1.0, seeds[0]))
    limited, top = highest <= top, min(highest, top)
    alone, together = [best([seed]) for seed in seeds], best(seeds)
    met_limit = rates is None and limited and together >= int(highest / precision) * precision
    return Goodput(together, min(alone), max(alone), met_limit)


def search(passes: Callable[[float], bool], precision: float, highest: float) -> float:
    """Highest multiple of `precision` that passes, if all below it do; at most `highest`."""
    top = int(highest / precision)
    low, high = 0, 1  # low passes (nothing is asked at 0), high is to be tried
    while high <= top and passes(high * precision):
        low, high = high, 2 * high
    high = min(high, top + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle * precision):
            low = middle
        else:
            high = middle
    return low * precision
