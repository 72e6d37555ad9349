"""Tensor parallelism: a step that several GPUs share, and the two questions that two pools ask of it.

Each of `degree` GPUs holds its share of every matrix and of the heads, so work and cache are divided. The
price is talk: after attention and after the FFN of every layer the GPUs add up their partial results, in an
all-reduce.
"""

from bisect import bisect_left
from math import floor

from lib import checks
from lib.hardware import GPU, PCIE_4, Link
from lib.models import FFN, Attention, Model, Recurrent
from lib.roofline import Efficiency, Work

ALL_REDUCE_LATENCY = 15e-6  # seconds, the review's, for a small one over NVLink
USABLE_MEMORY = 0.9  # vLLM's default share of a GPU's memory


def kv_shares(model: Model, degree: int) -> float:
    """Return among how many of the GPUs the cache is divided; beyond that it is copied.

    A key and value head is on one GPU at least; the latent of MLA, which all heads share, on every one.
    Where layers differ in their heads, it is the mean over what they keep.
    """
    checks.counts("kv_shares", degree=degree)
    shares = degree / model.copies(degree)
    return int(shares) if shares == int(shares) else shares


def divide(work: Work, model: Model, degree: int) -> Work:
    """Return one GPU's part of the work: weights, FLOPs and states divided, the cache as far as heads go."""
    checks.counts("divide", degree=degree)
    states = work.state_bytes / degree
    return Work(
        work.gemm_flops / degree,
        work.attention_flops / degree,
        work.weight_bytes / degree,
        (work.kv_bytes - work.state_bytes) / kv_shares(model, degree) + states,
        states,
        work.arithmetic,
    )


def undivided(model: Model, degree: int) -> str:
    """Return what of the model cannot be divided among `degree` GPUs; "" if all can.

    As vLLM divides it: heads (`undivided_heads`), the widths of FFNs and of experts (none of which is kept
    whole: expert parallelism is not looked at), and of block-quantized weights whole blocks.
    """
    wrong = undivided_heads(model, degree)
    if wrong:
        return wrong
    for group in model.groups:
        widths = []
        if isinstance(group.ffn, FFN):
            widths.append(("an FFN", group.ffn.width, group.bytes.ffn))
        if group.experts:
            widths.append(("an expert", group.experts.width, group.bytes.experts))
            widths.append(("the shared expert", group.experts.d_shared, group.bytes.ffn))
        for what, width, each in widths:
            if width % degree:
                return f"{what} of {model.name} is {width:,} wide, which {degree} GPUs cannot share"
            if each < 2 and width // degree % model.block:
                return (
                    f"{what} of {model.name} is {width:,} wide, {width // degree} on each of {degree} GPUs, "
                    f"no multiple of the {model.block} weights that share a scale"
                )
    return ""


def undivided_heads(model: Model, degree: int) -> str:
    """Return which heads `degree` GPUs cannot share; "" if they can share all.

    Query heads and the heads of a state in whole numbers; KV heads too, or each on equally many GPUs.
    """
    checks.counts("undivided_heads", degree=degree)
    for mixer in (mixer for group in model.groups for mixer in group.mixers):
        if mixer.heads % degree:
            return f"{model.name} has {mixer.heads} heads, which {degree} GPUs cannot share"
        if isinstance(mixer, Attention) and mixer.kv_heads % degree and degree % mixer.kv_heads:
            return f"{model.name} has {mixer.kv_heads} KV heads, which {degree} GPUs cannot share"
        if isinstance(mixer, Recurrent) and mixer.groups > 1 and mixer.groups % degree:
            return f"{model.name} has states in {mixer.groups} groups, which {degree} GPUs cannot share"
    return ""


# ------------------------------------------------------------------ room


def free(model: Model, gpu: GPU, degree: int) -> float:
    """Return the bytes that each of `degree` GPUs has left beside the weights; may be negative."""
    checks.counts("free", degree=degree)
    return USABLE_MEMORY * gpu.memory - model.resident_bytes / degree


def fits(model: Model, gpu: GPU, degree: int, tokens: int) -> int:
    """Return how many requests of `tokens` tokens fit into `degree` GPUs at once, beside the weights."""
    checks.counts("fits", tokens=tokens)
    return max(0, floor(free(model, gpu, degree) / model.held(tokens, degree)))


