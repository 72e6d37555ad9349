"""Logs: what engines at work write down, as densely as a million requests need it."""

from array import array
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from lib.engine import Chunks, Shapes


class Run(NamedTuple):
    """`steps` equal steps back to back on one engine: the same decodes in each, and chunks that go on.

    `chunks` holds (request, tokens, past) of the first step, `shapes` (tokens, past) of those that do not
    cost what a decode costs; `batch` requests do, and attend to `context` tokens together in the first step.
    `joined` of them end no gap with it: they emit nothing, their first token, or the first since they lost
    their place. `preempted` lost theirs when the first step was composed.
    """

    start: float
    steps: int
    chunks: Chunks
    shapes: Shapes
    batch: int
    context: int
    joined: int
    preempted: tuple[int, ...]


class Log:
    """The runs of one engine, in columns."""

    def __init__(self) -> None:
        self.start = array("d")
        self.steps = array("q")
        self.batch = array("i")
        self.context = array("q")
        self.joined = array("i")
        self.chunks = array("q")  # request, tokens, past; request, tokens, past; ...
        self.chunks_end = array("q")  # where in `chunks` those of each run end
        self.rare: dict[
            int, tuple[Shapes, tuple[int, ...]]
        ] = {}  # shapes, preempted, where out of the ordinary

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
        self.joined.append(run.joined)
        for chunk in run.chunks:
            self.chunks.extend(chunk)
        self.chunks_end.append(len(self.chunks))

    def shapes(self, number: int) -> Shapes:
        """Of a run: (tokens, past) of the chunks that do not cost what a decode costs."""
        if number in self.rare:
            return self.rare[number][0]
        start, end = self.chunks_end[number - 1] if number else 0, self.chunks_end[number]
        return tuple([(self.chunks[i + 1], self.chunks[i + 2]) for i in range(start, end, 3)])

    def __getitem__(self, number: int) -> Run:
        flat = self.chunks[self.chunks_end[number - 1] if number else 0 : self.chunks_end[number]]
        chunks = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        shapes, preempted = self.shapes(number), self.rare.get(number, ((), ()))[1]
        columns = (self.batch[number], self.context[number], self.joined[number])
        return Run(self.start[number], self.steps[number], chunks, shapes, *columns, preempted)

    def __iter__(self) -> Iterator[Run]:
        return map(self.__getitem__, range(len(self)))

    def until(self, runs: int, steps: int) -> "Log":
        """A log of the first so many runs, the last of which has only so many steps."""
        found = Log()
        for number in range(runs):
            run = self[number]
            found.add(run if number < runs - 1 else run._replace(steps=steps))
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
        self.copy_start = never[:]
        self.copy_end = never[:]
        self.decode_queue = never[:]
        self.decode_start = never[:]
        self.first_token = never[:]
        self.finish = never[:]
        none = array("q", [-1]) * requests
        self.engine, self.first, self.last = none[:], none[:], none[:]  # the latest span
        self.earlier: dict[int, list[Span]] = {}

    def span(self, request: int, engine: int, first: int, last: int) -> None:
        """One more span of a request."""
        if self.engine[request] >= 0:
            self.earlier.setdefault(request, []).append(self.latest(request))
        self.engine[request], self.first[request], self.last[request] = engine, first, last

    def latest(self, request: int) -> Span:
        """The latest span of a request."""
        return Span(self.engine[request], self.first[request], self.last[request])

    def spans(self, request: int) -> Sequence[Span]:
        """All spans of a request, in order."""
        if self.engine[request] < 0:
            return ()
        return (*self.earlier.get(request, ()), self.latest(request))
