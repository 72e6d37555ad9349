"""Models: from an architecture to parameters, bytes read per step, bytes in memory, bytes cached per token.

Two counts of parameters live side by side. `layer_params` and `head_params` are the big matrices that tokens
are multiplied by; they price a step. `params` is everything that a checkpoint holds, embedding, norms and
biases too: what a model card states.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lib import checks


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: `layers` layers hold `count` small FFNs each; a token visits `top_k` of them.

    `d_ff` is the inner width of one of them, `d_shared` that of the FFN which every token visits besides (0:
    there is none). `routing_bias` says whether the router learns a bias for each expert. `bytes_per_weight`
    is the size of a weight of theirs where it is not the model's.
    """

    layers: int
    count: int
    top_k: int
    d_ff: int
    d_shared: int = 0
    routing_bias: bool = False
    bytes_per_weight: float | None = None

    def __post_init__(self) -> None:
        checks.counts("Experts", layers=self.layers, count=self.count, top_k=self.top_k, d_ff=self.d_ff)
        checks.counts_or_zero("Experts", d_shared=self.d_shared)
        if self.bytes_per_weight is not None:
            checks.positive("Experts", bytes_per_weight=self.bytes_per_weight)
        if self.top_k > self.count:
            raise ValueError(f"Experts: top_k={self.top_k} exceeds count={self.count}; use at most count")

    def visited(self, tokens: int) -> float:
        """Return the expected number of different experts that `tokens` tokens visit in one layer.

        Each token picks `top_k`, all experts equally likely and tokens independent: one expert is left out
        by all of them with probability (1 - top_k / count) ** tokens. Real routing is less even and visits
        fewer.
        """
        checks.counts("Experts.visited", tokens=tokens)
        if tokens == 1:
            return self.top_k
        return self.count * (1 - (1 - self.top_k / self.count) ** tokens)


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (MLA): all heads share `kv_rank` latent and `d_rope` rotary values.

    Only those are cached. Queries are squeezed through `q_rank`; a head's query and key are `d_nope` +
    `d_rope` wide, its value `d_value`.
    """

    kv_rank: int
    d_rope: int
    d_nope: int
    d_value: int
    q_rank: int

    def __post_init__(self) -> None:
        checks.counts("Latent", kv_rank=self.kv_rank, d_rope=self.d_rope, d_nope=self.d_nope)
        checks.counts("Latent", d_value=self.d_value, q_rank=self.q_rank)


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """Mamba-2 layers: each keeps a state of `heads` x `head_dim` x `state` values, however long the context.

    `groups` is the number of B and C projections, `kernel` the width of the convolution, `bytes_per_state`
    the size of a value in the state. The convolution's last inputs are kept at the model's precision.
    """

    layers: int
    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    bytes_per_state: int = 4

    def __post_init__(self) -> None:
        checks.counts("Mamba", layers=self.layers, heads=self.heads, head_dim=self.head_dim)
        checks.counts("Mamba", groups=self.groups, state=self.state, kernel=self.kernel)
        checks.counts("Mamba", bytes_per_state=self.bytes_per_state)
        if self.heads % self.groups:
            raise ValueError(
                f"Mamba: groups={self.groups} does not divide heads={self.heads}; use a divisor of heads"
            )

    @property
    def d_inner(self) -> int:
        """Width between the two projections of a layer."""
        return self.heads * self.head_dim

    @property
    def d_conv(self) -> int:
        """Channels of the convolution: x, B and C side by side."""
        return self.d_inner + 2 * self.groups * self.state


@dataclass(frozen=True, kw_only=True)
class Model:
    """The shape of a decoder-only language model.

    A dense transformer needs seven figures: each of its `layers` has attention, with `heads` query heads and
    `kv_heads` key and value heads `head_dim` wide, and an FFN of three d_model x d_ff matrices; `vocab` rows
    of d_model are the embedding, as many the output head. What differs is said by the rest:

    - `bytes_per_weight`, `bytes_per_head` of a weight of embedding and head where that differs, and
      `bytes_per_value` of a value that is cached or passed on;
    - `gated` is False for FFNs of two matrices, `tied` True where the embedding is the head;
    - `qkv_bias`, `qk_norm`: a few vectors more, and `other_params`: any others, such as biases elsewhere or
      positions that are looked up; all counted in `params` only;
    - `experts`, `latent`, `mamba`: other parts, in place of FFNs or of attention;
    - `attention_layers`, `ffn_layers`: how many layers have attention, and an FFN without experts; left out,
      all have attention, and those without experts an FFN;
    - `windowed_layers` of those with attention look back at no more than the last `window` tokens.
    """

    name: str = "a model"
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    bytes_per_weight: float = 2
    bytes_per_head: float | None = None
    bytes_per_value: int = 2
    gated: bool = True
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    other_params: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    mamba: Mamba | None = None
    attention_layers: int | None = None
    ffn_layers: int | None = None
    windowed_layers: int = 0
    window: int | None = None
    source: str = "given by the reader"

    def __post_init__(self) -> None:
        checks.named("Model", name=self.name, source=self.source)
        checks.counts("Model", layers=self.layers, d_model=self.d_model, heads=self.heads)
        checks.counts("Model", kv_heads=self.kv_heads, head_dim=self.head_dim, vocab=self.vocab)
        checks.counts("Model", bytes_per_value=self.bytes_per_value)
        checks.counts_or_zero("Model", other_params=self.other_params, windowed_layers=self.windowed_layers)
        checks.positive("Model", bytes_per_weight=self.bytes_per_weight)
        if self.bytes_per_head is not None:
            checks.positive("Model", bytes_per_head=self.bytes_per_head)
        if self.windowed_layers or self.window is not None:
            checks.counts("Model", windowed_layers=self.windowed_layers, window=self.window)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"Model: kv_heads={self.kv_heads} does not divide heads={self.heads}; use a divisor of heads"
            )
        parts = {
            "experts.layers": self.with_experts,
            "mamba.layers": self.with_mamba,
            "attention_layers": self.with_attention,
            "ffn_layers": self.with_ffn,
        }
        for part, count in parts.items():
            checks.counts_or_zero("Model", **{part: count})
            if count > self.layers:
                raise ValueError(f"Model: {part}={count} exceeds layers={self.layers}; use at most layers")
        if self.windowed_layers > self.with_attention:
            raise ValueError(
                f"Model: windowed_layers={self.windowed_layers} exceeds the {self.with_attention} layers "
                "with attention; use at most as many"
            )
        if self.with_ffn + self.with_experts > self.layers:
            raise ValueError(
                f"Model: ffn_layers={self.with_ffn} and experts.layers={self.with_experts} exceed "
                f"layers={self.layers} together; a layer has one of the two"
            )
        if self.with_ffn:
            checks.counts("Model", d_ff=self.d_ff)

    @staticmethod
    def from_config(config: Mapping[str, Any], name: str = "") -> "Model":
        """Return the model that a Hugging Face config.json describes; see `lib.hf_config.read`."""
        from lib import hf_config  # it builds on this module

        return hf_config.read(config, name)

    # How many layers have which part.

    @cached_property
    def with_attention(self) -> int:
        """Layers with attention: they cache something for every token."""
        return self.layers if self.attention_layers is None else self.attention_layers

    @cached_property
    def with_experts(self) -> int:
        """Layers with a mixture of experts."""
        return self.experts.layers if self.experts else 0

    @cached_property
    def with_mamba(self) -> int:
        """Layers with a state-space part: they keep a state for every sequence."""
        return self.mamba.layers if self.mamba else 0

    @cached_property
    def with_ffn(self) -> int:
        """Layers with an FFN that every token passes whole."""
        return self.layers - self.with_experts if self.ffn_layers is None else self.ffn_layers

    # Parameters.

    @cached_property
    def attention_params(self) -> int:
        """Matrices of one attention layer: query, key, value and output."""
        if self.latent is None:
            return 2 * self.d_model * (self.heads + self.kv_heads) * self.head_dim
        mla = self.latent
        queries = (self.d_model + self.heads * (mla.d_nope + mla.d_rope)) * mla.q_rank
        into_latent = self.d_model * (mla.kv_rank + mla.d_rope)
        out_of_latent = mla.kv_rank * self.heads * (mla.d_nope + mla.d_value)
        return queries + into_latent + out_of_latent + self.heads * mla.d_value * self.d_model

    @cached_property
    def mamba_params(self) -> int:
        """Matrices of one Mamba-2 layer: the projection in (gate, x, B, C, step size) and the one out."""
        if self.mamba is None:
            return 0
        return self.d_model * (self.mamba.d_inner + self.mamba.d_conv + self.mamba.heads + self.mamba.d_inner)

    def ffn_params(self, width: int) -> int:
        """Matrices of one FFN `width` wide: three if gated (SwiGLU), else two."""
        return (3 if self.gated else 2) * self.d_model * width

    @cached_property
    def shared_layer_params(self) -> int:
        """Matrices of all layers that every token passes: all but the routed experts."""
        count = self.with_attention * self.attention_params + self.with_mamba * self.mamba_params
        count += self.with_ffn * self.ffn_params(self.d_ff)
        if self.experts:
            router = self.d_model * self.experts.count
            count += self.experts.layers * (self.ffn_params(self.experts.d_shared) + router)
        return count

    @cached_property
    def expert_params(self) -> int:
        """Matrices of one routed expert in each layer that has them."""
        return self.experts.layers * self.ffn_params(self.experts.d_ff) if self.experts else 0

    @cached_property
    def layer_params(self) -> int:
        """Matrices of all layers with all experts; no embedding, no norms, no biases."""
        return self.shared_layer_params + (self.experts.count * self.expert_params if self.experts else 0)

    @cached_property
    def active_layer_params(self) -> int:
        """Matrices of the layers that one token is multiplied by: its own experts only."""
        return self.shared_layer_params + (self.experts.top_k * self.expert_params if self.experts else 0)

    @cached_property
    def head_params(self) -> int:
        """The output head: vocab x d_model."""
        return self.vocab * self.d_model

    @cached_property
    def small_params(self) -> int:
        """Norms, biases, convolutions and other vectors: next to nothing, but a checkpoint holds them."""
        attention = self.d_model  # the norm in front
        if self.qkv_bias:
            attention += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.qk_norm:
            attention += 2 * self.head_dim
        if self.latent:
            attention += self.latent.q_rank + self.latent.kv_rank
        count = self.d_model + self.with_attention * attention + self.with_ffn * self.d_model
        if self.experts:
            bias = self.experts.count if self.experts.routing_bias else 0
            count += self.experts.layers * (self.d_model + bias)
        if self.mamba:
            convolution = self.mamba.d_conv * (self.mamba.kernel + 1)
            inner = 3 * self.mamba.heads + self.mamba.d_inner  # A, D, step size; the norm inside
            count += self.mamba.layers * (self.d_model + convolution + inner)
        return count + self.other_params

    @cached_property
    def params(self) -> int:
        """Everything in the checkpoint: layers, head, embedding (once, if tied), norms and biases."""
        embedding = 0 if self.tied else self.head_params
        return embedding + self.layer_params + self.head_params + self.small_params

    @cached_property
    def active_params(self) -> int:
        """What one token meets: its own experts, the head, norms and biases; the embedding is a look-up."""
        return self.active_layer_params + self.head_params + self.small_params

    # Bytes.

    def weight_bytes(self, tokens: int) -> int:
        """Return the bytes of weights that a step over `tokens` tokens reads: layers and head, once each.

        Without experts that does not depend on the number of tokens. With experts it grows until all are
        visited, as `Experts.visited` expects them to be.
        """
        visited = round(self.experts.visited(tokens) * self.expert_params) if self.experts else 0
        shared = self.shared_layer_params * self.bytes_per_weight
        return round(shared + visited * self._expert_bytes + self.head_params * self._head_bytes)

    @cached_property
    def _head_bytes(self) -> float:
        """Bytes of a weight of the embedding and the head."""
        return self.bytes_per_weight if self.bytes_per_head is None else self.bytes_per_head

    @cached_property
    def _expert_bytes(self) -> float:
        """Bytes of a weight of a routed expert."""
        own = self.experts.bytes_per_weight if self.experts else None
        return self.bytes_per_weight if own is None else own

    @cached_property
    def streamed_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: layers, of experts only its own, and head."""
        return self.weight_bytes(1)

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of weights that lie in memory: the whole checkpoint, with embedding and all experts."""
        ends = self.head_params * (1 if self.tied else 2)
        routed = self.layer_params - self.shared_layer_params
        rest = self.params - ends - routed
        return round(rest * self.bytes_per_weight + ends * self._head_bytes + routed * self._expert_bytes)

    @cached_property
    def kv_values_per_layer(self) -> int:
        """Values that an attention layer caches per token: K and V of every KV head, or the latent of MLA."""
        if self.latent:
            return self.latent.kv_rank + self.latent.d_rope
        return 2 * self.kv_heads * self.head_dim

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes cached for a new token: all attention layers."""
        return self.with_attention * self.kv_values_per_layer * self.bytes_per_value

    def kv_bytes(self, tokens: int, streams: int = 1) -> int:
        """Return the bytes of cache that a step reads for `streams` contexts of `tokens` tokens in all.

        A windowed layer keeps and reads no more than its window. Where contexts differ, all are taken to be
        as long as the mean: exact unless some are shorter than the window and some longer.
        """
        unread = max(0, tokens - streams * self.window) if self.window else 0
        per_layer = self.kv_values_per_layer * self.bytes_per_value
        return tokens * self.kv_bytes_per_token - unread * self.windowed_layers * per_layer

    @cached_property
    def state_bytes_per_layer(self) -> int:
        """Bytes that a Mamba-2 layer keeps per sequence: its state and the convolution's last inputs."""
        if self.mamba is None:
            return 0
        state = self.mamba.d_inner * self.mamba.state * self.mamba.bytes_per_state
        return state + (self.mamba.kernel - 1) * self.mamba.d_conv * self.bytes_per_value

    @cached_property
    def state_bytes(self) -> int:
        """Bytes kept for each sequence, however long: all Mamba layers."""
        return self.with_mamba * self.state_bytes_per_layer

    # Attention's arithmetic, which no parameter counts.

    @cached_property
    def flops_per_pair(self) -> int:
        """FLOPs of attention for one query and one key over all layers: 4 x layers x heads x head_dim.

        Half of them score the key, half add up the value. MLA has other widths for the two.
        """
        if self.latent is None:
            return 4 * self.with_attention * self.heads * self.head_dim
        widths = self.latent.d_nope + self.latent.d_rope + self.latent.d_value
        return 2 * self.with_attention * self.heads * widths

    def windowed_share(self, flops: int) -> int:
        """Return the part of all attention layers' `flops` that falls on the windowed ones."""
        return flops // self.with_attention * self.windowed_layers if self.windowed_layers else 0

    @cached_property
    def decode_flops_per_pair(self) -> int:
        """The same for decode: MLA then works on the latents themselves, wider, but shared by the heads."""
        if self.latent is None:
            return self.flops_per_pair
        return 2 * self.with_attention * self.heads * (2 * self.latent.kv_rank + self.latent.d_rope)


