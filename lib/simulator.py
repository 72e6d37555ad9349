"""Engines on one clock: from a workload and a deployment to every step and every token's time.

`simulate` plays a workload on a deployment and returns a `Trace`. There is one event loop for all
deployments; what differs between them is passed in: the policy that fills a step, the price of a step, the
route from a request to an engine, and what happens between two pools.

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import accumulate, pairwise, repeat
from math import floor, inf
from typing import NamedTuple

from lib import checks, parallelism, workload
from lib.hardware import GPU, Link
from lib.models import Model
from lib.roofline import NO_WORK, PUBLISHED, Efficiency, Price, Work, decode_uneven, prefill, step_time
from lib.scheduler import Job, Limits, Plan, Policy, Scheduler, textbook
from lib.workload import Request

BLOCK_TOKENS = 16
USABLE_MEMORY = 0.9


# ---------------------------------------------------------------------------------------- deployments


@dataclass(frozen=True)
class Engine:
    """One copy of a model on `tensor_parallel` GPUs, with the rules by which it fills its steps.

    - `token_budget`: tokens a step may compute; None: no limit, every prompt whole.
    - `max_num_seqs`: requests in progress at once.
    - `kv_blocks`: cache blocks of 16 tokens; None: what fits in 90 % of the memory beside the weights.
    - `price`, `efficiency`: seconds of a step from its work, `price(work, gpu, efficiency)`. Tensor
      parallelism divides the work (`parallelism.divide`).
    - `link`: over which the GPUs add up their results, adding to every step; None: that is left out.
    - `decode_context`: None: a decode pays for its own context; a number: every decode pays for that many
      tokens, as in the review (8,192 + 128 at every step of every answer).
    - `policy`: `scheduler.textbook` or another of that form.
    """

    model: Model
    gpu: GPU
    tensor_parallel: int = 1
    token_budget: int | None = 2048
    max_num_seqs: int = 256
    kv_blocks: int | None = None
    price: Price = step_time
    efficiency: Efficiency = PUBLISHED
    decode_context: int | None = None
    policy: Policy = textbook
    asynchronous: bool = False
    link: Link | None = None

    def __post_init__(self) -> None:
        checks.counts("Engine", tensor_parallel=self.tensor_parallel, max_num_seqs=self.max_num_seqs)
        for name in ("token_budget", "kv_blocks", "decode_context"):
            if getattr(self, name) is not None:
                checks.counts("Engine", **{name: getattr(self, name)})
        if self.asynchronous and self.policy is textbook:
            raise ValueError("Engine: asynchronous=True needs a policy that plans ahead; textbook does not")
        if self.blocks < 1:
            raise ValueError(
                f"Engine: {self.model.name} leaves no room for a KV cache on tensor_parallel="
                f"{self.tensor_parallel} x {self.gpu.name}; use more GPUs, larger ones or smaller weights"
            )

    @property
    def blocks(self) -> int:
        """Cache blocks of 16 tokens: as given, or as many as fit beside the weights."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        room = USABLE_MEMORY * self.tensor_parallel * self.gpu.memory - self.model.resident_bytes
        copies = self.tensor_parallel / parallelism.kv_shares(self.model, self.tensor_parallel)
        return floor(room / (BLOCK_TOKENS * self.model.kv_bytes_per_token * copies))


Route = Callable[[int, Sequence["Instance"]], int]


def alternate(turn: int, instances: Sequence["Instance"]) -> int:
    """Request number `turn` goes to instance turn mod n."""
    return turn % len(instances)


def least_loaded(turn: int, instances: Sequence["Instance"]) -> int:
    """The instance with the fewest requests waiting or running, the first of them if several have."""
    return min(range(len(instances)), key=lambda i: instances[i].load)


@dataclass(frozen=True)
class Pool:
    """Equal engines that do the same part of the work."""

    role: str
    engine: Engine
    count: int


