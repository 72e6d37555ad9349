"""What is asked: a load, and everything else that an answer depends on."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import floor, fsum, log, sqrt

from lib import capacity, checks, workload
from lib.decide.prices import AS_PRICED, KERNELS, PRICES, Longer, Timed, checked
from lib.goodput import SLO
from lib.hardware import GPU, Link
from lib.kv_cache import transfer_time
from lib.models import Model
from lib.steady import MOST
from lib.workload import Request

MANY = 1024  # GPUs at most


@dataclass(frozen=True)
class Load:
    """Requests at `rate` a second; `draw(rate, count)` makes the first so many, at other rates as well.

    `recorded`: how many were recorded, which are repeated end to end; None: they are drawn at random.
    """

    rate: float
    draw: Callable[[float, int], Sequence[Request]]
    recorded: int | None = None

    def __post_init__(self) -> None:
        checks.positive("Load", rate=self.rate)

    @cached_property
    def sample(self) -> Sequence[Request]:
        """Those that are looked at for lengths: all of a recording, or as many as are played at most."""
        return self.draw(self.rate, self.recorded or MOST)


@lru_cache(maxsize=64)
def poisson(
    rate: float, prompt: int = 8192, output: int = 256, spread: float = 0.0, hit_rate: float = 0.0
) -> Load:
    """Return a load that arrives at random, with lengths in tokens that have these means.

    `spread` is their standard deviation over their mean: 0, all alike; else lognormal, at least 1 token.
    `hit_rate`: the share of each prompt that prefix caching need not compute, its last token apart. Asked
    alike, it is the same load, so that an answer that is known is found.
    """
    checks.positive("poisson", rate=rate)
    checks.counts("poisson", prompt=prompt, output=output)
    checks.not_negative("poisson", spread=spread)
    if not checks.finite(hit_rate) or not 0 <= hit_rate <= 1:
        raise ValueError(f"poisson: hit_rate={hit_rate!r} is no share; use a number from 0 to 1")

    def drawn(arrival: float, dice: random.Random) -> Request:
        tokens = (about(mean, spread, dice) if spread else mean for mean in (prompt, output))
        asked, said = tokens
        return Request(arrival, asked, said, cached=min(floor(hit_rate * asked), asked - 1))

    @lru_cache(maxsize=64)
    def draw(rate: float, count: int) -> Sequence[Request]:
        dice = random.Random("lengths")
        return [drawn(request.arrival, dice) for request in workload.poisson(rate, count, 0)]

    return Load(rate, draw)


def about(mean: float, spread: float, dice: random.Random) -> int:
    """Return a whole number of at least 1, lognormal with that mean and that deviation over the mean."""
    variance = log(1 + spread**2)
    return max(1, round(mean * dice.lognormvariate(-variance / 2, sqrt(variance))))


def recorded(requests: Iterable[Request]) -> Load:
    """Return the load of requests as they came; at another rate the same ones, closer or further apart.

    More are the same again, after a pause as long as the mean gap. Prompts whose parts say what they
    share find in a cache what came before, as if nothing were dropped (`reused`).
    """
    rows = reused(workload.check(requests))
    duration = rows[-1].arrival - rows[0].arrival
    if len(rows) < 2 or not duration:
        raise ValueError("recorded: all requests arrive at once; use at least two at different times")
    own, start = (len(rows) - 1) / duration, rows[0].arrival

    def draw(rate: float, count: int) -> Sequence[Request]:
        rounds = (divmod(number, len(rows)) for number in range(count))
        return [
            replace(rows[row], arrival=(rows[row].arrival - start) * own / rate + turn * len(rows) / rate)
            for turn, row in rounds
        ]

    return Load(own, draw, len(rows))


def reused(rows: Sequence[Request]) -> list[Request]:
    """Return requests that say how many tokens of each prompt came before; prompts as numbers."""
    known: set[tuple[tuple[str, int], ...]] = set()
    found = []
    for row in rows:
        if isinstance(row.prompt, int):
            found.append(row)
            continue
        cached, seen = 0, True
        for end in range(1, len(row.prompt) + 1):
            seen = seen and row.prompt[:end] in known
            cached += row.prompt[end - 1][1] if seen else 0
            known.add(row.prompt[:end])
        found.append(replace(row, prompt=row.prompt_tokens, cached=min(cached, row.prompt_tokens - 1)))
    return found


@dataclass(frozen=True)
class Case:
    """Everything that an answer depends on.

    - `slo`: what at least `target` of the requests must keep to.
    - `gpus`: in all. `tensor_parallel`: GPUs to an engine (None: any number that starts, tried in turn);
      `prefill_tensor_parallel`, `decode_tensor_parallel`: those of a pool, if split (None: as above).
    - `n_prefill`: engines for prompts, if split; None: the best.
    - `link`: between the pools; `handoff_s`: seconds of a prompt's copy as measured; None: predicted from the
      cache and the link.
    - `cpu_s_per_request`: CPU time around the engine (template, tokens, parsers); None: not asked.
    - `new_tokens`: what a turn adds to its history, on average; None: prompts have no history.
    - `history_can_change`: whether a template or a harness may edit earlier turns.
    - `price`: of a step, one of `prices.PRICES`. `timed`: what was timed on one of the engines, which the
      price then takes as long as. `longer`: how many times as long all steps take, for a margin.

    ValueError where no engine would start so, and where parts contradict each other.
    """

    model: Model
    gpu: GPU
    load: Load
    slo: SLO
    link: Link | None = None
    gpus: int = 2
    tensor_parallel: int | None = None
    prefill_tensor_parallel: int | None = None
    decode_tensor_parallel: int | None = None
    n_prefill: int | None = None
    handoff_s: float | None = None
    cpu_s_per_request: float | None = None
    history_can_change: bool = False
    new_tokens: int | None = None
    price: str = KERNELS
    timed: Timed | None = None
    longer: Longer = AS_PRICED
    target: float = 0.9
    price_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        checks.counts("decide", gpus=self.gpus)
        if self.gpus > MANY:
            raise ValueError(f"decide: gpus={self.gpus} are too many here; use at most {MANY:,}")
        checks.shares("decide", target=self.target)
        for name in (
            "tensor_parallel", "prefill_tensor_parallel", "decode_tensor_parallel", "n_prefill", "new_tokens"
        ):  # fmt: skip
            if getattr(self, name) is not None:
                checks.counts("decide", **{name: getattr(self, name)})
        for name in ("handoff_s", "cpu_s_per_request", "price_per_gpu_hour"):
            if getattr(self, name) is not None:
                checks.not_negative("decide", **{name: getattr(self, name)})
        if self.price not in PRICES:
            raise ValueError(f"decide: price={self.price!r} is none; use one of {', '.join(PRICES)}")
        if self.link is None and self.handoff_s is None:
            raise ValueError("decide: neither link nor handoff_s; give a link, or the handoff as measured")
        if max(request.output_tokens for request in self.load.sample) == 1:
            raise ValueError("decide: every answer has one token, so nothing is decoded; use longer answers")
        if self.new_tokens is not None and self.new_tokens > self.prompt:
            raise ValueError(
                f"decide: new_tokens={self.new_tokens} exceed the mean prompt of {self.prompt:.0f} tokens; "
                "use what a turn adds to its history, or none"
            )
        if self.link is not None:
            capacity.carries("decide", self.gpu, self.link)
            if self.handoff_s is not None and self.handoff_s < self.wire / 2:
                raise ValueError(
                    f"decide: handoff_s={self.handoff_s!r} is less than half of what {self.link.name} takes "
                    f"for a mean prompt's cache, {self.wire:.3g} s; use a faster link, or measure again"
                )
        capacity.reads("decide", self.model, self.longest)
        for degree in (self.tensor_parallel, self.prefill_tensor_parallel, self.decode_tensor_parallel):
            if degree is not None:
                capacity.starts("decide", self.model, self.gpu, degree, self.longest)
        if self.timed is not None:
            capacity.starts("timed", self.model, self.gpu, self.timed.tensor_parallel, self.timed.prompt + 1)
            checked("timed", self.model, self.gpu, self.timed)
        if self.tensor_parallel is not None and self.gpus % self.tensor_parallel:
            raise ValueError(
                f"decide: gpus={self.gpus} will not do for tensor_parallel={self.tensor_parallel}; use a "
                "multiple of it"
            )
        if self.prefill_tensor_parallel and self.decode_tensor_parallel:
            capacity.hands_over(
                "decide", self.model, self.prefill_tensor_parallel, self.decode_tensor_parallel
            )

    @cached_property
    def prompt(self) -> float:
        """Mean prompt, tokens."""
        return fsum([request.prompt_tokens for request in self.load.sample]) / len(self.load.sample)

    @cached_property
    def output(self) -> float:
        """Mean answer, tokens."""
        return fsum([request.output_tokens for request in self.load.sample]) / len(self.load.sample)

    @cached_property
    def cached(self) -> float:
        """Mean tokens of a prompt that prefix caching need not compute."""
        return fsum([request.cached for request in self.load.sample]) / len(self.load.sample)

    @cached_property
    def longest(self) -> int:
        """Most tokens that a request has to cache."""
        return max(request.prompt_tokens + request.output_tokens for request in self.load.sample)

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """How many GPUs an engine can have here: as asked, or all powers of two that start and fit in."""
        asked = (self.tensor_parallel,) if self.tensor_parallel else capacity.POWERS
        return tuple(
            degree for degree in asked
            if degree <= self.gpus and not capacity.refusal(self.model, self.gpu, degree, self.longest)
        )  # fmt: skip

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
