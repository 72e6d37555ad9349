"""Play a load until its queues are steady: a share that does not depend on when one stopped.

A simulation begins with empty queues and ends with engines that empty, and both flatter. So a run is judged
by its middle, and is played twice as long until

- the warm-up, a quarter of all arrivals and no less than nine in ten requests last, and the end, as long as
  these last, leave a third of the requests to judge, and the arrivals span twice the longest request;
- the two halves of what is judged agree, in the share that keeps the promise and in the mean time to first
  token, as well as so few requests tell (`AGREE`);
- the share is known to `PRECISE`, or lies further from the target than it is known.

Queues that start empty only grow: who clearly fails before they are steady has failed. After `most` requests
it ends. If it was not steady then, queues grow, or nearly: the later half of what is judged counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, fsum, sqrt
from statistics import stdev

from lib import checks
from lib.goodput import SLO, met
from lib.simulator import Deployment, Trace, percentile, simulate
from lib.workload import Request

FIRST, MOST = 96, 1536  # requests
BATCHES = 8
SURE = 3  # standard errors
PRECISE = 0.05  # three standard errors of a share
AGREE = 3.5  # standard errors of the whole, in which halves agree: a trend through all is five


@dataclass(frozen=True)
class Steady:
    """What a load comes to: `share` of the judged requests that keep the promise, give or take `spread`.

    `spread` is three standard errors. `judged`: from which row of the `trace` up to which. `steady`: False
    where queues still grew when it ended.
    """

    share: float
    spread: float
    steady: bool
    trace: Trace
    judged: tuple[int, int]


def settle(
    deployment: Deployment,
    draw: Callable[[int], Sequence[Request]],
    slo: SLO,
    target: float | None = None,
    most: int = MOST,
    first: int = FIRST,
    rough: float = 1.0,
) -> Steady:
    """Return what comes of a load once it is steady; `draw(count)` makes its first so many requests.

    `target`: a share that is to be told from what is kept: then that need be known to `rough` only. From
    `first` requests on, up to `most`.
    """
    checks.counts("settle", first=first, most=most)
    count = min(first, most)
    while True:
        trace = simulate(draw(count), deployment)
        start, end = judged(trace)
        rows, enough = end - start, end - start >= count / 3
        if enough:
            kept = [float(ok) for ok in met(trace, slo)[start:end]]
            share, error = known(kept)
            first_tokens = trace.ttft[start:end]
            steady = agree(kept, error) and agree(first_tokens, batch_error(first_tokens))
            spread = SURE * error
            told = target is not None and spread <= rough and abs(share - target) > spread
            failed = told and target is not None and share < target
            clear = told or spread <= PRECISE
            if count >= most and not steady:
                share, error = known(kept[len(kept) // 2 :])
                return Steady(share, SURE * error, False, trace, (start, end))
            if failed or (steady and clear) or count >= most:
                return Steady(share, spread, True, trace, (start, end))
        elif count >= most:
            kept = [float(ok) for ok in met(trace, slo)]
            share, error = known(kept)
            return Steady(share, SURE * error, False, trace, (0, len(trace)))
        wanted = 2 * count if enough else ceil(count * min(8.0, max(2.0, 2 / (0.1 + 3 * rows / count))))
        count = min(most, wanted)


def kept(deployment: Deployment, requests: Sequence[Request], promises: Sequence[SLO]) -> tuple[float, ...]:
    """Return for each promise the share that keeps it of those requests that are `judged`.

    Where none are, because requests last too long for so short a run, the later half counts.
    """
    trace = simulate(requests, deployment)
    start, end = judged(trace)
    if start == end:
        start, end = len(trace) // 2, len(trace)
    return tuple([sum(met(trace, slo)[start:end]) / (end - start) for slo in promises])


def judged(trace: Trace) -> tuple[int, int]:
    """Return from which row up to which the middle goes: after the warm-up, and before the end."""
    arrivals, count = trace.arrival, len(trace)
    span = arrivals[-1] - arrivals[0]
    longest = max(trace.e2e)
    usual = percentile(trace.e2e, 90)
    begin = next((row for row in range(count // 4, count) if arrivals[row] - arrivals[0] >= usual), count)
    end = next((row for row in range(count, begin, -1) if arrivals[-1] - arrivals[row - 1] >= usual), begin)
    return begin, end if span >= 2 * longest else begin


def known(kept: Sequence[float]) -> tuple[float, float]:
    """Return a share and its standard error: as its batches differ, and no less than by independent draws."""
    count = len(kept)
    share = fsum(kept) / count
    expected = (fsum(kept) + 1) / (count + 2)
    return share, max(batch_error(kept), sqrt(expected * (1 - expected) / count))


def batch_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean whose values depend on their neighbours: by batches in a row."""
    size = len(values) / BATCHES
    cuts = [round(size * batch) for batch in range(BATCHES + 1)]
    batches = [values[start:end] for start, end in pairwise(cuts)]
    means = [fsum(batch) / len(batch) for batch in batches if batch]
    return stdev(means) / sqrt(len(means)) if len(means) > 1 else 0.0


def agree(values: Sequence[float], error: float) -> bool:
    """Return whether the means of both halves agree, the mean of all being known to this standard error."""
    middle = len(values) // 2
    one, two = (fsum(half) / len(half) for half in (values[:middle], values[middle:]))
    return abs(one - two) <= AGREE * error
