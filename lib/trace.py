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

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, fsum, inf, nextafter
from typing import NamedTuple

from lib.deployment import Deployment
from lib.engine import Chunks, Prices, Shapes
from lib.workload import Request


class Run(NamedTuple):
    """`steps` equal steps back to back on one engine: the same decodes in each, chunks only if it is one.

    `chunks` holds (request, tokens, past), `shapes` (tokens, past) of those that do not cost what a decode
    costs; `batch` requests do, and attend to `context` tokens together in the first step. `joined` of them
    end no gap with that step: they emit nothing, their first token, or the first since they lost their place.
    """

    start: float
    steps: int
    chunks: tuple[tuple[int, int, int], ...]
    shapes: Shapes
    batch: int
    context: int
    joined: int
    preempted: tuple[int, ...]


class Span(NamedTuple):
    """A request emits one token at the end of every step of the runs `first` to `last` of `engine`."""

    engine: int
    first: int
    last: int


# Logs are written as plain tuples, which cost half as much, and read as these.
RawRun = tuple[float, int, Chunks, Shapes, int, int, int, tuple[int, ...]]
RawSpan = tuple[int, int, int]


class Notes:
    """What happened to each request, in seconds on the clock: lists with one entry a request."""

    def __init__(self, requests: int) -> None:
        self.prefill_start = [inf] * requests
        self.prefill_end = [inf] * requests
        self.copy_start = [inf] * requests
        self.copy_end = [inf] * requests
        self.decode_queue = [inf] * requests
        self.decode_start = [inf] * requests
        self.first_token = [inf] * requests
        self.finish = [inf] * requests
        self.spans: list[tuple[RawSpan, ...]] = [()] * requests


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

    Columns are lists of seconds on the clock; what has not happened is infinite. In order: `arrival`,
    `prefill_start`, `prefill_end`, then with two pools `copy_start`, `copy_end`, `decode_queue` (decode's
    scheduler knows that the copy is here), `decode_start`; `first_token`, `finish`. `steps` and `emitted`
    work out, when asked, what the simulation left folded into runs of equal steps.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        deployment: Deployment,
        logs: Sequence[tuple[str, Prices, list[RawRun]]],
        notes: Notes,
        until: float = inf,
    ) -> None:
        self.requests = requests
        self.deployment = deployment
        self.roles = tuple([role for role, _, _ in logs])
        self._prices = tuple([prices for _, prices, _ in logs])
        self._runs = [runs for _, _, runs in logs]
        self._spans = notes.spans
        self.prefill_start = notes.prefill_start
        self.prefill_end = notes.prefill_end
        one_pool = len(deployment.pools) == 1
        self.copy_start = notes.prefill_end if one_pool else notes.copy_start
        self.copy_end = notes.prefill_end if one_pool else notes.copy_end
        self.decode_queue = notes.prefill_end if one_pool else notes.decode_queue
        self.decode_start = notes.prefill_end if one_pool else notes.decode_start
        self.first_token = notes.first_token
        self.finish = notes.finish
        if until < inf:
            self._forget(until)

    def _forget(self, until: float) -> None:
        """Leave out what happens later: steps that end later, too."""
        self._runs = [self._ended(engine, until) for engine in range(len(self._runs))]
        kept = [len(runs) for runs in self._runs]
        self._spans = [
            tuple(
                [
                    (engine, first, min(last, kept[engine] - 1))
                    for engine, first, last in spans
                    if first < kept[engine]
                ]
            )
            for spans in self._spans
        ]
        for name in STARTS + ENDS:
            column = getattr(self, name)
            last = until if name in ENDS else nextafter(until, -inf)  # what starts then is not played
            setattr(self, name, [time if time <= last else inf for time in column])

    def _ended(self, engine: int, until: float) -> list[RawRun]:
        runs = list(self._runs[engine])
        while runs:
            run = Run(*runs.pop())
            steps = bisect_right(self._ends(engine, run), until)
            if steps:
                return [*runs, run._replace(steps=steps)]
        return runs

    @cached_property
    def runs(self) -> list[list[Run]]:
        """For each engine its runs."""
        return [[Run(*run) for run in runs] for runs in self._runs]

    @cached_property
    def spans(self) -> list[list[Span]]:
        """For each request where it emitted tokens: one span, and one more whenever it lost its place."""
        return [[Span(*span) for span in spans] for spans in self._spans]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def completed(self) -> int:
        """How many requests got their last token."""
        return sum(end < inf for end in self.finish)

    @cached_property
    def arrival(self) -> list[float]:
        """When each request arrived."""
        return [request.arrival for request in self.requests]

    @cached_property
    def ttft(self) -> list[float]:
        """Time to first token: arrival to the end of the step that emits it."""
        return [first - arrival for first, arrival in zip(self.first_token, self.arrival, strict=True)]

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
        return [end - arrival for end, arrival in zip(self.finish, self.arrival, strict=True)]

    @cached_property
    def tpot(self) -> list[float]:
        """Mean gap, (last token - first) / (tokens - 1): 0 for one token, infinite if unfinished."""
        return [
            inf if end == inf else (end - first) / max(1, request.output_tokens - 1)
            for first, end, request in zip(self.first_token, self.finish, self.requests, strict=True)
        ]

    @cached_property
    def worst_gap(self) -> list[float]:
        """Longest gap between two tokens: 0 for one token, infinite if unfinished."""
        return [self._worst_gap(row) if end < inf else inf for row, end in enumerate(self.finish)]

    def _worst_gap(self, row: int) -> float:
        gaps, before = [], inf
        longest = self._gaps_and_longest[1]
        for engine, first, last in self._spans[row]:
            runs = self._runs[engine]
            if before < inf:
                gaps.append(self._ends(engine, Run(*runs[first]))[0] - before)
            if runs[first][1] > 1:
                gaps.append(longest[engine][first])
            gaps += longest[engine][first + 1 : last + 1]
            if len(self._spans[row]) > 1:
                before = self._ends(engine, Run(*runs[last]))[-1]
        return max(gaps, default=0.0)

    @cached_property
    def _gaps_and_longest(self) -> tuple[list[tuple[int, list[float]]], list[list[float]]]:
        """All gaps as (how many of each, sorted lengths), and for each engine and run its longest step.

        A gap is as long as the step that ends it, unless its owner lost its place in between. A run's longest
        step is its last, for contexts only grow.
        """
        pots: defaultdict[int, list[float]] = defaultdict(list)
        longest: list[list[float]] = [[] for _ in self._runs]
        for engine, runs in enumerate(self._runs):
            shown = self.roles[engine] != "prefill"
            prices = self._prices[engine]
            for _, steps, _, shapes, batch, context, joined, _ in runs:
                if steps == 1:
                    last = prices.seconds(shapes, batch, context)
                    if shown and batch > joined:
                        pots[batch - joined].append(last)
                else:
                    seconds = list(prices.durations(shapes, batch, context, steps))
                    last = seconds[-1]
                    if shown and joined:
                        pots[batch - joined].append(seconds.pop(0))
                    if shown and batch:
                        pots[batch] += seconds
                longest[engine].append(last)
        for spans in self._spans:
            for (engine, _, last_run), (again, first_run, _) in pairwise(spans):
                end = self._ends(engine, self.runs[engine][last_run])[-1]
                pots[1].append(self._ends(again, self.runs[again][first_run])[0] - end)
        return [(weight, sorted(pot)) for weight, pot in pots.items() if weight and pot], longest

    def _ends(self, engine: int, run: Run) -> list[float]:
        """End of each step of a run."""
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
            for step, end in enumerate(self._ends(engine, run)):
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
            for run in runs:
                ends += self._ends(engine, run)
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
        for weight, lengths in self._gaps_and_longest[0]:
            for length in lengths:
                pot[length] += weight
        return sorted(pot.items())

    def itl(self, q: float) -> float:
        """Percentile `q` of the pooled gaps."""
        pots = self._gaps_and_longest[0]
        count = sum([weight * len(lengths) for weight, lengths in pots])
        return _interpolated(lambda rank: _at_rank(pots, rank), count, q)

    def share_with_prefill(self, tokens: int = 1) -> float:
        """Share of the pooled gaps whose step also computes at least `tokens` tokens of prompts."""
        slowed = [
            run.batch * run.steps - run.joined
            for engine, runs in enumerate(self.runs)
            if self.roles[engine] != "prefill"
            for run in runs
            if run.chunks and sum([chunk for _, chunk, _ in run.chunks]) >= tokens
        ]
        return sum(slowed) / sum([count for _, count in self.pooled_gaps])


