"""A model, taken apart: every kernel of its layers, before it is known what a step has in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from lib.hardware import GPU
from lib.kernels.price import (
    TODAY,
    Kernel,
    Rates,
    Runtime,
    Work,
    all_reduce,
    answer_attention,
    experts,
    product,
    prompt_attention,
)
from lib.kernels.tables import input_bytes, rates, uneven
from lib.models import FFN, Attention, Experts, Latent, Layers, Mixer, Model, Recurrent

REDUCED = (2, 4, 8)  # GPUs whose all-reduces somebody timed

Count = tuple[str, int | None]  # something that a step has a number of, where it matters of which window
TOKENS: Count = ("tokens", None)
ANSWERS: Count = ("answers", None)
REQUESTS: Count = ("requests", None)
PASSES: Count = ("passes", None)
QUERIES: Count = ("queries", None)


class Term(NamedTuple):
    """A kernel before its step: FLOPs and bytes for each of what the step counts, and bytes in any case.

    It runs where the step has some of `per`. `experts`: those whose weights it reads, as many as are visited,
    `each` bytes of one.
    """

    name: str
    number: int
    rates: Rates
    per: Count
    flops: float
    nbytes: tuple[tuple[Count, float], ...]
    fixed: float = 0.0
    experts: Experts | None = None
    each: float = 0.0

    @property
    def races(self) -> bool:
        """Whether it takes the longer of two: it computes while it reads, the bytes of what it counts."""
        return self.rates.overlap and self.flops > 0

    def kernel(self, counts: dict[Count, float]) -> Kernel:
        """Return the kernel in a step that has these counts."""
        rates = self.rates
        nbytes = fsum([self.fixed, *[counts[count] * each for count, each in self.nbytes]])
        if self.experts is not None:
            nbytes += self.experts.visited(int(counts[TOKENS])) * self.each
        arithmetic, reading = counts[self.per] * self.flops * rates.per_flop, nbytes * rates.per_byte
        return Kernel(self.name, self.number, rates.start, arithmetic, reading, rates.overlap, rates.table)


@dataclass(frozen=True)
class Parts:
    """The kernels of a model on one of its GPUs; how it is divided, `Steps` says."""

    model: Model
    gpu: GPU
    tensor_parallel: int = 1
    expert_parallel: int = 1
    runtime: Runtime = TODAY

    def terms(self) -> tuple[Term, ...]:
        """Every kernel that a step may have, in the order in which they run."""
        found = [self._elementwise("embedding", 1, 4 * self.model.d_model)]
        for group in self.model.groups:
            for mixer in group.mixers:
                found += self._mixer(group, mixer)
            found += self._ffn(group)
            found += self._between(group)
        return (*found, *self._ends())

    # ---------------------------------------------------------------- parts of a layer

    def _mixer(self, group: Layers, mixer: Mixer) -> Iterator[Term]:
        if isinstance(mixer, Attention):
            return self._attention(group, mixer)
        if isinstance(mixer, Latent):
            return self._latent(group, mixer)
        return self._recurrent(group, mixer)

    def _attention(self, group: Layers, mixer: Attention) -> Iterator[Term]:
        number, each, degree = group.count, group.bytes.mixer, self.tensor_parallel
        heads, kv_heads = mixer.heads / degree, max(1.0, mixer.kv_heads / degree)
        key, value = mixer.head_dim, mixer.value_dim
        kept = 0 if mixer.borrows else key + (0 if mixer.one_matrix else value)
        outer = heads * key * (2 if mixer.gated else 1) + kv_heads * kept
        yield self._product("query, key, value", number, self.model.d_model, outer, each)
        yield self._elementwise("rotation", number, 4 * (heads + kv_heads) * key)
        if not mixer.borrows:
            yield self._elementwise("cache write", number, 4 * kv_heads * (key + value))
        kind = "prompt_attention_64" if key <= 64 and self._tells_64 else "prompt_attention_128"
        yield self._prompts("attention of prompts", number, kind, mixer.window, heads, kv_heads, key + value)
        one = answer_attention(1, heads, kv_heads, key + value, self.model.cache_bytes)
        yield self._answers("attention of answers", number, "answer_attention", mixer.window, one)
        yield self._product("attention output", number, heads * value, self.model.d_model, each)

    @property
    def _tells_64(self) -> bool:
        """Whether one table tells heads of 64 from those of 128."""
        return rates(self.gpu, "prompt_attention_64").table == rates(self.gpu, "prompt_attention_128").table

    def _latent(self, group: Layers, mixer: Latent) -> Iterator[Term]:
        number, each, d_model, index = group.count, group.bytes.mixer, self.model.d_model, mixer.indexer
        heads, query = mixer.heads / self.tensor_parallel, mixer.d_nope + mixer.d_rope
        down = mixer.kv_rank + mixer.d_rope + (mixer.q_rank or 0)
        yield self._product("into the latents", number, d_model, down, each)
        yield self._product("queries", number, mixer.q_rank or d_model, heads * query, each)
        yield self._elementwise("rotation", number, 4 * (heads + 1) * mixer.d_rope)
        yield self._elementwise("cache write", number, 4 * mixer.cached)
        if index and not mixer.shares_index:
            width = index.heads * index.head_dim
            yield self._product("index queries", number, mixer.q_rank or d_model, width, each)
            yield self._product("index keys", number, d_model, index.head_dim + index.heads, each)
            prompts, answers = "prompt_attention_128", "answer_attention"
            yield self._prompts("index of prompts", number, prompts, None, index.heads, 1, index.head_dim)
            yield self._answers("index of answers", number, answers, None, (2 * width, index.cached_bytes))
        window = index.top_k if index else None
        wide = heads * (mixer.d_nope + mixer.d_value)
        kind, widths = "prompt_attention_latent", query + mixer.d_value
        yield self._product("out of the latents", number, mixer.kv_rank, wide, each, per=("keys", window))
        yield self._prompts("attention of prompts", number, kind, window, heads, heads, widths)
        inner, outer = (mixer.d_nope, heads * mixer.kv_rank), (mixer.kv_rank, heads * mixer.d_value)
        yield self._product("queries to latents", number, *inner, 2, per=ANSWERS)
        kind, flops = "answer_attention_latent", mixer.decode_flops_per_pair / self.tensor_parallel
        one = flops, mixer.cached * self.model.cache_bytes
        yield self._answers("attention of answers", number, kind, window, one)
        yield self._product("latents to values", number, *outer, 2, per=ANSWERS)
        yield self._product("attention output", number, heads * mixer.d_value, d_model, each)

    def _recurrent(self, group: Layers, mixer: Recurrent) -> Iterator[Term]:
        number, d_model, degree = group.count, self.model.d_model, self.tensor_parallel
        for name, size in mixer.weights:
            outer = size / d_model / degree
            yield self._product(name.replace("_", " "), number, d_model, outer, group.bytes.mixer)
        wide = mixer.channels + 2 * mixer.heads * mixer.head_dim
        yield self._elementwise("convolution and gate", number, 4 * wide / degree)
        nbytes = 2 * mixer.state_bytes(self.model.bytes_per_value) / degree
        yield Term("states", number, rates(self.gpu, "states"), PASSES, 0.0, ((PASSES, nbytes),))

    def _ffn(self, group: Layers) -> Iterator[Term]:
        ffn = group.ffn
        if isinstance(ffn, FFN):
            yield from self._network(group, ffn.width, ffn.gated)
        elif isinstance(ffn, Experts):
            if ffn.d_shared:
                yield from self._network(group, ffn.d_shared, ffn.gated)
            yield from self._experts(group, ffn)

    def _network(self, group: Layers, width: int, gated: bool) -> Iterator[Term]:
        number, each, d_model = group.count, group.bytes.ffn, self.model.d_model
        inner, halves = width / self.tensor_parallel, 2 if gated else 1
        yield self._product("FFN in", number, d_model, halves * inner, each)
        yield self._elementwise("activation", number, 2 * (halves + 1) * inner)
        yield self._product("FFN out", number, inner, d_model, each)

    def _experts(self, group: Layers, ffn: Experts) -> Iterator[Term]:
        number, d_model, degree = group.count, self.model.d_model, self.tensor_parallel
        hidden = ffn.d_expert or d_model
        yield self._product("router", number, d_model, ffn.count, 2)
        yield self._elementwise("choice of experts", number, 4 * ffn.count)
        if ffn.d_expert:
            yield self._product("into the experts", number, d_model, hidden, group.bytes.ffn)
        visited, visits, width = 1.0, float(ffn.top_k), ffn.width / degree
        if self.expert_parallel > 1:
            visited, visits, width = 1 / degree, visits * uneven(degree) / degree, float(ffn.width)
        one = experts(0, visited, visits, hidden, width, ffn.factor, group.bytes.experts)[1]
        flops, nbytes = experts(1, 0, visits, hidden, width, ffn.factor, group.bytes.experts)
        kind = self._precision(group.bytes.experts, "experts")
        yield Term(
            "experts",
            number,
            rates(self.gpu, kind),
            TOKENS,
            flops,
            ((TOKENS, nbytes),),
            experts=ffn,
            each=one,
        )
        if ffn.d_expert:
            yield self._product("out of the experts", number, hidden, d_model, group.bytes.ffn)

    def _between(self, group: Layers) -> Iterator[Term]:
        """Norms and residuals around a layer's parts, and the all-reduces after them."""
        parts, d_model = group.count * (bool(group.mixers) + bool(group.ffn)), self.model.d_model
        yield self._elementwise("norm and residual", parts, 8 * d_model)
        if not self.runtime.fused:
            yield self._elementwise("residual", parts, 6 * d_model)
            yield self._elementwise("copy", group.count, 4 * d_model)
        if self.tensor_parallel > 1:
            known = next((degree for degree in REDUCED if degree >= self.tensor_parallel), REDUCED[-1])
            _, nbytes = all_reduce(1, d_model, self.tensor_parallel, self.model.bytes_per_value)
            timed = rates(self.gpu, f"all_reduce_{known}")
            yield Term("all-reduce", parts, timed, TOKENS, 0.0, ((TOKENS, nbytes),))

    def _ends(self) -> Iterator[Term]:
        """The head, for every request in the step, and the choice of a token."""
        outer = self.model.vocab / self.tensor_parallel
        yield self._product("head", 1, self.model.d_model, outer, self.model.head_bytes, per=REQUESTS)
        yield self._elementwise("sampling", 4, 4 * self.model.vocab, per=REQUESTS)

    # ---------------------------------------------------------------- kinds of kernels

    def _product(
        self, name: str, number: int, inner: float, outer: float, each: float, per: Count = TOKENS
    ) -> Term:
        kind = self._precision(each, "gemm")
        value = input_bytes(kind)
        weights = product(0, inner, outer, each, value)[1]
        flops, nbytes = product(1, inner, outer, 0, value)
        return Term(name, number, rates(self.gpu, kind), per, flops, ((per, nbytes),), weights)

    def _elementwise(self, name: str, number: int, nbytes: float, per: Count = TOKENS) -> Term:
        return Term(name, number, rates(self.gpu, "elementwise"), per, 0.0, ((per, nbytes),))

    def _prompts(self, name: str, number: int, kind: str, window: int | None, *shape: float) -> Term:
        """Attention of prompts; `shape`: heads, KV heads, widths."""
        flops = prompt_attention(1, 0, 0, *shape)[0]
        query, key = prompt_attention(0, 1, 0, *shape)[1], prompt_attention(0, 0, 1, *shape)[1]
        reads = ((QUERIES, query), (("keys", window), key))
        return Term(name, number, rates(self.gpu, kind), ("pairs", window), flops, reads)

    def _answers(self, name: str, number: int, kind: str, window: int | None, one: Work) -> Term:
        """Attention of answers; `one`: FLOPs and bytes for a token that is seen."""
        per: Count = ("seen", window)
        return Term(name, number, rates(self.gpu, kind), per, one[0], ((per, one[1]),))

    def _precision(self, each: float, family: str) -> str:
        """Which table prices weights of so many bytes.

        In FP8, where the model computes in it and the GPU can: scaled by blocks if the model has experts, as
        all of the book's do, else by tensor. Weights narrower than the arithmetic are widened on the way.
        """
        arithmetic = self.model.arithmetic
        if each > 1.5:
            return f"{family}_bf16"
        if each < 0.9 and arithmetic == "fp4" and self.gpu.fp4_flops:
            return f"{family}_fp4"
        if each > 0.9 and arithmetic != "bf16" and self.gpu.fp8_flops:
            return f"{family}_fp8" if family == "gemm" and not self.model.experts else f"{family}_fp8_block"
        if family == "gemm":
            return "gemm_int4"
        return f"experts_mxfp4_{self.runtime.mxfp4}" if self.runtime.mxfp4 else "experts_mxfp4"
