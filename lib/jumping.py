"""vLLM's rules, many steps at a time: what `scheduler.VLLM` does step by step, jumped over in runs.

Most steps are like the one before: everybody gets one more token. `Jumper` plays such a run at once. What
makes that possible is an invariant. A request is admitted only if budget is left after all running ones have
got what they asked for, and what they ask for does not grow. So, in a step without preemption, all running
requests but the last get all they ask for; a decode never misses a step. It suffices to know

- how many decodes there are, what they attend to together, and who finishes when;
- for the cache, how many decodes fill a block in which step of sixteen;
- the prompts that are half done, and who waits.

A run ends where something can change: the first decode finishes, the cache is full, something arrives that
could be admitted, a copy ends. Cutting a run short is always safe. Prefix caching is left to the version that
goes step by step. Both write the same log, equal to the last bit.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, repeat
from math import ceil, inf

from lib.engine import Engine, prices
from lib.kv_cache import BLOCK_TOKENS
from lib.log import Log, Notes, Run, Span
from lib.scheduler import NEVER, Job

OUT = -1  # the order of a request that is not admitted


def blocks(tokens: int) -> int:
    """Blocks for that many tokens."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True, eq=False)
class Rider:
    """A request on its way through one engine.

    `known`: tokens to compute before the next one can come out; `computed`: how many are. `order`: its number
    among the admitted. Once it decodes: in step s it has `base` + s tokens behind it, its last token comes
    with step `last`, and it has emitted since the run `first`.
    """

    job: Job
    known: int
    full: int  # blocks that it holds at its end
    order: int = OUT
    computed: int = 0
    base: int = field(init=False)
    last: int = field(init=False)
    first: int = field(init=False)


