"""Handoffs: how a prompt's cache gets from prefill to decode, who starts the copy, and how long it takes.

`Handoff` says what a simulation asks of one; a new kind, or a connector, is one class that answers. It is
given to `Disaggregated(handoff=...)`, and nothing else has to know of it. Not here: when a copy is started
and noticed (`fleet`, `instance`), and how big a cache is (`lib.kv_cache`).
"""

from dataclasses import dataclass
from math import inf
from typing import Protocol, cast

from lib import checks, kv_cache
from lib.hardware import Link
from lib.models import Model


class Handoff(Protocol):
    """One way for a prompt's cache to change hands; a class says what is different from the following.

    Prefill sends the cache when it is done with the prompt; every request is alone on the way.
    """

    while_computing: bool = False  # the copy has begun before prefill is done
    pulled: bool = False  # decode starts the copy, once the request has its blocks there
    idle_poll: float = inf  # a worker without work looks for ends of copies that often, in seconds
    bidirectional: bool = False  # decode retains the blocks of a turn, which prefill pulls for the next one,
    retain: float = 0.0  # for so many seconds,
    recompute_threshold: int = 1  # unless that is fewer tokens

    def seconds(self, model: Model, tokens: int) -> float:
        """Seconds that the cache of so many tokens is on its way, alone."""

    @property
    def queues(self) -> bool:
        """Whether copies wait for those before them, in each direction by themselves."""
        return False

    @property
    def retains(self) -> bool:
        """Whether prefill retains a prompt's blocks until it has noticed that they have been pulled."""
        return False

    def schedule(
        self, model: Model, tokens: int, computed: tuple[float, float], free: float
    ) -> tuple[float, float]:
        """When the copy of so many tokens starts and ends.

        `computed`: start and end of the prompt's prefill, or twice the moment when decode pulls; `free`: when
        the last copy in this direction ends.
        """
        _, done = computed
        start = max(done, free) if self.queues else done
        return start, start + self.seconds(model, tokens)

    @property
    def feeds_back(self) -> bool:
        """Whether engines depend on what those behind them do."""
        return self.pulled and (self.retains or self.queues)


@dataclass(frozen=True)
class Constant(Handoff):
    """So many seconds, the same for every request."""

    takes: float

    def seconds(self, model: Model, tokens: int) -> float:
        """The constant."""
        return self.takes


@dataclass(frozen=True)
class Alone(Handoff):
    """Every request is alone on the link."""

    link: Link

    def seconds(self, model: Model, tokens: int) -> float:
        """Seconds in which the cache crosses the link."""
        return kv_cache.transfer_time(model, tokens, self.link)


@dataclass(frozen=True)
class Shared(Alone):
    """All copies cross one link, one after the other, in the order in which prefill has finished."""

    queues = True


@dataclass(frozen=True)
class Streamed(Alone):
    """Each layer's cache leaves as soon as the layer is done, while the next one computes.

    What is left to wait for after prefill is `kv_cache.exposed_by_layer`. Every request is alone on the link.
    """

    while_computing = True

    def schedule(
        self, model: Model, tokens: int, computed: tuple[float, float], free: float
    ) -> tuple[float, float]:
        """The end of prefill, and of what is then left."""
        start, done = computed
        left = kv_cache.exposed_by_layer(self.seconds(model, tokens), done - start, model.layers)
        return done, done + left


@dataclass(frozen=True)
class Pull(Handoff):
    """Decode pulls a prompt's cache, as vLLM does: `copy` seconds, or a `Link` that the cache crosses.

    The request joins decode's queue when prefill is done. Once it is first in line and has its blocks, the
    copy starts with the next step that is launched. The first step launched at or after the copy's end
    notices it, and at that step's end the scheduler knows. A worker with nothing to do looks every
    `idle_poll` seconds, or at the next thing to happen if that is later. With prefix caching in decode only
    what its cache lacks crosses a link.

    - `copy` may be a link that is `Shared`: copies queue for it, in each direction by themselves. Or another
      handoff that neither is pulled itself nor begins while prefill computes.
    - `hold`: prefill retains a prompt's blocks until it notices that they have been pulled. A slow link then
      leaves prefill short of memory. (vLLM holds them; where memory is ample it makes no difference, and
      leaving it out is faster to simulate.)
    - `bidirectional` (and `hold`): decode retains the blocks of a turn for `retain` seconds after its end. If
      the session's next turn gets its place before that, prefill pulls what it lacks of the history, the
      answer included, unless that is less than `recompute_threshold` tokens. The defaults are vLLM's (0.31.0,
      `nixl/base_scheduler.py`, lines 165 to 182).
    """

    copy: float | Link | Handoff
    idle_poll: float = 0.0005
    hold: bool = False
    bidirectional: bool = False
    retain: float = 480.0
    recompute_threshold: int = 64

    pulled = True

    def __post_init__(self) -> None:
        checks.positive("Pull", idle_poll=self.idle_poll, retain=self.retain)
        checks.counts("Pull", recompute_threshold=self.recompute_threshold)
        way = as_handoff("Pull", copy=self.copy)
        if way.pulled or way.while_computing:
            raise ValueError(f"Pull: copy={self.copy!r} cannot be pulled; use seconds or a link")

    @property
    def retains(self) -> bool:
        """Whether prefill retains blocks until they have been pulled."""
        return self.hold or self.bidirectional

    @property
    def queues(self) -> bool:
        """Whether copies wait for each other."""
        return as_handoff("Pull", copy=self.copy).queues

    def seconds(self, model: Model, tokens: int) -> float:
        """Seconds that the cache of so many tokens is on its way, alone."""
        return as_handoff("Pull", copy=self.copy).seconds(model, tokens)

    def schedule(
        self, model: Model, tokens: int, computed: tuple[float, float], free: float
    ) -> tuple[float, float]:
        """When the copy starts and ends that decode pulls."""
        return as_handoff("Pull", copy=self.copy).schedule(model, tokens, computed, free)


def as_handoff(owner: str, **given: float | Link | Handoff) -> Handoff:
    """The value as a handoff: a number is `Constant`, a link crossed `Alone`; ValueError for other things."""
    ((_, value),) = given.items()
    if isinstance(value, Link):
        return Alone(value)
    if hasattr(value, "schedule"):
        return cast(Handoff, value)
    checks.not_negative(owner, **given)
    return Constant(value)


NONE = Constant(0.0)  # nothing changes hands