@dataclass(frozen=True)
class Collocated:
    """`replicas` equal engines, each of which does both phases of the requests routed to it."""

    engine: Engine
    replicas: int = 1
    route: Route = alternate

    def __post_init__(self) -> None:
        checks.counts("Collocated", replicas=self.replicas)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The one pool."""
        return (Pool("collocated", self.engine, self.replicas),)

    def handoff_seconds(self, request: Request) -> float:
        """Nothing changes hands."""
        return 0.0


@dataclass(frozen=True)
class Disaggregated:
    """`n_prefill` engines compute prompts, `n_decode` engines emit all tokens; a handoff lies between.

    The token that prefill computes is not shown: after the handoff the first decode step emits the first
    token. `handoff` is seconds, the same for every request, or a `Link` that a prompt's KV cache crosses,
    every request alone on it.
    """

    prefill: Engine
    decode: Engine
    n_prefill: int = 1
    n_decode: int = 1
    handoff: float | Link = 0.0
    route: Route = alternate

    def __post_init__(self) -> None:
        checks.counts("Disaggregated", n_prefill=self.n_prefill, n_decode=self.n_decode)
        if not isinstance(self.handoff, Link):
            checks.not_negative("Disaggregated", handoff=self.handoff)
        if self.prefill.model != self.decode.model:
            raise ValueError(
                f"Disaggregated: prefill runs {self.prefill.model.name} and decode {self.decode.model.name}; "
                "use one model, a KV cache fits no other"
            )

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Prefill, then decode."""
        return (
            Pool("prefill", self.prefill, self.n_prefill),
            Pool("decode", self.decode, self.n_decode),
        )

    def handoff_seconds(self, request: Request) -> float:
        """Seconds between the end of a prompt's last prefill step and its arrival at decode."""
        if isinstance(self.handoff, Link):
            return self.handoff.time(request.prompt_tokens * self.decode.model.kv_bytes_per_token)
        return self.handoff


Deployment = Collocated | Disaggregated


# ---------------------------------------------------------------------------------------- prices


Shapes = tuple[tuple[int, int], ...]  # (tokens, past) of each chunk of a step


class Prices:
    """What an engine's steps cost. `durations` is asked for a run, all else serves it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds = lru_cache(maxsize=1 << 14)(self._seconds)
        self.chunk = lru_cache(maxsize=1 << 14)(self._chunk)

    def _chunk(self, tokens: int, past: int) -> Work:
        return prefill(self.engine.model, tokens, past)

    def _seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        """Seconds of a step: chunks of (tokens, past), and `batch` decodes of `context` tokens together."""
        work = NO_WORK
        for tokens, past in chunks:
            work += self.chunk(tokens, past)
        if batch:
            work += decode_uneven(self.engine.model, batch, context)
        engine = self.engine
        if engine.tensor_parallel == 1:
            return engine.price(work, engine.gpu, engine.efficiency)
        work = parallelism.divide(work, engine.model, engine.tensor_parallel)
        seconds = engine.price(work, engine.gpu, engine.efficiency)
        if engine.link is not None:
            tokens = batch + sum([tokens for tokens, _ in chunks])
            seconds += parallelism.talk(engine.model, tokens, engine.tensor_parallel, engine.link)
        return seconds

    def context(self, decodes: Sequence[Job]) -> int:
        """Tokens that the decodes attend to together in the next step."""
        fixed = self.engine.decode_context
        return fixed * len(decodes) if fixed else sum([job.context for job in decodes])

    def later(self, batch: int, context: int, steps: int) -> int:
        """What `context` has become `steps` steps later: every decode adds a token, unless it is fixed."""
        return context if self.engine.decode_context else context + batch * steps

    def durations(self, chunks: Shapes, batch: int, context: int, steps: int) -> Iterable[float]:
        """Seconds of each of `steps` steps that follow each other."""
        if steps == 1 or self.engine.decode_context:
            return repeat(self.seconds(chunks, batch, context), steps)
        return [self.seconds(chunks, batch, self.later(batch, context, step)) for step in range(steps)]


@lru_cache(maxsize=256)
def prices(engine: Engine) -> Prices:
    """The engine's prices, shared by all simulations with an equal engine: each is worked out once."""
    return Prices(engine)


# ---------------------------------------------------------------------------------------- the event loop


