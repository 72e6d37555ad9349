"""Engines: a copy of a model on one or more GPUs, the rules by which it fills its steps, what those cost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import repeat
from math import floor

from lib import checks, parallelism
from lib.hardware import GPU, Link
from lib.kv_cache import BLOCK_TOKENS
from lib.models import Model
from lib.roofline import (
    NO_WORK,
    PUBLISHED,
    Efficiency,
    InSeries,
    Mixed,
    Price,
    Work,
    decode_uneven,
    prefill,
    step_time,
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
    - `price`, `efficiency`: seconds of a step from its work, `price(work, gpu, efficiency)`. Tensor
      parallelism divides the work (`parallelism.divide`).
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
    price: Price | InSeries = step_time
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
        if self.blocks < 1:
            raise ValueError(
                f"Engine: {self.model.name} leaves no room for a KV cache on tensor_parallel="
                f"{self.tensor_parallel} x {self.gpu.name}; use more GPUs, larger ones or smaller weights"
            )

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
    def blocks(self) -> int:
        """Cache blocks of 16 tokens: as given, or as many as fit beside the weights."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        return parallelism.room(self.model, self.gpu, self.tensor_parallel) // BLOCK_TOKENS


Shapes = tuple[tuple[int, int], ...]  # (tokens, past) of each chunk of a step
Chunks = tuple[tuple[int, int, int], ...]  # (request, tokens, past)


class Prices:
    """What an engine's steps cost: `seconds` of one, `durations` of several that follow each other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.fixed = engine.decode_context
        self.chunk = lru_cache(maxsize=1 << 14)(partial(prefill, engine.model))
        self.talk = lru_cache(maxsize=1 << 14)(self._talk)
        model = engine.model
        self.linear = (
            engine.price is step_time
            and engine.tensor_parallel == 1
            and model.arithmetic == "bf16"
            and not (model.experts or model.window)
        )
        if self.linear:
            self._find_coefficients()
        self.seconds: Callable[[Shapes, int, int], float] = (
            self._linear_seconds if self.linear else lru_cache(maxsize=1 << 15)(self._seconds)
        )

    def _find_coefficients(self) -> None:
        """FLOPs and bytes of a step are linear in tokens, contexts and pairs of tokens: by how much.

        They are whole numbers below 2**53: floats add and multiply them exactly, in any order.
        """
        engine = self.engine
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

    def _linear_work(self, chunks: Shapes, batch: int, context: int) -> tuple[float, float]:
        flops = self.decode_flops * batch + self.context_flops * context
        for tokens, past in chunks:
            flops += self.chunk_flops + self.token_flops * tokens
            flops += self.pair_flops * (tokens * (2 * past + tokens + 1) // 2)
        return flops, self.weight_bytes + self.decode_bytes * batch + self.context_bytes * context

    def _linear_seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        flops, nbytes = self._linear_work(chunks, batch, context)
        return max(flops * self.per_flop, nbytes * self.per_byte) + self.overhead

    def _seconds(self, chunks: Shapes, batch: int, context: int) -> float:
        """Seconds of a step: chunks of (tokens, past), and `batch` decodes of `context` tokens together."""
        engine, prompts, answers = self.engine, NO_WORK, NO_WORK
        if chunks:
            prompts = self._share(reduce(Work.__add__, [self.chunk(*chunk) for chunk in chunks]))
        if batch:
            answers = self._share(decode_uneven(engine.model, batch, context))
        work = Mixed(prompts, answers, len(chunks) + batch)
        if isinstance(engine.price, InSeries):
            seconds = engine.price(work, engine.gpu, engine.efficiency)
        else:
            seconds = engine.price(work.total, engine.gpu, engine.efficiency)
        return seconds + self.talk(batch + sum([tokens for tokens, _ in chunks]))

    def _share(self, work: Work) -> Work:
        """One GPU's part of the work."""
        engine = self.engine
        if engine.tensor_parallel == 1:
            return work
        return parallelism.divide(work, engine.model, engine.tensor_parallel)

    def _talk(self, tokens: int) -> float:
        """Seconds in which the GPUs add up what they have computed of so many tokens; 0 without a link."""
        engine = self.engine
        if engine.link is None:
            return 0.0
        return parallelism.talk(engine.model, tokens, engine.tensor_parallel, engine.link)

    def context(self, batch: int, own: int) -> int:
        """What `batch` decodes that attend to `own` tokens together pay for: that, unless it is fixed."""
        return self.fixed * batch if self.fixed else own

    def later(self, chunks: Shapes, batch: int, context: int, steps: int) -> tuple[Shapes, int, int]:
        """The step that comes `steps` later: chunks go on where they ended, every decode attends to more."""
        moved = tuple([(tokens, past + steps * tokens) for tokens, past in chunks]) if chunks else chunks
        return moved, batch, context if self.fixed else context + batch * steps

    def durations(self, chunks: Shapes, batch: int, context: int, steps: int) -> Iterable[float]:
        """Seconds of each of `steps` steps that follow each other."""
        if steps == 1 or (self.fixed and not chunks):
            return repeat(self.seconds(chunks, batch, context), steps)
        if not self.linear and not chunks:
            seconds = self.seconds
            return [seconds((), batch, now) for now in range(context, context + batch * steps, batch)]
        if not self.linear:
            return [self.seconds(*self.later(chunks, batch, context, step)) for step in range(steps)]
        flops, nbytes = self._linear_work(chunks, batch, context)
        more_flops = 0 if self.fixed else self.context_flops * batch
        more_bytes = 0 if self.fixed else self.context_bytes * batch
        for tokens, _ in chunks:
            more_flops += self.pair_flops * tokens * tokens
        per_flop, per_byte, overhead = self.per_flop, self.per_byte, self.overhead
        if not chunks and batch <= self.reading:
            return [(nbytes + more_bytes * step) * per_byte + overhead for step in range(steps)]
        return [
            max((flops + more_flops * step) * per_flop, (nbytes + more_bytes * step) * per_byte) + overhead
            for step in range(steps)
        ]


@lru_cache(maxsize=256)
def prices(engine: Engine) -> Prices:
    """The engine's prices, shared by all simulations with an equal engine: each is worked out once."""
    return Prices(engine)
