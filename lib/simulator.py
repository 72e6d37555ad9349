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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from heapq import heappop, heappush
from itertools import accumulate, pairwise, repeat
from math import floor, inf, nextafter
from operator import itemgetter
from typing import Any, NamedTuple

from lib import checks, parallelism, workload
from lib.hardware import GPU, L40S, Link
from lib.models import QWEN2_5_7B, Model
from lib.roofline import NO_WORK, PUBLISHED, Efficiency, Mixed, Price, Work, decode_uneven, prefill, step_time
from lib.scheduler import BLOCK_TOKENS, Job, Limits, Plan, Policy, Scheduler, textbook, vllm
from lib.workload import Request

USABLE_MEMORY = 0.9
SURELY = 1e-12  # seconds, more than rounding can be wrong by


# ---------------------------------------------------------------------------------------- deployments


@dataclass(frozen=True)
class Engine:
    """One copy of a model on `tensor_parallel` GPUs, with the rules by which it fills its steps.

    - `token_budget`: tokens a step may compute; None: no limit, every prompt whole.
    - `max_num_seqs`: requests in progress at once.
    - `kv_blocks`: cache blocks of 16 tokens, of which one is never used; None: what fits in 90 % of the
      memory beside the weights.
    - `price`, `efficiency`: seconds of a step from its work, `price(work, gpu, efficiency)`. Tensor
      parallelism divides the work (`parallelism.divide`).
    - `link`: over which the GPUs add up their results, adding to every step; None: that is left out.
    - `decode_context`: None: a decode pays for its own context; a number: every decode pays for that many
      tokens, as in the review (8,192 + 128 at every step of every answer).
    - `policy`: `scheduler.textbook`, `scheduler.vllm` or another of that form.
    - `asynchronous`: the next step is composed when one starts, not when it ends: an arrival misses the step
      that is already queued.
    - `prefix_caching`, `long_prefill_token_threshold` (0: off): as in `scheduler.VLLM`.
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
    prefix_caching: bool = False
    long_prefill_token_threshold: int = 0

    def __post_init__(self) -> None:
        checks.counts("Engine", tensor_parallel=self.tensor_parallel, max_num_seqs=self.max_num_seqs)
        for name in ("token_budget", "kv_blocks", "decode_context"):
            if getattr(self, name) is not None:
                checks.counts("Engine", **{name: getattr(self, name)})
        checks.counts_or_zero("Engine", long_prefill_token_threshold=self.long_prefill_token_threshold)
        for name in ("asynchronous", "prefix_caching", "long_prefill_token_threshold"):
            if self.policy is textbook and getattr(self, name):
                raise ValueError(
                    f"Engine: {name}={getattr(self, name)!r} is not in the textbook; use policy=vllm"
                )
        if self.blocks < 1:
            raise ValueError(
                f"Engine: {self.model.name} leaves no room for a KV cache on tensor_parallel="
                f"{self.tensor_parallel} x {self.gpu.name}; use more GPUs, larger ones or smaller weights"
            )

    @property
    def limits(self) -> Limits:
        """What the policy has to respect."""
        return Limits(
            self.token_budget,
            self.max_num_seqs,
            self.blocks,
            self.prefix_caching,
            self.long_prefill_token_threshold,
        )

    @property
    def blocks(self) -> int:
        """Cache blocks of 16 tokens: as given, or as many as fit beside the weights."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        room = USABLE_MEMORY * self.tensor_parallel * self.gpu.memory - self.model.resident_bytes
        copies = self.tensor_parallel / parallelism.kv_shares(self.model, self.tensor_parallel)
        return floor(room / (BLOCK_TOKENS * self.model.kv_bytes_per_token * copies))


class Arrival(NamedTuple):
    """The request that comes as number `turn` to a pool, at that time."""

    turn: int
    time: float
    job: Job


Route = Callable[[Arrival, Sequence["Instance"]], int]


def alternate(arrival: Arrival, instances: Sequence["Instance"]) -> int:
    """Request number k goes to instance k mod n."""
    return arrival.turn % len(instances)