class Run(NamedTuple):
    """`steps` equal steps back to back on one engine: the same decodes in each, chunks only if it is one.

    `chunks` holds (request, tokens, past); `context` is what the `batch` decodes attend to together in the
    first step, `joined` how many of them have had no token before it.
    """

    start: float
    steps: int
    chunks: tuple[tuple[int, int, int], ...]
    batch: int
    context: int
    joined: int


class Span(NamedTuple):
    """A request emits one token at the end of every step of the runs `first` to `last` of `engine`."""

    engine: int
    first: int
    last: int


class Notes:
    """What happened to each request, in seconds on the clock: lists with one entry a request."""

    def __init__(self, requests: int) -> None:
        self.prefill_start = [inf] * requests
        self.prefill_end = [inf] * requests
        self.decode_queue = [inf] * requests
        self.decode_start = [inf] * requests
        self.first_token = [inf] * requests
        self.finish = [inf] * requests
        self.spans: list[list[Span]] = [[] for _ in range(requests)]
        self.open: dict[int, tuple[int, int]] = {}  # request -> engine and first run of the span in progress

    def close(self, request: int, last: int) -> None:
        """The span in progress ends with run `last`."""
        engine, first = self.open.pop(request)
        self.spans[request].append(Span(engine, first, last))


class Instance:
    """One engine at work: a scheduler, the run in progress and a log of those before it."""

    def __init__(self, number: int, at: int, pools: Sequence[Pool]) -> None:
        pool = pools[at]
        self.number = number
        self.pool = at
        self.role = pool.role
        self.shown = at == len(pools) - 1  # whether the tokens emitted here are the user's
        self.prices = prices(pool.engine)
        limits = Limits(pool.engine.token_budget, pool.engine.max_num_seqs)
        self.scheduler: Scheduler = pool.engine.policy(limits)
        self.plan: Plan | None = None
        self.context = 0
        self.ends: list[float] = []  # start of the run in progress, then the end of each of its steps
        self.runs: list[Run] = []
        self.alarm = 0  # the wake-up call that is still wanted

    @property
    def load(self) -> int:
        """Requests waiting and running here."""
        return self.scheduler.load

    def launch(self, now: float) -> float | None:
        """Start the next run. Returns when it ends, or None where there is nothing to do."""
        self.plan = plan = self.scheduler.plan()
        if plan is None:
            return None
        self.context = self.prices.context(plan.decodes)
        shapes = tuple([(chunk.tokens, chunk.past) for chunk in plan.chunks])
        seconds = self.prices.durations(shapes, len(plan.decodes), self.context, plan.steps)
        self.ends = list(accumulate(seconds, initial=now))
        return self.ends[-1]

    def receive(self, job: Job, now: float) -> float | None:
        """Queue a job. Returns when to look again if that has changed.

        A run in progress is cut after the step in progress; a step that starts at this very moment has not
        begun, and sees the newcomer.
        """
        self.scheduler.add(job)
        if self.plan is None:
            return now
        begun = max(1, bisect_left(self.ends, now))
        if begun >= len(self.ends) - 1:
            return None
        del self.ends[begun + 1 :]
        return self.ends[-1]

    def finish(self, notes: Notes) -> list[Job]:
        """Close the run in progress and note what happened in it. Returns the jobs that are done here."""
        plan, ends, number = self.plan, self.ends, len(self.runs)
        if plan is None:
            return []
        self.plan = None
        for chunk in plan.chunks:
            if not chunk.past:
                notes.prefill_start[chunk.job.request] = ends[0]
            if chunk.last:
                notes.prefill_end[chunk.job.request] = ends[1]
        joined = [job for job in plan.decodes if not job.emitted]
        for job in joined:
            notes.decode_start[job.request] = ends[0]
        started = joined + [chunk.job for chunk in plan.chunks if chunk.last]
        chunks = tuple([(chunk.job.request, chunk.tokens, chunk.past) for chunk in plan.chunks])
        steps = len(ends) - 1
        self.runs.append(Run(ends[0], steps, chunks, len(plan.decodes), self.context, len(joined)))
        finished = self.scheduler.advance(plan, steps)
        if self.shown:
            for job in started:
                notes.first_token[job.request] = ends[1]
                notes.open[job.request] = (self.number, number)
            for job in finished:
                notes.finish[job.request] = ends[-1]
                notes.close(job.request, number)
        return finished

    def stop(self, now: float, notes: Notes) -> None:
        """Close the run in progress after the last step that has ended by now."""
        ended = bisect_right(self.ends, now) - 1
        if self.plan is not None and ended > 0:
            del self.ends[ended + 1 :]
            self.finish(notes)