QWEN2_5_7B = Model(
    name="Qwen2.5-7B",
    layers=28,
    d_model=3584,
    heads=28,
    kv_heads=4,
    head_dim=128,
    d_ff=18944,
    vocab=152064,
    qkv_bias=True,
    source="config.json of Qwen/Qwen2.5-7B-Instruct on Hugging Face",
)
LLAMA_3_1_8B = Model(
    name="Llama-3.1-8B",
    layers=32,
    d_model=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    d_ff=14336,
    vocab=128256,
    source="config.json of meta-llama/Llama-3.1-8B on Hugging Face",
)
LLAMA_3_1_70B = Model(
    name="Llama-3.1-70B",
    layers=80,
    d_model=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    d_ff=28672,
    vocab=128256,
    source="config.json of meta-llama/Llama-3.1-70B on Hugging Face",
)
DEEPSEEK_V3 = Model(
    name="DeepSeek-V3",
    layers=61,
    d_model=7168,
    heads=128,
    kv_heads=128,
    head_dim=128,
    d_ff=18432,
    vocab=129280,
    bytes_per_weight=1,
    experts=Experts(layers=58, count=256, top_k=8, d_ff=2048, d_shared=2048, routing_bias=True),
    latent=Latent(kv_rank=512, d_rope=64, d_nope=128, d_value=128, q_rank=1536),
    source="config.json and README_WEIGHTS.md of deepseek-ai/DeepSeek-V3 on Hugging Face, without its layer "
    "for multi-token prediction; every weight taken as FP8, though embedding, head and norms are bf16 there",
)
NEMOTRON_3_NANO = Model(
    name="Nemotron-3-Nano",
    layers=52,
    d_model=2688,
    heads=32,
    kv_heads=2,
    head_dim=128,
    d_ff=0,
    vocab=131072,
    gated=False,
    experts=Experts(layers=23, count=128, top_k=6, d_ff=1856, d_shared=3712, routing_bias=True),
    mamba=Mamba(layers=23, heads=64, head_dim=64, groups=8, state=128, kernel=4),
    attention_layers=6,
    ffn_layers=0,
    source="config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 on Hugging Face",
)

