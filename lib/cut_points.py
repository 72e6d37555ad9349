"""Every split of a serving system is a cut: what crosses it, how big that is, and how often it crosses.

The payloads of an image on its way into the model are here too: plain arithmetic, no pixels (those are in
`images`). Sizes are bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lib import checks
from lib.models import DEEPSEEK_V3, NEMOTRON_3_NANO, QWEN2_5_7B, Experts, Model

CHANNELS = 3  # red, green, blue

# gRPC refuses to receive a longer message unless told otherwise: GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH, in
# include/grpc/impl/channel_arg_names.h of grpc/grpc. Other stacks have copied the figure.
RPC_LIMIT = 4 * 2**20

# One Mamba layer of Nemotron-3-Nano on one of two GPUs, and the KV heads of its attention layers there, as in
# the worked example of the hybrid-SSM post (https://vllm.ai/blog/2026-04-21-hybrid-ssm-disagg). An earlier
# section of the same post has 32 heads in place of 48, as config.json does: 64 heads over two GPUs; and
# config.json has 2 KV heads, not 4 per GPU. NEMOTRON_3_NANO in lib.models follows config.json.
POSTED_STATE = (48, 64, 128)  # heads, head_dim, state
POSTED_CONVOLUTION = (3, 3072)  # past inputs, channels
POSTED_KV_HEADS = 4


# ---------------------------------------------------------------------------------------- encoder | prefill


def snap(px: int, px_per_token: int) -> int:
    """The multiple of `px_per_token` nearest to `px`, at least one: image processors resize to it."""
    checks.counts("snap", px=px, px_per_token=px_per_token)
    return max(1, round(px / px_per_token)) * px_per_token


def visual_tokens(width: int, height: int, px_per_token: int) -> int:
    """Tokens that an image of width x height px becomes: one per square of `px_per_token` px on a side.

    Qwen2-VL and Qwen2.5-VL: 28 (2 x 2 patches of 14 px); Qwen3-VL: 32 (2 x 2 patches of 16 px).
    """
    checks.counts("visual_tokens", width=width, height=height, px_per_token=px_per_token)
    for name, px in (("width", width), ("height", height)):
        if px % px_per_token:
            raise ValueError(
                f"visual_tokens: {name}={px} is not a multiple of px_per_token={px_per_token}; "
                f"resize to {snap(px, px_per_token)}"
            )
    return (width // px_per_token) * (height // px_per_token)


def tensor_bytes(width: int, height: int, bytes_per_value: int = 4) -> int:
    """An image as a plain tensor, one value per pixel and channel (float32 by default)."""
    checks.counts("tensor_bytes", width=width, height=height, bytes_per_value=bytes_per_value)
    return width * height * CHANNELS * bytes_per_value


def patch_bytes(width: int, height: int, patch: int = 14, frames: int = 2, bytes_per_value: int = 4) -> int:
    """An image cut into patches of `patch` px, each repeated over `frames` frames.

    Qwen2-VL's encoder takes video in pairs of frames (temporal_patch_size 2): a still image is sent twice.
    """
    checks.counts("patch_bytes", patch=patch, frames=frames)
    patches = visual_tokens(width, height, patch)
    return patches * frames * tensor_bytes(patch, patch, bytes_per_value)


def embedding_bytes(model: Model, tokens: int) -> int:
    """What an encoder hands over for `tokens` visual tokens: one vector of d_model values for each."""
    checks.counts_or_zero("embedding_bytes", tokens=tokens)
    return tokens * model.d_model * model.bytes_per_value


def image_hops(jpeg_bytes: int, model: Model = QWEN2_5_7B, side: int = 640) -> dict[str, int]:
    """Sizes of one square image at each hop into the model, the way Qwen2-VL prepares it, in order.

    The JPEG as uploaded; pixels at `side` x `side`; patches, at the nearest side that fits 28-px tokens; the
    encoder's embeddings; the KV that prefill makes of them.
    """
    checks.counts("image_hops", jpeg_bytes=jpeg_bytes)
    fitted = snap(side, 28)
    tokens = visual_tokens(fitted, fitted, 28)
    return {
        "JPEG": jpeg_bytes,
        "plain tensor": tensor_bytes(side, side),
        "patches": patch_bytes(fitted, fitted),
        "embeddings": embedding_bytes(model, tokens),
        "KV": tokens * model.kv_bytes_per_token,
    }


def wire_gbps(nbytes: float, per_second: float) -> float:
    """Gb/s (10^9 bits per second) that `per_second` payloads of `nbytes` keep busy."""
    checks.not_negative("wire_gbps", nbytes=nbytes, per_second=per_second)
    return nbytes * 8 * per_second / 1e9


# ---------------------------------------------------------------------------------------- attention | FFN


def activation_bytes(model: Model) -> int:
    """What one token sends in one pass when attention and experts live apart.

    One vector of d_model values to the experts and one back, in every layer that has experts.
    """
    _experts("activation_bytes", model)
    return 2 * model.d_model * model.bytes_per_value * model.with_experts


def tokens_per_expert(model: Model, ranks: int, batch: int) -> float:
    """Tokens that one expert gets per step from `ranks` attention ranks of `batch` sequences each.

    The mean, with tokens spread evenly: ranks x batch x top_k / experts.
    """
    checks.counts("tokens_per_expert", ranks=ranks, batch=batch)
    experts = _experts("tokens_per_expert", model)
    return ranks * batch * experts.top_k / experts.count


def _experts(owner: str, model: Model) -> Experts:
    if not model.experts:
        raise ValueError(
            f"{owner}: model={model.name!r} has no experts; use a model that has, as DEEPSEEK_V3"
        )
    return model.experts


# ---------------------------------------------------------------------------------------- hybrid models


def state_bytes(
    state: Sequence[int], convolution: Sequence[int], bytes_per_state: int = 4, bytes_per_value: int = 2
) -> int:
    """One Mamba layer's memory of a sequence, however long: state (fp32) and the convolution's inputs."""
    for name, shape in (("state", state), ("convolution", convolution)):
        if not shape:
            raise ValueError(f"state_bytes: {name}={shape!r} is empty; use its sizes, as (64, 64, 128)")
        checks.counts("state_bytes", **{f"{name}[{i}]": n for i, n in enumerate(shape)})
    return prod(state) * bytes_per_state + prod(convolution) * bytes_per_value


def break_even_tokens(state_bytes: float, kv_bytes_per_token: float) -> float:
    """Context at which KV that grows by `kv_bytes_per_token` has become as big as a fixed state."""
    checks.positive("break_even_tokens", state_bytes=state_bytes, kv_bytes_per_token=kv_bytes_per_token)
    return state_bytes / kv_bytes_per_token


# ------------------------------------------------------------------------------------- all cuts, side by side


@dataclass(frozen=True)
class Cut:
    """One place to split: `bytes` cross for each `per`, `times` times in a request, and `fixed` bytes once.

    `often` says how often in words; `isolates`, what no longer disturbs what; `pays_when`, the condition.
    """

    name: str
    model: str
    crosses: str
    bytes: int
    per: str
    often: str
    times: int
    isolates: str
    pays_when: str
    fixed: int = 0

    @property
    def total(self) -> int:
        """Bytes that cross for one request."""
        return self.fixed + self.bytes * self.times


def cuts(
    prompt_tokens: int = 8192, output_tokens: int = 256, images: int = 4, side: int = 640
) -> tuple[Cut, ...]:
    """The five cuts, priced for one request with `images` square images among its prompt tokens.

    Each cut is shown on a model that it was made for, so totals compare cuts, not models.
    """
    checks.counts("cuts", prompt_tokens=prompt_tokens, output_tokens=output_tokens, images=images, side=side)
    visual = images * visual_tokens(snap(side, 32), snap(side, 32), 32)
    if visual > prompt_tokens:
        raise ValueError(
            f"cuts: images={images} are {visual} of prompt_tokens={prompt_tokens} tokens; "
            "use fewer or smaller images, or a longer prompt"
        )
    return (
        Cut(
            name="frontend | engine",
            model=QWEN2_5_7B.name,
            crosses="token IDs as compact JSON, in and out",
            bytes=len(f"{QWEN2_5_7B.vocab - 1},"),
            per="token, at most",
            often="once per token",
            times=prompt_tokens + output_tokens,
            isolates="templates, tokenizing and parsing from the engine's own CPU loop",
            pays_when="that work shows in the CPU profile of the GPU machines",
        ),
        Cut(
            name="encoder | prefill",
            model=QWEN2_5_7B.name,
            crosses="embeddings",
            bytes=embedding_bytes(QWEN2_5_7B, 1),
            per="visual token",
            often="once per image; a repeated image not again",
            times=visual,
            isolates="pixels from text, and the number of encoders from the number of engines",
            pays_when="requests bring several images, or the same ones again",
        ),
        Cut(
            name="prefill | decode",
            model=QWEN2_5_7B.name,
            crosses="KV cache",
            bytes=QWEN2_5_7B.kv_bytes_per_token,
            per="prompt token",
            often="once per request",
            times=prompt_tokens,
            isolates="running streams from arriving prompts",
            pays_when="the whole handoff is short beside the TTFT target",
        ),
        Cut(
            name="prefill | decode, hybrid",
            model=NEMOTRON_3_NANO.name,
            crosses="KV of the attention layers, and the Mamba layers' state whole",
            bytes=NEMOTRON_3_NANO.kv_bytes_per_token,
            per="prompt token",
            often="once per request",
            times=prompt_tokens,
            fixed=NEMOTRON_3_NANO.state_bytes,
            isolates="running streams from arriving prompts",
            pays_when="prompts are long: the state weighs the same for a short one",
        ),
        Cut(
            name="attention | FFN",
            model=DEEPSEEK_V3.name,
            crosses="activations, there and back in every layer with experts",
            bytes=activation_bytes(DEEPSEEK_V3),
            per="token and pass",
            often="in every step, for every token in it",
            times=prompt_tokens + output_tokens - 1,
            isolates="memory for context from arithmetic for experts",
            pays_when="many attention ranks fill the experts' batches, over a fabric that keeps up",
        ),
    )