def simulate(requests: Iterable[Request], deployment: Deployment, until: float = inf) -> "Trace":
    """Play the workload on the deployment, to its end or `until` that many seconds. Returns the `Trace`.

    ValueError where the workload is empty or out of order, or a request fits into no engine's cache.
    """
    rows = workload.check(requests)
    pools = deployment.pools
    _refuse_impossible(rows, pools)
    numbers = iter(range(sum(pool.count for pool in pools)))
    members = [
        [Instance(next(numbers), at, pools) for _ in range(pool.count)] for at, pool in enumerate(pools)
    ]
    instances = [instance for pool in members for instance in pool]
    turns = [0] * len(pools)
    notes = Notes(len(rows))

    # An event is (time, order, number, what). At equal times requests reach their engines before any engine
    # starts a step (order 0), and engines of the first pool finish before those of the second look.
    events: list[tuple[float, int, int, Job | int]] = []
    for row, request in enumerate(rows):
        output = request.output_tokens if len(pools) == 1 else 1
        events.append((request.arrival, 0, row, Job(row, request.prompt_tokens, output)))
    sent = len(rows)
    while events and events[0][0] <= until:
        now, _, number, what = heappop(events)
        if isinstance(what, Job):
            at = 0
            if what.computed:
                at = 1
                notes.decode_queue[what.request] = now
            instance = members[at][deployment.route(turns[at], members[at])]
            turns[at] += 1
            wake = instance.receive(what, now)
        else:
            instance = instances[number]
            if what != instance.alarm:
                continue
            for job in instance.finish(notes):
                if not instance.shown:
                    request = rows[job.request]
                    ready = now + deployment.handoff_seconds(request)
                    after = Job(job.request, job.prompt, request.output_tokens, computed=job.prompt)
                    heappush(events, (ready, 0, sent, after))
                    sent += 1
            wake = instance.launch(now)
        if wake is not None:
            instance.alarm += 1
            heappush(events, (wake, 1 + instance.pool, instance.number, instance.alarm))
    for instance in instances:
        instance.stop(until, notes)
    for row, (engine, _) in list(notes.open.items()):
        notes.close(row, len(instances[engine].runs) - 1)
    return Trace(rows, deployment, tuple(instances), notes)


def _refuse_impossible(rows: Sequence[Request], pools: Sequence[Pool]) -> None:
    """ValueError for the first request that not even an empty cache could hold."""
    for pool in pools:
        room = pool.engine.blocks * BLOCK_TOKENS
        for row, request in enumerate(rows):
            tokens = request.prompt_tokens + (request.output_tokens if pool is pools[-1] else 1)
            if tokens > room:
                raise ValueError(
                    f"workload, row {row}: prompt and output are {tokens} tokens, the cache of a {pool.role} "
                    f"engine holds {room}; use shorter requests, more kv_blocks or more memory"
                )


# ---------------------------------------------------------------------------------------- traces


@dataclass(frozen=True)
class Step:
    """One step of engine `engine`, from `start` to `end`.

    `chunks` maps a request to (tokens, past) of its prompt, `decodes` one to its tokens computed before.
    """

    engine: int
    start: float
    end: float
    chunks: dict[int, tuple[int, int]]
    decodes: dict[int, int]


