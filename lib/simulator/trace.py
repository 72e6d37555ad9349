"""Traces: what came of a simulation, and the latencies that users feel.

The words used, here and in all columns of a trace (seconds):

- **TTFT**, time to first token: from a request's arrival to the end of the step that emits its first token.
- **ITL**, inter-token latency: the gap between two tokens of one answer that follow each other. *Pooled*: all
  gaps of all requests in one pot, long answers counting more. *Per request*: a statistic of one request's own
  gaps, each request counting once.
- **TPOT**, time per output token: a request's mean gap, (last token - first token) / (tokens - 1).
- **Worst gap**: a request's longest one, the pause that its reader notices.
- **E2E**: from arrival to last token.

Not here: what the engines did, run by run (`log`), and targets for latencies (`lib.goodput`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import floor, fsum, inf, nextafter
from typing import NamedTuple

from lib.simulator.deployment import Deployment
from lib.simulator.log import NOWHERE, Log, Notes, Run, Span
from lib.workload import Request


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


class Moments(NamedTuple):
    """When one request got how far, in the order of its way; and seconds that its history took back."""

    arrival: float
    prefill_start: float
    prefill_end: float
    copy_start: float
    copy_end: float
    decode_queue: float
    decode_start: float
    first_token: float
    way_back: float


STARTS = ("prefill_start", "back_start", "copy_start", "decode_start")
ENDS = ("prefill_end", "back_end", "copy_end", "decode_queue", "first_token", "finish")


class Trace:
    """What came of a simulation: one row a request in every column, in the order of the workload.

    Columns are lists of seconds on the clock; what has not happened is infinite. `steps` and `emitted` work
    out, when asked, what the simulation left folded into runs of equal steps.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        deployment: Deployment,
        logs: Sequence[tuple[str, Log]],
        notes: Notes,
        until: float = inf,
    ) -> None:
        self.requests = requests
        self.deployment = deployment
        self.roles = tuple([role for role, _ in logs])
        self.runs = [log for _, log in logs]  # of each engine
        self._notes = notes
        if until < inf:
            self._forget(until)

    def _forget(self, until: float) -> None:
        """Leave out what happens later: steps that end later, too."""
        notes = self._notes
        for engine, log in enumerate(self.runs):
            kept, steps = len(log), 0
            while kept and not steps:
                kept -= 1
                steps = bisect_right(_ends(log[kept]), until)
            cut = [log[kept]._replace(seconds=log[kept].seconds[:steps])] if steps else []
            self.runs[engine] = log[:kept] + cut
        for row in range(len(self)):
            spans = notes.spans(row)
            notes.engine[row] = NOWHERE
            notes.earlier.pop(row, None)
            for engine, first, last in spans:
                if first < len(self.runs[engine]):
                    notes.span(row, engine, first, min(last, len(self.runs[engine]) - 1))
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
    def computed_tokens(self) -> list[int]:
        """How many tokens of each prompt were computed where prompts are; after a preemption, once more."""
        computed = [0] * len(self)
        for role, log in zip(self.roles, self.runs, strict=True):
            for run in log if role != "decode" else ():
                for row, tokens, _ in run.chunks:
                    computed[row] += tokens * run.steps
        return computed

    @cached_property
    def fetched_tokens(self) -> list[int]:
        """Of how many tokens of each prompt prefill pulled the cache back from decode."""
        return list(self._notes.fetched)

    @cached_property
    def sent_tokens(self) -> list[int]:
        """Of how many tokens of each prompt the cache moved to decode."""
        return list(self._notes.sent)

    @cached_property
    def back_start(self) -> list[float]:
        """When the cache of earlier turns began to move back to prefill; infinite where none does."""
        return list(self._notes.back_start)

    @cached_property
    def back_end(self) -> list[float]:
        """When all of it had arrived."""
        return list(self._notes.back_end)

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
        for the correctly rounded sum, `math.fsum`. Where prefill pulls from decode, `way back` is that pull
        and not in the queue.
        """
        rows = [_parts(moments) for moments in self._way()]
        names = list(rows[0]) if self.deployment.way.bidirectional else list(rows[0])[:-1]
        return {name: [row[name] for row in rows] for name in names}

    def _way(self) -> Iterator[Moments]:
        """When each request got how far."""
        back = [
            end - start if start < inf else 0.0
            for start, end in zip(self.back_start, self.back_end, strict=True)
        ]
        columns = [getattr(self, name) for name in Moments._fields[:-1]]
        return map(Moments, *columns, back)

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
        notes = self._notes
        longest = [[run.seconds[-1] for run in log] for log in self.runs]
        worst = []
        for row, end in enumerate(notes.finish):
            if end == inf:
                worst.append(inf)
                continue
            engine, first, last = notes.engine[row], notes.first[row], notes.last[row]
            gap = max(longest[engine][first + 1 : last + 1], default=0.0)
            if self.runs[engine][first].steps > 1:  # else it only has the step that emitted the first token
                gap = max(gap, longest[engine][first])
            if row in notes.earlier:
                gap = max(gap, *self._longer_ago(row))
            worst.append(gap)
        return worst

    def itl_within(self, limit: float, q: float) -> list[bool]:
        """For each request whether the percentile `q` of its own gaps is at most the limit.

        True with one token, false if unfinished. Its longer gaps are counted, and only few are looked at.
        """
        found = []
        for row, (request, end, over) in enumerate(
            zip(self.requests, self._notes.finish, self.gaps_over(limit), strict=True)
        ):
            count = request.output_tokens - 1
            if end == inf or not count:
                found.append(end < inf)
                continue
            rank, share = _rank(count, q)
            above = count - rank  # so many gaps are at least as long as the one at the rank
            if over >= above or over < above - (share > 0):
                found.append(over < above)
            else:  # the limit lies between the two that the percentile does
                gaps = sorted(self._own_gaps(row))
                found.append(_between(gaps[rank], gaps[rank + 1], share) <= limit)
        return found

    def gaps_over(self, limit: float) -> list[int]:
        """For each request how many of its gaps are longer than the limit."""
        behind = []  # for each engine how many steps are longer, before each of its runs
        for log in self.runs:
            over = [run.steps - bisect_right(run.seconds, limit) for run in log]
            behind.append(list(accumulate(over, initial=0)))
        counts = []
        for row in range(len(self)):
            count = sum([gap > limit for gap in self._without(row)])
            for engine, first, last in self._notes.spans(row):
                longer = behind[engine]
                count += longer[last + 1] - longer[first] - (self.runs[engine][first].seconds[0] > limit)
            counts.append(count)
        return counts

    def _own_gaps(self, row: int) -> list[float]:
        """All gaps of a request, in no order."""
        gaps = self._without(row)
        for engine, first, last in self._notes.spans(row):
            runs = self.runs[engine][first : last + 1]
            gaps += list(chain.from_iterable([run.seconds for run in runs]))
            gaps.remove(runs[0].seconds[0])  # that one emitted the first token of the span
        return gaps

    def _longer_ago(self, row: int) -> list[float]:
        """Gaps of a request that lost its place: the longest of each span but the last, and those between."""
        gaps: list[float] = []
        for engine, first, last in self._notes.earlier[row]:
            runs = self.runs[engine][first : last + 1]
            gaps += [run.seconds[-1] for run in runs[1:]]
            gaps += [runs[0].seconds[-1]] * (runs[0].steps > 1)
        return gaps + self._without(row)

    def _without(self, row: int) -> list[float]:
        """Gaps of a request during which it had lost its place."""
        return [
            _ends(self.runs[after.engine][after.first])[0] - _ends(self.runs[before.engine][before.last])[-1]
            for before, after in pairwise(self._notes.spans(row))
        ]

    @cached_property
    def pooled_gaps(self) -> list[tuple[float, int]]:
        """All gaps of all requests as (seconds, how many), sorted; a step's length is the gap it ends.

        One is as long as the step that ends it, unless its owner lost its place in between.
        """
        counts: defaultdict[float, int] = defaultdict(int)  # a Counter is slower where most lengths differ
        for row in self._notes.earlier:
            for gap in self._without(row):
                counts[gap] += 1
        for role, log in zip(self.roles, self.runs, strict=True):
            for run in log if role != "prefill" else ():
                if run.batch:
                    for length in run.seconds:
                        counts[length] += run.batch
                    counts[run.seconds[0]] -= run.joined
        return sorted([(length, count) for length, count in counts.items() if count])

    @cached_property
    def _ranks(self) -> list[int]:
        """For each length of gaps how many are as long or shorter."""
        return list(accumulate([count for _, count in self.pooled_gaps]))

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
            for step, end in enumerate(_ends(run)):
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
        for runs in self.runs:
            ends: list[float] = []
            begins = [0]
            for run in runs:
                ends += _ends(run)
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

    def itl(self, q: float) -> float:
        """Percentile `q` of the pooled gaps."""
        ranks, gaps = self._ranks, self.pooled_gaps
        return _interpolated(lambda rank: gaps[bisect_right(ranks, rank)][0], ranks[-1] if ranks else 0, q)

    def share_with_prefill(self, tokens: int = 1) -> float:
        """Share of the pooled gaps whose step also computes at least `tokens` tokens of prompts."""
        slowed = [
            run.batch * run.steps - run.joined
            for engine, runs in enumerate(self.runs)
            if self.roles[engine] != "prefill"
            for run in runs
            if run.chunks and sum([chunk for _, chunk, _ in run.chunks]) >= tokens
        ]
        return sum(slowed) / self._ranks[-1]


def _ends(run: Run) -> list[float]:
    """End of each step of a run."""
    return list(accumulate(run.seconds, initial=run.start))[1:]


def _parts(at: Moments) -> dict[str, float]:
    """Where a first token's time went; what rounding leaves over is prefill's."""
    names = ("queue", "prefill", "transfer", "notice", "decode queue", "first step", "way back")
    if at.first_token == inf:
        return dict.fromkeys(names, inf)
    parts = dict.fromkeys(names, 0.0)
    parts |= {
        "queue": at.prefill_start - at.arrival - at.way_back,
        "transfer": at.copy_end - at.copy_start,
        "notice": at.decode_queue - at.copy_end,
        "decode queue": (at.copy_start - at.prefill_end) + (at.decode_start - at.decode_queue),
        "first step": at.first_token - at.decode_start,
        "way back": at.way_back,
    }
    parts["prefill"] = fsum([at.first_token - at.arrival, *[-part for part in parts.values()]])
    return parts


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
    rank, share = _rank(count, q)
    return _between(at(rank), at(rank + 1), share) if share else at(rank)


def _rank(count: int, q: float) -> tuple[int, float]:
    """The rank below the percentile, counted from 0, and the share of the way to the next that it lies on."""
    if not 0 <= q <= 100:
        raise ValueError(f"percentile: q={q!r} is no percentage; use 0 to 100")
    rank = (count - 1) * (q / 100)
    return floor(rank), rank - floor(rank)


def _between(below: float, above: float, share: float) -> float:
    """The value at that share of the way from one to the other."""
    if below == above:
        return below
    return below + (above - below) * share if share < 0.5 else above - (above - below) * (1 - share)
