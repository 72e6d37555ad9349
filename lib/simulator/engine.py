"""Engines: a copy of a model on one or more GPUs, the rules by which it fills its steps, what those cost.

All that a step costs is decided here, `Engine.step_seconds`. Not here: the rules themselves
(`lib.scheduler`), and an engine at work (`instance`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import count, islice
from math import ceil, floor, inf
from typing import Protocol

from lib import checks, parallelism
from lib.hardware import GPU, Link
from lib.kv_cache import BLOCK_TOKENS
from lib.models import Model
from lib.roofline import (
    NO_WORK,
    PUBLISHED,
    Efficiency,
    InSeries,
    Work,
    WorkPrice,
    decode_uneven,
    prefill,
    step_time,
    step_work,
)
from lib.scheduler import Limits, Policy, textbook

SURELY = 1e-12  # seconds, more than rounding can be wrong by


@dataclass(frozen=True)
class Engine:
    """One copy of a model on `tensor_parallel` GPUs, with the rules by which it fills its steps.

    - `token_budget`: tokens a step may compute; None: no limit, every prompt whole.
    - `max_num_seqs`: requests in progress at once.
    - `kv_blocks`: cache blocks of 16 tokens, of which one is never used; None: what fits in 90 % of the
      memory beside the weights.
    - `price`, `efficiency`: seconds of a step from its work, `price(work, gpu, efficiency)`, which tensor
      parallelism divides (`parallelism.divide`); or a `Price`, from its composition.
    - `link`: over which the GPUs add up their results, adding to every step; None: that is left out.
    - `decode_context`: None: a decode pays for its own context; a number: every decode pays for that many
      tokens, as in the review (8,192 + 128 at every step of every answer).
    - `policy`: `scheduler.textbook`, `scheduler.vllm` or another of that form.
    - `asynchronous`: the next step is composed when one starts, not when it ends: an arrival misses the step
      that is already queued.
    - `prefix_caching`, `long_prefill_token_threshold` (0: off): as in `scheduler.VLLM`.
    """

    model: Model
    gpu: GPU
    tensor_parallel: int = 1
    token_budget: int | None = 2048
    max_num_seqs: int = 256
    kv_blocks: int | None = None
    price: Price | WorkPrice = step_time
    efficiency: Efficiency = PUBLISHED
    decode_context: int | None = None
    policy: Policy = textbook
    asynchronous: bool = False
    link: Link | None = None
    prefix_caching: bool = False
    long_prefill_token_threshold: int = 0

    def __post_init__(self) -> None:
        checks.counts("Engine", tensor_parallel=self.tensor_parallel, max_num_seqs=self.max_num_seqs)
        for name in ("token_budget", "kv_blocks", "decode_context"):
            if getattr(self, name) is not None:
                checks.counts("Engine", **{name: getattr(self, name)})
        checks.counts_or_zero("Engine", long_prefill_token_threshold=self.long_prefill_token_threshold)
        for name in ("asynchronous", "prefix_caching", "long_prefill_token_threshold"):
            if self.policy is textbook and getattr(self, name):
                raise ValueError(
                    f"Engine: {name}={getattr(self, name)!r} is not in the textbook; use policy=vllm"
                )
        wrong = parallelism.undivided_heads(self.model, self.tensor_parallel)
        if wrong:
            able = [str(n) for n in range(1, 65) if not parallelism.undivided_heads(self.model, n)]
            raise ValueError(
                f"Engine: tensor_parallel={self.tensor_parallel}: {wrong}; use one of {', '.join(able)}"
            )
        if self.blocks < 1:
            raise ValueError(
                f"Engine: {self.model.name} leaves no room for a KV cache on tensor_parallel="
                f"{self.tensor_parallel} x {self.gpu.name}; use more GPUs, larger ones or smaller weights"
            )

    def step_seconds(self, chunks: Shapes = (), batch: int = 0, context: int = 0) -> float:
        """Seconds of a step: chunks of (tokens, past), and `batch` decodes of `context` tokens together."""
        return step_cost(self).seconds(chunks, batch, context)

    @property
    def limits(self) -> Limits:
        """What the policy has to respect."""
        return Limits(
            self.token_budget,
            self.max_num_seqs,
            self.blocks,
            self.prefix_caching,
            self.long_prefill_token_threshold,
        )

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV cache that requests can hold: block 0 is vLLM's null block, never handed out."""
        return (self.blocks - 1) * BLOCK_TOKENS

    @property
    def blocks(self) -> int:
        """Cache blocks of 16 tokens: as given, or as many as fit beside the weights."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        return parallelism.room(self.model, self.gpu, self.tensor_parallel) // BLOCK_TOKENS


Shapes = tuple[tuple[int, int], ...]  # (tokens, past) of each chunk of a step
Chunks = tuple[tuple[int, int, int], ...]  # (request, tokens, past)
Seconds = Callable[[Shapes, int, int], float]  # of a step: chunks, decodes, what these attend to together
Answers = Callable[[int, int, int], list[float]]  # of steps in a row: decodes, what they attend to, steps


class Price(Protocol):
    """What a step costs on an engine, whatever it is computed from.

    The door for another price, one that adds up kernels, say. It is one class with this method. It is given
    the engine, and so its model, GPU, tensor parallelism, link and efficiency, and returns a function of a
    step's composition: `chunks` of (tokens, past), `batch` decodes, and the `context` that these attend to
    together; seconds, with everything in them that a step takes. `Engine(price=...)` takes it, and nothing
    else has to know of it. It must not depend on anything but these, since results are kept; and a step
    must not get shorter when its chunks or contexts get longer, which is what a run of steps relies on.

    It may have `answers_on(engine)` as well: a function of a batch, its contexts and a number of steps that
    follow each other without a prompt, which returns the same seconds as a list, only sooner.
    """

    def seconds_on(self, engine: Engine) -> Seconds:
        """Return the seconds of steps on that engine."""


@dataclass(frozen=True)
class ByWork:
    """A price from a step's FLOPs and bytes, `of(work, gpu, efficiency)`, each GPU doing its part of them.

    With a link, what the GPUs add up over it comes on top. A function in `Engine.price` is taken as this.
    """

    of: WorkPrice

    def seconds_on(self, engine: Engine) -> Seconds:
        """Return the seconds of steps on that engine."""
        model, degree = engine.model, engine.tensor_parallel
        chunk_work = lru_cache(maxsize=1 << 14)(partial(prefill, model))

        @lru_cache(maxsize=1 << 14)
        def all_reduces(tokens: int) -> float:
            return parallelism.all_reduce_time(model, tokens, degree, engine.link) if engine.link else 0.0

        def share(work: Work) -> Work:
            return work if degree == 1 else parallelism.divide(work, model, degree)

        def seconds(chunks: Shapes, batch: int, context: int) -> float:
            prompts = answers = NO_WORK
            if chunks:
                prompts = share(reduce(Work.__add__, [chunk_work(*chunk) for chunk in chunks]))
            if batch:
                answers = share(decode_uneven(model, batch, context))
            work = step_work(prompts, answers, len(chunks) + batch)
            alone = self.of(work, engine.gpu, engine.efficiency)
            return alone + all_reduces(batch + sum([tokens for tokens, _ in chunks]))

        return seconds


class StepCost:
    """What an engine's steps cost: `seconds` of one, `durations` of several that follow each other."""

    def __init__(self, engine: Engine) -> None:
        self.fixed = engine.decode_context
        self.seconds = self.seconds_on(engine)

    @staticmethod
    def holds(engine: Engine) -> bool:
        """Whether this is what an engine's steps cost: of any engine."""
        return True

    def seconds_on(self, engine: Engine) -> Seconds:
        """The engine's price of a step, each worked out once."""
        price = engine.price
        own = price.seconds_on if hasattr(price, "seconds_on") else ByWork(price).seconds_on
        answers_on = getattr(price, "answers_on", None)
        self.answers: Answers | None = answers_on(engine) if answers_on and not self.fixed else None
        return lru_cache(maxsize=1 << 15)(own(engine))

    def context(self, batch: int, own: int) -> int:
        """What `batch` decodes that attend to `own` tokens together pay for: that, unless it is fixed."""
        return self.fixed * batch if self.fixed else own

    def later(self, chunks: Shapes, batch: int, context: int, steps: int) -> tuple[Shapes, int, int]:
        """The step that comes `steps` later: chunks go on where they ended, every decode attends to more."""
        moved = tuple([(tokens, past + steps * tokens) for tokens, past in chunks]) if chunks else chunks
        return moved, batch, context if self.fixed else context + batch * steps

    def durations(
        self, chunks: Shapes, batch: int, context: int, steps: int, within: float = inf
    ) -> list[float]:
        """Seconds of each of `steps` steps that follow each other, or of as many as begin `within` seconds.

        (And of one more, which may have been composed before.)
        """
        first = self.seconds(chunks, batch, context)
        steps = fewer(steps, within, first)
        if steps == 1 or (self.fixed and not chunks):
            return [first] * steps
        if self.answers and not chunks:
            return self.answers(batch, context, steps)
        return [self.seconds(*self.later(chunks, batch, context, step)) for step in range(steps)]


