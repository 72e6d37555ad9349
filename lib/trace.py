"""Traces: what came of a simulation, and the latencies that users feel.

The words used, here and in all columns of a trace (seconds):

- **TTFT**, time to first token: from a request's arrival to the end of the step that emits its first token.
- **ITL**, inter-token latency: the gap between two tokens of one answer that follow each other. *Pooled*: all
  gaps of all requests in one pot, long answers counting more. *Per request*: a statistic of one request's own
  gaps, each request counting once.
- **TPOT**, time per output token: a request's mean gap, (last token - first token) / (tokens - 1).
- **Worst gap**: a request's longest one, the pause that its reader notices.
- **E2E**: from arrival to last token.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, fsum, inf, nextafter

from lib.deployment import Deployment
from lib.engine import Prices
from lib.log import Log, Notes, Run, Span
from lib.workload import Request


def _bounds(prices: Prices, log: Log) -> tuple["array[float]", "array[float]"]:
    """Seconds of the first and of the last step of each run."""
    first, last = array("d"), array("d")
    chunks, seconds, later, line = 0, prices.seconds, prices.later, prices.line
    columns = zip(log.steps, log.batch, log.context, log.chunks_end, strict=True)
    for number, (steps, batch, context, end) in enumerate(columns):
        if end == chunks and batch <= prices.reading:
            nbytes, growth = line(batch, context)
            first.append(nbytes / prices.bandwidth + prices.overhead)
            last.append((nbytes + growth * (steps - 1)) / prices.bandwidth + prices.overhead)
            continue
        shapes = log.shapes(number) if end > chunks else ()
        chunks = end
        first.append(seconds(shapes, batch, context))
        last.append(seconds(*later(shapes, batch, context, steps - 1)) if steps > 1 else first[-1])
    return first, last


class Gaps:
    """Many gaps, kept as the runs that they are steps of; one is worked out only if a percentile falls near.

    They are counted in bins of equal width. Most runs are so even that all of their steps fall into one bin;
    of the others the step is sought at which the next bin begins.
    """

    BINS = 4096
    FINE = 256  # in every bin that is looked at; a power of two, so that they add up to the bin exactly

    def __init__(
        self,
        logs: Sequence[tuple[Prices, Log, "array[float]", "array[float]"]],
        single: Sequence[float],
    ) -> None:
        self.logs = [(prices, log) for prices, log, _, _ in logs]
        self.single = single  # gaps that are not one step
        bounds = [bound for _, _, first, last in logs for bound in (first, last) if bound]
        if single:
            bounds.append(array("d", single))
        self.low = min([min(bound) for bound in bounds], default=0.0)
        high = max([max(bound) for bound in bounds], default=0.0)
        self.scale = (self.BINS - 1) / (high - self.low) if high > self.low else 0.0
        self.totals = [0] * (self.BINS + 1)
        self.places = [self._count(*log) for log in logs]  # of each run's first and last step
        for seconds in single:
            self.totals[self._bin(seconds)] += 1
        self.before = list(accumulate(self.totals, initial=0))
        self.count = self.before[-1]
        self.looked_at: dict[int, tuple[list[int], dict[int, tuple[list[float], list[int]]]]] = {}

    def _bin(self, seconds: float) -> int:
        return int((seconds - self.low) * self.scale)

    def _count(
        self, prices: Prices, log: Log, first: "array[float]", last: "array[float]"
    ) -> tuple["array[int]", "array[int]"]:
        """Count the gaps of one engine. Returns the bins of each run's first and last step."""
        low, scale, totals = self.low, self.scale, self.totals
        starts = array("H", [int((seconds - low) * scale) for seconds in first])
        ends = array("H", [int((seconds - low) * scale) for seconds in last])
        columns = zip(starts, ends, log.steps, log.batch, strict=True)
        for number, (start, end, steps, batch) in enumerate(columns):
            if start == end:
                totals[start] += batch * steps
            elif batch:
                self._spread(prices, log, number, (first[number], last[number]))
        for number, joined in enumerate(log.joined):
            if joined:
                totals[starts[number]] -= joined
        return starts, ends

    def _spread(self, prices: Prices, log: Log, number: int, bounds: tuple[float, float]) -> None:
        """Count the gaps of a run whose steps fall into several bins."""
        low, scale = self.low, self.scale
        steps, batch, context = log.steps[number], log.batch[number], log.context[number]
        shapes = log.shapes(number)
        first, last = bounds
        start, end = int((first - low) * scale), int((last - low) * scale)
        if shapes or batch > prices.reading or steps < 4 * (end - start):
            for seconds in prices.durations(shapes, batch, context, steps):
                self.totals[int((seconds - low) * scale)] += batch
            return
        nbytes, growth = prices.line(batch, context)
        bandwidth, overhead = prices.bandwidth, prices.overhead
        done = 0
        for place in range(start, end):
            share = ((place + 1) / scale + low - first) / (last - first)
            step = min(max(int(share * (steps - 1)), done), steps - 1)  # about where the next bin begins
            while (
                step > done
                and int(((nbytes + growth * (step - 1)) / bandwidth + overhead - low) * scale) > place
            ):
                step -= 1
            while int(((nbytes + growth * step) / bandwidth + overhead - low) * scale) <= place:
                step += 1
            self.totals[place] += batch * (step - done)
            done = step
        self.totals[end] += batch * (steps - done)

    def values(self, place: int | None = None) -> Iterator[tuple[list[float], int]]:
        """All gaps, or those of the runs that reach into one bin: lengths, and how many there are of each."""
        yield list(self.single), 1
        for (prices, log), (starts, ends) in zip(self.logs, self.places, strict=True):
            for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
                batch, joined = log.batch[number], log.joined[number]
                if batch and (place is None or start <= place <= end):
                    run = log.shapes(number), batch, log.context[number], log.steps[number]
                    seconds = list(prices.durations(*run))
                    if joined:
                        yield [seconds.pop(0)], batch - joined
                    yield seconds, batch

    def at(self, rank: int) -> float:
        """The gap at that rank, counted from 0."""
        place = bisect_right(self.before, rank) - 1
        if place not in self.looked_at:
            self.looked_at[place] = self._look(place)
        before, found = self.looked_at[place]
        part = bisect_right(before, rank) - 1
        if part not in found:
            found[part] = self._sort(place, part, before[part])
        values, counts = found[part]
        return values[bisect_right(counts, rank) - 1]

    def _look(self, place: int) -> tuple[list[int], dict[int, tuple[list[float], list[int]]]]:
        """Count the gaps of one bin in `FINE` bins of their own."""
        low, scale, offset = self.low, self.scale * self.FINE, place * self.FINE
        totals = [0] * self.FINE
        for lengths, count in self.values(place):
            for seconds in lengths:
                part = int((seconds - low) * scale) - offset
                if 0 <= part < self.FINE:
                    totals[part] += count
        return list(accumulate(totals, initial=self.before[place])), {}

    def _sort(self, place: int, part: int, before: int) -> tuple[list[float], list[int]]:
        """The gaps of one fine bin, sorted, and how many come before each of them."""
        low, scale, wanted = self.low, self.scale * self.FINE, place * self.FINE + part
        found = sorted(
            (seconds, count)
            for lengths, count in self.values(place)
            for seconds in lengths
            if int((seconds - low) * scale) == wanted
        )
        counts = accumulate([count for _, count in found], initial=before)
        return [seconds for seconds, _ in found], list(counts)


