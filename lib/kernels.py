"""A step, kernel by kernel."""

from lib.hardware import GPU, PCIE_4


def product(
    tokens: float, inner: float, outer: float, weight_bytes: float, value_bytes: float
) -> tuple[float, float]:
    """Return FLOPs and bytes of a matrix product: `tokens` x `inner` by `inner` x `outer`.

    Weights and inputs are read at the bytes given, results written in two.
    """
    nbytes = inner * outer * weight_bytes + tokens * inner * value_bytes + 2 * tokens * outer
    return 2 * tokens * inner * outer, nbytes


def prompt_attention(
    pairs: float, queries: float, keys: float, heads: float, kv_heads: float, widths: float
) -> tuple[float, float]:
    """Return FLOPs and bytes of attention over so many pairs of a query and a key.

    `widths`: of a head's key and value together. Queries, keys and values are read, results written, in bf16.
    """
    return 2 * pairs * heads * widths, 2 * widths * (queries * heads + keys * kv_heads)


def experts(
    tokens: float,
    visited: float,
    top_k: float,
    d_model: float,
    width: float,
    matrices: int,
    weight_bytes: float,
) -> tuple[float, float]:
    """Return FLOPs and bytes of experts: both products, what lies between them, the sum of what they say.

    Each token visits `top_k` experts of `matrices` (3: gated, 2) d_model x `width` each; `visited` are read.
    """
    visits = tokens * top_k
    weights = visited * matrices * d_model * width * weight_bytes
    return 2 * matrices * visits * d_model * width, weights + 2 * visits * (2 * d_model + matrices * width)


def fabric(gpu: GPU) -> float:
    """Return bytes/s between neighbours: over NVLink or Infinity Fabric, else PCIe 4.0."""
    return gpu.fabric or PCIE_4.bandwidth
