"""The roofline: a step takes as long as its arithmetic or its memory traffic, whichever is longer.

What a step has to do (`Work`) is counted exactly from the model; how long that takes is a *price*, a function
`(work, gpu, efficiency) -> seconds`. `step_time` is one price; others have the same form. Not here: who
shares a step (`scheduler`), and what it costs on several GPUs (`simulator.engine`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from lib import checks
from lib.hardware import GPU
from lib.models import Model


@dataclass(frozen=True, slots=True)
class Work:
    """What one step does: FLOPs in matrix products and in attention, bytes of weights and of cache read.

    `arithmetic`: what the products are computed in; attention always is in bf16. `state_bytes`: which of the
    bytes of cache are states, read and written back.
    """

    gemm_flops: float
    attention_flops: float
    weight_bytes: float
    kv_bytes: float
    state_bytes: float = 0
    arithmetic: str = "bf16"

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.gemm_flops + self.attention_flops

    @property
    def bytes(self) -> float:
        """All bytes read."""
        return self.weight_bytes + self.kv_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte read."""
        return self.flops / self.bytes if self.bytes else inf

    def at_peak(self, gpu: GPU) -> float:
        """Return the seconds of all FLOPs at the peaks of their arithmetic."""
        if self.arithmetic == "bf16":
            return self.flops / gpu.peak_flops
        return self.gemm_flops / gpu.peak(self.arithmetic) + self.attention_flops / gpu.peak_flops

    def __add__(self, other: "Work") -> "Work":
        """Both in one step: FLOPs and cache reads add up, the weights are read once."""
        return Work(
            self.gemm_flops + other.gemm_flops,
            self.attention_flops + other.attention_flops,
            max(self.weight_bytes, other.weight_bytes),
            self.kv_bytes + other.kv_bytes,
            self.state_bytes + other.state_bytes,
            other.arithmetic if self.arithmetic == "bf16" else self.arithmetic,
        )


NO_WORK = Work(0, 0, 0, 0)


def prefill(model: Model, tokens: int, past: int = 0) -> Work:
    """Return the work of computing `tokens` prompt tokens when the `past` before them are cached.

    Every token passes the layers, only the last one the head; token i attends to past + i keys. Left out: the
    cached keys' reads, which hide under the arithmetic of a chunk longer than ridge x kv_heads / heads tokens
    (a shorter one is better priced as decode); expanding MLA's cached latents again; Mamba's scan.
    """
    checks.counts("prefill", tokens=tokens)
    checks.counts_or_zero("prefill", past=past)
    beyond = out_of_window(tokens, past, model.window) if model.window else 0
    return Work(
        gemm_flops=2 * (model.active_layer_params * tokens + model.head_params),
        attention_flops=model.flops_per_pair * tokens * (2 * past + tokens + 1) // 2
        - model.windowed_flops_per_pair * beyond,
        weight_bytes=model.weight_bytes(tokens),
        kv_bytes=0,
        arithmetic=model.arithmetic,
    )


def out_of_window(tokens: int, past: int, window: int) -> int:
    """Return how many keys `tokens` tokens after `past` others leave out that see the last `window` only.

    Token i has past + i keys before it, itself included: what that exceeds the window by is left out.
    """
    first = max(0, past + 1 - window)
    last = max(0, past + tokens - window)
    count = min(tokens, last)
    return (first + last) * count // 2 if first else last * (last + 1) // 2


def decode(model: Model, batch: int, context: int) -> Work:
    """Return the work of one token for each of `batch` streams that have `context` tokens each."""
    checks.counts("decode", batch=batch, context=context)
    return decode_uneven(model, batch, batch * context)


def decode_uneven(model: Model, batch: int, total_context: int) -> Work:
    """Return the work of one token for each of `batch` streams whose contexts add up to `total_context`.

    The cache is read once, a Mamba state is read and written back. For a model with windows the contexts are
    taken as equal: exact unless some are shorter than the window and some longer.
    """
    checks.counts("decode_uneven", batch=batch, total_context=total_context)
    beyond = max(0, total_context - batch * model.window) if model.window else 0
    return Work(
        gemm_flops=2 * (model.active_layer_params + model.head_params) * batch,
        attention_flops=model.decode_flops_per_pair * total_context - model.windowed_flops_per_pair * beyond,
        weight_bytes=model.weight_bytes(batch),
        kv_bytes=model.read(total_context, batch),
        state_bytes=2 * model.state_bytes * batch,
        arithmetic=model.arithmetic,
    )


