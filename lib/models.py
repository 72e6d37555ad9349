"""Models: from an architecture to parameters, bytes read per step, bytes in memory, bytes cached per token.

Two counts of parameters live side by side. `layer_params` and `head_params` count what every token is
multiplied by: the big matrices of the layers, and the output head. They price a step. `params` counts
everything that a checkpoint holds, embedding, norms and biases too, and is what a model card states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib import checks


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `layers` layers hold `count` small FFNs each; a token visits `top_k` of them.

    `d_ff` is one routed expert's inner width. `d_shared` is the inner width of the FFN that every token
    visits besides (0: none). `routing_bias` says whether the router adds a learned bias to each expert's
    score.
    """

    layers: int
    count: int
    top_k: int
    d_ff: int
    d_shared: int = 0
    routing_bias: bool = False

    def __post_init__(self) -> None:
        checks.counts("Experts", layers=self.layers, count=self.count, top_k=self.top_k, d_ff=self.d_ff)
        checks.counts_or_none("Experts", d_shared=self.d_shared)
        if self.top_k > self.count:
            raise ValueError(
                f"Experts: top_k={self.top_k} is more than count={self.count}; use at most count"
            )

    def visited(self, tokens: int) -> float:
        """Expected number of different routed experts that `tokens` tokens visit in one layer.

        Every token picks `top_k` of them, all equally likely and independent of the other tokens: an
        expert stays idle with probability (1 - top_k / count) ** tokens.
        """
        checks.counts("Experts.visited", tokens=tokens)
        if tokens == 1:
            return self.top_k
        return self.count * (1 - (1 - self.top_k / self.count) ** tokens)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA): the heads share `kv_rank` latent and `d_rope` rotary values a token.

    Only those are cached. `q_rank` is the width through which the queries pass; `d_nope` + `d_rope` is the
    width of a query and a key, `d_value` that of a value.
    """

    kv_rank: int
    d_rope: int
    d_nope: int
    d_value: int
    q_rank: int

    def __post_init__(self) -> None:
        checks.counts("Latent", kv_rank=self.kv_rank, d_rope=self.d_rope, d_nope=self.d_nope)
        checks.counts("Latent", d_value=self.d_value, q_rank=self.q_rank)


@dataclass(frozen=True)
class Mamba:
    """Mamba-2 layers: each keeps a state of `heads` x `head_dim` x `state` values, however long the context.

    `groups` is the number of B and C projections, `kernel` the width of the convolution in front of the
    state, `bytes_per_state` the size of a value of the state (fp32 by default; the convolution keeps the
    model's).
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
            raise ValueError(f"Mamba: groups={self.groups} does not divide heads={self.heads}; use a divisor")

    @property
    def d_inner(self) -> int:
        """Width of the layer between its two projections."""
        return self.heads * self.head_dim

    @property
    def d_conv(self) -> int:
        """Channels of the convolution: x, B and C side by side."""
        return self.d_inner + 2 * self.groups * self.state


@dataclass(frozen=True)
class Model:
    """A decoder-only language model's shape.

    A dense transformer needs the first eight fields only: each of its `layers` has attention with `heads`
    query heads and `kv_heads` key and value heads of `head_dim`, and a gated FFN of three d_model x d_ff
    matrices. The rest describes what differs:

    - `gated`: False for an FFN of two matrices; `tied`: True where the head is the embedding;
      `qkv_bias`, `qk_norm`: small extras that count in `params` only;
    - `experts`, `latent`, `mamba`: parts that replace FFNs or attention in some or all layers;
    - `attention_layers`, `ffn_layers`: how many layers have attention and a dense FFN; by default all
      have attention, and all without experts a dense FFN;
    - `bytes_per_weight`, `bytes_per_value`: bytes of a weight; of a cached or passed-on value.
    """

    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    bytes_per_weight: float = 2
    bytes_per_value: int = 2
    gated: bool = True
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    attention_layers: int = -1
    ffn_layers: int = -1
    experts: Experts | None = None
    latent: Latent | None = None
    mamba: Mamba | None = None
    source: str = "given by the reader"

    def __post_init__(self) -> None:
        checks.named("Model", name=self.name, source=self.source)
        checks.counts("Model", layers=self.layers, d_model=self.d_model, heads=self.heads)
        checks.counts("Model", kv_heads=self.kv_heads, head_dim=self.head_dim, vocab=self.vocab)
        checks.positive("Model", bytes_per_weight=self.bytes_per_weight)
        checks.counts("Model", bytes_per_value=self.bytes_per_value)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"Model: kv_heads={self.kv_heads} does not divide heads={self.heads}; use a divisor of heads"
            )
        moe = self.experts.layers if self.experts else 0
        if self.attention_layers == -1:
            object.__setattr__(self, "attention_layers", self.layers)
        if self.ffn_layers == -1:
            object.__setattr__(self, "ffn_layers", self.layers - moe)
        checks.counts_or_none("Model", attention_layers=self.attention_layers, ffn_layers=self.ffn_layers)
        if self.ffn_layers:
            checks.counts("Model", d_ff=self.d_ff)

    # ------------------------------------------------------------------ parameters

    @property
    def attention_params(self) -> int:
        """Matrices of one attention layer: queries, keys, values and output."""
        if self.latent:
            mla = self.latent
            queries = mla.q_rank * (self.d_model + self.heads * (mla.d_nope + mla.d_rope))
            down = self.d_model * (mla.kv_rank + mla.d_rope)
            up = mla.kv_rank * self.heads * (mla.d_nope + mla.d_value)
            return queries + down + up + self.heads * mla.d_value * self.d_model
        return 2 * self.d_model * (self.heads + self.kv_heads) * self.head_dim

    def ffn_params(self, width: int) -> int:
        """Matrices of one FFN of inner width `width`: three if gated, else two."""
        return (3 if self.gated else 2) * self.d_model * width

    @property
    def mamba_params(self) -> int:
        """Matrices of one Mamba-2 layer: the projections in and out."""
        if not self.mamba:
            return 0
        into = self.mamba.d_inner + self.mamba.d_conv + self.mamba.heads
        return self.d_model * (into + self.mamba.d_inner)

    def layer_params_visited(self, experts: float) -> float:
        """Matrices of all layers, when `experts` routed experts are counted in every layer that has any."""
        dense = self.attention_layers * self.attention_params + self.ffn_layers * self.ffn_params(self.d_ff)
        if self.mamba:
            dense += self.mamba.layers * self.mamba_params
        if not self.experts:
            return dense
        moe = self.experts
        always = self.ffn_params(moe.d_shared) + self.d_model * moe.count  # the shared expert and the router
        return dense + moe.layers * (always + experts * self.ffn_params(moe.d_ff))

    @property
    def layer_params(self) -> int:
        """Matrices of all layers, with every expert; no embedding, norms or biases."""
        return int(self.layer_params_visited(self.experts.count if self.experts else 0))

    @property
    def active_layer_params(self) -> int:
        """Matrices of all layers that one token is multiplied by: `layer_params` unless there are experts."""
        return int(self.layer_params_visited(self.experts.top_k if self.experts else 0))

    @property
    def head_params(self) -> int:
        """The output head: vocab x d_model."""
        return self.vocab * self.d_model

    @property
    def small_params(self) -> int:
        """Norms, biases, convolutions and other vectors: next to nothing, but a checkpoint holds them."""
        norms = self.d_model * (1 + self.attention_layers + self.ffn_layers)
        attention = 0
        if self.qkv_bias:
            attention += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.qk_norm:
            attention += 2 * self.head_dim
        if self.latent:
            attention += self.latent.q_rank + self.latent.kv_rank
        total = norms + self.attention_layers * attention
        if self.experts:
            bias = self.experts.count if self.experts.routing_bias else 0
            total += self.experts.layers * (self.d_model + bias)
        if self.mamba:
            m = self.mamba
            convolution = m.d_conv * (m.kernel + 1)
            total += m.layers * (self.d_model + convolution + 3 * m.heads + m.d_inner)
        return total

    @property
    def params(self) -> int:
        """Everything in the checkpoint: layers, head, embedding (once if tied), norms and biases."""
        embedding = 0 if self.tied else self.head_params
        return self.layer_params + self.head_params + embedding + self.small_params

    @property
    def active_params(self) -> int:
        """What one token is multiplied by: its experts only, the head, no embedding (a look-up)."""
        return self.active_layer_params + self.head_params + self.small_params

    # ------------------------------------------------------------------ bytes

    @property
    def streamed_bytes(self) -> float:
        """Weights that a step over one token reads: layers (its own experts only) and head."""
        return self.weight_bytes(1)

    def weight_bytes(self, tokens: int) -> float:
        """Weights that a step over `tokens` tokens reads once: layers and head.

        Without experts that is the same for any number of tokens. With experts, more tokens visit more of
        them: the expected number for uniform routing (`Experts.visited`), until all are read.
        """
        if not self.experts:
            return (self.layer_params + self.head_params) * self.bytes_per_weight
        visited = self.layer_params_visited(self.experts.visited(tokens))
        return round(visited + self.head_params) * self.bytes_per_weight

    @property
    def resident_bytes(self) -> float:
        """Weights that lie in memory: the whole checkpoint, embedding and all experts included."""
        return self.params * self.bytes_per_weight

    @property
    def kv_values_per_layer(self) -> int:
        """Values cached per token by one attention layer: K and V of every KV head; for MLA the latent."""
        if self.latent:
            return self.latent.kv_rank + self.latent.d_rope
        return 2 * self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes cached for each token of context, over all attention layers."""
        return self.attention_layers * self.kv_values_per_layer * self.bytes_per_value

    @property
    def state_bytes(self) -> int:
        """Bytes kept for each sequence whatever its length: Mamba state and convolution, all layers."""
        if not self.mamba:
            return 0
        m = self.mamba
        state = m.heads * m.head_dim * m.state * m.bytes_per_state
        return m.layers * (state + (m.kernel - 1) * m.d_conv * self.bytes_per_value)

    # ------------------------------------------------------------------ attention arithmetic

    @property
    def flops_per_pair(self) -> int:
        """Attention FLOPs for one query and one key in prefill, over all layers: score and weighted value.

        Grouped-query attention: 4 x layers x heads x head_dim.
        """
        if self.latent:
            widths = self.latent.d_nope + self.latent.d_rope + self.latent.d_value
            return 2 * self.attention_layers * self.heads * widths
        return 4 * self.attention_layers * self.heads * self.head_dim

    @property
    def decode_flops_per_pair(self) -> int:
        """The same in decode, where MLA works on the latents themselves: wider, but fewer bytes to read."""
        if self.latent:
            widths = 2 * self.latent.kv_rank + self.latent.d_rope
            return 2 * self.attention_layers * self.heads * widths
        return self.flops_per_pair

    @classmethod
    def from_config(cls, config: Mapping[str, Any], name: str = "") -> "Model":
        """The model that a Hugging Face config.json describes."""
        raise NotImplementedError


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
    source="config.json of Qwen/Qwen2.5-7B",
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
    source="config.json of meta-llama/Llama-3.1-8B",
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
    source="config.json of meta-llama/Llama-3.1-70B",
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
    source="config.json of deepseek-ai/DeepSeek-V3",
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
    attention_layers=6,
    ffn_layers=0,
    experts=Experts(layers=23, count=128, top_k=6, d_ff=1856, d_shared=3712, routing_bias=True),
    mamba=Mamba(layers=23, heads=64, head_dim=64, groups=8, state=128, kernel=4),
    source="config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)
MODELS = (QWEN2_5_7B, LLAMA_3_1_8B, LLAMA_3_1_70B, DEEPSEEK_V3, NEMOTRON_3_NANO)
