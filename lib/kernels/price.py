"""The model, on one page: a kernel takes `start + work`.

Its work is arithmetic, at a share of the GPU's peak, and bytes, at a share of its bandwidth: the longer
of both where they overlap (matrix products, attention over an answer's cache), their sum where they do not
(attention over a prompt, experts). That is the roofline again, but one for every kernel.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lib import checks

Work = tuple[float, float]  # FLOPs and bytes

# ------------------------------------------------------------------ what a kernel computes and moves


def product(tokens: float, inner: float, outer: float, weight_bytes: float, value_bytes: float) -> Work:
    """Return FLOPs and bytes of a matrix product: `tokens` x `inner` by `inner` x `outer`.

    Weights and inputs are read at the bytes given, results written in two.
    """
    nbytes = inner * outer * weight_bytes + tokens * inner * value_bytes + 2 * tokens * outer
    return 2 * tokens * inner * outer, nbytes


def prompt_attention(
    pairs: float, queries: float, keys: float, heads: float, kv_heads: float, widths: float
) -> Work:
    """Return FLOPs and bytes of attention over so many pairs of a query and a key.

    `widths`: of a head's key and value together. Queries, keys and values are read, results written, in bf16.
    """
    return 2 * pairs * heads * widths, 2 * widths * (queries * heads + keys * kv_heads)


def answer_attention(seen: float, heads: float, kv_heads: float, widths: float, value_bytes: float) -> Work:
    """Return FLOPs and bytes of attention of answers that see so many tokens: their cache is read."""
    return 2 * seen * heads * widths, seen * kv_heads * widths * value_bytes


def experts(
    tokens: float,
    visited: float,
    top_k: float,
    d_model: float,
    width: float,
    matrices: int,
    weight_bytes: float,
) -> Work:
    """Return FLOPs and bytes of experts: both products, what lies between them, the sum of what they say.

    Each token visits `top_k` experts of `matrices` (3: gated, 2) d_model x `width` each; `visited` are read.
    """
    visits = tokens * top_k
    weights = visited * matrices * d_model * width * weight_bytes
    return 2 * matrices * visits * d_model * width, weights + 2 * visits * (2 * d_model + matrices * width)


def all_reduce(tokens: float, d_model: float, gpus: int, value_bytes: float) -> Work:
    """Return no FLOPs, and the bytes that each of so many GPUs sends around a ring to add up results."""
    return 0.0, 2 * (gpus - 1) / gpus * tokens * d_model * value_bytes


# ------------------------------------------------------------------ what that takes


@dataclass(frozen=True, slots=True)
class Rates:
    """What one kind of kernel takes on one GPU: seconds to start, a FLOP and a byte; and whose table says so.

    `overlap`: whether it computes while it reads.
    """

    start: float
    per_flop: float
    per_byte: float
    overlap: bool
    table: str


class Kernel(NamedTuple):
    """Kernels of one kind in a step: how many, and the seconds of one to start, to compute and to read."""

    name: str
    number: int
    start: float
    arithmetic: float
    reading: float
    overlap: bool
    table: str

    @property
    def seconds(self) -> float:
        """Seconds of all of them."""
        work = max(self.arithmetic, self.reading) if self.overlap else self.arithmetic + self.reading
        return self.number * (self.start + work)

    @property
    def bound(self) -> str:
        """What most of that is: "start", "arithmetic" or "bytes"."""
        parts = {"start": self.start, "arithmetic": self.arithmetic, "bytes": self.reading}
        return max(parts, key=lambda part: parts[part])


# ------------------------------------------------------------------ how an engine starts them


WAYS = ("marlin", "fp8")  # to compute experts in MXFP4


@dataclass(frozen=True)
class Runtime:
    """How an engine starts its kernels.

    - `fused`: a compiler has put small kernels together: five of them a layer, else eight.
    - `recorded`: the most tokens of a step that is started as one recorded graph; None: any. A larger step
      takes `launch` seconds a kernel at least, for Python starts them one by one.
    - `cpu`: seconds between two steps in which the GPU waits.
    - `mxfp4`: how experts in MXFP4 are computed, where it is told to do it otherwise: one of WAYS, by
      Marlin's kernels or with inputs in FP8.
    """

    fused: bool = True
    recorded: int | None = None
    cpu: float = 0.0
    mxfp4: str = ""

    def __post_init__(self) -> None:
        if self.recorded is not None:
            checks.counts_or_zero("Runtime", recorded=self.recorded)
        checks.not_negative("Runtime", cpu=self.cpu)
        if self.mxfp4 not in ("", *WAYS):
            raise ValueError(f"Runtime: mxfp4={self.mxfp4!r} is none; use one of {', '.join(WAYS)}, or ''")


TODAY = Runtime()