@dataclass(frozen=True)
class Step:
    """One step of engine `engine`, from `start` to `end`.

    `chunks` maps a request to (tokens, past) of its prompt, `decodes` one to its tokens computed before;
    `preempted` lost their place when it was composed.
    """

    engine: int
    start: float
    end: float
    chunks: dict[int, tuple[int, int]]
    decodes: dict[int, int]
    preempted: tuple[int, ...] = ()


STARTS = ("prefill_start", "copy_start", "decode_start")
ENDS = ("prefill_end", "copy_end", "decode_queue", "first_token", "finish")


class Trace:
    """What came of a simulation: one row a request in every column, in the order of the workload.

    Columns are lists of seconds on the clock; what has not happened is infinite. `steps` and `emitted` work
    out, when asked, what the simulation left folded into runs of equal steps.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        deployment: Deployment,
        logs: Sequence[tuple[str, Prices, Log]],
        notes: Notes,
        until: float = inf,
    ) -> None:
        self.requests = requests
        self.deployment = deployment
        self.roles = tuple([role for role, _, _ in logs])
        self._prices = tuple([prices for _, prices, _ in logs])
        self._logs = [log for _, _, log in logs]
        self._notes = notes
        if until < inf:
            self._forget(until)

    def _forget(self, until: float) -> None:
        """Leave out what happens later: steps that end later, too."""
        notes = self._notes
        for engine, log in enumerate(self._logs):
            kept, steps = len(log), 0
            while kept and not steps:
                steps = bisect_right(self._ends(engine, kept - 1), until)
                kept -= not steps
            self._logs[engine] = log.until(kept, steps)
        for row in range(len(self)):
            spans = notes.spans(row)
            notes.engine[row] = -1
            notes.earlier.pop(row, None)
            for engine, first, last in spans:
                if first < len(self._logs[engine]):
                    notes.span(row, engine, first, min(last, len(self._logs[engine]) - 1))
        for name in STARTS + ENDS:
            column = getattr(notes, name)
            last_moment = until if name in ENDS else nextafter(until, -inf)  # what starts then is not played
            for row, time in enumerate(column):
                if time > last_moment:
                    column[row] = inf

    def _moments(self, name: str) -> list[float]:
        """A column of the notes; with one pool, what follows prefill follows at once."""
        one_pool = len(self.deployment.pools) == 1
        return list(getattr(self._notes, "prefill_end" if one_pool else name))

    @cached_property
    def arrival(self) -> list[float]:
        """When each request arrived."""
        return [request.arrival for request in self.requests]

    @cached_property
    def prefill_start(self) -> list[float]:
        """Start of the first step that computed some of the prompt."""
        return list(self._notes.prefill_start)

    @cached_property
    def prefill_end(self) -> list[float]:
        """End of the step that completed the prompt."""
        return list(self._notes.prefill_end)

    @cached_property
    def copy_start(self) -> list[float]:
        """When the cache began to move to decode; with one pool `prefill_end`, like the next three."""
        return self._moments("copy_start")

    @cached_property
    def copy_end(self) -> list[float]:
        """When all of the cache had arrived."""
        return self._moments("copy_end")

    @cached_property
    def decode_queue(self) -> list[float]:
        """When decode's scheduler knew that the cache was there."""
        return self._moments("decode_queue")

    @cached_property
    def decode_start(self) -> list[float]:
        """Start of the first decode step."""
        return self._moments("decode_start")

    @cached_property
    def first_token(self) -> list[float]:
        """End of the step that emitted the first token."""
        return list(self._notes.first_token)

    @cached_property
    def finish(self) -> list[float]:
        """End of the step that emitted the last token."""
        return list(self._notes.finish)

    @cached_property
    def runs(self) -> list[list[Run]]:
        """For each engine its runs."""
        return [list(log) for log in self._logs]

    @cached_property
    def spans(self) -> list[Sequence[Span]]:
        """For each request where it emitted tokens: one span, and one more whenever it lost its place."""
        return [self._notes.spans(row) for row in range(len(self))]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def completed(self) -> int:
        """How many requests got their last token."""
        return sum(end < inf for end in self._notes.finish)

    @cached_property
    def ttft(self) -> list[float]:
        """Time to first token: arrival to the end of the step that emits it."""
        moments = zip(self._notes.first_token, self.requests, strict=True)
        return [first - request.arrival for first, request in moments]

    @cached_property
    def ttft_parts(self) -> dict[str, list[float]]:
        """Where each first token's time went, in seconds; the parts of one add up to its TTFT exactly.

        `queue`: until prefill starts. `prefill`. `transfer`: while the cache is on its way. `notice`: until
        decode's scheduler knows that it is here. `decode queue`: until a place and blocks are free, before
        the copy if decode pulls it, and until a step takes the request in. `first step`: that step. Without a
        second engine all but the first two are 0. Infinite where there is no first token. "Exactly" is meant
        for the correctly rounded sum, `math.fsum`.
        """
        names = ("queue", "prefill", "transfer", "notice", "decode queue", "first step")
        before = [self.arrival, self.prefill_start, self.prefill_end, self.copy_start]
        after = [self.copy_end, self.decode_queue, self.decode_start, self.first_token]
        rows = []
        for arrival, start, done, leaves, ends, known, joins, first in zip(*before, *after, strict=True):
            if first == inf:
                rows.append([inf] * 6)
                continue
            queue = start - arrival
            later = [ends - leaves, known - ends, (leaves - done) + (joins - known), first - joins]
            prefill = fsum([first - arrival, -queue, *[-part for part in later]])
            rows.append([queue, prefill, *later])
        return {name: [row[i] for row in rows] for i, name in enumerate(names)}

    @cached_property
    def e2e(self) -> list[float]:
        """Arrival to last token."""
        return [end - request.arrival for end, request in zip(self._notes.finish, self.requests, strict=True)]

    @cached_property
    def tpot(self) -> list[float]:
        """Mean gap, (last token - first) / (tokens - 1): 0 for one token, infinite if unfinished."""
        moments = zip(self._notes.first_token, self._notes.finish, self.requests, strict=True)
        return [
            inf if end == inf else (end - first) / max(1, request.output_tokens - 1)
            for first, end, request in moments
        ]

    @cached_property
    def worst_gap(self) -> list[float]:
        """Longest gap between two tokens: 0 for one token, infinite if unfinished."""
        notes, longest = self._notes, [last for _, last in self._bounds]
        steps = [log.steps for log in self._logs]
        worst = []
        for row, end in enumerate(notes.finish):
            if end == inf:
                worst.append(inf)
                continue
            engine, first, last = notes.engine[row], notes.first[row], notes.last[row]
            gap = max(longest[engine][first + 1 : last + 1], default=0.0)
            if steps[engine][first] > 1:
                gap = max(gap, longest[engine][first])
            if row in notes.earlier:
                gap = max(gap, *self._longer_ago(row))
            worst.append(gap)
        return worst

    def _longer_ago(self, row: int) -> list[float]:
        """Gaps of a request that lost its place: the longest of each span but the last, and those between."""
        gaps = [0.0]
        for engine, first, last in self._notes.earlier[row]:
            longest = self._bounds[engine][1]
            gaps += longest[first + 1 : last + 1]
            gaps += [longest[first]] * (self._logs[engine].steps[first] > 1)
        return gaps + self._without(row)

    def _without(self, row: int) -> list[float]:
        """Gaps of a request during which it had lost its place."""
        return [
            self._ends(after.engine, after.first)[0] - self._ends(before.engine, before.last)[-1]
            for before, after in pairwise(self._notes.spans(row))
        ]

    @cached_property
    def _bounds(self) -> list[tuple["array[float]", "array[float]"]]:
        """For each engine the seconds of each run's first and last step; the last is its longest."""
        return [_bounds(prices, log) for prices, log in zip(self._prices, self._logs, strict=True)]

    @cached_property
    def _gaps(self) -> Gaps:
        """All gaps. One is as long as the step that ends it, unless its owner lost its place in between."""
        shown = [engine for engine, role in enumerate(self.roles) if role != "prefill"]
        single = [gap for row in self._notes.earlier for gap in self._without(row)]
        return Gaps([(self._prices[i], self._logs[i], *self._bounds[i]) for i in shown], single)

    def _ends(self, engine: int, number: int) -> list[float]:
        """End of each step of a run."""
        run = self._logs[engine][number]
        seconds = self._prices[engine].durations(run.shapes, run.batch, run.context, run.steps)
        return list(accumulate(seconds, initial=run.start))[1:]

    def steps(self) -> Iterator[Step]:
        """Every step of every engine, engine by engine, in order of time."""
        for engine, runs in enumerate(self.runs):
            yield from self._steps(engine, runs)

    def _steps(self, engine: int, runs: Sequence[Run]) -> Iterator[Step]:
        starts: dict[int, list[tuple[int, int, int]]] = {}  # run -> (request, last run, tokens before)
        for row, spans in enumerate(self.spans):
            count = 0
            for span in spans:
                if span.engine == engine:
                    starts.setdefault(span.first, []).append((row, span.last, count))
                    count += sum([run.steps for run in runs[span.first : span.last + 1]])
        emitting: dict[int, tuple[int, int]] = {}  # request -> last run, tokens emitted before this step
        for number, run in enumerate(runs):
            emitting |= {row: (last, count) for row, last, count in starts.get(number, ())}
            begin = run.start
            for step, end in enumerate(self._ends(engine, number)):
                chunks = {row: (tokens, past + step * tokens) for row, tokens, past in run.chunks}
                decodes = {
                    row: self.requests[row].prompt_tokens + count - 1
                    for row, (_, count) in emitting.items()
                    if row not in chunks
                }
                yield Step(engine, begin, end, chunks, decodes, run.preempted)
                emitting = {row: (last, count + 1) for row, (last, count) in emitting.items()}
                begin = end
            emitting = {row: (last, count) for row, (last, count) in emitting.items() if last > number}

    @cached_property
    def _clocks(self) -> list[tuple[list[float], list[int]]]:
        """For each engine the ends of all its steps, and where each run's begin in that list."""
        clocks = []
        for engine, runs in enumerate(self.runs):
            ends: list[float] = []
            begins = [0]
            for number in range(len(runs)):
                ends += self._ends(engine, number)
                begins.append(len(ends))
            clocks.append((ends, begins))
        return clocks

    def emitted(self) -> list[list[float]]:
        """For each request the times at which its tokens were emitted."""
        times: list[list[float]] = []
        for spans in self.spans:
            mine: list[float] = []
            for engine, first, last in spans:
                ends, begins = self._clocks[engine]
                mine += ends[begins[first] : begins[last + 1]]
            times.append(mine)
        return times

    def gaps(self) -> list[list[float]]:
        """For each request the gaps between its tokens, in order (ITL, one by one)."""
        return [[b - a for a, b in pairwise(times)] for times in self.emitted()]

    @cached_property
    def pooled_gaps(self) -> list[tuple[float, int]]:
        """All gaps of all requests as (seconds, how many), sorted; a step's length is the gap it ends."""
        pot: Counter[float] = Counter()
        for lengths, count in self._gaps.values():
            if count:
                for seconds in lengths:
                    pot[seconds] += count
        return sorted(pot.items())

    def itl(self, q: float) -> float:
        """Percentile `q` of the pooled gaps."""
        return _interpolated(self._gaps.at, self._gaps.count, q)

    def share_with_prefill(self, tokens: int = 1) -> float:
        """Share of the pooled gaps whose step also computes at least `tokens` tokens of prompts."""
        slowed = [
            run.batch * run.steps - run.joined
            for engine, runs in enumerate(self.runs)
            if self.roles[engine] != "prefill"
            for run in runs
            if run.chunks and sum([chunk for _, chunk, _ in run.chunks]) >= tokens
        ]
        return sum(slowed) / self._gaps.count