def least_loaded(arrival: Arrival, instances: Sequence["Instance"]) -> int:
    """The instance with the fewest requests waiting or running, the first of them if several have."""
    return min(range(len(instances)), key=lambda i: instances[i].load(arrival.time))


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

    @property
    def pull(self) -> None:
        """Nothing changes hands."""

    def copy_seconds(self, request: Request) -> float:
        """Nothing changes hands."""
        return 0.0


@dataclass(frozen=True)
class Pull:
    """Decode pulls a prompt's cache, as vLLM does: `copy` seconds, or a `Link` that the cache crosses.

    The request joins decode's queue when prefill is done. Once it is first in line and has its blocks, the
    copy starts with the next step that is launched. The first step launched at or after the copy's end
    notices it, and at that step's end the scheduler knows. A worker with nothing to do looks every
    `idle_poll` seconds, or at the next thing to happen if that is later.
    """

    copy: float | Link
    idle_poll: float = 0.0005

    def __post_init__(self) -> None:
        checks.positive("Pull", idle_poll=self.idle_poll)
        if not isinstance(self.copy, Link):
            checks.not_negative("Pull", copy=self.copy)


@dataclass(frozen=True)
class Disaggregated:
    """`n_prefill` engines compute prompts, `n_decode` engines emit all tokens; a handoff lies between.

    The token that prefill computes is not shown: after the handoff the first decode step emits the first
    token. `handoff` is seconds, the same for every request, or a `Link` that a prompt's KV cache crosses,
    every request alone on it; or a `Pull`.
    """

    prefill: Engine
    decode: Engine
    n_prefill: int = 1
    n_decode: int = 1
    handoff: float | Link | Pull = 0.0
    route: Route = alternate

    def __post_init__(self) -> None:
        checks.counts("Disaggregated", n_prefill=self.n_prefill, n_decode=self.n_decode)
        if not isinstance(self.handoff, Link | Pull):
            checks.not_negative("Disaggregated", handoff=self.handoff)
        if isinstance(self.handoff, Pull) and self.decode.policy is textbook:
            raise ValueError(
                "Disaggregated: handoff=Pull(...) is not in the textbook; use policy=vllm in decode"
            )
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

    @property
    def pull(self) -> Pull | None:
        """The handoff, if it is decode that starts it."""
        return self.handoff if isinstance(self.handoff, Pull) else None

    def copy_seconds(self, request: Request) -> float:
        """Seconds that a request's cache is on its way."""
        way = self.handoff.copy if isinstance(self.handoff, Pull) else self.handoff
        if isinstance(way, Link):
            return way.time(request.prompt_tokens * self.decode.model.kv_bytes_per_token)
        return way


Deployment = Collocated | Disaggregated


# ---------------------------------------------------------------------------------------- prices


Shapes = tuple[tuple[int, int], ...]  # (tokens, past) of each chunk of a step
Chunks = tuple[tuple[int, int, int], ...]  # (request, tokens, past)