def percentile(values: Sequence[float] | Sequence[tuple[float, int]], q: float) -> float:
    """The value below which `q` % of the values lie, by linear interpolation between the two nearest ranks.

    The definition that numpy uses by default: rank q / 100 x (n - 1), counted from 0. Values may come as
    (value, count) pairs. ValueError for no values, or q outside 0 to 100.
    """
    if values and isinstance(values[0], tuple):
        pairs = sorted(values)
        counts = list(accumulate([count for _, count in pairs]))  # type: ignore[misc]
        return _interpolated(lambda rank: pairs[bisect_right(counts, rank)][0], counts[-1], q)  # type: ignore[index]
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


def _at_rank(pots: Sequence[tuple[int, list[float]]], rank: int) -> float:
    """The value at that rank, counted from 0, of sorted lists whose values count several times each."""
    parts = [(weight, values, 0, len(values)) for weight, values in pots]
    while True:
        _, values, low, high = max(parts, key=lambda part: part[3] - part[2])
        pivot = values[(low + high) // 2]
        cuts = [
            (bisect_left(values, pivot, low, high), bisect_right(values, pivot, low, high))
            for _, values, low, high in parts
        ]
        smaller = sum([part[0] * (cut[0] - part[2]) for part, cut in zip(parts, cuts, strict=True)])
        equal = sum([part[0] * (cut[1] - cut[0]) for part, cut in zip(parts, cuts, strict=True)])
        if smaller <= rank < smaller + equal:
            return pivot
        if rank < smaller:
            parts = [(*part[:3], cut[0]) for part, cut in zip(parts, cuts, strict=True)]
        else:
            rank -= smaller + equal
            parts = [(*part[:2], cut[1], part[3]) for part, cut in zip(parts, cuts, strict=True)]
