"""Logs: what engines at work write down, run by run, and when each request got how far.

Without a meaning of their own: what users felt is worked out in `trace`.
"""

from array import array
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from lib.simulator.engine import Chunks

NOWHERE = -1  # the engine of a request that has emitted nothing


class Run(NamedTuple):
    """Equal steps back to back on one engine: the same decodes in each, and chunks that go on.

    `chunks` holds (request, tokens, past) of the first step; `batch` requests cost what a decode costs.
    `joined` of them end no gap with it: they emit nothing, their first token, or the first since they lost
    their place. `preempted` lost theirs when the first step was composed. `seconds` are the lengths of the
    steps, which only grow.
    """

    start: float
    chunks: Chunks
    batch: int
    joined: int
    preempted: tuple[int, ...]
    seconds: Sequence[float]

    @property
    def steps(self) -> int:
        """How many they are."""
        return len(self.seconds)


Log = list[Run]  # of one engine, in order of time


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