class LinearCost(StepCost):
    """The same for `step_time` on one GPU, where FLOPs and bytes grow by the same amount with every token.

    True of models without experts and windows. Nothing but speed: what a step costs is found from a few
    coefficients, each the difference of two `roofline` works, and equals `ByWork` but for rounding. They are
    whole numbers below 2**53, which floats add exactly, in any order.
    """

    @staticmethod
    def holds(engine: Engine) -> bool:
        """Whether an engine's cost is linear."""
        return engine.price is step_time and grows_evenly(engine)

    def seconds_on(self, engine: Engine) -> Seconds:
        """Find the coefficients."""
        one, two = (decode_uneven(engine.model, 1, context) for context in (1, 2))
        self.context_flops = float(two.attention_flops - one.attention_flops)
        self.context_bytes = float(two.kv_bytes - one.kv_bytes)
        self.decode_flops = one.flops - self.context_flops
        self.decode_bytes = one.kv_bytes - self.context_bytes
        self.weight_bytes = one.weight_bytes
        first, second, later = (prefill(engine.model, *piece).flops for piece in ((1,), (2,), (1, 1)))
        self.pair_flops = float(later - first)
        self.token_flops = second - first - 2 * self.pair_flops
        self.chunk_flops = first - self.token_flops - self.pair_flops
        self.per_flop = 1 / (engine.gpu.peak_flops * engine.efficiency.compute)  # seconds
        self.per_byte = 1 / (engine.gpu.bandwidth * engine.efficiency.bandwidth)
        self.overhead = engine.efficiency.overhead
        hidden = self.context_flops * self.per_flop <= self.context_bytes * self.per_byte
        alone = self.weight_bytes * self.per_byte / (self.decode_flops * self.per_flop)
        # with so many decodes, or fewer, a step without chunks only takes its reads' time
        self.reading = hidden * floor(alone * (1 - SURELY))
        return self._seconds

    def _seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        return self.durations(chunks, batch, context, 1)[0]

    def durations(
        self, chunks: Shapes, batch: int, context: int, steps: int, within: float = inf
    ) -> list[float]:
        """Seconds of each of `steps` steps that follow each other, or as many as begin `within` seconds."""
        per_flop, per_byte, overhead = self.per_flop, self.per_byte, self.overhead
        nbytes = self.weight_bytes + self.decode_bytes * batch + self.context_bytes * context
        more_bytes = 0.0 if self.fixed else self.context_bytes * batch
        if not chunks and batch <= self.reading:
            steps = fewer(steps, within, nbytes * per_byte + overhead)
            return [read * per_byte + overhead for read in islice(count(nbytes, more_bytes), steps)]
        flops = self.decode_flops * batch + self.context_flops * context
        more_flops = 0.0 if self.fixed else self.context_flops * batch
        for tokens, past in chunks:
            flops += self.chunk_flops + self.token_flops * tokens
            flops += self.pair_flops * (tokens * (2 * past + tokens + 1) // 2)
            more_flops += self.pair_flops * tokens * tokens
        first = max(flops * per_flop, nbytes * per_byte) + overhead
        if steps == 1:
            return [first]
        return [
            max((flops + more_flops * step) * per_flop, (nbytes + more_bytes * step) * per_byte) + overhead
            for step in range(fewer(steps, within, first))
        ]


class SeriesCost(LinearCost):
    """The same for `InSeries`: what each kernel takes grows evenly, too."""

    @staticmethod
    def holds(engine: Engine) -> bool:
        """Whether an engine's cost is that of kernels in series, and linear."""
        return isinstance(engine.price, InSeries) and grows_evenly(engine)

    def seconds_on(self, engine: Engine) -> Seconds:
        """Find the coefficients."""
        super().seconds_on(engine)
        assert isinstance(engine.price, InSeries)
        self.price = engine.price
        self.per_pair = self.pair_flops / engine.gpu.peak_flops
        self.per_pair /= engine.price.attention or engine.efficiency.compute
        return self._seconds

    def _parts(self, chunks: Shapes, batch: int, context: int) -> tuple[float, int, float]:
        """FLOPs of products, pairs of tokens in prompts' attention, and bytes of cache."""
        products, pairs = self.decode_flops * batch, 0
        for tokens, past in chunks:
            products += self.chunk_flops + self.token_flops * tokens
            pairs += tokens * (2 * past + tokens + 1) // 2
        return products, pairs, self.decode_bytes * batch + self.context_bytes * context

    def _price(self, products: float, pairs: int, nbytes: float, prompts: int, batch: int) -> float:
        price = self.price
        seconds = max(products * self.per_flop, self.weight_bytes * self.per_byte)
        if prompts:
            seconds += pairs * self.per_pair + nbytes * self.per_byte * price.rereads
            seconds *= price.slowdown
        else:
            seconds += nbytes * self.per_byte
        return seconds + self.overhead + price.per_request * (prompts + batch)

    def _seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        return self._price(*self._parts(chunks, batch, context), len(chunks), batch)

    def durations(
        self, chunks: Shapes, batch: int, context: int, steps: int, within: float = inf
    ) -> list[float]:
        """Seconds of each of `steps` steps that follow each other, or as many as begin `within` seconds."""
        products, pairs, nbytes = self._parts(chunks, batch, context)
        first = self._price(products, pairs, nbytes, len(chunks), batch)
        steps = fewer(steps, within, first)
        if steps == 1 or (self.fixed and not chunks):
            return [first] * steps
        more_pairs = sum([tokens * tokens for tokens, _ in chunks])
        more_bytes = 0 if self.fixed else self.context_bytes * batch
        return [
            self._price(products, pairs + more_pairs * i, nbytes + more_bytes * i, len(chunks), batch)
            for i in range(steps)
        ]


def grows_evenly(engine: Engine) -> bool:
    """Whether FLOPs and bytes of an engine's steps grow by the same amount with every token."""
    model = engine.model
    plain = engine.tensor_parallel == 1 and model.arithmetic == "bf16"
    if not plain or model.experts or model.window:
        return False
    return float(decode_uneven(model, 1, 1).weight_bytes).is_integer()


def fewer(steps: int, within: float, first: float) -> int:
    """So many steps, or as many as begin within so many seconds and one more if the first is the shortest."""
    if steps == 1 or within == inf:
        return steps
    return max(1, min(steps, ceil(within / first) + 1))


@lru_cache(maxsize=256)
def step_cost(engine: Engine) -> StepCost:
    """What the engine's steps cost, shared by all simulations with an equal engine."""
    return next(cost for cost in (LinearCost, SeriesCost, StepCost) if cost.holds(engine))(engine)
