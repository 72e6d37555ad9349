"""All engines of a deployment on one clock: the event loop, and what passes between engines.

`simulate` plays a workload on a deployment and returns a `Trace`. There is one loop for all deployments; what
differs between them is passed in: the policy that fills a step, the price of a step, the route from a request
to an engine, and the handoff between two pools. Not here: what one engine does with requests (`instance`).
"""

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf, nextafter
from operator import itemgetter

from lib import workload
from lib.kv_cache import BLOCK_TOKENS
from lib.scheduler import Job, vllm
from lib.simulator.deployment import Arrival, Deployment, Pool, alternate
from lib.simulator.fast_forward import FastForward
from lib.simulator.instance import Instance
from lib.simulator.log import Notes
from lib.simulator.trace import Trace
from lib.workload import ClosedLoop, Request


def simulate(
    requests: Iterable[Request] | ClosedLoop, deployment: Deployment, until: float = inf, jump: bool = True
) -> Trace:
    """Play the workload on the deployment, to its end or `until` that many seconds. Returns the `Trace`.

    Requests are handed out to a pool's engines in order of time, each engine plays its steps, and what the
    pool has finished is the next one's mail. `jump=False` plays every step by itself; the result is the same
    to the last bit. In a `ClosedLoop` a stream sends its next request at the moment when it has its answer.

    ValueError where the workload is empty or out of order, a closed loop is cut off, or a request fits into
    no engine's cache.
    """
    if isinstance(requests, ClosedLoop) and until < inf:
        raise ValueError(
            f"simulate: until={until!r} cuts a closed loop off; leave it out, or use fewer requests"
        )
    source = _Loop(requests) if isinstance(requests, ClosedLoop) else _Source(workload.check(requests))
    _refuse_impossible(source.all(), deployment.pools)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles takes a quarter of the time
    fleet = _Fleet(source, deployment, until, jump)
    try:
        fleet.play()
        return fleet.trace()
    finally:
        if collecting:
            gc.enable()


class _Source:
    """Where requests come from: a workload whose arrivals are known."""

    closed = False  # whether arrivals depend on answers

    def __init__(self, rows: Sequence[Request]) -> None:
        self.rows = rows  # that have been sent, or will be

    def all(self) -> Sequence[Request]:
        """Every request that there will be."""
        return self.rows

    def next(self, row: int) -> float:
        """When the request arrives that is number `row`."""
        return self.rows[row].arrival if row < len(self.rows) else inf

    def send(self, limit: float) -> None:
        """Send all that is sent before `limit`."""

    def answered(self, time: float) -> None:
        """Note that a request has its last token."""


class _Loop(_Source):
    """A closed loop: a stream sends its next request when it has its answer."""

    closed = True

    def __init__(self, loop: ClosedLoop) -> None:
        self.unsent = deque(loop.lengths())
        self.ready = [0.0] * loop.streams  # when a stream sends, the first of them first
        self.sent: list[Request] = []
        super().__init__(self.sent)

    def all(self) -> Sequence[Request]:
        """Every request that there will be, whenever it is sent."""
        return [*self.rows, *[Request(0.0, *lengths) for lengths in self.unsent]]

    def next(self, row: int) -> float:
        """When that request arrives; if it is not yet sent, the next stream's moment."""
        if row < len(self.rows):
            return self.rows[row].arrival
        return self.ready[0] if self.ready and self.unsent else inf

    def send(self, limit: float) -> None:
        """Send the requests of all streams that are ready before `limit`."""
        while self.unsent and self.ready and self.ready[0] < limit:
            self.sent.append(Request(heappop(self.ready), *self.unsent.popleft()))

    def answered(self, time: float) -> None:
        """A stream has its answer."""
        heappush(self.ready, time)


