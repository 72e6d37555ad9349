"""The parts that layers are made of: mixers, which let tokens see each other, and feed-forward networks.

Each part says which matrices it multiplies a token by (`matrices`, by the names of Hugging Face's modules,
for quantization is said of those) and how many parameters it holds besides (`vectors`: norms, biases and
other small things). A mixer says also what it keeps of a request: values for every token, or a fixed state.
"""

from dataclasses import dataclass

from lib import checks

Matrices = dict[str, int]  # parameters, by the module's name below its layer

INDEX_KEY_BYTES = 1 + 4 / 128  # FP8, and a scale of 4 bytes for every 128 values (vLLM's indexer cache)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Softmax attention: `heads` query heads share `kv_heads` key and value heads.

    Keys are `head_dim` wide, values `v_head_dim` (None: the same). `window`: only the last so many tokens
    are seen and kept; None: all. `gated`: the queries' matrix makes a gate for the output as well.
    `one_matrix`: keys and values come out of one matrix. `borrows`: an earlier layer's keys and values are
    used: nothing is projected or kept here. `vectors`: biases, norms, sinks. `module`: what it is called.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    gated: bool = False
    one_matrix: bool = False
    borrows: bool = False
    vectors: int = 0
    module: str = "self_attn"

    def __post_init__(self) -> None:
        checks.counts("Attention", heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        checks.counts("Attention", **{k: v for k, v in self._optional().items() if v is not None})
        checks.counts_or_zero("Attention", vectors=self.vectors)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"Attention: kv_heads={self.kv_heads} does not divide heads={self.heads}; use a divisor"
            )

    def _optional(self) -> dict[str, int | None]:
        return {"v_head_dim": self.v_head_dim, "window": self.window}

    @property
    def value_dim(self) -> int:
        """Width of a value."""
        return self.v_head_dim or self.head_dim

    def matrices(self, d_model: int) -> Matrices:
        """Return the parameters of queries, keys, values and output."""
        queries = d_model * self.heads * self.head_dim * (2 if self.gated else 1)
        found = {"q_proj": queries, "o_proj": self.heads * self.value_dim * d_model}
        if not self.borrows:
            found["k_proj"] = d_model * self.kv_heads * self.head_dim
            found["v_proj"] = 0 if self.one_matrix else d_model * self.kv_heads * self.value_dim
        return {f"{self.module}.{name}": count for name, count in found.items()}

    @property
    def cached(self) -> int:
        """Values kept of every token: K and V of every KV head."""
        return 0 if self.borrows else self.kv_heads * (self.head_dim + self.value_dim)

    @property
    def flops_per_pair(self) -> int:
        """FLOPs for one query and one key: half of them score the key, half add up the value."""
        return 2 * self.heads * (self.head_dim + self.value_dim)

    decode_flops_per_pair = flops_per_pair

    def copies(self, degree: int) -> float:
        """Return how many copies of the cache `degree` GPUs hold: a KV head is on one GPU at least."""
        return degree / min(degree, self.kv_heads)


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Of sparse attention over latents (DSA): picks the `top_k` tokens that attention sees.

    `heads` index queries of `head_dim`, one index key a token, which is kept in FP8 for every token.
    """

    heads: int
    head_dim: int
    top_k: int

    def __post_init__(self) -> None:
        checks.counts("Indexer", heads=self.heads, head_dim=self.head_dim, top_k=self.top_k)

    @property
    def cached_bytes(self) -> int:
        """Bytes of one token's index key, in FP8 with its scale."""
        return round(self.head_dim * INDEX_KEY_BYTES)


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (MLA): all heads share `kv_rank` latent and `d_rope` rotary values.

    Only those are cached. Queries are squeezed through `q_rank` (None: they are not); a head's query and key
    are `d_nope` + `d_rope` wide, its value `d_value`. `gated`: the output is multiplied by a gate as wide.
    With an `indexer` only the tokens that it picks are seen; `index_cache` where it is another layer's.
    """

    heads: int
    kv_rank: int
    d_rope: int
    d_nope: int
    d_value: int
    q_rank: int | None = None
    indexer: Indexer | None = None
    shares_index: bool = False
    vectors: int = 0

    window = None
    borrows = False

    def __post_init__(self) -> None:
        checks.counts("Latent", heads=self.heads, kv_rank=self.kv_rank, d_rope=self.d_rope)
        checks.counts("Latent", d_nope=self.d_nope, d_value=self.d_value)
        if self.q_rank is not None:
            checks.counts("Latent", q_rank=self.q_rank)
        checks.counts_or_zero("Latent", vectors=self.vectors)

    @property
    def kv_heads(self) -> int:
        """Heads with a key and value of their own, once the latents are expanded: all."""
        return self.heads

    @property
    def head_dim(self) -> int:
        """Width of a head's value."""
        return self.d_value

    def matrices(self, d_model: int) -> Matrices:
        """Return the parameters of the projections into the latents and out of them."""
        wide = self.heads * (self.d_nope + self.d_rope)
        found = {
            "kv_a_proj_with_mqa": d_model * (self.kv_rank + self.d_rope),
            "kv_b_proj": self.kv_rank * self.heads * (self.d_nope + self.d_value),
            "o_proj": self.heads * self.d_value * d_model,
        }
        if self.q_rank is None:
            found["q_proj"] = d_model * wide
        else:
            found |= {"q_a_proj": d_model * self.q_rank, "q_b_proj": self.q_rank * wide}
        if self.indexer and not self.shares_index:
            index = self.indexer
            found["indexer.wq_b"] = (self.q_rank or d_model) * index.heads * index.head_dim
            found["indexer.wk"] = d_model * index.head_dim
            found["indexer.weights_proj"] = d_model * index.heads
        return {f"self_attn.{name}": count for name, count in found.items()}

    @property
    def cached(self) -> int:
        """Values kept of every token: the latent and the rotary ones."""
        return self.kv_rank + self.d_rope

    @property
    def flops_per_pair(self) -> int:
        """FLOPs for one query and one key, the latents expanded."""
        return 2 * self.heads * (self.d_nope + self.d_rope + self.d_value)

    @property
    def decode_flops_per_pair(self) -> int:
        """FLOPs on the latents themselves, as decode does it: wider, but the heads share what is read."""
        return 2 * self.heads * (2 * self.kv_rank + self.d_rope)

    def copies(self, degree: int) -> float:
        """Return how many copies of the cache `degree` GPUs hold: one each, for all heads need all of it."""
        return degree


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """A state in place of a cache: Mamba, linear attention, a short convolution.

    `weights`: the parameters of each matrix, by name. A state of `heads` x `head_dim` x `state` values is
    kept, `bytes_per_state` each (None: as wide as activations), and the last `kernel` - 1 inputs of a
    convolution over `channels`, which in Mamba-2 are x and, `groups` times, B and C. `module`: what Hugging
    Face calls it.
    """

    kind: str
    weights: tuple[tuple[str, int], ...]
    heads: int = 0
    head_dim: int = 0
    state: int = 0
    groups: int = 0
    channels: int = 0
    kernel: int = 1
    bytes_per_state: float | None = None
    vectors: int = 0
    module: str = "mixer"

    def __post_init__(self) -> None:
        checks.named("Recurrent", kind=self.kind, module=self.module)
        checks.counts_or_zero("Recurrent", heads=self.heads, head_dim=self.head_dim, state=self.state)
        checks.counts_or_zero("Recurrent", channels=self.channels, groups=self.groups, vectors=self.vectors)
        checks.counts("Recurrent", kernel=self.kernel)

    def matrices(self, d_model: int) -> Matrices:
        """Return the parameters of its projections."""
        return {f"{self.module}.{name}": count for name, count in self.weights}

    @property
    def d_conv(self) -> int:
        """Channels of the convolution."""
        if self.groups:
            return self.heads * self.head_dim + 2 * self.groups * self.state
        return self.channels

    def state_bytes(self, activation_bytes: float) -> int:
        """Return the bytes kept of a request, however long it is."""
        values = self.heads * self.head_dim * self.state
        each = activation_bytes if self.bytes_per_state is None else self.bytes_per_state
        return round(values * each + (self.kernel - 1) * self.d_conv * activation_bytes)


