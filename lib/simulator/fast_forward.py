"""vLLM's rules, many steps at a time: what `scheduler.VLLM` does step by step, jumped over in runs.

Nothing but speed: `instance.Instance` is the obvious version, and both write the same log, to the last bit.
Most steps are like the one before: everybody gets one more token. `FastForward` plays such a run at once.
What makes that possible is an invariant. A request is admitted only if budget is left after all running ones
have got what they asked for, and what they ask for does not grow. So, in a step without preemption, all
running requests but the last get all they ask for; a decode never misses a step. It suffices to know

- how many decodes there are, what they attend to together, and who finishes when;
- for the cache, how many decodes fill a block in which step of sixteen;
- the prompts that are begun, and who waits.

A run ends where something can change: the first decode finishes, the cache is full, something arrives that
could be admitted, a copy ends. Cutting a run short is always safe. Prefix caching is left to the version that
goes step by step.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from operator import attrgetter

from lib.kv_cache import BLOCK_TOKENS, blocks
from lib.scheduler import NEVER, Job
from lib.simulator.deployment import Pool
from lib.simulator.engine import Chunks, Shapes, step_cost
from lib.simulator.handoff import Handoff
from lib.simulator.log import Log, Notes, Run, Span

OUT = -1  # the order of a request that is not admitted
ORDER = attrgetter("order")


@dataclass(slots=True, eq=False)
class FastRequest:
    """A job on its way through one engine, and what saves looking at it in every step.

    `full`: blocks that it holds at its end. `missing`: tokens that it still has to compute before the next
    one can come out. `order`: its number among the admitted. Once it decodes: in step s it has `base` + s
    tokens behind it, its last token comes with step `last`, and it has emitted since the run `first`. The job
    itself counts what it has emitted only when it loses its place.
    """

    job: Job
    full: int
    missing: int
    order: int = OUT
    base: int = field(init=False)
    last: int = field(init=False)
    first: int = field(init=False)


Pieces = list[tuple[FastRequest, int]]  # who gets how many tokens of its prompt in a step


class FastForward:
    """One engine at work under `scheduler.vllm`; to the outside like `instance.Instance`."""

    def __init__(self, number: int, pool: Pool, notes: Notes, handoff: Handoff) -> None:
        engine = pool.engine
        self.number = number
        self.role = pool.role
        self.engine = engine
        self.notes = notes
        self.handoff = handoff
        self.cost = step_cost(engine)
        self.asynchronous = engine.asynchronous
        self.budget = engine.token_budget or NEVER
        self.max_num_seqs = engine.max_num_seqs
        self.capacity = engine.blocks - 1
        self.long_prefill_limit = engine.long_prefill_token_threshold

        self.arrivals: deque[tuple[float, Job]] = deque()
        self.done: list[tuple[float, Job]] = []  # what a prefill engine has finished
        self.ended = array("d")  # when requests were finished here
        self.log: Log = []

        self.now = 0.0  # the next step is composed then, and knows what arrived up to then
        self.end = 0.0  # when the step composed last ends
        self.resting = False  # nothing to run, as far as is known
        self.running: dict[FastRequest, None] = {}  # in order of admission, the finished in flight included
        self.finished_in_flight: deque[FastRequest] = deque()  # still hold place and blocks
        self.prefilling: list[FastRequest] = []
        self.waiting: deque[FastRequest] = deque()
        self.copied: list[FastRequest] = []  # blocks reserved, copy under way or here

        # requests received and admitted; number of the next step, its decodes and what they attend to
        # together; blocks that all who run will hold at their ends
        self.received = self.admitted = self.step = self.decodes = self.context = self.reserved = 0
        self.decode_heap: list[
            tuple[int, int, FastRequest]
        ] = []  # (last step, order, request), soonest first
        self.decodes_by_block_offset = [0] * BLOCK_TOKENS  # by (tokens behind - step) mod 16

        self.pulls: list[tuple[float, int, FastRequest]] = []  # under way
        self.notified: deque[tuple[float, FastRequest]] = deque()  # pulls that the scheduler knows of then

    def receive(self, time: float, job: Job) -> None:
        """Hand over a job that arrives then; in order of time, and before `run` has got that far."""
        self.arrivals.append((time, job))
        self.received += 1

    def open_spans(self) -> Iterator[tuple[int, Span]]:
        """Where those who are not finished have emitted lately."""
        others = {*self.prefilling, *self.finished_in_flight}
        if self.role != "prefill":
            for request in self.running:
                if request not in others:
                    yield request.job.request, Span(self.number, request.first, len(self.log) - 1)

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""
        self.run(now)
        return self.received - bisect_right(self.ended, now)

    # ------------------------------------------------------------ one run after the other

    def run(self, until: float) -> None:
        """Play every step that is composed before `until`."""
        if self.resting and not self.rest(until):
            return
        while self.now < until:
            self.look_around()
            seen = self.look_for_copies() if self.pulls else []
            pieces, preempted, left = self.compose()
            if pieces or self.decodes:
                self.play(pieces, preempted, left, seen, until)
            elif seen or preempted or self.now < self.end:
                self.now = max(self.now, self.end)
                self.notify(seen, self.now)
            elif not self.rest(until):
                return

    def look_around(self) -> None:
        """Take in what has happened up to now: arrivals, copies, and who has gone."""
        now = self.now
        while self.arrivals and self.arrivals[0][0] <= now:
            job = self.arrivals.popleft()[1]
            self.waiting.append(FastRequest(job, blocks(job.prompt + job.output - 1), job.prompt))
        while self.notified and self.notified[0][0] <= now:
            self.notified.popleft()[1].job.waiting_for_remote_kvs = False
        # who has got the last token holds place and blocks for one composition, if a step is in flight
        leaving = self.finished_in_flight
        while leaving and not (now < self.end and leaving[0].last + 2 > self.step):
            self.drop(leaving.popleft())

    def drop(self, request: FastRequest) -> None:
        """A request gives up its place and its blocks."""
        del self.running[request]
        self.reserved -= request.full

    def rest(self, until: float) -> bool:
        """Nothing to run: wait for the next event; False if that is not before `until`."""
        ahead = min(self.arrivals[0][0] if self.arrivals else inf, self.pulls[0][0] if self.pulls else inf)
        if self.pulls:
            ahead = max(ahead, self.now + self.handoff.idle_poll)
        self.resting = ahead >= until
        if not self.resting:
            self.now = max(self.now, ahead)
        return not self.resting

    # ------------------------------------------------------------ composing a step

    def compose(self) -> tuple[Pieces, list[FastRequest], int]:
        """The next step beside its decodes: pieces of prompts, who is preempted, what the budget has left."""
        left, limit = self.budget - self.decodes, self.long_prefill_limit
        if not (self.prefilling or self.waiting or self.copied or self.reserved > self.capacity):
            return [], [], left
        if limit and len(self.running) + len(self.waiting) + len(self.copied) == 1:
            limit = 0
        pieces = []
        for request in self.prefilling:
            tokens = min(request.missing, limit or left, left)
            if tokens > 0:
                pieces.append((request, tokens))
                left -= tokens
        if self.reserved > self.capacity and self.short(pieces):
            return *self.serve_in_order(limit), 0
        if (self.waiting or self.copied) and left > 0:
            left = self.admit(pieces, left, limit)
        return pieces, [], left

    def admit(self, pieces: Pieces, left: int, limit: int) -> int:
        """Let requests in, first come first served, while there is budget, place and room in the cache."""
        for request in [request for request in self.copied if not request.job.waiting_for_remote_kvs]:
            if left <= 0 or len(self.running) >= self.max_num_seqs:
                return left
            self.copied.remove(request)
            self.skip_external(request)
            self.seat(request, 1, pieces)
            left -= 1
        while self.waiting and left > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            if self.reserved + request.full > self.capacity and not self.fits(request, pieces):
                return left
            self.waiting.popleft()
            self.reserved += request.full
            if request.job.waiting_for_remote_kvs:
                self.start_copy(request)
                continue
            if request.job.num_external_tokens:
                self.skip_external(request)
            tokens = min(request.missing, limit or left, left)
            self.seat(request, tokens, pieces)
            left -= tokens
        return left

    def skip_external(self, request: FastRequest) -> None:
        """What was computed elsewhere is here; at least a request's last token is computed again."""
        job = request.job
        job.num_computed_tokens = min(job.num_external_tokens, job.num_tokens - 1)
        request.missing = job.num_tokens - job.num_computed_tokens

    def seat(self, request: FastRequest, tokens: int, pieces: Pieces) -> None:
        """Admit a request, with a first piece of so many tokens."""
        self.admitted += 1
        request.order = self.admitted
        self.running[request] = None
        self.prefilling.append(request)
        pieces.append((request, tokens))

    # ------------------------------------------------------------ the cache, counted only when it is tight

    def short(self, pieces: Pieces) -> bool:
        """Whether the step needs more new blocks than there are free ones."""
        new = self.decodes_by_block_offset[-self.step % BLOCK_TOKENS]
        for request, tokens in pieces:
            behind = request.job.num_computed_tokens
            new += blocks(behind + tokens) - blocks(behind)
        return new > self.capacity - self.held([], 0)

    def held(self, pieces: Pieces, ahead: int) -> int:
        """Blocks in use before the step (`ahead` 0), or with what the decodes and pieces get in it (1)."""
        tokens = self.context - self.decodes * (1 - ahead)
        offsets = enumerate(self.decodes_by_block_offset)
        padding = sum([count * (-(offset + self.step + ahead) % BLOCK_TOKENS) for offset, count in offsets])
        total = (tokens + padding) // BLOCK_TOKENS
        served = dict(pieces)
        total += sum([blocks(one.job.num_computed_tokens + served.get(one, 0)) for one in self.prefilling])
        total += sum([request.full for request in self.finished_in_flight])
        return total + sum([blocks(request.job.num_tokens) for request in self.copied])

    def fits(self, request: FastRequest, pieces: Pieces) -> bool:
        """Whether all tokens of a request have room, beside what was promised to copies' elders."""
        needed = blocks(request.job.num_tokens)
        if request.job.num_external_tokens:
            served = dict(pieces)
            for one in self.prefilling:
                needed += blocks(one.job.num_tokens)
                needed -= blocks(one.job.num_computed_tokens + served.get(one, 0))
        return needed <= self.capacity - self.held(pieces, 1)

    def serve_in_order(self, limit: int) -> tuple[Pieces, list[FastRequest]]:
        """A step in which the cache is full: serve in order of admission, and take blocks from the last."""
        free = self.capacity - self.held([], 0)
        left, index = self.budget, 0
        order = list(self.running)
        prefilling, finished = set(self.prefilling), set(self.finished_in_flight)
        pieces: Pieces = []
        preempted: list[FastRequest] = []
        while index < len(order) and left > 0:
            request = order[index]
            index += 1
            if request in finished:
                continue
            reading = request in prefilling
            behind = request.job.num_computed_tokens if reading else request.base + self.step
            tokens = min(request.missing, limit or left, left) if reading else 1
            new = blocks(behind + tokens) - blocks(behind)
            while new > free:
                victim = order.pop()
                free += self.preempt(victim, victim in prefilling, victim in finished)
                preempted.append(victim)
                if victim is request:
                    return pieces, preempted
            free -= new
            left -= tokens
            if reading:
                pieces.append((request, tokens))
        return pieces, preempted

    def preempt(self, request: FastRequest, reading: bool, finished: bool) -> int:
        """Send a request back to the head of the queue, to start again from nothing; the blocks it frees."""
        self.drop(request)
        job = request.job
        if finished:
            self.finished_in_flight.remove(request)
            return request.full
        if reading:
            self.prefilling.remove(request)
            freed = blocks(job.num_computed_tokens)
        else:
            freed = blocks(request.base + self.step)
            self.stop_decoding(request)
            job.emitted = job.output - (request.last - self.step + 1)
            if self.role != "prefill":
                self.notes.span(job.request, self.number, request.first, len(self.log) - 1)
        request.order = OUT
        job.num_computed_tokens = job.num_external_tokens = 0
        request.missing = job.num_tokens
        self.waiting.appendleft(request)
        return freed

    # ------------------------------------------------------------ playing a run

    def play(
        self,
        pieces: Pieces,
        preempted: list[FastRequest],
        left: int,
        seen: list[FastRequest],
        until: float,
    ) -> None:
        """Run the step, and those after it that are like it; note what comes of them."""
        chunks, shapes, singles, context = self.shapes(pieces) if pieces else ((), (), 0, self.context)
        batch = self.decodes + singles
        steps, horizon = 1, until
        if not (seen or preempted or singles):
            steps, horizon = self.repeats(pieces, left, until)
        start = self.end if self.end > self.now else self.now
        context = self.cost.context(batch, context)
        seconds = self.cost.durations(shapes, batch, context, steps, horizon - start)
        ends = list(accumulate(seconds, initial=start))
        steps = len(seconds)
        if steps > 1:
            steps = min(steps, bisect_left(ends, horizon) + self.asynchronous)
            del seconds[steps:]
        gone = tuple([request.job.request for request in preempted]) if preempted else ()
        self.log.append(Run(start, chunks, batch, singles, gone, seconds))
        self.now, self.end = ends[steps - self.asynchronous], ends[steps]
        self.step += steps
        self.context += self.decodes * steps
        done = self.advance(pieces, steps, start) if pieces else []
        while self.decode_heap and self.decode_heap[0][0] < self.step:
            _, order, request = heappop(self.decode_heap)
            if order == request.order:  # else it has been preempted since
                self.stop_decoding(request)
                done.append(request)
        if done:
            self.finish(done)
        if seen:
            self.notify(seen, self.end)

    def shapes(self, pieces: Pieces) -> tuple[Chunks, Shapes, int, int]:
        """The chunks that pieces of prompts are, their shapes, how many are decodes in all but name, and what
        all decodes attend to together.
        """
        chunks, shapes, singles, context = [], [], 0, self.context
        for request, tokens in pieces:
            job = request.job
            past = job.num_computed_tokens
            single = tokens == 1 and past >= job.prompt - (job.num_external_tokens >= job.prompt)
            if not single:
                shapes.append((tokens, past))
            else:
                singles += 1
                context += past + 1
            if not single or request.missing > 1:
                chunks.append((job.request, tokens, past))
        return tuple(chunks), tuple(shapes), singles, context

    def repeats(self, pieces: Pieces, left: int, until: float) -> tuple[int, float]:
        """How often the step can be repeated, and before when each of these steps has to be composed."""
        horizon = until
        if self.pulls:
            horizon = min(horizon, self.pulls[0][0])
        if self.notified:
            horizon = min(horizon, self.notified[0][0])
        steps = self.decode_heap[0][0] - self.step + 1 if self.decode_heap else NEVER
        if pieces:
            request, tokens = pieces[0]
            if len(pieces) > 1 or left or self.long_prefill_limit or self.reserved > self.capacity:
                return 1, horizon
            return min(steps, (request.missing - 1) // tokens or 1), horizon
        queue = bool(self.waiting) or self.copy_is_here()
        if queue and self.finished_in_flight:
            return 1, horizon
        places = self.max_num_seqs - len(self.running) + len(self.finished_in_flight)
        if self.arrivals and self.arrivals[0][0] < horizon and places > 0 and not queue:
            horizon = self.arrivals[0][0]
        if self.reserved > self.capacity:
            steps = self.until_full(steps)
        return steps, horizon

    def copy_is_here(self) -> bool:
        """Whether somebody whose copy is here waits for a place."""
        return bool(self.copied) and not all([one.job.waiting_for_remote_kvs for one in self.copied])

    def until_full(self, steps: int) -> int:
        """So many of the steps, or fewer, before the free blocks do not suffice for one."""
        free = self.capacity - self.held([], 1)
        for ahead in range(1, steps):
            free -= self.decodes_by_block_offset[-(self.step + ahead) % BLOCK_TOKENS]
            if free < 0:
                return ahead
        return steps

    def advance(self, pieces: Pieces, steps: int, start: float) -> list[FastRequest]:
        """Prompts have got on; who has completed one emits a token. Those for whom it is the last."""
        done, notes = [], self.notes
        for request, tokens in pieces:
            job = request.job
            if notes.prefill_start[job.request] == inf:
                notes.prefill_start[job.request] = start
            job.num_computed_tokens += tokens * steps
            request.missing -= tokens * steps
            if request.missing:
                continue
            self.prefilling.remove(request)
            if not job.emitted:
                if self.role != "decode":
                    notes.prefill_end[job.request] = self.end
                if self.role != "prefill":
                    notes.decode_start[job.request] = start
                    notes.first_token[job.request] = self.end
            request.first = len(self.log) - 1
            request.last = self.step + job.output - job.emitted - 2
            request.base = job.num_tokens - self.step
            if request.last < self.step:
                done.append(request)
            else:
                self.decodes += 1
                self.context += job.num_tokens + 1
                self.decodes_by_block_offset[request.base % BLOCK_TOKENS] += 1
                heappush(self.decode_heap, (request.last, request.order, request))
        return done

    def stop_decoding(self, request: FastRequest) -> None:
        """Take a request out of the decodes."""
        self.decodes -= 1
        self.context -= request.base + self.step + 1
        self.decodes_by_block_offset[request.base % BLOCK_TOKENS] -= 1

    def finish(self, done: list[FastRequest]) -> None:
        """Note whose last token came with the step that has just been run."""
        for request in sorted(done, key=ORDER) if len(done) > 1 else done:
            row = request.job.request
            self.ended.append(self.end)
            if self.role == "prefill":
                self.done.append((self.end, request.job))
            else:
                self.notes.finish[row] = self.end
                self.notes.span(row, self.number, request.first, len(self.log) - 1)
            if self.asynchronous:
                self.finished_in_flight.append(request)
            else:
                self.drop(request)

    # ------------------------------------------------------------ copies that this engine pulls

    def start_copy(self, request: FastRequest) -> None:
        """The request's blocks are reserved; its copy starts now."""
        self.copied.append(request)
        row, tokens, now = request.job.request, request.job.num_external_tokens, self.now
        start, end = self.handoff.schedule(self.engine.model, tokens, (now, now), 0.0)
        self.notes.copy_start[row], self.notes.copy_end[row] = start, end
        heappush(self.pulls, (end, row, request))

    def look_for_copies(self) -> list[FastRequest]:
        """Whose copy has ended by now."""
        found = []
        while self.pulls and self.pulls[0][0] <= self.now:
            found.append(heappop(self.pulls)[2])
        return found

    def notify(self, requests: Sequence[FastRequest], time: float) -> None:
        """The scheduler will know then that these copies are here."""
        for request in requests:
            self.notes.decode_queue[request.job.request] = time
            self.notified.append((time, request))