class Prices:
    """What an engine's steps cost: `seconds` of one, `durations` of several that follow each other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.fixed = engine.decode_context
        self.chunk = lru_cache(maxsize=1 << 14)(partial(prefill, engine.model))
        self.seconds = lru_cache(maxsize=1 << 14)(self._seconds)
        model = engine.model
        self.linear = (
            engine.price is step_time and engine.tensor_parallel == 1 and not (model.experts or model.window)
        )
        if self.linear:
            self._find_coefficients()
            self.seconds = self._linear_seconds

    def _find_coefficients(self) -> None:
        """FLOPs and bytes of a step are linear in its tokens, its contexts and its pairs of tokens: by how much."""
        engine = self.engine
        one, two = (decode_uneven(engine.model, 1, context) for context in (1, 2))
        self.context_flops = two.attention_flops - one.attention_flops
        self.context_bytes = two.kv_bytes - one.kv_bytes
        self.decode_flops = one.flops - self.context_flops
        self.decode_bytes = one.kv_bytes - self.context_bytes
        self.weight_bytes = one.weight_bytes
        first, second, later = (prefill(engine.model, *piece).flops for piece in ((1,), (2,), (1, 1)))
        self.pair_flops = later - first
        self.token_flops = second - first - 2 * self.pair_flops
        self.chunk_flops = first - self.token_flops - self.pair_flops
        self.rate = engine.gpu.peak_flops * engine.efficiency.compute
        self.bandwidth = engine.gpu.bandwidth * engine.efficiency.bandwidth
        self.overhead = engine.efficiency.overhead
        # so many decodes, or fewer, read for longer than they compute, whatever their contexts
        hidden = self.context_flops / self.rate <= self.context_bytes / self.bandwidth
        alone = self.weight_bytes / self.bandwidth / (self.decode_flops / self.rate)
        self.reading = floor(alone * (1 - SURELY)) - 1 if hidden else 0

    def _linear_work(self, chunks: Shapes, batch: int, context: int) -> tuple[float, float]:
        flops = self.decode_flops * batch + self.context_flops * context
        for tokens, past in chunks:
            flops += self.chunk_flops + self.token_flops * tokens
            flops += self.pair_flops * tokens * (2 * past + tokens + 1) // 2
        return flops, self.weight_bytes + self.decode_bytes * batch + self.context_bytes * context

    def _linear_seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        flops, nbytes = self._linear_work(chunks, batch, context)
        return max(flops / self.rate, nbytes / self.bandwidth) + self.overhead

    def _seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        """Seconds of a step: chunks of (tokens, past), and `batch` decodes of `context` tokens together."""
        engine = self.engine
        work = Mixed(
            reduce(Work.__add__, [self.chunk(tokens, past) for tokens, past in chunks], NO_WORK),
            decode_uneven(engine.model, batch, context) if batch else NO_WORK,
            requests=len(chunks) + batch,
        )
        if engine.tensor_parallel == 1:
            return engine.price(work, engine.gpu, engine.efficiency)
        work = Mixed(
            parallelism.divide(work.prefill, engine.model, engine.tensor_parallel),
            parallelism.divide(work.decode, engine.model, engine.tensor_parallel),
            work.requests,
        )
        seconds = engine.price(work, engine.gpu, engine.efficiency)
        if engine.link is not None:
            tokens = batch + sum([tokens for tokens, _ in chunks])
            seconds += parallelism.talk(engine.model, tokens, engine.tensor_parallel, engine.link)
        return seconds

    def context(self, batch: int, own: int) -> int:
        """What `batch` decodes that attend to `own` tokens together pay for: that, unless it is fixed."""
        return self.fixed * batch if self.fixed else own

    def later(self, chunks: Shapes, batch: int, context: int, steps: int) -> tuple[Shapes, int, int]:
        """The step `steps` steps later: chunks go on where they ended, every decode has so many tokens more."""
        moved = tuple([(tokens, past + steps * tokens) for tokens, past in chunks]) if chunks else chunks
        return moved, batch, context if self.fixed else context + batch * steps

    def durations(self, chunks: Shapes, batch: int, context: int, steps: int) -> Iterable[float]:
        """Seconds of each of `steps` steps that follow each other."""
        if steps == 1 or (self.fixed and not chunks):
            return repeat(self.seconds(chunks, batch, context), steps)
        if not self.linear:
            return [self.seconds(*self.later(chunks, batch, context, step)) for step in range(steps)]
        flops, nbytes = self._linear_work(chunks, batch, context)
        last_flops, last_bytes = self._linear_work(*self.later(chunks, batch, context, steps - 1))
        flops_step, bytes_step = (last_flops - flops) // (steps - 1), (last_bytes - nbytes) // (steps - 1)
        rate, bandwidth, overhead = self.rate, self.bandwidth, self.overhead
        first, last = flops / rate - nbytes / bandwidth, last_flops / rate - last_bytes / bandwidth
        if max(first, last) < -SURELY:
            return [(nbytes + bytes_step * step) / bandwidth + overhead for step in range(steps)]
        if min(first, last) > SURELY:
            return [(flops + flops_step * step) / rate + overhead for step in range(steps)]
        return [
            max((flops + flops_step * step) / rate, (nbytes + bytes_step * step) / bandwidth) + overhead
            for step in range(steps)
        ]


@lru_cache(maxsize=256)
def prices(engine: Engine) -> Prices:
    """The engine's prices, shared by all simulations with an equal engine: each is worked out once."""
    return Prices(engine)