# What others measured with.

QWEN2_5_7B_INT4 = replace(
    QWEN2_5_7B,
    name="Qwen2.5-7B Int4",
    bytes_per_weight=(4 + 20 / 128) / 8,
    bytes_per_head=2,
    source="Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4 on Hugging Face: the shape of Qwen2.5-7B; a layer's weights "
    "in 4 bits, every 128 of them with a scale of 16 and a zero point of 4; embedding and head in 16 bits; "
    "so its two weight files add up to their listed 5.58 GB",
)
QWEN3_8B = Model(
    name="Qwen3-8B",
    layers=36,
    d_model=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    d_ff=12288,
    vocab=151936,
    qk_norm=True,
    source="config.json of Qwen/Qwen3-8B on Hugging Face",
)
LLAMA_2_70B = Model(
    name="Llama-2-70B",
    layers=80,
    d_model=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    d_ff=28672,
    vocab=32000,
    source="config.json of meta-llama/Llama-2-70b-hf on Hugging Face",
)
OPT_13B = Model(
    name="OPT-13B",
    layers=40,
    d_model=5120,
    heads=40,
    kv_heads=40,
    head_dim=128,
    d_ff=20480,
    vocab=50272,
    gated=False,
    tied=True,
    qkv_bias=True,
    other_params=40 * (5120 + 20480 + 5120 + 2 * 5120) + 5120 + 2050 * 5120,
    source="config.json of facebook/opt-13b on Hugging Face; learned positions and biases on every matrix",
)
QWEN3_235B_FP8 = Model(
    name="Qwen3-235B-A22B FP8",
    layers=94,
    d_model=4096,
    heads=64,
    kv_heads=4,
    head_dim=128,
    d_ff=0,
    vocab=151936,
    bytes_per_weight=1,
    bytes_per_head=2,
    qk_norm=True,
    experts=Experts(layers=94, count=128, top_k=8, d_ff=1536),
    source="config.json of Qwen/Qwen3-235B-A22B-FP8 on Hugging Face: FP8 but for embedding, head, norms and "
    "routers; the routers are counted as FP8 here",
)
GPT_OSS_120B = Model(
    name="gpt-oss-120b",
    layers=36,
    d_model=2880,
    heads=64,
    kv_heads=8,
    head_dim=64,
    d_ff=0,
    vocab=201088,
    qkv_bias=True,
    other_params=36 * (2880 + 64 + 128 * 3 * 2880),
    experts=Experts(
        layers=36, count=128, top_k=4, d_ff=2880, routing_bias=True, bytes_per_weight=(4 + 8 / 32) / 8
    ),
    windowed_layers=18,
    window=128,
    source="config.json of openai/gpt-oss-120b on Hugging Face: experts in MXFP4 (4 bits, every 32 weights "
    "with a scale of 8), all else in bf16; every second layer looks back at 128 tokens",
)
MODELS = (
    QWEN2_5_7B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    DEEPSEEK_V3,
    NEMOTRON_3_NANO,
    QWEN2_5_7B_INT4,
    QWEN3_8B,
    LLAMA_2_70B,
    OPT_13B,
    QWEN3_235B_FP8,
    GPT_OSS_120B,
)