class Trace:
    """What came of a simulation: one row a request in every column, in the order of the workload.

    Columns are lists of seconds; what never happened is infinite. `steps` and `emitted` work out, when asked,
    what the simulation left folded into runs of equal steps.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        deployment: Deployment,
        engines: tuple[Instance, ...],
        notes: Notes,
    ) -> None:
        self.requests = requests
        self.deployment = deployment
        self.roles = tuple([engine.role for engine in engines])
        self.runs = tuple([tuple(engine.runs) for engine in engines])
        self.spans = tuple([tuple(spans) for spans in notes.spans])
        self.prefill_start = notes.prefill_start
        self.prefill_end = notes.prefill_end
        self.first_token = notes.first_token
        self.finish = notes.finish
        self._prices = tuple([engine.prices for engine in engines])
        one_pool = len(deployment.pools) == 1
        self.decode_queue = notes.prefill_end if one_pool else notes.decode_queue
        self.decode_start = notes.prefill_end if one_pool else notes.decode_start

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
        for engine, first, last in self.spans[row]:
            if before < inf:
                gaps.append(self._ends(engine, first)[0] - before)
            if self.runs[engine][first].steps > 1:
                gaps.append(self._longest[engine][first])
            gaps += self._longest[engine][first + 1 : last + 1]
            before = self._ends(engine, last)[-1]
        return max(gaps, default=0.0)

    @cached_property
    def _longest(self) -> list[list[float]]:
        """For each engine and run the seconds of its longest step: the last, for contexts only grow."""
        return [
            [self._step(engine, run, run.steps - 1) for run in runs] for engine, runs in enumerate(self.runs)
        ]

    def _step(self, engine: int, run: Run, step: int) -> float:
        """Seconds of one step of a run."""
        prices = self._prices[engine]
        shapes = tuple([(tokens, past) for _, tokens, past in run.chunks])
        return prices.seconds(shapes, run.batch, prices.later(run.batch, run.context, step))

    def _ends(self, engine: int, number: int) -> list[float]:
        """End of each step of a run."""
        run = self.runs[engine][number]
        shapes = tuple([(tokens, past) for _, tokens, past in run.chunks])
        seconds = self._prices[engine].durations(shapes, run.batch, run.context, run.steps)
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
            chunks = {row: (tokens, past) for row, tokens, past in run.chunks}
            begin = run.start
            for end in self._ends(engine, number):
                decodes = {
                    row: self.requests[row].prompt_tokens + count - 1
                    for row, (_, count) in emitting.items()
                    if row not in chunks
                }
                yield Step(engine, begin, end, chunks, decodes)
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
        for engine, runs in enumerate(self.runs):
            if self.roles[engine] == "prefill":
                continue
            for run in runs:
                first = self._step(engine, run, 0)
                pot[first] += run.batch - run.joined
                if self._step(engine, run, run.steps - 1) == first:
                    pot[first] += run.batch * (run.steps - 1)
                else:
                    for step in range(1, run.steps):
                        pot[self._step(engine, run, step)] += run.batch
        for spans in self.spans:
            for before, after in pairwise(spans):
                pot[
                    self._ends(after.engine, after.first)[0] - self._ends(before.engine, before.last)[-1]
                ] += 1
        return sorted((seconds, count) for seconds, count in pot.items() if count)

    def itl(self, q: float) -> float:
        """Percentile `q` of the pooled gaps."""
        return percentile(self.pooled_gaps, q)


def percentile(values: Sequence[float] | Sequence[tuple[float, int]], q: float) -> float:
    """The value below which `q` % of the values lie, by linear interpolation between the two nearest ranks.

    The definition that numpy uses by default: rank q / 100 x (n - 1), counted from 0. Values may come as
    (value, count) pairs, sorted. ValueError for no values, or q outside 0 to 100.
    """
    if not values:
        raise ValueError("percentile: no values; use at least one")
    if not 0 <= q <= 100:
        raise ValueError(f"percentile: q={q!r} is no percentage; use 0 to 100")
    pairs = [v if isinstance(v, tuple) else (v, 1) for v in values]
    pairs.sort()
    counts = list(accumulate([count for _, count in pairs]))
    rank = (counts[-1] - 1) * (q / 100)
    below = pairs[bisect_right(counts, floor(rank))][0]
    above = pairs[bisect_right(counts, min(floor(rank) + 1, counts[-1] - 1))][0]
    share = rank - floor(rank)
    if below == above or share == 0:
        return below
    if share < 0.5:
        return below + (above - below) * share
    return above - (above - below) * (1 - share)
