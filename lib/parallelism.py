"""Tensor parallelism: a step that several GPUs share, and the two questions that two pools ask of it.

Each of `degree` GPUs holds its share of every matrix and of the heads, so work and cache are divided. The
price is talk: after attention and after the FFN of every layer the GPUs add up their partial results, in an
all-reduce.
"""

from math import floor

from lib import checks
from lib.hardware import GPU, PCIE_4, Link
from lib.models import Model
from lib.roofline import Efficiency, Work

ALL_REDUCE_LATENCY = 15e-6  # seconds, the review's, for a small one over NVLink
USABLE_MEMORY = 0.9  # vLLM's default share of a GPU's memory


def kv_shares(model: Model, degree: int) -> int:
    """Return among how many of the GPUs the cache is divided; beyond that it is copied.

    A key and value head is on one GPU at least; the latent of MLA, which all heads share, on every one.
    """
    checks.counts("kv_shares", degree=degree)
    return 1 if model.latent else min(degree, model.kv_heads)


def divide(work: Work, model: Model, degree: int) -> Work:
    """Return one GPU's part of the work: weights and FLOPs divided, the cache as far as its heads go."""
    checks.counts("divide", degree=degree)
    return Work(
        work.gemm_flops / degree,
        work.attention_flops / degree,
        work.weight_bytes / degree,
        work.kv_bytes / kv_shares(model, degree),
    )


def all_reduces(model: Model) -> int:
    """Return how many all-reduces a step needs: one after each part, so two a layer in a transformer."""
    return model.with_attention + model.with_mamba + model.with_ffn + model.with_experts


def all_reduce_bytes(model: Model, tokens: int, degree: int) -> float:
    """Return the bytes that each GPU sends in one all-reduce: 2 (degree - 1) / degree of the activations.

    As in a ring: every GPU passes on all parts but one, twice, to add them up and then to hand them out.
    """
    checks.counts("all_reduce_bytes", tokens=tokens, degree=degree)
    return 2 * (degree - 1) / degree * tokens * model.d_model * model.bytes_per_value


def interconnect(gpu: GPU) -> Link:
    """Return what such GPUs add up their results over: their fabric, or PCIe 4.0 where they have none.

    The latency is the review's for NVLink; no source was found for other fabrics, which get the same.
    """
    bandwidth = gpu.fabric or PCIE_4.bandwidth
    return Link(f"between {gpu.name}s", bandwidth, ALL_REDUCE_LATENCY, source=gpu.source)


def all_reduce_time(model: Model, tokens: int, degree: int, link: Link) -> float:
    """Return the seconds that a step over `tokens` tokens spends in all-reduces, none of it hidden."""
    if degree == 1:
        return 0.0
    return all_reduces(model) * link.time(all_reduce_bytes(model, tokens, degree))


# ------------------------------------------------------------------ two pools, two questions
#
# The review's formulas. They count parameters as a model card does, leave attention's arithmetic out, and
# take an all-reduce for its bytes in prefill and for its latency in decode.


def prefill_ttft(
    model: Model, gpu: GPU, degree: int, tokens: int, efficiency: Efficiency, params: float | None = None
) -> float:
    """Return the seconds until a prompt of `tokens` tokens has its first token, on `degree` GPUs.

    2 x parameters x tokens / (degree x peak x efficiency), and the all-reduces' bytes over the fabric.
    `params` is what to count as parameters; None: all of the model's.
    """
    checks.counts("prefill_ttft", degree=degree, tokens=tokens)
    count = model.params if params is None else params
    computing = 2 * count * tokens / (degree * gpu.peak_flops * efficiency.compute)
    if degree == 1:
        return computing
    exchanged = all_reduces(model) * all_reduce_bytes(model, tokens, degree)
    return computing + exchanged / interconnect(gpu).bandwidth


def decode_itl(
    model: Model,
    gpu: GPU,
    degree: int,
    batch: int,
    context: int,
    efficiency: Efficiency,
    params: float | None = None,
) -> float:
    """Return the seconds of one decode step for `batch` streams of `context` tokens, on `degree` GPUs.

    Weights and cache, divided by the degree, at the bandwidth reached; and the all-reduces' latency.
    """
    checks.counts("decode_itl", degree=degree, context=context)
    checks.counts_or_zero("decode_itl", batch=batch)
    weights = (model.params if params is None else params) * model.bytes_per_weight
    reading = (weights + batch * context * model.kv_bytes_per_token) / degree
    waiting = all_reduces(model) * ALL_REDUCE_LATENCY if degree > 1 else 0.0
    return reading / (gpu.bandwidth * efficiency.bandwidth) + waiting


def decode_batch(
    model: Model,
    gpu: GPU,
    degree: int,
    context: int,
    itl: float,
    efficiency: Efficiency,
    params: float | None = None,
) -> tuple[int, str]:
    """Return how many streams of `context` tokens `degree` GPUs can decode, and what limits them.

    "memory": 90 % of it holds the weights and so many caches; "ITL": with more, a step takes longer than
    `itl` seconds. 0 streams where not even one fits, or no step is that short.
    """
    checks.counts("decode_batch", degree=degree, context=context)
    checks.positive("decode_batch", itl=itl)
    weights = (model.params if params is None else params) * model.bytes_per_weight
    cache = context * model.kv_bytes_per_token
    fitting = floor((USABLE_MEMORY * degree * gpu.memory - weights) / cache)
    left = itl - decode_itl(model, gpu, degree, 0, context, efficiency, params)
    in_time = floor(left * degree * gpu.bandwidth * efficiency.bandwidth / cache)
    return max(0, min(fitting, in_time)), "memory" if fitting <= in_time else "ITL"
