"""Gaps between tokens, hundreds of millions of them, kept as the runs of steps that they are.

A gap is as long as the step that ends it, and in a run of steps the first is the shortest and the last the
longest. So it is known without a look at a single step about where a percentile lies; only the runs that
reach into that neighbourhood are unfolded.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from lib.engine import Prices
from lib.log import Log


class Gaps:
    """All gaps of one simulation. `count`: how many; `at(rank)`: the one at that rank, counted from 0.

    Runs are counted in bins of equal width twice, all of their gaps as if they were as short as the shortest,
    and as long as the longest; only where each step's length is noted, it counts as what it is. The gap at a
    rank lies between the bins that the two counts say.
    """

    def __init__(self, logs: Sequence[tuple[Prices, Log]], single: Sequence[float]) -> None:
        self.logs = logs
        self.single = array("d", single)  # gaps that are not one step
        columns = [column for _, log in logs for column in (log.shortest, log.longest) if column]
        columns += [self.single] if single else []
        self.low = min([min(column) for column in columns], default=inf)
        high = max([max(column) for column in columns], default=inf)
        bins = min(max(64, sum([len(log) for _, log in logs]) // 2), 1 << 16)
        self.scale = (bins - 1) / (high - self.low if high > self.low else inf)
        self.most = [0] * bins  # gaps that may lie in a bin or before it, summed up below
        self.least = [0] * bins  # and that must
        for _, log in logs:
            self._count(log)
        for gap in single:
            self.most[self._bin(gap)] += 1
            self.least[self._bin(gap)] += 1
        self.most, self.least = list(accumulate(self.most)), list(accumulate(self.least))
        self.count = self.most[-1]
        self.sorted: dict[tuple[int, int], tuple[list[float], list[int]]] = {}

    def _bin(self, seconds: float) -> int:
        return int((seconds - self.low) * self.scale)

    def _count(self, log: Log) -> None:
        low, scale, most, least = self.low, self.scale, self.most, self.least
        columns = (log.shortest, log.longest, log.steps, log.batch, log.chunks_end)
        begin, chunks = 0, log.chunks
        for shortest, longest, steps, batch, end in zip(*columns, strict=True):
            if steps > 1 and end > begin:  # each step is noted
                for length in chunks[end - steps : end]:
                    place = int((length - low) * scale)
                    most[place] += batch
                    least[place] += batch
            else:
                most[int((shortest - low) * scale)] += steps * batch
                least[int((longest - low) * scale)] += steps * batch
            begin = end
        for number, joined in log.joined.items():
            most[self._bin(log.shortest[number])] -= joined
            least[self._bin((log.shortest if log.noted(number) else log.longest)[number])] -= joined

    def at(self, rank: int) -> float:
        """The gap at that rank, counted from 0."""
        place = bisect_right(self.most, rank), bisect_right(self.least, rank)
        if place not in self.sorted:
            before, gaps = self.between(*place)
            lengths = sorted(gaps)
            self.sorted[place] = lengths, list(accumulate([gaps[x] for x in lengths], initial=before))
        lengths, ranks = self.sorted[place]
        return lengths[bisect_right(ranks, rank) - 1]

    def everything(self) -> dict[float, int]:
        """All gaps: how many there are of each length."""
        return self.between(0, len(self.most))[1]

    def between(self, first: int, last: int) -> tuple[int, dict[float, int]]:
        """How many gaps lie before bin `first`; and of each length up to bin `last` how many there are."""
        low, scale = self.low, self.scale
        before, found = self.least[first - 1] if first else 0, defaultdict[float, int](int)
        for length in self.single:
            found[length] += first <= self._bin(length) <= last
        for prices, log in self.logs:
            for number in self._reaching(log, first, last):
                batch, noted = log.batch[number], log.noted(number)
                lengths = log.seconds(number, prices)
                if noted:
                    for length in lengths:
                        if first <= int((length - low) * scale) <= last:
                            found[length] += batch
                else:
                    start = bisect_left(lengths, first, key=self._bin)
                    before += start * batch
                    for length in lengths[start : bisect_right(lengths, last, key=self._bin)]:
                        found[length] += batch
                if number in log.joined:
                    place = self._bin(lengths[0])
                    if first <= place <= last:
                        found[lengths[0]] -= log.joined[number]
                    elif place < first and not noted:
                        before -= log.joined[number]
        return before, found

    def _reaching(self, log: Log, first: int, last: int) -> list[int]:
        """The runs that have steps in the bins `first` to `last`, or both before and after them."""
        low, scale = self.low, self.scale
        bounds = enumerate(zip(log.shortest, log.longest, strict=True))
        return [
            run
            for run, (shortest, longest) in bounds
            if (longest - low) * scale >= first and int((shortest - low) * scale) <= last
        ]
