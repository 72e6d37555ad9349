"""A kernel's constants from rows of a table: every second row fits them, the others say how wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
FINEST = 1e-4  # the search ends when steps of this share no longer help
FEWEST = 16  # rows, half of which fit three constants
ROUNDED = 0.05  # below such a deviation the loss is round, so that steps along one constant find its bottom
STARTS = ((1e-6, 0.5, 0.5), (1e-5, 0.2, 0.9), (5e-5, 0.5, 0.9))


@dataclass(frozen=True)
class Rows:
    """Kernels that somebody timed: seconds at the peak, seconds at the full bandwidth, seconds measured."""

    arithmetic: Column
    reading: Column
    seconds: Column

    def every_second(self, first: int) -> "Rows":
        """Every second row, from the first or the second on."""
        return Rows(*[column[first::2] for column in (self.arithmetic, self.reading, self.seconds)])


@dataclass(frozen=True)
class Fit:
    """What a kernel takes: seconds to start, shares of the peak and of the bandwidth; and how wrong that is.

    A share that the form does not use is None; `form` is "max", "sum" or "reading". Errors are
    |predicted / measured - 1| on the rows that were held out: the median, and what nine in ten stay below.
    """

    start: float
    compute: float | None
    bandwidth: float | None
    rows: int
    median: float
    p90: float
    form: str


def predict(form: str, constants: Column, rows: Rows) -> Column:
    """Return seconds: start, and `max` or `sum` of arithmetic and reading, or `reading` alone."""
    start, compute, bandwidth = constants
    if form == "reading":
        return start + rows.reading / bandwidth
    both = np.maximum if form == "max" else np.add
    return start + np.asarray(both(rows.arithmetic / compute, rows.reading / bandwidth))


def fit(form: str, rows: Rows, most: float = 1.0) -> Fit:
    """Return the constants that fit every second row, and their errors on the others.

    `form`: as in `predict`, or "either", which is "max" or "sum", whichever leaves the smaller loss.

    The mean |log(predicted / measured)|, rounded off below 5 %, is made small by steps along one constant at
    a time, ever finer, from a few places; no draws, so that the same rows give the same constants. No share
    exceeds `most`: nothing is faster than the data sheet. Constants are rounded to three digits before they
    are judged.
    """
    if len(rows.seconds) < FEWEST:
        raise ValueError(f"fit: {len(rows.seconds)} rows are too few; use {FEWEST} or more")
    known, held_out = rows.every_second(0), rows.every_second(1)
    logs = np.log(known.seconds)

    def loss_of(form: str) -> Callable[[Column], float]:
        return lambda constants: float(
            np.mean(np.hypot(np.log(predict(form, constants, known)) - logs, ROUNDED))
        )

    tried = []
    for one in ("max", "sum") if form == "either" else (form,):
        loss = loss_of(one)
        found = min([descend(loss, start, most) for start in STARTS], key=loss)
        tried.append((loss(found), one, found))
    _, form, best = min(tried, key=lambda entry: entry[0])
    constants = np.array([float(f"{value:.3g}") for value in best])
    if constants[0] < 1e-8:
        constants[0] = 0.0
    errors = np.abs(predict(form, constants, held_out) / held_out.seconds - 1)
    return Fit(
        start=float(constants[0]),
        compute=None if form == "reading" else float(constants[1]),
        bandwidth=float(constants[2]),
        rows=len(rows.seconds),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        form=form,
    )


def descend(loss: Callable[[Column], float], start: Sequence[float], most: float) -> Column:
    """Return the constants to which steps along one at a time lead."""
    best = np.array(start)
    least, step = loss(best), 1.0
    while step > FINEST:
        better = False
        for place in range(3):
            for factor in (1 + step, 1 / (1 + step)):
                trial = best.copy()
                trial[place] = trial[place] * factor if place == 0 else min(most, trial[place] * factor)
                if (now := loss(trial)) < least - 1e-9:
                    best, least, better = trial, now, True
        step = step if better else step / 2
    return best
