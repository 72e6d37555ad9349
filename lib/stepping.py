"""One engine at work, step by step: what it is sent, what its scheduler composes, how long that takes."""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, inf

from lib.deployment import Pool
from lib.engine import Shapes, prices
from lib.leases import Leases
from lib.log import Log, Notes, Run, Span
from lib.scheduler import VLLM, Job, Plan, Scheduler, vllm

Copy = Callable[["Instance", Job], float]


class Instance:
    """One engine at work: its mail, its scheduler, and a log of what it ran."""

    def __init__(
        self, number: int, pool: Pool, notes: Notes, copy: Copy, idle_poll: float, jump: bool
    ) -> None:
        self.number = number
        self.role = pool.role
        self.engine = pool.engine
        self.notes = notes
        self.jump = jump
        self.copy = copy  # starts a job's copy to here, and says when it will have ended
        self.idle_poll = idle_poll
        self.prices = prices(pool.engine)
        limits = pool.engine.limits
        leases = jump and pool.engine.policy is vllm and limits.prefix_caching
        self.scheduler: Scheduler = VLLM(limits, Leases) if leases else pool.engine.policy(limits)
        self.mail: deque[tuple[float, Job]] = deque()  # what will have arrived when its time comes
        self.received = 0
        self.done: list[tuple[float, Job]] = []  # what others will want to know of
        self.ended = array("d")  # when requests were finished here
        self.now = 0.0  # when the next step can start
        self.queued: Plan | None = None  # asynchronously: composed while the step before it ran
        self.copies: list[tuple[float, int, Job]] = []  # (end, request, job) under way to or from here
        self.again = False  # a composition that has only taken places away is followed by another
        self.seen: list[Job] = []  # whose copy the queued step has found complete
        self.resting = False  # nothing to run, as far as is known
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
        if self.resting and not self.rest(until):
            return
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
            end = self.copy(self, job)
            if job.copying:
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
            if self.role == "prefill" or job.kept:
                self.done.append((self.now, job))
            if self.role != "prefill":
                self.notes.finish[job.request] = self.now
        self.tell(seen)
        if seen and self.queued:
            self.queued = self.queued._replace(steps=1)  # what was composed before knew less

    def coming(self) -> float:
        """When the next request arrives or the next copy ends."""
        return min(self.mail[0][0] if self.mail else inf, self.copies[0][0] if self.copies else inf)

    def next(self) -> float:
        """When the next step can be composed, or the next thing happens that is known of."""
        return max(self.now, self.ahead()) if self.resting else self.now

    @property
    def waits(self) -> bool:
        """Whether it has requests, but nothing to run."""
        return self.resting and self.received > len(self.ended)

    def ahead(self) -> float:
        """When a worker that has nothing to do looks again."""
        return max(self.coming(), self.now + self.idle_poll) if self.copies else self.coming()

    def rest(self, until: float) -> bool:
        """Nothing to run: wait for the next event; False if that is not before `until`."""
        ahead = self.ahead()
        self.resting = ahead >= until
        if not self.resting:
            self.now = max(self.now, ahead)
        return not self.resting

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
            steps = max(1, min(steps, ceil((horizon - self.now) / first) + self.engine.asynchronous))
        seconds = list(self.prices.durations(shapes, batch, context, steps))
        ends = list(accumulate(seconds, initial=self.now))
        if steps > 1:
            composed = bisect_left(ends, coming) + self.engine.asynchronous
            del ends[min(composed, bisect_left(ends, until)) + 1 :]
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
        """The scheduler learns now that these copies have ended: those to here, and those of kept blocks."""
        for job in jobs:
            if not job.copying:
                self.scheduler.free(job)
                continue
            if self.role == "decode":
                self.notes.decode_queue[job.request] = self.now
            self.scheduler.arrived(job)