Mixer = Attention | Latent | Recurrent


@dataclass(frozen=True, kw_only=True)
class FFN:
    """A feed-forward network, `width` wide: three matrices if `gated`, else two."""

    width: int
    gated: bool = True
    vectors: int = 0
    module: str = "mlp"

    def __post_init__(self) -> None:
        checks.counts("FFN", width=self.width)
        checks.counts_or_zero("FFN", vectors=self.vectors)

    def matrices(self, d_model: int) -> Matrices:
        """Return the parameters of its matrices."""
        names = ("gate_proj", "up_proj", "down_proj") if self.gated else ("up_proj", "down_proj")
        return {f"{self.module}.{name}": d_model * self.width for name in names}


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: a layer holds `count` small FFNs, a token visits `top_k` of them.

    `width` is the inner width of one, `d_shared` that of the FFN which every token visits besides (0: none).
    `d_expert`: the width at which experts take tokens in and out, where it is not the model's: then two
    matrices lead there and back. `expert_vectors`: biases of one expert; `vectors`: all else.
    """

    count: int
    top_k: int
    width: int
    d_shared: int = 0
    d_expert: int | None = None
    gated: bool = True
    expert_vectors: int = 0
    vectors: int = 0
    module: str = "mlp"

    def __post_init__(self) -> None:
        checks.counts("Experts", count=self.count, top_k=self.top_k, width=self.width)
        checks.counts_or_zero("Experts", d_shared=self.d_shared, vectors=self.vectors)
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

    @property
    def factor(self) -> int:
        """Matrices of one FFN."""
        return 3 if self.gated else 2

    def expert(self, d_model: int) -> int:
        """Return the parameters of one routed expert's matrices."""
        return self.factor * (self.d_expert or d_model) * self.width

    def matrices(self, d_model: int) -> Matrices:
        """Return the parameters that every token meets: the shared expert, the way into narrow ones."""
        names = ("gate_proj", "up_proj", "down_proj") if self.gated else ("up_proj", "down_proj")
        found = {f"shared_experts.{name}": d_model * self.d_shared for name in names if self.d_shared}
        if self.d_expert:
            found |= {"fc1_latent_proj": d_model * self.d_expert, "fc2_latent_proj": d_model * self.d_expert}
        return {f"{self.module}.{name}": size for name, size in found.items()}

    def router(self, d_model: int) -> int:
        """Return the parameters of the router."""
        return d_model * self.count