class Jumper:
    """One engine at work under `scheduler.vllm`; to the outside like `simulator.Instance`."""

    def __init__(
        self, number: int, role: str, engine: Engine, notes: Notes, copies: Sequence[float], idle_poll: float
    ) -> None:
        self.number = number
        self.role = role
        self.engine = engine
        self.notes = notes
        self.prices = prices(engine)
        self.asynchronous = engine.asynchronous
        self.budget = engine.token_budget or NEVER
        self.seats = engine.max_num_seqs
        self.capacity = engine.blocks - 1
        self.threshold = engine.long_prefill_token_threshold
        self.smooth = self.prices.linear and not self.threshold and self.role != "decode"
        self.copy_seconds = copies
        self.idle_poll = idle_poll

        self.mail: deque[tuple[float, Job]] = deque()
        self.done: list[tuple[float, Job]] = []  # what a prefill engine has finished
        self.ended = array("d")  # when requests were finished here
        self.log = Log()

        self.seen_to = 0.0  # the next step is composed then, and knows what arrived up to then
        self.end = 0.0  # when the step composed last ends
        self.resting = False  # nothing to run, as far as is known
        self.running: dict[Rider, None] = {}  # in order of admission, with those that leave
        self.leaving: deque[Rider] = deque()  # have got their last token, but hold place and blocks
        self.halves: list[Rider] = []  # prompts half done
        self.waiting: deque[Rider] = deque()
        self.copied: list[Rider] = []  # blocks reserved, copy under way or here

        # requests received and admitted; number of the next step, its decodes and what they attend to
        # together; blocks that all who run will hold at their ends
        self.received = self.admitted = self.step = self.decodes = self.context = self.reserved = 0
        self.finishing: list[tuple[int, int, Rider]] = []  # (last step, order, rider), soonest first
        self.phases = [0] * BLOCK_TOKENS  # decodes by (tokens behind - step) mod 16

        self.copies: list[tuple[float, int, Rider]] = []  # under way
        self.told: list[tuple[float, Rider]] = []  # copies that the scheduler will know of then

    def receive(self, time: float, job: Job) -> None:
        """Hand over a job that arrives then; in order of time, and before `run` has got that far."""
        self.mail.append((time, job))
        self.received += 1

    def open_spans(self) -> Iterator[tuple[int, Span]]:
        """Where those who are not finished have emitted lately."""
        halves, leavers = set(self.halves), set(self.leaving)
        if self.role != "prefill":
            for rider in self.running:
                if rider not in halves and rider not in leavers:
                    yield rider.job.request, Span(self.number, rider.first, len(self.log) - 1)

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""
        self.run(now)
        return self.received - bisect_right(self.ended, now)

    # ------------------------------------------------------------ one run after the other

    def run(self, until: float) -> None:
        """Play every step that is composed before `until`."""
        if self.resting and not self.rest(until):
            return
        while self.seen_to < until:
            begun = self.cruise(until) if self.smooth else None
            if begun is not None:
                self.take_mail()
                left = self.budget - self.decodes - sum([tokens for _, tokens in begun])
                preempted: list[Rider] = []
                pieces, seen, left = begun, [], self.admit(begun, left, 0)
            elif self.seen_to >= until:
                return
            else:
                self.look_around()
                seen = self.look_for_copies() if self.copies else []
                pieces, preempted, left = self.compose()
            if pieces or self.decodes:
                self.play(pieces, preempted, left, seen, until)
            elif seen or preempted or self.seen_to < self.end:
                self.seen_to = max(self.seen_to, self.end)
                self.tell(seen, self.seen_to)
            elif not self.rest(until):
                return

    def cruise(self, until: float) -> list[tuple[Rider, int]] | None:
        """What `run` does while nothing is short. One long function: a call would cost as much as a step.

        Returns where that ends: a step that has been begun, (rider, tokens) for each piece of a prompt, for
        which it has to be found out whether the next in line still fits; or None.
        """
        half = self.halves[0] if self.halves else None
        if self.waiting or self.reserved > self.capacity or len(self.halves) > 1:
            return None
        if half and half.known > half.job.prompt:
            return None
        hidden, lag, budget, seats = self.role == "prefill", self.asynchronous, self.budget, self.seats
        mail, finishing, running, leaving = self.mail, self.finishing, self.running, self.leaving
        phases, log, notes, prices = self.phases, self.log, self.notes, self.prices
        per_flop, per_byte, overhead, fixed = prices.per_flop, prices.per_byte, prices.overhead, prices.fixed
        decode_flops, context_flops, pair_flops = prices.decode_flops, prices.context_flops, prices.pair_flops
        decode_bytes, context_bytes, weights = prices.decode_bytes, prices.context_bytes, prices.weight_bytes
        chunk_flops, token_flops, reading = prices.chunk_flops, prices.token_flops, prices.reading
        seen, end, step, decodes, context = self.seen_to, self.end, self.step, self.decodes, self.context
        coming = mail[0][0] if mail else inf
        number, ended = self.number, self.ended.append
        starts, chunks, note = log.start, log.chunks, log.chunks.append
        write_start, write_steps, write_batch = starts.append, log.steps.append, log.batch.append
        write_context, write_chunks_end = log.context.append, log.chunks_end.append
        write_shortest, write_longest = log.shortest.append, log.longest.append
        pieces: list[tuple[Rider, int]] = []
        short = False
        while seen < until:
            # ---- who gets a piece of a prompt
            pieces = []
            left = budget - decodes
            if half:
                tokens = half.known - half.computed
                if tokens > left:
                    tokens = left
                left -= tokens
                pieces.append((half, tokens))
            if coming <= seen:
                while leaving and (seen >= end or leaving[0].last + 2 <= step):
                    rider = leaving.popleft()
                    del running[rider]
                    self.reserved -= rider.full
                while coming <= seen and left > 0 and len(running) < seats:
                    job = mail[0][1]
                    prompt = job.prompt
                    full = -((1 - prompt - job.output) // BLOCK_TOKENS)
                    if self.reserved + full > self.capacity:
                        short = True
                        break
                    mail.popleft()
                    coming = mail[0][0] if mail else inf
                    self.reserved += full
                    self.admitted += 1
                    half = Rider(job, prompt, full, self.admitted)
                    running[half] = None
                    tokens = prompt if prompt < left else left
                    left -= tokens
                    pieces.append((half, tokens))
                    notes.prefill_start[job.request] = end if end > seen else seen
                if short:
                    break

            # ---- how long the step takes, and how often it is repeated
            start = before = end if end > seen else seen
            pays = fixed * decodes if fixed else context
            read = weights + decode_bytes * decodes + context_bytes * pays
            growth = 0.0 if fixed else context_bytes * decodes
            if pieces:
                flops = decode_flops * decodes + context_flops * pays
                for rider, tokens in pieces:
                    past = rider.computed
                    flops += chunk_flops + token_flops * tokens
                    flops += pair_flops * (tokens * (2 * past + tokens + 1) // 2)
                    chunks.fromlist([rider.job.request, tokens, past])
                bound, fetched = flops * per_flop, read * per_byte
                longest = shortest = (bound if bound > fetched else fetched) + overhead
                steps, end = 1, start + shortest
                note(shortest)
                if len(pieces) == 1 and not left:
                    most = (rider.known - past - 1) // tokens  # chunks before the last
                    if decodes and finishing[0][0] - step < most:
                        most = finishing[0][0] - step + 1
                    more = (0.0 if fixed else context_flops * decodes) + pair_flops * (tokens * tokens)
                    while steps < most and (before if lag else end) < until:
                        flops += more
                        read += growth
                        before = end
                        bound, fetched = flops * per_flop, read * per_byte
                        longest = (bound if bound > fetched else fetched) + overhead
                        note(longest)
                        end += longest
                        steps += 1
            elif decodes:
                steps = finishing[0][0] - step + 1
                horizon = until
                if coming > seen:
                    if coming < until:
                        horizon = coming
                elif leaving:
                    steps = 1
                if decodes <= reading:
                    shortest, sure = read * per_byte + overhead, steps
                    if horizon < inf:
                        sure = int((horizon - start) / ((read + growth * steps) * per_byte + overhead))
                        sure = max(1, min(sure, steps))
                    end = start
                    for _ in repeat(None, sure - 1):
                        end += read * per_byte + overhead
                        read += growth
                    before, longest = end, read * per_byte + overhead
                    end += longest
                    while sure < steps and (before if lag else end) < horizon:
                        before = end
                        read += growth
                        longest = read * per_byte + overhead
                        end += longest
                        sure += 1
                    steps = sure
                else:
                    seconds = list(prices.durations((), decodes, pays, steps))
                    ends = list(accumulate(seconds, initial=start))
                    steps = min(steps, bisect_left(ends, horizon) + lag)
                    before, end, shortest, longest = (
                        ends[steps - 1],
                        ends[steps],
                        seconds[0],
                        seconds[steps - 1],
                    )
            elif seen < end:
                seen = end
                continue
            elif coming < until:
                seen = coming
                continue
            else:
                break
            write_start(start)
            write_steps(steps)
            write_batch(decodes)
            write_context(pays)
            write_shortest(shortest)
            write_longest(longest)
            write_chunks_end(len(chunks))
            seen = before if lag else end
            step += steps
            context += decodes * steps

            # ---- who has completed a prompt, and who an answer
            done = []
            if pieces:
                for rider, tokens in pieces:
                    rider.computed += tokens * steps
                    if rider.computed < rider.known:
                        continue
                    if rider is half:
                        half = None
                    job = rider.job
                    notes.prefill_end[job.request] = end
                    if not hidden:
                        notes.first_token[job.request] = end
                    rider.first = len(starts) - 1
                    rider.last = step + job.output - 2
                    if rider.last < step:
                        done.append(rider)
                        continue
                    rider.base = rider.known - step
                    decodes += 1
                    context += rider.known + 1
                    phases[rider.base % BLOCK_TOKENS] += 1
                    heappush(finishing, (rider.last, rider.order, rider))
            while finishing and finishing[0][0] < step:
                _, order, rider = heappop(finishing)
                if order == rider.order:
                    decodes -= 1
                    context -= rider.base + step + 1
                    phases[rider.base % BLOCK_TOKENS] -= 1
                    done.append(rider)
            if len(done) == 1 and lag and not hidden:  # `finish`, in short
                rider = done[0]
                row = rider.job.request
                ended(end)
                notes.finish[row] = end
                notes.span(row, number, rider.first, len(starts) - 1)
                leaving.append(rider)
            elif done:
                self.end = end
                self.finish(done)
        self.seen_to, self.end, self.step, self.decodes, self.context = seen, end, step, decodes, context
        self.halves = [rider for rider, _ in pieces] if short else [half] if half else []
        return pieces if short else None

    def let_go(self) -> None:
        """Who has got the last token holds place and blocks for one composition, if a step is in flight."""
        flying = self.seen_to < self.end
        while self.leaving and not (flying and self.leaving[0].last + 2 > self.step):
            self.drop(self.leaving.popleft())

    def look_around(self) -> None:
        """Take in what has happened up to now: arrivals, copies, and who has gone."""
        self.take_mail()
        while self.told and self.told[0][0] <= self.seen_to:
            self.told.pop(0)[1].job.copying = False
        self.let_go()

    def take_mail(self) -> None:
        """What has arrived up to now joins the queue."""
        while self.mail and self.mail[0][0] <= self.seen_to:
            job = self.mail.popleft()[1]
            self.waiting.append(Rider(job, job.prompt, blocks(job.prompt + job.output - 1)))

    def drop(self, rider: Rider) -> None:
        """A rider gives up its place and its blocks."""
        del self.running[rider]
        self.reserved -= rider.full

    def rest(self, until: float) -> bool:
        """Nothing to run: wait for the next event; False if that is not before `until`."""
        ahead = min(self.mail[0][0] if self.mail else inf, self.copies[0][0] if self.copies else inf)
        if self.copies:
            ahead = max(ahead, self.seen_to + self.idle_poll)
        self.resting = ahead >= until
        if not self.resting:
            self.seen_to = max(self.seen_to, ahead)
        return not self.resting

    # ------------------------------------------------------------ composing a step

    def compose(self) -> tuple[list[tuple[Rider, int]], list[Rider], int]:
        """The next step beside its decodes: (rider, tokens) of each piece of a prompt; who is preempted; what
        is left of the budget.
        """
        left = self.budget - self.decodes
        cap = self.threshold
        if cap and len(self.running) + len(self.waiting) + len(self.copied) == 1:
            cap = 0
        pieces = []
        for rider in self.halves:
            tokens = min(rider.known - rider.computed, cap or left, left)
            if tokens > 0:
                pieces.append((rider, tokens))
                left -= tokens
        if self.reserved > self.capacity and self.short(pieces):
            return *self.serve_in_order(cap), 0
        if (self.waiting or self.copied) and left > 0:
            left = self.admit(pieces, left, cap)
        return pieces, [], left

    def admit(self, pieces: list[tuple[Rider, int]], left: int, cap: int) -> int:
        """Let riders in, first come first served, as long as there is budget, place and room in the cache."""
        for rider in [rider for rider in self.copied if not rider.job.copying]:
            if left <= 0 or len(self.running) >= self.seats:
                return left
            self.copied.remove(rider)
            rider.computed = rider.known - 1
            self.seat(rider, 1, pieces)
            left -= 1
        while self.waiting and left > 0 and len(self.running) < self.seats:
            rider = self.waiting[0]
            if self.reserved + rider.full > self.capacity and not self.fits(rider, pieces):
                return left
            self.waiting.popleft()
            self.reserved += rider.full
            if rider.job.copying:
                self.start_copy(rider)
                continue
            if rider.job.remote:
                rider.computed = rider.known - 1
            tokens = min(rider.known - rider.computed, cap or left, left)
            self.seat(rider, tokens, pieces)
            left -= tokens
        return left

    def seat(self, rider: Rider, tokens: int, pieces: list[tuple[Rider, int]]) -> None:
        """Admit a rider, with a first piece of so many tokens."""
        self.admitted += 1
        rider.order = self.admitted
        self.running[rider] = None
        self.halves.append(rider)
        pieces.append((rider, tokens))

    # ------------------------------------------------------------ the cache, counted only when it is tight

    def short(self, pieces: Sequence[tuple[Rider, int]]) -> bool:
        """Whether the step needs more new blocks than there are free ones."""
        new = self.phases[-self.step % BLOCK_TOKENS]
        for rider, tokens in pieces:
            new += blocks(rider.computed + tokens) - blocks(rider.computed)
        return new > self.capacity - self.held([], 0)

    def held(self, pieces: Sequence[tuple[Rider, int]], ahead: int) -> int:
        """Blocks in use before the step (`ahead` 0), or with what the decodes and pieces get in it (1)."""
        tokens = self.context - self.decodes * (1 - ahead)
        padding = sum(
            [count * (-(phase + self.step + ahead) % BLOCK_TOKENS) for phase, count in enumerate(self.phases)]
        )
        total = (tokens + padding) // BLOCK_TOKENS
        served = dict(pieces)
        total += sum([blocks(rider.computed + served.get(rider, 0)) for rider in self.halves])
        total += sum([rider.full for rider in self.leaving])
        return total + sum([blocks(rider.known) for rider in self.copied])

    def fits(self, rider: Rider, pieces: Sequence[tuple[Rider, int]]) -> bool:
        """Whether all that a rider knows has room, beside what was promised to copies' elders."""
        promised = 0
        if rider.job.remote:
            served = dict(pieces)
            promised = sum(
                [blocks(half.known) - blocks(half.computed + served.get(half, 0)) for half in self.halves]
            )
        return blocks(rider.known) + promised <= self.capacity - self.held(pieces, 1)

    def serve_in_order(self, cap: int) -> tuple[list[tuple[Rider, int]], list[Rider]]:
        """A step in which the cache is full: serve in order of admission, and take blocks from the last."""
        free = self.capacity - self.held([], 0)
        left, index = self.budget, 0
        order, halves, leavers = list(self.running), set(self.halves), set(self.leaving)
        pieces: list[tuple[Rider, int]] = []
        preempted: list[Rider] = []
        while index < len(order) and left > 0:
            rider = order[index]
            index += 1
            if rider in leavers:
                continue
            behind = rider.computed if rider in halves else rider.base + self.step
            tokens = min(rider.known - rider.computed, cap or left, left) if rider in halves else 1
            new = blocks(behind + tokens) - blocks(behind)
            while new > free:
                victim = order.pop()
                free += self.preempt(victim, victim in halves, victim in leavers)
                preempted.append(victim)
                if victim is rider:
                    return pieces, preempted
            free -= new
            left -= tokens
            if rider in halves:
                pieces.append((rider, tokens))
        return pieces, preempted

    def preempt(self, rider: Rider, half: bool, leaver: bool) -> int:
        """Send a rider back to the head of the queue, to start again from nothing; the blocks it frees."""
        self.drop(rider)
        if leaver:
            self.leaving.remove(rider)
            return rider.full
        if half:
            self.halves.remove(rider)
            freed = blocks(rider.computed)
        else:
            freed = blocks(rider.base + self.step)
            self.stop_decoding(rider)
            rider.job.emitted = rider.job.output - (rider.last - self.step + 1)
            rider.known = rider.job.prompt + rider.job.emitted
            if self.role != "prefill":
                self.notes.span(rider.job.request, self.number, rider.first, len(self.log) - 1)
        rider.order = OUT
        rider.computed = rider.job.remote = 0
        self.waiting.appendleft(rider)
        return freed

    # ------------------------------------------------------------ playing a run

    def play(
        self,
        pieces: list[tuple[Rider, int]],
        preempted: list[Rider],
        left: int,
        seen: list[Rider],
        until: float,
    ) -> None:
        """Run the step, and those after it that are like it; note what comes of them."""
        chunks, shapes, singles, context = [], [], 0, self.context
        for rider, tokens in pieces:
            past, job = rider.computed, rider.job
            single = tokens == 1 and past >= job.prompt - (job.remote >= job.prompt)
            if not single:
                shapes.append((tokens, past))
            else:
                singles += 1
                context += past + 1
            if not single or past + 1 < rider.known:
                chunks.append((job.request, tokens, past))
        batch = self.decodes + singles
        context = self.prices.context(batch, context)

        steps, horizon = 1, until
        if not (seen or preempted or singles):
            steps, horizon = self.repeats(pieces, left, until)
        start = max(self.seen_to, self.end)
        if steps > 1 and horizon < inf:  # no more than that begin before it
            first = self.prices.seconds(tuple(shapes), batch, context)
            steps = max(1, min(steps, ceil((horizon - start) / first) + self.asynchronous))
        seconds = list(self.prices.durations(tuple(shapes), batch, context, steps))
        ends = list(accumulate(seconds, initial=start))
        if steps > 1:
            steps = min(steps, bisect_left(ends, horizon) + self.asynchronous)
        self.log.add(
            Run(
                start,
                steps,
                tuple(chunks),
                tuple(shapes),
                batch,
                context,
                singles,
                tuple([rider.job.request for rider in preempted]),
                seconds[:steps],
            )
        )
        self.seen_to, self.end = ends[steps - self.asynchronous], ends[steps]
        self.step += steps
        self.context += self.decodes * steps
        done = self.advance(pieces, steps, start) if pieces else []
        done += self.finished()
        if done:
            self.finish(done)
        if seen:
            self.tell(seen, self.end)

    def repeats(self, pieces: Sequence[tuple[Rider, int]], left: int, until: float) -> tuple[int, float]:
        """How often the step can be repeated, and before when each of these steps has to be composed."""
        horizon = min(until, self.copies[0][0]) if self.copies else until
        if self.told:
            horizon = min(horizon, self.told[0][0])
        steps = self.finishing[0][0] - self.step + 1 if self.finishing else NEVER
        if pieces:
            rider, tokens = pieces[0]
            if len(pieces) > 1 or left or self.threshold or self.reserved > self.capacity:
                return 1, horizon
            return min(steps, (rider.known - rider.computed - 1) // tokens or 1), horizon
        queue = bool(self.waiting) or not all([rider.job.copying for rider in self.copied])
        if queue and self.leaving:
            return 1, horizon
        if not queue and len(self.running) - len(self.leaving) < self.seats and self.mail:
            horizon = min(horizon, self.mail[0][0])
        if self.reserved > self.capacity:
            steps = self.until_full(steps)
        return steps, horizon

    def until_full(self, steps: int) -> int:
        """So many of the steps, or fewer, before the free blocks do not suffice for one."""
        free = self.capacity - self.held([], 1)
        for ahead in range(1, steps):
            free -= self.phases[-(self.step + ahead) % BLOCK_TOKENS]
            if free < 0:
                return ahead
        return steps

    def advance(self, pieces: Sequence[tuple[Rider, int]], steps: int, start: float) -> list[Rider]:
        """Prompts have got on; who has completed one emits a token. Those for whom it is the last."""
        done = []
        for rider, tokens in pieces:
            job, notes = rider.job, self.notes
            if notes.prefill_start[job.request] == inf:
                notes.prefill_start[job.request] = start
            rider.computed += tokens * steps
            if rider.computed < rider.known:
                continue
            self.halves.remove(rider)
            if not job.emitted:
                if self.role != "decode":
                    notes.prefill_end[job.request] = self.end
                if self.role != "prefill":
                    notes.decode_start[job.request] = start
                    notes.first_token[job.request] = self.end
            rider.first = len(self.log) - 1
            rider.last = self.step + job.output - job.emitted - 2
            rider.base = rider.known - self.step
            if rider.last < self.step:
                done.append(rider)
            else:
                self.decodes += 1
                self.context += rider.known + 1
                self.phases[rider.base % BLOCK_TOKENS] += 1
                heappush(self.finishing, (rider.last, rider.order, rider))
        return done

    def stop_decoding(self, rider: Rider) -> None:
        """Take a rider out of the decodes."""
        self.decodes -= 1
        self.context -= rider.base + self.step + 1
        self.phases[rider.base % BLOCK_TOKENS] -= 1

    def finished(self) -> list[Rider]:
        """Take those out of the decodes whose last token came with the step that has just been run."""
        done = []
        while self.finishing and self.finishing[0][0] < self.step:
            _, order, rider = heappop(self.finishing)
            if order == rider.order:
                self.stop_decoding(rider)
                done.append(rider)
        return done

    def finish(self, done: list[Rider]) -> None:
        """Note whose last token came with the step that has just been run."""
        done.sort(key=lambda rider: rider.order)
        number, end, run = self.number, self.end, len(self.log.start) - 1
        for rider in done:
            row = rider.job.request
            self.ended.append(end)
            if self.role == "prefill":
                self.done.append((end, rider.job))
            else:
                self.notes.finish[row] = end
                self.notes.span(row, number, rider.first, run)
            if self.asynchronous:
                self.leaving.append(rider)
            else:
                self.drop(rider)

    # ------------------------------------------------------------ copies that this engine pulls

    def start_copy(self, rider: Rider) -> None:
        """The rider's blocks are reserved; its copy starts now."""
        self.copied.append(rider)
        row, now = rider.job.request, self.seen_to
        end = now + self.copy_seconds[row]
        self.notes.copy_start[row], self.notes.copy_end[row] = now, end
        heappush(self.copies, (end, row, rider))

    def look_for_copies(self) -> list[Rider]:
        """Whose copy has ended by now."""
        found = []
        while self.copies and self.copies[0][0] <= self.seen_to:
            found.append(heappop(self.copies)[2])
        return found

    def tell(self, riders: Sequence[Rider], time: float) -> None:
        """The scheduler will know then that these copies are here."""
        for rider in riders:
            self.notes.decode_queue[rider.job.request] = time
            self.told.append((time, rider))