# ---------------------------------------------------------------------------------------- the event loop


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
        self.spans: list[list[Span]] = [[] for _ in range(requests)]


class Instance:
    """One engine at work: its mail, its scheduler, and a log of what it ran."""

    def __init__(
        self, number: int, pool: Pool, notes: Notes, jump: bool, pull: Pull | None, copies: Sequence[float]
    ) -> None:
        self.number = number
        self.role = pool.role
        self.engine = pool.engine
        self.notes = notes
        self.jump = jump
        self.idle_poll = pull.idle_poll if pull else 0.0
        self.copy_seconds = copies  # of each request
        self.prices = prices(pool.engine)
        self.scheduler: Scheduler = pool.engine.policy(pool.engine.limits)
        self.mail: deque[tuple[float, Job]] = deque()  # what will have arrived when its time comes
        self.received = 0
        self.done: list[tuple[float, Job]] = []
        self.now = 0.0  # when the next step can start
        self.queued: Plan | None = None  # asynchronously: composed while the step before it ran
        self.copies: list[tuple[float, int, Job]] = []  # under way: (end, request, job), soonest first
        self.again = False  # a composition that has only taken places away is followed by another
        self.seen: list[Job] = []  # whose copy the queued step has found complete
        self.runs: list[Run] = []
        self.open: dict[int, list[int]] = {}  # first and latest run in which a request has emitted lately

    def receive(self, time: float, job: Job) -> None:
        """Hand over a job that arrives then; in order of time, and before `run` has got that far."""
        self.mail.append((time, job))
        self.received += 1

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""
        self.run(now)
        return self.received - bisect_right(self.done, now, key=lambda done: done[0])

    def run(self, until: float) -> None:
        """Play every step that starts before `until`."""
        while self.now < until:
            if not self.queued:
                self.tell(self.seen)  # what a step without work has found is known at once
                self.seen = []
                self.compose()
            if self.queued:
                self.play(self.queued, until)
            elif not self.seen and not self.again and not self.rest(until):
                return

    def compose(self) -> None:
        """Queue the next step as seen from now, and hand it to the worker, which looks for copies."""
        while self.mail and self.mail[0][0] <= self.now:
            self.scheduler.add(self.mail.popleft()[1])
        plan = self.scheduler.plan()
        self.queued = plan if plan and (plan.chunks or plan.decodes) else None
        self.again = bool(plan and plan.preempted and not self.queued)
        for job in plan.preempted if plan else ():
            self.close(job)
        self.seen += self.look()
        for job in plan.copies if plan else ():
            end = self.now + self.copy_seconds[job.request]
            self.notes.copy_start[job.request], self.notes.copy_end[job.request] = self.now, end
            heappush(self.copies, (end, job.request, job))

    def play(self, plan: Plan, until: float) -> None:
        """Run the plan, repeated until something arrives, and note what came of it."""
        seen, self.seen, self.queued = self.seen, [], None
        run, ends = self.time(plan, min(until, self.mail[0][0]) if self.mail else until)
        self.note(plan, run, ends)
        if self.engine.asynchronous:
            self.compose()
        self.now = ends[-1]
        for job in self.scheduler.advance(plan, run.steps):
            self.done.append((self.now, job))
            self.close(job)
            if self.role != "prefill":
                self.notes.finish[job.request] = self.now
        self.tell(seen)

    def rest(self, until: float) -> bool:
        """Nothing to run: wait for the next event; False if that is not before `until`."""
        ahead = min(self.mail[0][0] if self.mail else inf, self.copies[0][0] if self.copies else inf)
        if self.copies:
            ahead = max(ahead, self.now + self.idle_poll)
        if ahead >= until:
            return False
        self.now = max(self.now, ahead)
        return True

    def time(self, plan: Plan, horizon: float) -> tuple[Run, list[float]]:
        """The run of the plan's steps that start before the horizon; its start and the ends of its steps."""
        chunks: tuple[tuple[int, int, int], ...] = ()
        shapes: Shapes = ()
        if plan.chunks:
            chunks = tuple([(chunk.job.request, chunk.tokens, chunk.past) for chunk in plan.chunks])
            shapes = tuple([(chunk.tokens, chunk.past) for chunk in plan.chunks if not chunk.single])
        batch = len(plan.decodes) + len(chunks) - len(shapes)
        context = self.prices.context(batch, plan.context)
        steps = plan.steps if self.jump else 1
        if steps > 1 and horizon < inf:
            first = self.prices.seconds(shapes, batch, context)
            steps = min(steps, int((horizon - self.now) / first) + 2)  # so many start before it, or fewer
        seconds = self.prices.durations(shapes, batch, context, steps)
        ends = list(accumulate(seconds, initial=self.now))
        if steps > 1:
            del ends[max(1, bisect_left(ends, horizon)) + 1 :]
        preempted = tuple([job.request for job in plan.preempted]) if plan.preempted else ()
        return Run(self.now, len(ends) - 1, chunks, shapes, batch, context, 0, preempted), ends

    def note(self, plan: Plan, run: Run, ends: Sequence[float]) -> None:
        """Log a run, and what it is to the requests in it."""
        number, notes = len(self.runs), self.notes
        for request, _, _ in run.chunks:
            if notes.prefill_start[request] == inf:
                notes.prefill_start[request] = run.start
        joined = run.batch - len(plan.decodes)
        for job in plan.emitting:
            span = self.open.get(job.request)
            if span and span[1] == number - 1:
                span[1] = number
                continue
            if not job.emitted:
                self.first(job, run.start, ends[1])
            self.close(job)
            self.open[job.request] = [number, number]
            joined += job in plan.decodes
        self.runs.append(run._replace(joined=joined) if joined else run)

    def close(self, job: Job) -> None:
        """The span in progress of a job has ended."""
        span = self.open.pop(job.request, None)
        if span and self.role != "prefill":
            self.notes.spans[job.request].append(Span(self.number, *span))

    def first(self, job: Job, start: float, end: float) -> None:
        """Note a job's first token here, emitted by the step from `start` to `end`."""
        if self.role != "decode":
            self.notes.prefill_end[job.request] = end
        if self.role != "prefill":
            self.notes.decode_start[job.request] = start
            self.notes.first_token[job.request] = end

    def open_spans(self) -> Iterator[tuple[int, Span]]:
        """Where those who are not finished have emitted lately."""
        if self.role != "prefill":
            for row, span in self.open.items():
                yield row, Span(self.number, *span)

    def look(self) -> list[Job]:
        """Whose copy has ended by now."""
        found = []
        while self.copies and self.copies[0][0] <= self.now:
            found.append(heappop(self.copies)[2])
        return found

    def tell(self, jobs: Sequence[Job]) -> None:
        """The scheduler learns now that these copies are here."""
        for job in jobs:
            self.notes.decode_queue[job.request] = self.now
            self.scheduler.arrived(job)