class _Fleet:
    """All engines of a deployment, and what passes between them."""

    def __init__(self, source: _Source, deployment: Deployment, until: float, jump: bool) -> None:
        self.source = source
        self.rows = source.rows
        self.deployment = deployment
        self.until = until
        self.handoff = deployment.way
        self.model = deployment.pools[-1].engine.model
        self.notes = Notes(len(source.all()))
        self.together = self.handoff.feeds_back or source.closed  # engines play moment by moment
        self.pools: list[list[Instance | FastForward]] = []
        for pool in deployment.pools:
            first = sum([len(members) for members in self.pools])
            self.pools.append([self._engine(first + i, pool, jump) for i in range(pool.count)])
        self.routes = [
            deployment.route() if isinstance(deployment.route, type) else deployment.route for _ in self.pools
        ]
        self.turns = [0 for _ in self.pools]
        self.arrived = 0  # requests that have
        self.handed_over: list[tuple[float, int, Job]] = []  # to decode: (time, number, job)
        self.numbers = count()
        self.free = [0.0, 0.0]  # when a shared link is free, to decode and back
        self.owners: dict[int, tuple[Instance, Job]] = {}  # who retains blocks for the copy of a request
        self.retained: dict[int, tuple[float, Instance, Job]] = {}  # session -> its turn's end, and owner

    def _engine(self, number: int, pool: Pool, jump: bool) -> Instance | FastForward:
        """An engine at work; the one that jumps where it can."""
        obvious = pool.engine.policy is not vllm or pool.engine.prefix_caching or self.together
        if obvious or not jump:
            engine = Instance(number, pool, self.notes, self.start_pull, self.handoff.idle_poll, jump)
            engine.pauses = self.source.closed
            return engine
        return FastForward(number, pool, self.notes, self.handoff)

    # ------------------------------------------------------------ the event loop

    def play(self) -> None:
        """Play everything that happens before `until`.

        Pool after pool. What decode does is of no concern to prefill, as a rule: then prefill plays to the
        end, decode follows, and that is all. Where it is, all engines play what happens at one moment, and
        then at the next.
        """
        limit = 0.0
        while limit < self.until:
            limit = min(nextafter(self.moment(), inf), self.until) if self.together else self.until
            for place, members in enumerate(self.pools):
                self.hand_out(place, limit)
                ahead = max(limit, self.undisturbed(place))
                for engine in members:
                    engine.run(ahead)
                self.collect(place)

    def trace(self) -> Trace:
        """What came of it."""
        engines = [engine for members in self.pools for engine in members]
        for engine in engines:
            for row, span in engine.open_spans():
                self.notes.span(row, *span)
        logs = [(engine.role, engine.log) for engine in engines]
        return Trace(tuple(self.source.all()), self.deployment, logs, self.notes, self.until)

    def moment(self) -> float:
        """When the next thing happens."""
        moments = [
            engine.next() for members in self.pools for engine in members if isinstance(engine, Instance)
        ]
        moments.append(self.source.next(self.arrived))
        if self.handed_over:
            moments.append(self.handed_over[0][0])
        return min(moments)

    def undisturbed(self, place: int) -> float:
        """Until when nothing can reach a pool's engines, if that is after the moment; else minus infinity.

        Decode is undisturbed until prefill's next step, unless prefill waits for it, or its copies have to
        queue with those of others.
        """
        if self.source.closed and len(self.pools[-1]) > 1:
            return -inf
        if self.source.closed and len(self.pools) == 1:
            return self.until  # one engine alone plays until it has answered somebody
        prefill = [engine for engine in self.pools[0] if isinstance(engine, Instance)]
        queue = self.handoff.queues and len(self.pools[-1]) > 1
        if place == 0 or not self.together or queue or any([engine.waits for engine in prefill]):
            return -inf
        arrival = self.source.next(self.arrived)
        handed_over = self.handed_over[0][0] if self.handed_over else inf
        return min(arrival, handed_over, self.until, *[engine.next() for engine in prefill])

    def hand_out(self, place: int, limit: float) -> None:
        """Send each of a pool's engines what has arrived for it before `limit`."""
        members, route, turn = self.pools[place], self.routes[place], self.turns[place]
        for time, job in self._arrivals(place, limit):
            if route is alternate:  # the rule, in short
                members[turn % len(members)].receive(time, job)
            else:
                members[route(Arrival(turn, time, job), members)].receive(time, job)
            turn += 1
            if not turn % 10_000:  # keep no more than that in memory
                for member in members:
                    member.run(time)
        self.turns[place] = turn

    def _arrivals(self, place: int, limit: float) -> Iterator[tuple[float, Job]]:
        """What arrives at a pool before `limit`, in order of time.

        At the first pool requests arrive; where another pool follows, for one token each.
        """
        while place and self.handed_over and self.handed_over[0][0] < limit:
            time, _, job = heappop(self.handed_over)
            yield time, job
        if not place:
            self.source.send(limit)
        rows, row = self.rows, self.arrived
        one_pool, retains = len(self.pools) == 1, self.handoff.retains
        while not place and row < len(rows) and rows[row].arrival < limit:
            request = rows[row]
            parts = request.prompt if isinstance(request.prompt, tuple) else ()
            output = request.output_tokens if one_pool else 1
            job = Job(row, request.prompt_tokens, output, parts, num_external_tokens=request.cached)
            if retains:
                job.retained = True
                self.find_history(request.arrival, job)
            yield request.arrival, job
            row += 1
        self.arrived = max(row, self.arrived)

    def collect(self, place: int) -> None:
        """Take what a pool has finished, and pass it on."""
        done = [(time, job, engine) for engine in self.pools[place] for time, job in engine.done]
        for time, job, engine in sorted(done, key=itemgetter(0)):
            if job.retained and isinstance(engine, Instance):
                self.retain(place, time, job, engine)
            if place < len(self.pools) - 1:
                self.hand_over(time, job)
            else:
                self.source.answered(time)
        for engine in self.pools[place]:
            engine.done.clear()

    def hand_over(self, time: float, job: Job) -> None:
        """Prefill is done: the request joins decode's mail, with its cache, or before it if decode pulls."""
        row, tokens, handoff, notes = job.request, job.prompt, self.handoff, self.notes
        notes.sent[row] = tokens
        if not handoff.pulled:
            computed = (notes.prefill_start[row], time)
            notes.copy_start[row], time = handoff.schedule(self.model, tokens, computed, self.free[0])
            notes.copy_end[row] = notes.decode_queue[row] = self.free[0] = time
        after = Job(row, tokens, self.rows[row].output_tokens, job.parts, num_external_tokens=tokens)
        after.waiting_for_remote_kvs, after.retained = handoff.pulled, handoff.bidirectional
        heappush(self.handed_over, (time, next(self.numbers), after))

    # ------------------------------------------------------------ copies, and who retains blocks for them

    def start_pull(self, engine: Instance, job: Job) -> float:
        """Start the copy that `engine` pulls; when it will have ended, and the owner gives up the blocks."""
        row, back, notes = job.request, engine.role == "prefill", self.notes
        tokens = job.num_external_tokens - job.num_computed_tokens if job.waiting_for_remote_kvs else 0
        start = end = engine.now
        if tokens:
            start, end = self.handoff.schedule(self.model, tokens, (start, start), self.free[back])
            self.free[back] = end
        if not back:
            notes.copy_start[row], notes.copy_end[row], notes.sent[row] = start, end, tokens
        elif tokens:
            notes.back_start[row], notes.back_end[row], notes.fetched[row] = start, end, tokens
        if row in self.owners:
            owner, before = self.owners.pop(row)
            owner.release_at(before, end)
        return end

    def retain(self, place: int, time: float, job: Job, engine: Instance) -> None:
        """An engine retains blocks of what it has finished: prefill until the pull, decode for a while."""
        if place == 0:
            self.owners[job.request] = engine, job
            return
        session = self.rows[job.request].session
        if session is not None:
            self.retained[session] = time, engine, job
        engine.release_at(job, time + self.handoff.retain)

    def find_history(self, time: float, job: Job) -> None:
        """A turn arrives: if decode still retains the one before, prefill may pull what it lacks of it."""
        request = self.rows[job.request]
        if request.session is None or request.session not in self.retained:
            return
        end, engine, before = self.retained[request.session]
        tokens = workload.history(self.rows[before.request], request)
        if tokens and end <= time < end + self.handoff.retain:
            del self.retained[request.session]
            self.owners[job.request] = engine, before
            job.num_external_tokens, job.waiting_for_remote_kvs = min(tokens, job.prompt), True
            job.recompute_threshold, job.source = self.handoff.recompute_threshold, before


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
