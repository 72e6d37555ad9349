"""Deployments: how many engines do what, who gets which request, and how a prompt's cache changes hands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lib import checks, kv_cache
from lib.engine import Engine
from lib.hardware import Link
from lib.kv_cache import BLOCK_TOKENS
from lib.scheduler import Job, contents, textbook
from lib.workload import Request


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
    def pull(self) -> None:
        """Nothing changes hands."""

    def copy_seconds(self, request: Request) -> float:
        """Nothing changes hands."""
        return 0.0

    def moving(self, tokens: int) -> float:
        """Nothing changes hands."""
        return 0.0

    def copied(self, seconds: float, prefilled: tuple[float, float], free: float) -> tuple[float, float]:
        """Nothing changes hands."""
        _, end = prefilled
        return end, end


class PrefixAware:
    """A route that goes where the longest prefix of the prompt has been sent before, of whole blocks of 16.

    It remembers what it has sent where, as a router in front of engines does: what an engine has dropped
    since, it does not know. Where no prefix was seen, or several engines have seen as much, the least loaded
    of them is taken. A deployment is given the class, and every simulation starts with an empty memory.
    """

    def __init__(self) -> None:
        self.sent: dict[object, set[int]] = {}  # a prefix -> the engines that it was sent to

    def __call__(self, arrival: Arrival, instances: Sequence[Busy]) -> int:
        """The instance for this request."""
        prefixes = contents(arrival.job, 0, arrival.job.prompt // BLOCK_TOKENS)
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
class Shared:
    """All copies cross one link, one after the other, in the order in which prefill has finished."""

    link: Link


@dataclass(frozen=True)
class Streamed:
    """Each layer's cache leaves as soon as the layer is done, while the next one computes.

    What is left to wait for after prefill is `kv_cache.exposed_by_layer`. Every request is alone on the link.
    """

    link: Link


@dataclass(frozen=True)
class Pull:
    """Decode pulls a prompt's cache, as vLLM does: `copy` seconds, or a `Link` that the cache crosses.

    The request joins decode's queue when prefill is done. Once it is first in line and has its blocks, the
    copy starts with the next step that is launched. The first step launched at or after the copy's end
    notices it, and at that step's end the scheduler knows. A worker with nothing to do looks every
    `idle_poll` seconds, or at the next thing to happen if that is later. With prefix caching in decode only
    what its cache lacks crosses a link.

    - `copy` may be a link that is `Shared`: copies queue for it, in each direction by themselves.
    - `hold`: prefill keeps a prompt's blocks until it notices that they have been pulled. A slow link then
      leaves prefill short of memory. (vLLM holds them; where memory is ample it makes no difference, and
      leaving it out is faster to simulate.)
    - `bidirectional` (and `hold`): decode keeps the blocks of a turn for `keep` seconds after its end. If the
      session's next turn gets its place before that, prefill pulls what it lacks of the history, the answer
      included, unless that is less than `least` tokens. The defaults are vLLM's (0.31.0,
      `nixl/base_scheduler.py`, lines 165 to 182).
    """

    copy: float | Link | Shared
    idle_poll: float = 0.0005
    hold: bool = False
    bidirectional: bool = False
    keep: float = 480.0
    least: int = 64

    def __post_init__(self) -> None:
        checks.positive("Pull", idle_poll=self.idle_poll, keep=self.keep)
        checks.counts("Pull", least=self.least)
        if not isinstance(self.copy, Link | Shared):
            checks.not_negative("Pull", copy=self.copy)

    @property
    def holds(self) -> bool:
        """Whether prefill keeps blocks until they have been pulled."""
        return self.hold or self.bidirectional

    @property
    def feeds_back(self) -> bool:
        """Whether engines depend on what those behind them do."""
        return self.holds or isinstance(self.copy, Shared)


@dataclass(frozen=True)
class Disaggregated:
    """`n_prefill` engines compute prompts, `n_decode` engines emit all tokens; a handoff lies between.

    The token that prefill computes is not shown: after the handoff the first decode step emits the first
    token. `handoff` is seconds, the same for every request; a `Link` that a prompt's KV cache crosses, every
    request alone on it; a link that is `Shared`, or to which the cache is `Streamed`; or a `Pull`.
    """

    prefill: Engine
    decode: Engine
    n_prefill: int = 1
    n_decode: int = 1
    handoff: float | Link | Shared | Streamed | Pull = 0.0
    route: Routing = alternate

    def __post_init__(self) -> None:
        checks.counts("Disaggregated", n_prefill=self.n_prefill, n_decode=self.n_decode)
        if not isinstance(self.handoff, Link | Shared | Streamed | Pull):
            checks.not_negative("Disaggregated", handoff=self.handoff)
        if isinstance(self.handoff, Pull) and self.decode.policy is textbook:
            raise ValueError(
                "Disaggregated: handoff=Pull(...) is not in the textbook; use policy=vllm in decode"
            )
        if isinstance(self.handoff, Pull) and self.handoff.holds and self.prefill.policy is textbook:
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
    def pull(self) -> Pull | None:
        """The handoff, if it is decode that starts it."""
        return self.handoff if isinstance(self.handoff, Pull) else None

    def copy_seconds(self, request: Request) -> float:
        """Seconds that a request's cache is on its way when it is alone and leaves when prefill is done."""
        return self.moving(request.prompt_tokens)

    def moving(self, tokens: int) -> float:
        """Seconds that the cache of so many tokens is on its way, alone."""
        way = self.handoff.copy if isinstance(self.handoff, Pull) else self.handoff
        if isinstance(way, Shared | Streamed):
            way = way.link
        if isinstance(way, Link):
            return kv_cache.transfer_time(self.decode.model, tokens, way)
        return way

    def copied(self, seconds: float, prefilled: tuple[float, float], free: float) -> tuple[float, float]:
        """When a copy of so many seconds starts and ends that decode does not pull.

        `prefilled`: start and end of the prompt's prefill; `free`: when the copy before it ends.
        """
        start, done = prefilled
        if isinstance(self.handoff, Shared):
            return max(done, free), max(done, free) + seconds
        if isinstance(self.handoff, Streamed):
            left = kv_cache.exposed_by_layer(seconds, done - start, self.decode.model.layers)
            return done, done + left
        return done, done + seconds


Deployment = Collocated | Disaggregated
