"""One engine at work, step by step: what it is sent, what its scheduler composes, how long that takes.

The obvious version, with every rule left to the scheduler; `fast_forward` plays the same in longer strides.
Not here: what passes between engines (`fleet`), the rules (`lib.scheduler`), the price of a step (`engine`).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import inf

from lib.scheduler import Job, Plan
from lib.simulator.deployment import Pool
from lib.simulator.engine import Shapes, step_cost
from lib.simulator.log import Log, Notes, Run, Span

StartPull = Callable[["Instance", Job], float]
Noticed = list[tuple[Callable[[Job], None], Job]]  # what the scheduler will do when it is notified


class Instance:
    """One engine at work: its arrivals, its scheduler, and a log of what it ran."""

    def __init__(
        self, number: int, pool: Pool, notes: Notes, start_pull: StartPull, idle_poll: float, jump: bool
    ) -> None:
        self.number = number
        self.role = pool.role
        self.engine = pool.engine
        self.notes = notes
        self.jump = jump
        self.start_pull = start_pull  # starts a job's copy to here, and says when it will have ended
        self.idle_poll = idle_poll
        self.cost = step_cost(pool.engine)
        self.scheduler = pool.engine.policy(pool.engine.limits)
        self.arrivals: deque[tuple[float, Job]] = deque()  # what will have arrived when its time comes
        self.received = 0
        self.done: list[tuple[float, Job]] = []  # what others will want to know of
        self.ended = array("d")  # when requests were finished here
        self.now = 0.0  # when the next step can start
        self.in_flight: deque[Plan] = deque(maxlen=1 + self.engine.asynchronous)  # composed, not yet run
        self.pulls: list[tuple[float, int, Job]] = []  # (end, request, job) of copies to here
        self.retained: list[tuple[float, int, Job]] = []  # when blocks are given up that jobs have retained
        self.release_times: dict[Job, float] = {}  # what of that still holds
        self.noticed: Noticed = []  # what the step composed last has found complete
        self.resting = False  # nothing to run, as far as is known
        self.pauses = False  # plays no further when somebody has an answer: what follows depends on it
        self.log: Log = []
        self.open: dict[int, tuple[int, int]] = {}  # first and latest run in which one has emitted lately

    def receive(self, time: float, job: Job) -> None:
        """Hand over a job that arrives then; in order of time, and before `run` has got that far."""
        self.arrivals.append((time, job))
        self.received += 1

    def release_at(self, job: Job, time: float) -> None:
        """The blocks that a job has retained are given up then, and no sooner."""
        if self.release_times.get(job) != time:
            self.release_times[job] = time
            heappush(self.retained, (time, job.request, job))

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""
        self.run(now)
        return self.received - bisect_right(self.ended, now)

    def run(self, until: float) -> None:
        """Play every step that starts before `until`."""
        if self.resting and not self.rest(until):
            return
        while self.now < until and not (self.pauses and self.done):
            again = False
            if not self.in_flight:
                self.notify(self.noticed)  # what a step without work has found is known at once
                self.noticed = []
                again = self.compose()
            if self.in_flight:
                self.play(until)
            elif not self.noticed and not again and not self.rest(until):
                return

    def compose(self) -> bool:
        """Compose the next step as seen from now, and hand it to the worker, which looks for copies.

        True where that has only taken places away, and another composition has to follow.
        """
        while self.arrivals and self.arrivals[0][0] <= self.now:
            self.scheduler.add(self.arrivals.popleft()[1])
        plan = self.scheduler.plan()
        runs = plan is not None and bool(plan.chunks or plan.decodes)
        for job in plan.preempted if plan else ():
            self.close(job)
        self.look()
        for job in plan.copies if plan else ():
            end = self.start_pull(self, job)
            if job.waiting_for_remote_kvs:
                heappush(self.pulls, (end, job.request, job))
        if plan and runs:
            self.in_flight.append(plan)
        return bool(plan and plan.preempted and not runs)

    def play(self, until: float) -> None:
        """Run the plan that is next, repeated until something arrives, and note what came of it."""
        plan, noticed, self.noticed = self.in_flight[0], self.noticed, []
        run, ends = self.time(plan._replace(steps=1) if noticed else plan, until)
        self.note(plan, run, ends)
        if run.steps > 1:
            self.scheduler.repeat(plan, run.steps - 1, self.engine.asynchronous)
        if self.engine.asynchronous:
            self.now = ends[-2]
            self.compose()
        self.now = ends[-1]
        self.in_flight.popleft()
        for job in self.scheduler.advance(plan):
            self.ended.append(self.now)
            self.close(job)
            if self.role == "prefill" or job.retained or self.pauses:
                self.done.append((self.now, job))
            if self.role != "prefill":
                self.notes.finish[job.request] = self.now
        self.notify(noticed)
        if noticed and self.in_flight:
            self.in_flight[0] = self.in_flight[0]._replace(steps=1)  # what was composed before knew less

    def next_release(self) -> float:
        """When the next blocks are given up that a job has retained."""
        while self.retained and self.release_times.get(self.retained[0][2]) != self.retained[0][0]:
            heappop(self.retained)
        return self.retained[0][0] if self.retained else inf

    def next_copy(self) -> float:
        """When the next copy ends, to here or from here."""
        return min(self.pulls[0][0] if self.pulls else inf, self.next_release())

    def coming(self) -> float:
        """When the next request arrives or the next copy ends."""
        return min(self.arrivals[0][0] if self.arrivals else inf, self.next_copy())

    def next(self) -> float:
        """When the next step can be composed, or the next thing happens that is known of."""
        return max(self.now, self.ahead()) if self.resting else self.now

    @property
    def waits(self) -> bool:
        """Whether it has requests, but nothing to run."""
        return self.resting and self.received > len(self.ended)

    def ahead(self) -> float:
        """When a worker that has nothing to do looks again."""
        watching = self.next_copy() < inf
        return max(self.coming(), self.now + self.idle_poll) if watching else self.coming()

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
        context = self.cost.context(batch, plan.context)
        steps, coming = plan.steps if self.jump else 1, self.coming()
        within = min(until, coming) - self.now
        seconds = self.cost.durations(shapes, batch, context, steps, within)
        steps = len(seconds)
        ends = list(accumulate(seconds, initial=self.now))
        if steps > 1:
            composed = bisect_left(ends, coming) + self.engine.asynchronous
            del ends[min(composed, bisect_left(ends, until)) + 1 :]
        preempted = tuple([job.request for job in plan.preempted]) if plan.preempted else ()
        steps = len(ends) - 1
        return Run(self.now, chunks, batch, 0, preempted, seconds[:steps]), ends

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
        self.log.append(run._replace(joined=joined) if joined else run)

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

    def look(self) -> None:
        """Notice which copies have ended by now, to here, and of what was retained here."""
        while self.pulls and self.pulls[0][0] <= self.now:
            self.noticed.append((self.arrived, heappop(self.pulls)[2]))
        while self.next_release() <= self.now:
            job = heappop(self.retained)[2]
            del self.release_times[job]
            self.noticed.append((self.scheduler.free, job))

    def notify(self, noticed: Noticed) -> None:
        """The scheduler learns now what has been noticed."""
        for learn, job in noticed:
            learn(job)

    def arrived(self, job: Job) -> None:
        """A job's copy is here, as far as the scheduler is concerned."""
        if self.role == "decode":
            self.notes.decode_queue[job.request] = self.now
        self.scheduler.arrived(job)
