"""Deployments: how many engines do what, and who gets which request.

Pools of equal engines, and the routes in front of them. Not here: how a cache changes hands (`handoff`), and
the engines at work (`instance`, `fleet`).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lib import checks
from lib.hardware import Link
from lib.scheduler import Job, Names, block_hashes, textbook
from lib.simulator.engine import Engine
from lib.simulator.handoff import NONE, Handoff, as_handoff


class Arrival(NamedTuple):
    """The request that comes as number `turn` to a pool, at that time."""

    turn: int
    time: float
    job: Job


class Busy(Protocol):
    """An engine at work, as far as a route may look at it."""

    def load(self, now: float) -> int:
        """Requests waiting or running at that time."""


Route = Callable[[Arrival, Sequence[Busy]], int]
Routing = Route | type["PrefixAware"]


def alternate(arrival: Arrival, instances: Sequence[Busy]) -> int:
    """Request number k goes to instance k mod n."""
    return arrival.turn % len(instances)


def least_loaded(arrival: Arrival, instances: Sequence[Busy]) -> int:
    """The instance with the fewest requests waiting or running, the first of them if several have."""
    return min(range(len(instances)), key=lambda i: instances[i].load(arrival.time))


@dataclass(frozen=True)
class Drawn:
    """A route by lot: any instance, each as likely; the same seed draws the same."""

    seed: int = 0

    def __call__(self, arrival: Arrival, instances: Sequence[Busy]) -> int:
        """The instance for this request."""
        return random.Random(f"route {self.seed} {arrival.turn}").randrange(len(instances))


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
    route: Routing = alternate

    def __post_init__(self) -> None:
        checks.counts("Collocated", replicas=self.replicas)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The one pool."""
        return (Pool("collocated", self.engine, self.replicas),)

    @property
    def way(self) -> Handoff:
        """Nothing changes hands."""
        return NONE


class PrefixAware:
    """A route that goes where the longest prefix of the prompt has been sent before, of whole blocks of 16.

    It remembers what it has sent where, as a router in front of engines does: what an engine has dropped
    since, it does not know. Where no prefix was seen, or several engines have seen as much, the least loaded
    of them is taken. A deployment is given the class, and every simulation starts with an empty memory.
    """

    def __init__(self) -> None:
        self.sent: dict[int, set[int]] = {}  # a prefix -> the engines that it was sent to
        self.names: Names = {}

    def __call__(self, arrival: Arrival, instances: Sequence[Busy]) -> int:
        """The instance for this request."""
        prefixes = block_hashes(arrival.job, arrival.job.prompt, self.names)
        holders = set(range(len(instances)))
        for prefix in prefixes:
            narrower = holders & self.sent.get(prefix, set())
            if not narrower:
                break
            holders = narrower
        chosen = min(sorted(holders), key=lambda i: instances[i].load(arrival.time))
        for prefix in prefixes:
            self.sent.setdefault(prefix, set()).add(chosen)
        return chosen


@dataclass(frozen=True)
class Disaggregated:
    """`n_prefill` engines compute prompts, `n_decode` engines emit all tokens; a handoff lies between.

    The token that prefill computes is not shown: after the handoff the first decode step emits the first
    token. `handoff` is seconds, the same for every request; a `Link` that a prompt's KV cache crosses, every
    request alone on it; a link that is `Shared`, or to which the cache is `Streamed`; a `Pull`; or another
    `handoff.Handoff`.
    """

    prefill: Engine
    decode: Engine
    n_prefill: int = 1
    n_decode: int = 1
    handoff: float | Link | Handoff = 0.0
    route: Routing = alternate

    def __post_init__(self) -> None:
        checks.counts("Disaggregated", n_prefill=self.n_prefill, n_decode=self.n_decode)
        way = self.way
        if way.pulled and self.decode.policy is textbook:
            raise ValueError(
                "Disaggregated: handoff=Pull(...) is not in the textbook; use policy=vllm in decode"
            )
        if way.retains and self.prefill.policy is textbook:
            raise ValueError(
                "Disaggregated: a Pull that holds blocks is not in the textbook; use policy=vllm in prefill"
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
    def way(self) -> Handoff:
        """The handoff as such, whether it was given as seconds, as a link or as one."""
        return as_handoff("Disaggregated", handoff=self.handoff)

    def transfer_time(self, tokens: int) -> float:
        """Seconds that the cache of so many tokens is on its way, alone."""
        return self.way.seconds(self.decode.model, tokens)


Deployment = Collocated | Disaggregated
