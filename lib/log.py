"""Logs: what engines at work write down, as densely as a million requests need it."""

from array import array
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from lib.engine import Chunks, Prices, Shapes
from lib.scheduler import NEVER

NOWHERE = -1  # the engine of a request that has emitted nothing


class Run(NamedTuple):
    """`steps` equal steps back to back on one engine: the same decodes in each, and chunks that go on.

    `chunks` holds (request, tokens, past) of the first step, `shapes` (tokens, past) of those that do not
    cost what a decode costs; `batch` requests do, and attend to `context` tokens together in the first step.
    `joined` of them end no gap with it: they emit nothing, their first token, or the first since they lost
    their place. `preempted` lost theirs when the first step was composed. `seconds` are the lengths of the
    steps, which only grow; where there are no chunks, the first and the last will do.
    """

    start: float
    steps: int
    chunks: Chunks
    shapes: Shapes
    batch: int
    context: int
    joined: int
    preempted: tuple[int, ...]
    seconds: Sequence[float]


class Log:
    """The runs of one engine, in columns."""

    def __init__(self) -> None:
        self.start = array("d")
        self.steps = array("q")
        self.batch = array("i")
        self.context = array("q")
        self.shortest = array("d")
        self.longest = array("d")
        self.chunks = array("d")  # of a run: request, tokens, past of each chunk; then each step's seconds
        self.chunks_end = array("q")  # where in `chunks` those of each run end
        self.joined: dict[int, int] = {}  # where there are any
        self.rare: dict[int, tuple[Shapes, tuple[int, ...]]] = {}  # shapes, preempted: where not as usual

    def __len__(self) -> int:
        return len(self.start)

    def add(self, run: Run) -> None:
        """One more run."""
        if run.preempted or len(run.shapes) < len(run.chunks):
            self.rare[len(self)] = (run.shapes, run.preempted)
        self.start.append(run.start)
        self.steps.append(run.steps)
        self.batch.append(run.batch)
        self.context.append(run.context)
        self.shortest.append(run.seconds[0])
        self.longest.append(run.seconds[-1])
        if run.joined:
            self.joined[len(self) - 1] = run.joined
        for chunk in run.chunks:
            self.chunks.extend(chunk)
        if run.chunks:
            self.chunks.extend(run.seconds)
        self.chunks_end.append(len(self.chunks))

    def _chunks(self, number: int) -> tuple["array[float]", "array[float]"]:
        """What `chunks` has of a run: numbers of its chunks, and its steps' seconds; empty without chunks."""
        start, end = self.chunks_end[number - 1] if number else 0, self.chunks_end[number]
        middle = end - self.steps[number] if end > start else end
        return self.chunks[start:middle], self.chunks[middle:end]

    def noted(self, number: int) -> bool:
        """Whether the length of each step of a run is in `chunks`."""
        return self.chunks_end[number] > (self.chunks_end[number - 1] if number else 0)

    def seconds(self, number: int, prices: Prices, last: int = NEVER) -> Sequence[float]:
        """The length of each step of a run, or of the last so many."""
        steps, end = self.steps[number], self.chunks_end[number]
        if steps < last:
            last = steps
        if end > (self.chunks_end[number - 1] if number else 0):
            return self.chunks[end - last : end]
        step = self.batch[number], self.context[number]
        return list(prices.durations(*prices.later((), *step, steps - last), last))

    def __getitem__(self, number: int) -> Run:
        flat = [int(value) for value in self._chunks(number)[0]]
        chunks = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        shapes, preempted = self.rare.get(number) or (tuple([chunk[1:] for chunk in chunks]), ())
        columns = (self.batch[number], self.context[number], self.joined.get(number, 0))
        lengths = self._chunks(number)[1] or (self.shortest[number], self.longest[number])
        return Run(self.start[number], self.steps[number], chunks, shapes, *columns, preempted, lengths)

    def __iter__(self) -> Iterator[Run]:
        return map(self.__getitem__, range(len(self)))

    def until(self, runs: int, last: Run | None) -> "Log":
        """A log of the first so many runs, and of one more if it is given."""
        found = Log()
        for number in range(runs):
            found.add(self[number])
        if last:
            found.add(last)
        return found


class Span(NamedTuple):
    """A request emits one token at the end of every step of the runs `first` to `last` of `engine`."""

    engine: int
    first: int
    last: int


class Notes:
    """What happened to each request, in seconds on the clock: columns with one entry a request."""

    def __init__(self, requests: int) -> None:
        never = array("d", [inf]) * requests
        self.prefill_start = never[:]
        self.prefill_end = never[:]
        self.back_start = never[:]
        self.back_end = never[:]
        self.copy_start = never[:]
        self.copy_end = never[:]
        self.decode_queue = never[:]
        self.decode_start = never[:]
        self.first_token = never[:]
        self.finish = never[:]
        none = array("q", [NOWHERE]) * requests
        self.sent, self.fetched = array("q", [0]) * requests, array("q", [0]) * requests  # tokens
        self.engine, self.first, self.last = none[:], none[:], none[:]  # the latest span
        self.earlier: dict[int, list[Span]] = {}

    def span(self, request: int, engine: int, first: int, last: int) -> None:
        """One more span of a request."""
        if self.engine[request] != NOWHERE:
            self.earlier.setdefault(request, []).append(self.latest(request))
        self.engine[request], self.first[request], self.last[request] = engine, first, last

    def latest(self, request: int) -> Span:
        """The latest span of a request."""
        return Span(self.engine[request], self.first[request], self.last[request])

    def spans(self, request: int) -> Sequence[Span]:
        """All spans of a request, in order."""
        if self.engine[request] == NOWHERE:
            return ()
        return (*self.earlier.get(request, ()), self.latest(request))