def percentile(values: Sequence[float] | Sequence[tuple[float, int]], q: float) -> float:
    """The value below which `q` % of the values lie, by linear interpolation between the two nearest ranks.

    The definition that numpy uses by default: rank q / 100 x (n - 1), counted from 0. Values may come as
    (value, count) pairs. ValueError for no values, or q outside 0 to 100.
    """
    if values and isinstance(values[0], tuple):
        pairs = sorted(values)
        counts = list(accumulate([count for _, count in pairs]))  # type: ignore[misc]
        ranked = [value for value, _ in pairs]  # type: ignore[misc]
        return _interpolated(lambda rank: ranked[bisect_right(counts, rank)], counts[-1], q)
    ordered: list[float] = sorted(values)  # type: ignore[arg-type]
    return _interpolated(ordered.__getitem__, len(ordered), q)


def _interpolated(at: Callable[[int], float], count: int, q: float) -> float:
    """The percentile of `count` values of which `at` gives the one at a rank, in numpy's own arithmetic."""
    if not count:
        raise ValueError("percentile: no values; use at least one")
    if not 0 <= q <= 100:
        raise ValueError(f"percentile: q={q!r} is no percentage; use 0 to 100")
    rank = (count - 1) * (q / 100)
    share = rank - floor(rank)
    below = at(floor(rank))
    above = at(floor(rank) + 1) if share else below
    if below == above:
        return below
    return below + (above - below) * share if share < 0.5 else above - (above - below) * (1 - share)
