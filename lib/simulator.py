"""Engines on one clock: from a workload and a deployment to every step and every token's time.

`simulate` plays a workload on a deployment and returns a `Trace`. There is one event loop for all
deployments; what differs between them is passed in: the policy that fills a step, the price of a step, the
route from a request to an engine, and what happens between two pools.
"""

import gc
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import Any

from lib import workload
from lib.deployment import (
    Arrival,
    Collocated,
    Deployment,
    Disaggregated,
    Pool,
    PrefixAware,
    Pull,
    Shared,
    Streamed,
    alternate,
    least_loaded,
)
from lib.engine import Engine, Shapes, prices
from lib.hardware import L40S
from lib.jumping import Jumper
from lib.kv_cache import BLOCK_TOKENS
from lib.log import Log, Notes, Run, Span
from lib.models import QWEN2_5_7B
from lib.scheduler import Job, Plan, Scheduler, vllm
from lib.trace import Step, Trace, percentile
from lib.workload import Request

__all__ = [
    "Arrival",
    "Collocated",
    "Deployment",
    "Disaggregated",
    "Engine",
    "PrefixAware",
    "Pull",
    "Shared",
    "Step",
    "Streamed",
    "Trace",
    "alternate",
    "least_loaded",
    "percentile",
    "replay",
    "simulate",
]


class Instance:
    """One engine at work: its mail, its scheduler, and a log of what it ran."""

    def __init__(
        self, number: int, pool: Pool, notes: Notes, copies: Sequence[float], idle_poll: float, jump: bool
    ) -> None:
        self.number = number
        self.role = pool.role
        self.engine = pool.engine
        self.notes = notes
        self.jump = jump
        self.copy_seconds = copies  # of each request
        self.idle_poll = idle_poll
        self.prices = prices(pool.engine)
        self.scheduler: Scheduler = pool.engine.policy(pool.engine.limits)
        self.mail: deque[tuple[float, Job]] = deque()  # what will have arrived when its time comes
        self.received = 0
        self.done: list[tuple[float, Job]] = []  # what a prefill engine has finished
        self.ended = array("d")  # when requests were finished here
        self.now = 0.0  # when the next step can start
        self.queued: Plan | None = None  # asynchronously: composed while the step before it ran
        self.copies: list[tuple[float, int, Job]] = []  # under way: (end, request, job), soonest first
        self.again = False  # a composition that has only taken places away is followed by another
        self.seen: list[Job] = []  # whose copy the queued step has found complete
        self.log = Log()
        self.open: dict[int, tuple[int, int]] = {}  # first and latest run in which one has emitted lately

    def receive(self, time: float, job: Job) -> None:
        """Hand over a job that arrives then; in order of time, and before `run` has got that far."""
        self.mail.append((time, job))
        self.received += 1

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""
        self.run(now)
        return self.received - bisect_right(self.ended, now)

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
        run, ends = self.time(plan._replace(steps=1) if seen else plan, until)
        self.note(plan, run, ends)
        if run.steps > 1:
            self.scheduler.repeat(plan, run.steps - 1, self.engine.asynchronous)
        if self.engine.asynchronous:
            self.now = ends[-2]
            self.compose()
        self.now = ends[-1]
        for job in self.scheduler.advance(plan):
            self.ended.append(self.now)
            self.close(job)
            if self.role == "prefill":
                self.done.append((self.now, job))
            else:
                self.notes.finish[job.request] = self.now
        self.tell(seen)
        if seen and self.queued:
            self.queued = self.queued._replace(steps=1)  # what was composed before knew less

    def coming(self) -> float:
        """When the next request arrives or the next copy ends."""
        return min(self.mail[0][0] if self.mail else inf, self.copies[0][0] if self.copies else inf)

    def rest(self, until: float) -> bool:
        """Nothing to run: wait for the next event; False if that is not before `until`."""
        ahead = self.coming()
        if self.copies:
            ahead = max(ahead, self.now + self.idle_poll)
        if ahead >= until:
            return False
        self.now = max(self.now, ahead)
        return True

    def time(self, plan: Plan, until: float) -> tuple[Run, list[float]]:
        """The run of those of the plan's steps that are composed before anything arrives, and their ends.

        The ends are preceded by the start of the first. No step starts at `until` or later.
        """
        chunks: tuple[tuple[int, int, int], ...] = ()
        shapes: Shapes = ()
        if plan.chunks:
            chunks = tuple([(chunk.job.request, chunk.tokens, chunk.past) for chunk in plan.chunks])
            shapes = tuple([(chunk.tokens, chunk.past) for chunk in plan.chunks if not chunk.single])
        batch = len(plan.decodes) + len(chunks) - len(shapes)
        context = self.prices.context(batch, plan.context)
        steps, coming = plan.steps if self.jump else 1, self.coming()
        horizon = min(until, coming)
        if steps > 1 and horizon < inf:
            first = self.prices.seconds(shapes, batch, context)
            steps = max(1, min(steps, int((horizon - self.now) / first) + 3))  # one more than start before it
        seconds = list(self.prices.durations(shapes, batch, context, steps))
        ends = list(accumulate(seconds, initial=self.now))
        if steps > 1:
            composed = bisect_left(ends, coming) + self.engine.asynchronous
            del ends[max(1, min(composed, bisect_left(ends, until))) + 1 :]
        preempted = tuple([job.request for job in plan.preempted]) if plan.preempted else ()
        steps = len(ends) - 1
        return Run(self.now, steps, chunks, shapes, batch, context, 0, preempted, seconds[:steps]), ends

    def note(self, plan: Plan, run: Run, ends: Sequence[float]) -> None:
        """Log a run, and what it is to the requests in it."""
        number, notes = len(self.log), self.notes
        for request, _, _ in run.chunks:
            if notes.prefill_start[request] == inf:
                notes.prefill_start[request] = run.start
        joined = run.batch - len(plan.decodes)
        for job in plan.emitting:
            span = self.open.get(job.request)
            if span and span[1] == number - 1:
                self.open[job.request] = (span[0], number)
                continue
            if not job.emitted:
                self.first(job, run.start, ends[1])
            self.close(job)
            self.open[job.request] = (number, number)
            joined += job in plan.decodes
        self.log.add(run._replace(joined=joined) if joined else run)

    def close(self, job: Job) -> None:
        """The span in progress of a job has ended."""
        span = self.open.pop(job.request, None)
        if span and self.role != "prefill":
            self.notes.span(job.request, self.number, *span)

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
) -> Trace:
    """Play the workload on the deployment, to its end or `until` that many seconds. Returns the `Trace`.

    Pool after pool: requests are handed out to a pool's engines in order of time, each engine plays its
    steps, and what the pool has finished is the next one's mail. `jump=False` plays every step by itself;
    the result is the same to the last bit.

    ValueError where the workload is empty or out of order, or a request fits into no engine's cache.
    """
    rows = workload.check(requests)
    _refuse_impossible(rows, deployment.pools)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles takes a quarter of the time
    try:
        return _simulate(rows, deployment, until, jump)
    finally:
        if collecting:
            gc.enable()