def ridge(gpu: GPU) -> float:
    """Return the FLOPs per byte at which the GPU's arithmetic in bf16 and its memory take equally long."""
    return gpu.peak_flops / gpu.bandwidth


def bound(work: Work, gpu: GPU) -> str:
    """Return what limits the work on this GPU: "compute" or "memory"."""
    if work.arithmetic == "bf16":
        return "compute" if work.intensity >= ridge(gpu) else "memory"
    return "compute" if work.at_peak(gpu) >= work.bytes / gpu.bandwidth else "memory"


def ideal_time(work: Work, gpu: GPU) -> float:
    """Return the seconds at full rates, arithmetic and reads overlapping: no price may be lower."""
    return max(work.at_peak(gpu), work.bytes / gpu.bandwidth)


@dataclass(frozen=True)
class Efficiency:
    """What is really reached: shares of peak FLOP/s and of bandwidth; and seconds added to every step."""

    compute: float = 1.0
    bandwidth: float = 1.0
    overhead: float = 0.0

    def __post_init__(self) -> None:
        checks.shares("Efficiency", compute=self.compute, bandwidth=self.bandwidth)
        checks.not_negative("Efficiency", overhead=self.overhead)


PUBLISHED = Efficiency(compute=0.47, bandwidth=0.75, overhead=0.002)  # the review's, from two medians on L40S


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork(Work):
    """What one step does, and its parts: the `Work` of its prompts and of its answers, and its requests."""

    prefill: Work
    decode: Work
    requests: int


def step_work(prompts: Work, answers: Work, requests: int) -> StepWork:
    """Return what a step of both does."""
    both = prompts + answers
    return StepWork(
        both.gemm_flops,
        both.attention_flops,
        both.weight_bytes,
        both.kv_bytes,
        both.state_bytes,
        both.arithmetic,
        prefill=prompts,
        decode=answers,
        requests=requests,
    )


WorkPrice = Callable[[StepWork, GPU, Efficiency], float]


def step_time(work: Work, gpu: GPU, efficiency: Efficiency) -> float:
    """Return the seconds of a step: arithmetic and reads overlap, each at its efficiency; plus overhead."""
    if work.arithmetic == "bf16":
        computing = work.flops / (gpu.peak_flops * efficiency.compute)
    else:
        computing = work.at_peak(gpu) / efficiency.compute
    reading = work.bytes / (gpu.bandwidth * efficiency.bandwidth)
    return max(computing, reading) + efficiency.overhead


@dataclass(frozen=True)
class InSeries:
    """A price: the kernels of a step run one after the other, so that nothing hides under anything else.

    First the matrix products, for as long as their FLOPs or the weights' reads take; then attention over the
    prompts, limited by arithmetic; then attention over the answers' contexts, limited by reading the cache.
    (`step_time` lets all reads of a step hide under all of its arithmetic.)

    - `attention`: share of peak FLOP/s that prompts' attention reaches; None: the efficiency's.
    - `rereads`: how many times the cache is read for the answers in a step that carries prompts as well:
      what a kernel that does not share a KV head's reads among its query heads would do, at most the model's
      query heads per KV head.
    - `slowdown`: factor on every term of a step that carries prompts, not on the overhead.
    - `per_request`: seconds of CPU time for every request in the step.
    """

    attention: float | None = None
    rereads: float = 1.0
    slowdown: float = 1.0
    per_request: float = 0.0

    def __post_init__(self) -> None:
        if self.attention is not None:
            checks.shares("InSeries", attention=self.attention)
        checks.positive("InSeries", rereads=self.rereads, slowdown=self.slowdown)
        checks.not_negative("InSeries", per_request=self.per_request)

    def __call__(self, work: StepWork, gpu: GPU, efficiency: Efficiency) -> float:
        """Return the seconds of a step."""
        prompts = work.prefill.flops > 0
        rate = gpu.peak(work.arithmetic) * efficiency.compute
        bandwidth = gpu.bandwidth * efficiency.bandwidth
        products = max(work.gemm_flops / rate, work.weight_bytes / bandwidth)
        attention = work.prefill.attention_flops / (gpu.peak_flops * (self.attention or efficiency.compute))
        cache = work.decode.kv_bytes * (self.rereads if prompts else 1.0) / bandwidth
        seconds = (products + attention + cache) * (self.slowdown if prompts else 1.0)
        return seconds + efficiency.overhead + self.per_request * work.requests


in_series = InSeries()