def room(model: Model, gpu: GPU, degree: int) -> int:
    """Return the most tokens of cache that `degree` GPUs have room for beside the weights; 0 for none.

    Windows and states are counted once, as for one request that has it all; `fits` counts them for each.
    Where nothing grows with the context, as many requests as fit are taken to be as long as what they keep.
    """
    left = free(model, gpu, degree)
    longest = max((group.attention.window or 0 for group in model.groups if group.attention), default=0)
    start = longest or 1
    kept = model.held(start, degree)
    if left < kept:
        return max(0, floor(start * left / kept)) if model.state_bytes == 0 else 0
    each = model.held(start + 1, degree) - kept
    if each <= 0:
        return floor(left / kept) * (longest or model.context or 1 << 20)
    return start + floor((left - kept) / each)


def all_reduces(model: Model) -> int:
    """Return how many all-reduces a step needs: one after each part, so two a layer in a transformer."""
    return model.with_attention + model.with_mamba + model.with_ffn + model.with_experts


def all_reduce_bytes(model: Model, tokens: int, degree: int) -> float:
    """Return the bytes that each GPU sends in one all-reduce: 2 (degree - 1) / degree of the activations.

    As in a ring: every GPU passes on all parts but one, twice, to add them up and then to hand them out.
    """
    checks.counts("all_reduce_bytes", tokens=tokens, degree=degree)
    return 2 * (degree - 1) / degree * tokens * model.d_model * model.bytes_per_value


def interconnect(gpu: GPU, degree: int | None = None) -> Link:
    """Return what `degree` such GPUs add up their results over: their fabric, or PCIe where they have none.

    Where a fabric is links to single neighbours, only those within the group carry (degree - 1 of them);
    None: all. The latency is the review's for NVLink; no source was found for other fabrics, which get the
    same.
    """
    bandwidth = gpu.fabric_in(degree) or PCIE_4.bandwidth
    return Link(f"between {gpu.name}s", bandwidth, ALL_REDUCE_LATENCY, source=gpu.source)


def all_reduce_time(model: Model, tokens: int, degree: int, link: Link) -> float:
    """Return the seconds that a step over `tokens` tokens spends in all-reduces, none of it hidden."""
    if degree == 1:
        return 0.0
    return all_reduces(model) * link.time(all_reduce_bytes(model, tokens, degree))


# ------------------------------------------------------------------ two pools, two questions
#
# The review's formulas. They count parameters as a model card does, leave attention's arithmetic out, and
# take an all-reduce for its bytes in prefill and for its latency in decode. Of experts, those count that a
# token meets or a step visits.


def prefill_ttft(
    model: Model, gpu: GPU, degree: int, tokens: int, efficiency: Efficiency, params: float | None = None
) -> float:
    """Return the seconds until a prompt of `tokens` tokens has its first token, on `degree` GPUs.

    2 x parameters x tokens / (degree x peak x efficiency), and the all-reduces' bytes over the fabric.
    `params` is what to count as parameters; None: all of the model's, of experts those of one token.
    """
    checks.counts("prefill_ttft", degree=degree, tokens=tokens)
    count = params or (model.active_params if model.experts else model.params)
    peak = gpu.peak(model.arithmetic)
    computing = 2 * count * tokens / (degree * peak * efficiency.compute)
    if degree == 1:
        return computing
    exchanged = all_reduces(model) * all_reduce_bytes(model, tokens, degree)
    return computing + exchanged / interconnect(gpu, degree).bandwidth


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

    Weights, divided by the degree, and what a GPU holds of the streams, at the bandwidth reached; and the
    all-reduces' latency.
    """
    checks.counts("decode_itl", degree=degree, context=context)
    checks.counts_or_zero("decode_itl", batch=batch)
    if model.experts and batch:
        weights: float = model.weight_bytes(batch)
    else:
        weights = _all_weights(model, params)
    reading = weights / degree + batch * (model.held(context, degree) + model.state_bytes / degree)
    waiting = all_reduces(model) * ALL_REDUCE_LATENCY if degree > 1 else 0.0
    return reading / (gpu.bandwidth * efficiency.bandwidth) + waiting


def _all_weights(model: Model, params: float | None) -> float:
    """Bytes of all weights, were there so many parameters."""
    return model.resident_bytes * (params / model.params if params else 1)


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
    left = USABLE_MEMORY * gpu.memory - _all_weights(model, params) / degree
    fitting = max(0, floor(left / model.held(context, degree)))

    def late(batch: int) -> bool:
        return decode_itl(model, gpu, degree, batch, context, efficiency, params) > itl

    if not fitting or not late(fitting):
        return fitting, "memory"
    return bisect_left(range(1, fitting + 1), True, key=late), "ITL"
