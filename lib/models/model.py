"""A model: groups of equal layers, an embedding and a head; and what follows from them.

Two counts of parameters live side by side. `layer_params` and `head_params` are the big matrices that tokens
are multiplied by; they price a step. `params` is everything that a checkpoint holds, embedding, norms and
biases too: what a model card states.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum

from lib import checks
from lib.models.parts import FFN, Attention, Experts, Latent, Mixer, Recurrent

PRECISIONS = ("bf16", "fp8", "fp4")  # of the matrix products' arithmetic


@dataclass(frozen=True, kw_only=True)
class PerWeight:
    """Bytes of a weight in one layer, by kind: its mixers, its FFN or shared expert, its routed experts."""

    mixer: float = 2
    ffn: float = 2
    experts: float = 2

    def __post_init__(self) -> None:
        checks.positive("PerWeight", mixer=self.mixer, ffn=self.ffn, experts=self.experts)


@dataclass(frozen=True, kw_only=True)
class Layers:
    """`count` equal layers: the mixers of one (none, one, or two side by side), its FFN if it has one.

    `vectors`: norms and whatever else it holds besides its parts'. Routers and vectors stay in 16 bits.
    """

    count: int
    mixers: tuple[Mixer, ...] = ()
    ffn: FFN | Experts | None = None
    vectors: int = 0
    bytes: PerWeight = PerWeight()

    def __post_init__(self) -> None:
        checks.counts("Layers", count=self.count)
        checks.counts_or_zero("Layers", vectors=self.vectors)

    @property
    def attention(self) -> Attention | Latent | None:
        """The mixer that caches something of every token, if there is one."""
        return next((mixer for mixer in self.mixers if not isinstance(mixer, Recurrent)), None)

    @property
    def recurrent(self) -> Recurrent | None:
        """The mixer that keeps a state, if there is one."""
        return next((mixer for mixer in self.mixers if isinstance(mixer, Recurrent)), None)

    @property
    def experts(self) -> Experts | None:
        """Its experts, if it has some."""
        return self.ffn if isinstance(self.ffn, Experts) else None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only language model.

    - `groups`: its layers, equal ones together; `d_model` their width; `vocab` the rows of the embedding, and
      of the head, which is the embedding itself where `tied`; `heads_up`: whether there is a head at all.
    - `embedding_bytes`, `head_bytes` of a weight there; those of a layer's weights stand in its group.
    - `arithmetic`: what the layers' products are computed in, one of "bf16", "fp8", "fp4".
    - `cache_bytes` of a value that is cached, `bytes_per_value` of one that is computed and passed on.
    - `vectors`: parameters besides, such as the last norm and positions that are looked up; `lookups`:
      tables that a token takes one row of.
    - `context`: the most tokens that it was made for; None: no limit is known. `block`: quantized weights, in
      each direction, that share a scale, and so stay on one GPU.
    """

    name: str = "a model"
    d_model: int
    vocab: int
    groups: tuple[Layers, ...]
    tied: bool = False
    embedding_bytes: float = 2
    head_bytes: float = 2
    arithmetic: str = "bf16"
    cache_bytes: float = 2
    bytes_per_value: int = 2
    vectors: int = 0
    lookups: int = 0
    context: int | None = None
    block: int = 1
    source: str = "given by the reader"

    def __post_init__(self) -> None:
        checks.named("Model", name=self.name, source=self.source)
        checks.counts("Model", d_model=self.d_model, vocab=self.vocab, bytes_per_value=self.bytes_per_value)
        checks.counts_or_zero("Model", vectors=self.vectors, lookups=self.lookups)
        checks.positive("Model", cache_bytes=self.cache_bytes, head_bytes=self.head_bytes)
        checks.positive("Model", embedding_bytes=self.embedding_bytes)
        checks.counts("Model", block=self.block)
        if self.context is not None:
            checks.counts("Model", context=self.context)
        if self.arithmetic not in PRECISIONS:
            raise ValueError(
                f"Model: arithmetic={self.arithmetic!r} is none; use one of {', '.join(PRECISIONS)}"
            )
        if not self.groups:
            raise ValueError("Model: groups=() has no layer; give at least one")

    def mixed(self, change: Callable[[Attention | Latent], Mixer]) -> "Model":
        """Return the model with every attention replaced by what `change` makes of it."""

        def changed(mixer: Mixer) -> Mixer:
            return mixer if isinstance(mixer, Recurrent) else change(mixer)

        return replace(
            self, groups=tuple(replace(g, mixers=tuple(map(changed, g.mixers))) for g in self.groups)
        )

    # How many layers, and which part how often.

    @cached_property
    def layers(self) -> int:
        """Layers in all."""
        return sum(group.count for group in self.groups)

    @cached_property
    def with_attention(self) -> int:
        """Layers with attention."""
        return sum(group.count for group in self.groups if group.attention)

    @cached_property
    def with_experts(self) -> int:
        """Layers with a mixture of experts."""
        return sum(group.count for group in self.groups if group.experts)

    @cached_property
    def with_mamba(self) -> int:
        """Layers with a state: they keep one for every sequence."""
        return sum(group.count for group in self.groups if group.recurrent)

    @cached_property
    def with_ffn(self) -> int:
        """Layers with an FFN that every token passes whole."""
        return sum(group.count for group in self.groups if isinstance(group.ffn, FFN))

    def _attentions(self) -> Iterator[tuple[int, Attention | Latent]]:
        """How many layers have which attention."""
        return ((group.count, group.attention) for group in self.groups if group.attention)

    @cached_property
    def attention(self) -> Attention | Latent | None:
        """The attention that most layers have; None: none has any."""
        return max(self._attentions(), key=lambda pair: pair[0], default=(0, None))[1]

    @cached_property
    def latent(self) -> Latent | None:
        """The same, if it is MLA."""
        return self.attention if isinstance(self.attention, Latent) else None

    @cached_property
    def experts(self) -> Experts | None:
        """The experts of the first layers that have some."""
        return next((group.experts for group in self.groups if group.experts), None)

    @cached_property
    def mamba(self) -> Recurrent | None:
        """The state of the first layers that have one."""
        return next((group.recurrent for group in self.groups if group.recurrent), None)

    @cached_property
    def heads(self) -> int:
        """Query heads of a layer, where there are any."""
        return self.attention.heads if self.attention else 0

    @cached_property
    def kv_heads(self) -> int:
        """Key and value heads of a layer, where there are any."""
        return self.attention.kv_heads if self.attention else 0

    @cached_property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.attention.head_dim if self.attention else 0

    @cached_property
    def d_ff(self) -> int:
        """Width of an FFN that every token passes whole; 0: there is none."""
        return next((group.ffn.width for group in self.groups if isinstance(group.ffn, FFN)), 0)

    @cached_property
    def windowed_layers(self) -> int:
        """Layers with attention to a window only."""
        return sum(count for count, attention in self._attentions() if attention.window)

    @cached_property
    def window(self) -> int | None:
        """Tokens in the window; None: no layer has one."""
        return next((attention.window for _, attention in self._attentions() if attention.window), None)

    # Parameters.

    @cached_property
    def _shared(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of each group: layers; parameters of a layer's mixers, of the FFN that all pass, of the router."""
        found = []
        for group in self.groups:
            mixers = sum(sum(mixer.matrices(self.d_model).values()) for mixer in group.mixers)
            ffn = sum(group.ffn.matrices(self.d_model).values()) if group.ffn else 0
            router = group.experts.router(self.d_model) if group.experts else 0
            found.append((group.count, mixers, ffn, router))
        return tuple(found)

    @cached_property
    def _routed(self) -> tuple[tuple[int, Experts, int, float], ...]:
        """Of each group with experts: layers, experts, parameters of one in all, bytes of a weight."""
        return tuple(
            (
                group.count,
                group.experts,
                group.count * group.experts.expert(self.d_model),
                group.bytes.experts,
            )
            for group in self.groups
            if group.experts
        )

    @cached_property
    def shared_layer_params(self) -> int:
        """Matrices of all layers that every token passes: all but the routed experts."""
        return sum(count * (mixers + ffn + router) for count, mixers, ffn, router in self._shared)

    @cached_property
    def layer_params(self) -> int:
        """Matrices of all layers with all experts; no embedding, no norms, no biases."""
        return self.shared_layer_params + sum(experts.count * one for _, experts, one, _ in self._routed)

    @cached_property
    def active_layer_params(self) -> int:
        """Matrices of the layers that one token is multiplied by: its own experts only."""
        return self.shared_layer_params + sum(experts.top_k * one for _, experts, one, _ in self._routed)

    @cached_property
    def head_params(self) -> int:
        """The output head: vocab x d_model."""
        return self.vocab * self.d_model

    @cached_property
    def small_params(self) -> int:
        """Norms, biases, convolutions and other vectors, of all experts too: next to nothing."""
        count = self.vectors
        for group in self.groups:
            parts = (*group.mixers, *((group.ffn,) if group.ffn else ()))
            each = group.vectors + sum(part.vectors for part in parts)
            if group.experts:
                each += group.experts.count * group.experts.expert_vectors
            count += group.count * each
        return count

    @cached_property
    def params(self) -> int:
        """Everything in the checkpoint: layers, head, embedding (once, if tied), norms and biases."""
        ends = self.head_params * (1 if self.tied else 2)
        return ends + self.layer_params + self.small_params + self.lookups

    @cached_property
    def active_params(self) -> int:
        """What one token meets: its own experts, the head, norms and biases; the embedding is a look-up."""
        unmet = sum(
            count * (experts.count - experts.top_k) * experts.expert_vectors
            for count, experts, _, _ in self._routed
        )
        return self.active_layer_params + self.head_params + self.small_params - unmet

    # Bytes of weights.

    @cached_property
    def _shared_bytes(self) -> float:
        """Bytes of the layers' matrices that every token passes."""
        each = zip(self.groups, self._shared, strict=True)
        return fsum(
            count * (mixers * group.bytes.mixer + ffn * group.bytes.ffn + router * 2)
            for group, (count, mixers, ffn, router) in each
        )

    def weight_bytes(self, tokens: int) -> int:
        """Return the bytes of weights that a step over `tokens` tokens reads: layers and head, once each.

        Without experts that does not depend on the number of tokens. With experts it grows until all are
        visited, as `Experts.visited` expects them to be.
        """
        routed = [round(experts.visited(tokens) * one) * each for _, experts, one, each in self._routed]
        return round(fsum([self._shared_bytes, self.head_params * self.head_bytes, *routed]))

    @cached_property
    def streamed_bytes(self) -> int:
        """Bytes of weights that a step over one token reads: layers, of experts only its own, and head."""
        return self.weight_bytes(1)

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of weights that lie in memory: the whole checkpoint, with embedding and all experts."""
        ends = [self.head_params * self.head_bytes]
        if not self.tied:
            ends.append(self.head_params * self.embedding_bytes)
        routed = [experts.count * one * each for _, experts, one, each in self._routed]
        small = (self.small_params + self.lookups) * 2
        return round(fsum([self._shared_bytes, small, *ends, *routed]))

    # Memory of a request: one account for room, copies and reads.

    @cached_property
    def _kept(self) -> tuple[tuple[float, int | None, Attention | Latent], ...]:
        """Of each group with attention: bytes of a token in all its layers, its window, its attention."""
        found = []
        for count, attention in self._attentions():
            found.append((count * attention.cached * self.cache_bytes, attention.window, attention))
        return tuple(found)

    def _index_bytes(self) -> int:
        """Bytes of a token's index keys, in all layers that have an indexer."""
        return sum(
            count * attention.indexer.cached_bytes
            for count, attention in self._attentions()
            if isinstance(attention, Latent) and attention.indexer
        )

    @cached_property
    def index_bytes_per_token(self) -> int:
        """Bytes of index keys (DSA) kept for every token."""
        return self._index_bytes()

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes cached for a new token: all attention layers, those with a window and index keys included."""
        return round(fsum([each for each, _, _ in self._kept])) + self.index_bytes_per_token

    @cached_property
    def growing_bytes_per_token(self) -> int:
        """Bytes of keys and values a token in layers that keep all of the context; without index keys."""
        return round(fsum([each for each, window, _ in self._kept if not window]))

    @cached_property
    def windowed_bytes_per_token(self) -> int:
        """Bytes a token in layers that keep a window only."""
        return round(fsum([each for each, window, _ in self._kept if window]))

    def held(self, tokens: int, degree: int = 1) -> float:
        """Return the bytes that a request of `tokens` tokens holds on each of `degree` GPUs.

        Layers that grow hold all tokens, those with a window no more than that; states are as they are.
        Heads are divided among the GPUs, but each GPU holds one KV head at least, and all of a latent.
        """
        checks.counts_or_zero("held", tokens=tokens)
        checks.counts("held", degree=degree)
        cache = [
            each * min(tokens, window or tokens) * attention.copies(degree)
            for each, window, attention in self._kept
        ]
        index = tokens * self.index_bytes_per_token * degree
        return (fsum(cache) + index + self.state_bytes) / degree

    def copies(self, degree: int) -> float:
        """Return how many copies of the cache `degree` GPUs hold in all: the mean over its bytes."""
        kept = [(each, attention.copies(degree)) for each, _, attention in self._kept]
        kept.append((float(self.index_bytes_per_token), float(degree)))
        total = fsum([each for each, _ in kept])
        return fsum([each * copies for each, copies in kept]) / total if total else 1.0

    def kv_bytes(self, tokens: int, streams: int = 1) -> int:
        """Return the bytes of cache that `streams` contexts of `tokens` tokens in all hold, without states.

        A windowed layer keeps and reads no more than its window. Where contexts differ, all are taken to be
        as long as the mean: exact unless some are shorter than the window and some longer.
        """
        found = tokens * self.kv_bytes_per_token
        for each, window, _ in self._kept:
            if window:
                found -= round(max(0, tokens - streams * window) * each)
        return found

    @cached_property
    def kv_values_per_layer(self) -> int:
        """Values that an attention layer caches per token: K and V of every KV head, or the latent of MLA."""
        return self.attention.cached if self.attention else 0

    @cached_property
    def state_bytes_per_layer(self) -> int:
        """Bytes that a layer with a state keeps per sequence: it, and the convolution's last inputs."""
        return self.mamba.state_bytes(self.bytes_per_value) if self.mamba else 0

    @cached_property
    def state_bytes(self) -> int:
        """Bytes kept for each sequence, however long: all layers with a state."""
        states = [(group.count, group.recurrent) for group in self.groups if group.recurrent]
        return sum(count * state.state_bytes(self.bytes_per_value) for count, state in states)

    def read(self, tokens: int, streams: int = 1) -> int:
        """Return the bytes that one decode step of these streams reads: cache, and states there and back."""
        return self.kv_bytes(tokens, streams) + 2 * self.state_bytes * streams

    # Attention's arithmetic, which no parameter counts.

    @cached_property
    def flops_per_pair(self) -> int:
        """FLOPs of attention for one query and one key over all layers."""
        return sum(count * attention.flops_per_pair for count, attention in self._attentions())

    @cached_property
    def windowed_flops_per_pair(self) -> int:
        """The part of them in layers with a window."""
        return sum(count * each.flops_per_pair for count, each in self._attentions() if each.window)

    @cached_property
    def decode_flops_per_pair(self) -> int:
        """The same for decode: MLA then works on the latents themselves, wider, but shared by the heads."""
        return sum(count * attention.decode_flops_per_pair for count, attention in self._attentions())