def simulate(
    requests: Iterable[Request], deployment: Deployment, until: float = inf, jump: bool = True
) -> "Trace":
    """Play the workload on the deployment, to its end or `until` that many seconds. Returns the `Trace`.

    Pool after pool: requests are handed out to a pool's engines in order of time, each engine plays its
    steps, and what the pool has finished is the next one's mail. `jump=False` plays every step by itself;
    the result is the same to the last bit.

    ValueError where the workload is empty or out of order, or a request fits into no engine's cache.
    """
    rows = workload.check(requests)
    pools = deployment.pools
    _refuse_impossible(rows, pools)
    notes = Notes(len(rows))
    seconds = [deployment.copy_seconds(request) for request in rows] if len(pools) > 1 else []
    engines: list[Instance] = []
    mail: list[tuple[float, Job]] = []
    for row, request in enumerate(rows):
        parts = request.prompt if isinstance(request.prompt, tuple) else ()
        output = request.output_tokens if len(pools) == 1 else 1
        mail.append((request.arrival, Job(row, request.prompt_tokens, output, parts)))
    for pool in pools:
        if pool is not pools[0]:
            mail = _handed_over(mail, rows, notes, seconds, deployment.pull is not None)
        numbers = range(len(engines), len(engines) + pool.count)
        members = [_instance(i, pool, notes, jump, deployment.pull, seconds) for i in numbers]
        for turn, (time, job) in enumerate(mail):
            if time < until:
                members[deployment.route(Arrival(turn, time, job), members)].receive(time, job)
        for member in members:
            member.run(until)
        mail = sorted([done for member in members for done in member.done], key=itemgetter(0))
        engines += members
    for engine in engines:
        for row, span in engine.open_spans():
            notes.spans[row].append(span)
    return Trace(rows, deployment, tuple(engines), notes, until)


