"""How long work takes on the machine at hand."""

import time
from collections.abc import Callable

from lib import checks

Work = Callable[[], object]


def seconds(
    work: Callable[[], object], repeats: int = 5, before: Callable[[], object] | None = None
) -> float:
    """Return the seconds that `work` takes: the least of `repeats` runs after one to warm up.

    The least, because whatever else the machine does can only add. `before` runs ahead of each run, untimed:
    to empty a cache, say.
    """
    checks.counts("seconds", repeats=repeats)
    times = []
    for _ in range(repeats + 1):
        if before:
            before()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])
