"""Engines on one clock: from a workload and a deployment to every step and every token's time.

`simulate` plays a workload on a deployment and returns a `Trace`. There is one event loop for all
deployments; what differs between them is passed in: the policy that fills a step, the price of a step, the
route from a request to an engine, and what happens between two pools.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf, nextafter
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
from lib.engine import Engine, prices
from lib.hardware import L40S
from lib.jumping import Jumper
from lib.kv_cache import BLOCK_TOKENS
from lib.log import Notes
from lib.models import QWEN2_5_7B
from lib.scheduler import Job, vllm
from lib.stepping import Instance
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


def simulate(
    requests: Iterable[Request], deployment: Deployment, until: float = inf, jump: bool = True
) -> Trace:
    """Play the workload on the deployment, to its end or `until` that many seconds. Returns the `Trace`.

    Requests are handed out to a pool's engines in order of time, each engine plays its steps, and what the
    pool has finished is the next one's mail. `jump=False` plays every step by itself; the result is the same
    to the last bit.

    ValueError where the workload is empty or out of order, or a request fits into no engine's cache.
    """
    rows = workload.check(requests)
    _refuse_impossible(rows, deployment.pools)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles takes a quarter of the time
    fleet = _Fleet(rows, deployment, until, jump)
    try:
        fleet.play()
        return fleet.trace()
    finally:
        if collecting:
            gc.enable()


class _Fleet:
    """All engines of a deployment, and what passes between them."""

    def __init__(self, rows: tuple[Request, ...], deployment: Deployment, until: float, jump: bool) -> None:
        self.rows = rows
        self.deployment = deployment
        self.until = until
        self.pull = deployment.pull
        self.feeds_back = self.pull is not None and self.pull.feeds_back
        self.notes = Notes(len(rows))
        copies = [deployment.copy_seconds(row) for row in rows] if self.pull else []
        self.pools: list[list[Instance | Jumper]] = []
        for pool in deployment.pools:
            first = sum([len(members) for members in self.pools])
            self.pools.append([self._engine(first + i, pool, copies, jump) for i in range(pool.count)])
        self.routes = [
            deployment.route() if isinstance(deployment.route, type) else deployment.route for _ in self.pools
        ]
        self.turns = [0 for _ in self.pools]
        self.arrived = 0  # requests that have
        self.handed_over: list[tuple[float, int, Job]] = []  # to decode: (time, number, job)
        self.numbers = count()
        self.free = [0.0, 0.0]  # when a shared link is free, to decode and back
        self.held: dict[int, tuple[Instance, Job]] = {}  # who keeps blocks for the copy of a request
        self.latest: dict[int, tuple[float, Instance, Job]] = {}  # session -> end of its turn, who keeps that

    def _engine(self, number: int, pool: Pool, copies: Sequence[float], jump: bool) -> Instance | Jumper:
        """An engine at work; the one that jumps where it can. `copies`: seconds of each request's pull."""
        idle_poll = self.pull.idle_poll if self.pull else inf
        if not jump or self.feeds_back or pool.engine.policy is not vllm or pool.engine.prefix_caching:
            return Instance(number, pool, self.notes, self.copy, idle_poll, jump)
        return Jumper(number, pool.role, pool.engine, self.notes, copies, idle_poll)

    # ------------------------------------------------------------ the event loop

    def play(self) -> None:
        """Play everything that happens before `until`.

        Pool after pool. What decode does is of no concern to prefill, as a rule: then prefill plays to the
        end, decode follows, and that is all. Where it is, all engines play what happens at one moment, and
        then at the next.
        """
        limit = 0.0
        while limit < self.until:
            limit = min(nextafter(self.moment(), inf), self.until) if self.feeds_back else self.until
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
        logs = [(engine.role, prices(engine.engine), engine.log) for engine in engines]
        return Trace(self.rows, self.deployment, logs, self.notes, self.until)

    def moment(self) -> float:
        """When the next thing happens."""
        moments = [
            engine.next() for members in self.pools for engine in members if isinstance(engine, Instance)
        ]
        if self.arrived < len(self.rows):
            moments.append(self.rows[self.arrived].arrival)
        if self.handed_over:
            moments.append(self.handed_over[0][0])
        return min(moments)

    def undisturbed(self, place: int) -> float:
        """Until when nothing can reach a pool's engines, if that is after the moment; else minus infinity.

        Decode is undisturbed until prefill's next step, unless prefill waits for it, or its copies have to
        queue with those of others.
        """
        prefill = [engine for engine in self.pools[0] if isinstance(engine, Instance)]
        queue = self.pull is not None and isinstance(self.pull.copy, Shared) and len(self.pools[-1]) > 1
        if place == 0 or not self.feeds_back or queue or any([engine.waits for engine in prefill]):
            return -inf
        arrival = self.rows[self.arrived].arrival if self.arrived < len(self.rows) else inf
        handed_over = self.handed_over[0][0] if self.handed_over else inf
        return min(arrival, handed_over, self.until, *[engine.next() for engine in prefill])

    def hand_out(self, place: int, limit: float) -> None:
        """Send each of a pool's engines what has arrived for it before `limit`."""
        members, route, turn = self.pools[place], self.routes[place], self.turns[place]
        for time, job in self._mail(place, limit):
            if route is alternate:  # the rule, in short
                members[turn % len(members)].receive(time, job)
            else:
                members[route(Arrival(turn, time, job), members)].receive(time, job)
            turn += 1
            if not turn % 10_000:  # keep no more than that in memory
                for member in members:
                    member.run(time)
        self.turns[place] = turn

    def _mail(self, place: int, limit: float) -> Iterator[tuple[float, Job]]:
        """What arrives at a pool before `limit`, in order of time.

        At the first pool requests arrive; where another pool follows, for one token each.
        """
        while place and self.handed_over and self.handed_over[0][0] < limit:
            time, _, job = heappop(self.handed_over)
            yield time, job
        rows, row = self.rows, self.arrived
        one_pool, holds = len(self.pools) == 1, self.pull is not None and self.pull.holds
        while not place and row < len(rows) and rows[row].arrival < limit:
            request = rows[row]
            parts = request.prompt if isinstance(request.prompt, tuple) else ()
            job = Job(row, request.prompt_tokens, request.output_tokens if one_pool else 1, parts)
            if holds:
                job.kept = True
                self.find_history(request.arrival, job)
            yield request.arrival, job
            row += 1
        self.arrived = max(row, self.arrived)

    def collect(self, place: int) -> None:
        """Take what a pool has finished, and pass it on."""
        done = [(time, job, engine) for engine in self.pools[place] for time, job in engine.done]
        for time, job, engine in sorted(done, key=itemgetter(0)):
            if job.kept and isinstance(engine, Instance):
                self.keep(place, time, job, engine)
            if place < len(self.pools) - 1:
                self.hand_over(time, job)
        for engine in self.pools[place]:
            engine.done.clear()

    def hand_over(self, time: float, job: Job) -> None:
        """Prefill is done: the request joins decode's mail, with its cache, or before it if decode pulls."""
        row, tokens, pull, notes = job.request, job.prompt, self.pull, self.notes
        notes.sent[row] = tokens
        if not pull:
            prefilled = (notes.prefill_start[row], time)
            seconds = self.deployment.copy_seconds(self.rows[row])
            notes.copy_start[row], time = self.deployment.copied(seconds, prefilled, self.free[0])
            notes.copy_end[row] = notes.decode_queue[row] = self.free[0] = time
        after = Job(row, tokens, self.rows[row].output_tokens, job.parts, tokens, copying=pull is not None)
        after.kept = pull is not None and pull.bidirectional
        heappush(self.handed_over, (time, next(self.numbers), after))

    # ------------------------------------------------------------ copies, and who keeps blocks for them

    def copy(self, engine: Instance, job: Job) -> float:
        """Start the copy that `engine` pulls; when it will have ended, and who keeps its blocks will know."""
        row, back, notes = job.request, engine.role == "prefill", self.notes
        tokens = job.remote - job.computed if job.copying else 0
        start, seconds = engine.now, self.deployment.moving(tokens) if tokens else 0.0
        if tokens and self.pull and isinstance(self.pull.copy, Shared):
            start = max(start, self.free[back])
            self.free[back] = start + seconds
        end = start + seconds
        if not back:
            notes.copy_start[row], notes.copy_end[row], notes.sent[row] = start, end, tokens
        elif tokens:
            notes.back_start[row], notes.back_end[row], notes.fetched[row] = start, end, tokens
        if row in self.held:
            keeper, kept = self.held.pop(row)
            keeper.copies = [item for item in keeper.copies if item[2] is not kept]  # it does not expire now
            heapify(keeper.copies)
            heappush(keeper.copies, (end, kept.request, kept))
        return end

    def keep(self, place: int, time: float, job: Job, engine: Instance) -> None:
        """An engine keeps the blocks of what it has finished: prefill until the pull, decode for a while."""
        if place == 0:
            self.held[job.request] = engine, job
        elif self.pull:
            session = self.rows[job.request].session
            if session is not None and self.pull.bidirectional:
                self.latest[session] = time, engine, job
            heappush(engine.copies, (time + self.pull.keep, job.request, job))

    def find_history(self, time: float, job: Job) -> None:
        """A turn arrives: if decode still keeps the one before, prefill may pull what it lacks of it."""
        request, pull = self.rows[job.request], self.pull
        if pull is None or request.session is None or request.session not in self.latest:
            return
        end, engine, before = self.latest[request.session]
        tokens = workload.history(self.rows[before.request], request)
        if tokens and end <= time < end + pull.keep:
            del self.latest[request.session]
            self.held[job.request] = engine, before
            job.remote, job.copying = min(tokens, job.prompt), True
            job.least, job.source = pull.least, before


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