def _instance(number: int, pool: Pool, notes: Notes, jump: bool, pull: Pull | None, copies: Sequence[float]):
    from lib.jumping import Jumper
    if jump and pool.engine.policy is vllm and not pool.engine.prefix_caching:
        return Jumper(number, pool, notes, pull, copies, prices(pool.engine))
    return Instance(number, pool, notes, jump, pull, copies)


def _handed_over(
    done: Sequence[tuple[float, Job]],
    rows: Sequence[Request],
    notes: Notes,
    seconds: Sequence[float],
    pulled: bool,
) -> list[tuple[float, Job]]:
    """The decode pool's mail from what prefill has done: with the cache, or before it if decode pulls it."""
    mail = []
    for time, job in done:
        row = job.request
        if not pulled:
            notes.copy_start[row] = time
            time += seconds[row]
            notes.copy_end[row] = notes.decode_queue[row] = time
        after = Job(row, job.prompt, rows[row].output_tokens, job.parts, remote=True, copying=pulled)
        mail.append((time, after))
    return sorted(mail, key=itemgetter(0))


def _refuse_impossible(rows: Sequence[Request], pools: Sequence[Pool]) -> None:
    """ValueError for the first request that not even an empty cache could hold."""
    for pool in pools:
        room = (pool.engine.blocks - 1) * BLOCK_TOKENS
        for row, request in enumerate(rows):
            tokens = request.prompt_tokens + (request.output_tokens if pool is pools[-1] else 1) - 1
            if tokens > room:
                raise ValueError(
                    f"workload, row {row}: {tokens} tokens of prompt and answer have to be cached, a "
                    f"{pool.role} engine has room for {room}; use shorter requests, more kv_blocks or memory"
                )


# ---------------------------------------------------------------------------------------- traces


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
        engines: Sequence[Instance],
        notes: Notes,
        until: float = inf,
    ) -> None:
        self.requests = requests
        self.deployment = deployment
        self.roles = tuple([engine.role for engine in engines])
        self._prices = tuple([engine.prices for engine in engines])
        self.runs: list[list[Run]] = [engine.runs for engine in engines]
        self.spans: list[list[Span]] = notes.spans
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
        for engine in range(len(self.runs)):
            self.runs[engine] = self._ended(engine, until)
        self.spans = [
            [
                span._replace(last=min(span.last, len(self.runs[span.engine]) - 1))
                for span in spans
                if span.first < len(self.runs[span.engine])
            ]
            for spans in self.spans
        ]
        for name in STARTS + ENDS:
            column = getattr(self, name)
            last = until if name in ENDS else nextafter(until, -inf)  # what starts then is not played
            setattr(self, name, [time if time <= last else inf for time in column])

    def _ended(self, engine: int, until: float) -> list[Run]:
        runs = list(self.runs[engine])
        while runs:
            run = runs.pop()
            steps = bisect_right(self._ends(engine, run), until)
            if steps:
                return [*runs, run._replace(steps=steps)]
        return runs

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
            run = self.runs[engine][first]
            if before < inf:
                gaps.append(self._ends(engine, run)[0] - before)
            if run.steps > 1:
                gaps.append(self._longest[engine][first])
            gaps += self._longest[engine][first + 1 : last + 1]
            before = self._ends(engine, self.runs[engine][last])[-1]
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
        if not step:
            return prices.seconds(run.shapes, run.batch, run.context)
        return prices.seconds(*prices.later(run.shapes, run.batch, run.context, step))

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
                last = self._ends(before.engine, self.runs[before.engine][before.last])[-1]
                pot[self._ends(after.engine, self.runs[after.engine][after.first])[0] - last] += 1
        return sorted((seconds, count) for seconds, count in pot.items() if count)

    def itl(self, q: float) -> float:
        """Percentile `q` of the pooled gaps."""
        return percentile(self.pooled_gaps, q)

    def share_with_prefill(self, tokens: int = 1) -> float:
        """Share of the pooled gaps whose step also computes at least `tokens` tokens of prompts."""
        slowed = [
            run.batch - run.joined
            for engine, runs in enumerate(self.runs)
            if self.roles[engine] != "prefill"
            for run in runs
            if run.chunks and sum([chunk for _, chunk, _ in run.chunks]) >= tokens
        ]
        return sum(slowed) / sum([count for _, count in self.pooled_gaps])


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


