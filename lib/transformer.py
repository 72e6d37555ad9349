"""A whole decoder in one small file: grouped-query attention, rotary positions, RMSNorm, SwiGLU, a KV cache.

Each position is computed on its own, from its token and the cache, by the same operations in the same
order whether the cache was filled a moment ago or came from elsewhere. So right KV gives the same output to
the last bit, and any difference comes from wrong KV. (Unlike the rest of lib, this needs numpy to load.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from lib import checks
from lib.prefix_cache import Reuse, Token

Array = NDArray[np.float64]
Cache = list[Array]  # one entry per position, of shape (layers, 2, kv_heads, head_dim): its keys and values


@dataclass(frozen=True)
class Transformer:
    """A decoder over `vocab` with random weights: untrained, yet every output depends on all the context."""

    vocab: tuple[Token, ...]
    seed: int = 0
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    d_ff: int = 128

    def __post_init__(self) -> None:
        checks.counts("Transformer", layers=self.layers, heads=self.heads, kv_heads=self.kv_heads)
        checks.counts("Transformer", head_dim=self.head_dim, d_ff=self.d_ff)
        if self.heads % self.kv_heads:
            raise ValueError(f"Transformer: kv_heads={self.kv_heads} of heads={self.heads}; use a divisor")
        if self.head_dim % 2:
            raise ValueError(f"Transformer: head_dim={self.head_dim} has no pairs to turn; use an even one")
        if not self.vocab or len(set(self.vocab)) < len(self.vocab):
            raise ValueError(f"Transformer: vocab={self.vocab!r} is empty or repeats; name each token once")

    @cached_property
    def weights(self) -> dict[str, Array]:
        """All matrices, normal with variance 1 / inputs; q to down have the layer as first axis."""
        rng = np.random.default_rng(self.seed)
        d, kv, n = self.heads * self.head_dim, self.kv_heads * self.head_dim, len(self.vocab)
        shapes = {"q": (d, d), "k": (kv, d), "v": (kv, d), "o": (d, d)}
        shapes |= {"gate": (self.d_ff, d), "up": (self.d_ff, d), "down": (d, self.d_ff)}
        layers = {name: rng.normal(0, s[1] ** -0.5, (self.layers, *s)) for name, s in shapes.items()}
        return layers | {"embedding": rng.normal(0, 1, (n, d)), "head": rng.normal(0, d**-0.5, (n, d))}

    def step(self, token: Token, cache: Cache) -> Array:
        """Logits after `token` at position len(cache); its keys and values are appended to `cache`."""
        if token not in self.vocab:
            raise ValueError(
                f"Transformer.step: token={token!r} is not in the vocabulary; use one of {self.vocab}"
            )
        w, position = self.weights, len(cache)
        cache.append(self.empty_slot())
        x = w["embedding"][self.vocab.index(token)]
        for i in range(self.layers):
            h = norm(x)
            q = rotate(apply(w["q"][i], h).reshape(self.heads, -1), position)
            cache[-1][i, 0] = rotate(apply(w["k"][i], h).reshape(self.kv_heads, -1), position)
            cache[-1][i, 1] = apply(w["v"][i], h).reshape(self.kv_heads, -1)
            x = x + apply(w["o"][i], attend(q, np.stack([slot[i] for slot in cache])))
            h = norm(x)
            x = x + apply(w["down"][i], silu(apply(w["gate"][i], h)) * apply(w["up"][i], h))
        return apply(w["head"], norm(x))

    def run(self, tokens: Sequence[Token], cache: Sequence[Array] = ()) -> tuple[Array, Cache]:
        """Next-token probabilities, in `vocab` order, after `tokens` behind `cache`; and the longer cache."""
        if not tokens:
            raise ValueError(f"Transformer.run: tokens={tokens!r} is empty; give at least one")
        longer = list(cache)
        logits = [self.step(token, longer) for token in tokens]
        return softmax(logits[-1]), longer

    def after(self, reuse: Reuse) -> Array:
        """Next-token probabilities after `reuse.prompt` when the holder's KV is put where `reuse` says.

        A slot that the holder has not written counts as zeros. The last token is always computed.
        """
        held = self.run(reuse.held)[1] if reuse.sources else []
        cache = self.run(reuse.prompt[: reuse.local_tokens])[1] if reuse.local_tokens else []
        cache += [held[s] if s < len(held) else self.empty_slot() for s in reuse.sources]
        start = len(reuse.prompt) - reuse.computed_tokens
        return self.run(reuse.prompt[start:], cache[:start])[0]

    def empty_slot(self) -> Array:
        """Zeros in the shape of one position's KV: (layers, keys and values, kv_heads, head_dim)."""
        return np.zeros((self.layers, 2, self.kv_heads, self.head_dim))


def attend(q: Array, kv: Array) -> Array:
    """Each head's mix of its group's values; q: (heads, head_dim), kv: (positions, 2, kv_heads, head_dim)."""
    keys, values = np.repeat(kv, len(q) // kv.shape[2], axis=2).swapaxes(0, 1)
    share = softmax((keys * q).sum(axis=-1) / sqrt(q.shape[1]))
    mixed: Array = (share[:, :, None] * values).sum(axis=0)
    return mixed.ravel()


def apply(matrix: Array, x: Array) -> Array:
    """Matrix times vector. (Why not `matrix @ x`: a BLAS may choose its order of adding by addresses.)"""
    product: Array = (matrix * x).sum(axis=-1)
    return product


def norm(x: Array) -> Array:
    """`x` scaled to a root mean square of 1 (RMSNorm, Zhang and Sennrich 2019, without its learned gain)."""
    return x / sqrt((x * x).mean() + 1e-6)


def silu(x: Array) -> Array:
    """x times its logistic function; `silu(gate) * up` is SwiGLU (Shazeer 2020)."""
    e: Array = np.exp(-x)
    return x / (1 + e)


def softmax(x: Array) -> Array:
    """Positive shares that add up to 1 along the first axis."""
    e: Array = np.exp(x - x.max(axis=0))
    total: Array = e.sum(axis=0)
    return e / total


def rotate(x: Array, position: int) -> Array:
    """Rotary positions (Su et al. 2021): pair i of every head turns by position / 10000 ** (i / pairs)."""
    half = x.shape[-1] // 2
    pairs = x[..., :half] + 1j * x[..., half:]
    turned = pairs * turns(position, half)
    return np.concatenate([turned.real, turned.imag], axis=-1)


@cache
def turns(position: int, pairs: int) -> NDArray[np.complex128]:
    """The factor by which each pair turns at that position."""
    factors: NDArray[np.complex128] = np.exp(1j * position / 10000 ** (np.arange(pairs) / pairs))
    return factors
