"""How long a handoff may take."""

from collections.abc import Iterable
from itertools import chain
from math import ceil, inf

from lib.decide.case import Case
from lib.decide.layouts import apart, passes, traces
from lib.decide.questions import gaps_alone
from lib.goodput import mean_of, met
from lib.simulator import Trace


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