# ---------------------------------------------------------------------------------------- replay


def replay(inputs: Mapping[str, Any], jump: bool = True) -> dict[str, Any]:
    """What vLLM's scheduler does with the inputs of a scheduler trace, in the form of such a trace.

    `inputs` has `scheduler` (async, token_budget, max_num_seqs, kv_blocks, prefix_caching,
    long_prefill_token_threshold) and `requests` (arrival_s, prompt, output_tokens). The clock is that of
    Qwen2.5-7B on one L40S at the review's calibration. Returns

    - `steps`: [start, end, {request: [tokens, tokens computed before]}, [preempted]], and `emitted_s`: for
      each request the times of its tokens;
    - where the inputs have `transfer_s` and `idle_poll_s`, one prefill and one decode engine:
      `prefill_done_s`, `copy_done_s`, `decode_steps`: [start, end, {request: tokens}], `emitted_s`.

    All times in seconds, requests by their number as a string.
    """
    rules = inputs["scheduler"]
    engine = Engine(
        QWEN2_5_7B,
        L40S,
        token_budget=rules["token_budget"],
        max_num_seqs=rules["max_num_seqs"],
        kv_blocks=rules["kv_blocks"],
        policy=vllm,
        asynchronous=rules["async"],
        prefix_caching=rules["prefix_caching"],
        long_prefill_token_threshold=rules["long_prefill_token_threshold"],
    )
    requests = [
        Request(row["arrival_s"], tuple([(label, n) for label, n in row["prompt"]]), row["output_tokens"])
        for row in inputs["requests"]
    ]
    if "transfer_s" not in inputs:
        trace = simulate(requests, Collocated(engine), jump=jump)
        return {"steps": [_listed(step) for step in trace.steps()], "emitted_s": _keyed(trace.emitted())}
    pull = Pull(inputs["transfer_s"], inputs["idle_poll_s"])
    trace = simulate(requests, Disaggregated(engine, engine, handoff=pull), jump=jump)
    decode = [_listed(step) for step in trace.steps() if trace.roles[step.engine] == "decode"]
    return {
        "prefill_done_s": _keyed(trace.prefill_end),
        "copy_done_s": _keyed(trace.copy_end),
        "decode_steps": [
            [start, end, {row: tokens for row, (tokens, _) in work.items()}] for start, end, work, _ in decode
        ],
        "emitted_s": _keyed(trace.emitted()),
    }


def _listed(step: Step) -> tuple[float, float, dict[str, list[int]], list[str]]:
    work = {str(row): list(piece) for row, piece in step.chunks.items()}
    work |= {str(row): [1, past] for row, past in step.decodes.items()}
    return step.start, step.end, work, [str(row) for row in sorted(step.preempted)]


def _keyed(column: Sequence[Any]) -> dict[str, Any]:
    return {str(row): value for row, value in enumerate(column)}
