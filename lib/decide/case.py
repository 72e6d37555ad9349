"""What is asked: a load, and everything else that an answer depends on."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log, sqrt

from lib import checks, workload
from lib.goodput import SLO, Workload
from lib.hardware import GPU, Link
from lib.kv_cache import transfer_time
from lib.models import Model
from lib.roofline import Efficiency
from lib.workload import Request


@dataclass(frozen=True)
class Load:
    """Requests at `rate` a second; `draw(rate, seed)` makes them, at other rates as well.

    `alike`: whether every seed makes the same.
    """

    rate: float
    draw: Workload
    alike: bool = False

    def __post_init__(self) -> None:
        checks.positive("Load", rate=self.rate)


def poisson(
    rate: float, prompt: int = 8192, output: int = 256, spread: float = 0.0, count: int | None = None
) -> Load:
    """Return a load that arrives at random, with lengths in tokens that have these means.

    `spread` is their standard deviation over their mean: 0, all alike; else lognormal, at least 1 token.
    `count` requests; None: 100, or as many as come in 30 s if that is more, but at most 1,000.
    """
    checks.positive("poisson", rate=rate)
    checks.counts("poisson", prompt=prompt, output=output)
    checks.not_negative("poisson", spread=spread)
    if count is not None:
        checks.counts("poisson", count=count)

    def draw(rate: float, seed: int) -> Sequence[Request]:
        number = count or max(100, min(1000, ceil(30 * rate)))
        equal = workload.poisson(rate, number, seed, prompt, output)
        if not spread:
            return equal
        dice = random.Random(f"lengths {seed}")
        return [
            Request(request.arrival, about(prompt, spread, dice), about(output, spread, dice))
            for request in equal
        ]

    return Load(rate, draw)


def about(mean: float, spread: float, dice: random.Random) -> int:
    """Return a whole number of at least 1, lognormal with that mean and that deviation over the mean."""
    variance = log(1 + spread**2)
    return max(1, round(mean * dice.lognormvariate(-variance / 2, sqrt(variance))))


def recorded(requests: Iterable[Request]) -> Load:
    """Return the load of requests as they came; at another rate the same ones, closer or further apart."""
    rows = workload.check(requests)
    duration = rows[-1].arrival - rows[0].arrival
    if len(rows) < 2 or not duration:
        raise ValueError("recorded: all requests arrive at once; use at least two at different times")
    own = (len(rows) - 1) / duration

    def draw(rate: float, seed: int) -> Sequence[Request]:
        del seed  # there is one recording only
        return [replace(row, arrival=(row.arrival - rows[0].arrival) * own / rate) for row in rows]

    return Load(own, draw, alike=True)


@dataclass(frozen=True)
class Case:
    """Everything that an answer depends on; `decide` says what the parts are."""

    model: Model
    gpu: GPU
    load: Load
    slo: SLO
    link: Link | None
    handoff_s: float | None
    cpu_s_per_request: float | None
    history_can_change: bool
    gpus: int
    tensor_parallel: int
    new_tokens: int | None
    efficiency: Efficiency
    timed: bool  # whether that was measured
    target: float
    price_per_gpu_hour: float | None
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        checks.counts("decide", gpus=self.gpus, tensor_parallel=self.tensor_parallel)
        checks.shares("decide", target=self.target)
        if self.new_tokens is not None:
            checks.counts("decide", new_tokens=self.new_tokens)
        for name in ("handoff_s", "cpu_s_per_request", "price_per_gpu_hour"):
            if getattr(self, name) is not None:
                checks.not_negative("decide", **{name: getattr(self, name)})
        if self.gpus % self.tensor_parallel or self.gpus < 2 * self.tensor_parallel:
            raise ValueError(
                f"decide: gpus={self.gpus} will not do for tensor_parallel={self.tensor_parallel}; use a "
                f"multiple of it, and at least {2 * self.tensor_parallel}, for a split needs two engines"
            )
        if self.link is None and self.handoff_s is None:
            raise ValueError("decide: neither link nor handoff_s; give a link, or the handoff as measured")
        if max(request.output_tokens for request in self.requests) == 1:
            raise ValueError("decide: every answer has one token, so nothing is decoded; use longer answers")
        if self.new_tokens is not None and self.new_tokens > self.prompt:
            raise ValueError(
                f"decide: new_tokens={self.new_tokens} exceed the mean prompt of {self.prompt:.0f} tokens; "
                "use what a turn adds to its history, or none"
            )
        if self.link is not None and self.handoff_s is not None and self.handoff_s < self.wire / 2:
            raise ValueError(
                f"decide: handoff_s={self.handoff_s!r} is less than half of what {self.link.name} takes for "
                f"a mean prompt's cache, {self.wire:.3g} s; use a faster link, or measure again"
            )

    @cached_property
    def requests(self) -> Sequence[Request]:
        """The requests of the first seed, at the load's own rate."""
        return self.load.draw(self.load.rate, self.seeds[0])

    @cached_property
    def prompt(self) -> float:
        """Mean prompt, tokens."""
        return sum(request.prompt_tokens for request in self.requests) / len(self.requests)

    @cached_property
    def output(self) -> float:
        """Mean answer, tokens."""
        return sum(request.output_tokens for request in self.requests) / len(self.requests)

    @cached_property
    def longest(self) -> int:
        """Most tokens that a request of any seed has to cache."""
        drawn = [request for seed in self.seeds for request in self.load.draw(self.load.rate, seed)]
        return max(request.prompt_tokens + request.output_tokens for request in drawn)

    @property
    def wire(self) -> float:
        """Seconds that the link takes for the cache of a mean prompt; 0 without a link."""
        return transfer_time(self.model, round(self.prompt), self.link) if self.link else 0.0

    @property
    def handoff(self) -> float:
        """Seconds of a mean prompt's copy: measured, else predicted."""
        return self.wire if self.handoff_s is None else self.handoff_s

    @property
    def copy(self) -> float | Link:
        """The copy as the simulator wants it: the same for all if measured, else by each prompt's size."""
        if self.handoff_s is not None:
            return self.handoff_s
        return self.link or 0.0

    @property
    def engines(self) -> int:
        """How many copies of the model the GPUs hold."""
        return self.gpus // self.tensor_parallel