def _simulate(rows: tuple[Request, ...], deployment: Deployment, until: float, jump: bool) -> Trace:
    pools = deployment.pools
    notes = Notes(len(rows))
    seconds = [deployment.copy_seconds(request) for request in rows] if len(pools) > 1 else []
    idle_poll = deployment.pull.idle_poll if deployment.pull else 0.0
    engines: list[Instance | Jumper] = []
    mail: Iterable[tuple[float, Job]] = _arrivals(rows, one_pool=len(pools) == 1)
    done: list[tuple[float, Job]] = []
    for pool in pools:
        if pool is not pools[0]:
            mail = _handed_over(done, rows, notes, seconds, deployment)
        numbers = range(len(engines), len(engines) + pool.count)
        members = [_instance(i, pool, notes, seconds, idle_poll, jump) for i in numbers]
        route = deployment.route() if isinstance(deployment.route, type) else deployment.route
        for turn, (time, job) in enumerate(mail):
            if time < until:
                members[route(Arrival(turn, time, job), members)].receive(time, job)
            if turn % 10_000 == 9_999:  # keep no more than that in memory
                for member in members:
                    member.run(min(time, until))
        for member in members:
            member.run(until)
        done = sorted([item for member in members for item in member.done], key=itemgetter(0))
        engines += members
    for engine in engines:
        for row, span in engine.open_spans():
            notes.span(row, *span)
    logs = [(engine.role, prices(engine.engine), engine.log) for engine in engines]
    return Trace(rows, deployment, logs, notes, until)


def _arrivals(rows: Sequence[Request], one_pool: bool) -> Iterator[tuple[float, Job]]:
    """The first pool's mail: all requests; where another pool follows, for one token each."""
    for row, request in enumerate(rows):
        parts = request.prompt if isinstance(request.prompt, tuple) else ()
        output = request.output_tokens if one_pool else 1
        yield request.arrival, Job(row, request.prompt_tokens, output, parts)


def _instance(
    number: int, pool: Pool, notes: Notes, copies: Sequence[float], idle_poll: float, jump: bool
) -> Instance | Jumper:
    """An engine at work; where the rules are vLLM's, the one that jumps."""
    if jump and pool.engine.policy is vllm and not pool.engine.prefix_caching:
        return Jumper(number, pool.role, pool.engine, notes, copies, idle_poll)
    return Instance(number, pool, notes, copies, idle_poll, jump)


def _handed_over(
    done: Sequence[tuple[float, Job]],
    rows: Sequence[Request],
    notes: Notes,
    seconds: Sequence[float],
    deployment: Deployment,
) -> list[tuple[float, Job]]:
    """The decode pool's mail from what prefill has done: with the cache, or before it if decode pulls it."""
    mail, free, pulled = [], 0.0, deployment.pull is not None
    for time, job in done:
        row = job.request
        if not pulled:
            prefilled = (notes.prefill_start[row], time)
            notes.copy_start[row], free = deployment.copied(seconds[row], prefilled, free)
            notes.copy_end[row] = notes.decode_queue[row] = time = free
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
