"""GPUs and links: what a datasheet promises, each figure with its source.

FLOP/s are dense bf16 (never the doubled figure for structured sparsity). Bandwidths are bytes per second,
those of links in one direction. Memory is in bytes, with the datasheet's GB taken as 10^9.
"""

from dataclasses import dataclass

from lib import checks


@dataclass(frozen=True)
class GPU:
    """One GPU: peak FLOP/s (dense bf16), memory bandwidth (bytes/s), memory (bytes).

    `fabric` is what one GPU can send to its neighbours (NVLink, Infinity Fabric) in bytes/s, in one
    direction; None where there is no such link. `source` names where the figures stand.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory: float
    fabric: float | None = None
    source: str = "given by the reader"

    def __post_init__(self) -> None:
        checks.named("GPU", name=self.name, source=self.source)
        checks.positive("GPU", peak_flops=self.peak_flops, bandwidth=self.bandwidth, memory=self.memory)
        if self.fabric is not None:
            checks.positive("GPU", fabric=self.fabric)


@dataclass(frozen=True)
class Link:
    """A way for bytes to leave a GPU: usable bytes/s in one direction, and seconds before the first byte."""

    name: str
    bandwidth: float
    latency: float = 0.0
    source: str = "given by the reader"

    def __post_init__(self) -> None:
        checks.named("Link", name=self.name, source=self.source)
        checks.positive("Link", bandwidth=self.bandwidth)
        checks.not_negative("Link", latency=self.latency)

    def time(self, nbytes: float) -> float:
        """Seconds that `nbytes` take when they have the link to themselves: latency + bytes / bandwidth."""
        checks.not_negative("Link.time", nbytes=nbytes)
        return self.latency + nbytes / self.bandwidth


L40S = GPU(
    name="L40S",
    peak_flops=362e12,
    bandwidth=864e9,
    memory=48e9,
    source="NVIDIA L40S datasheet",
)
A100_80GB = GPU(
    name="A100 SXM 80 GB",
    peak_flops=312e12,
    bandwidth=2039e9,
    memory=80e9,
    fabric=300e9,
    source="NVIDIA A100 datasheet",
)
H100_SXM = GPU(
    name="H100 SXM",
    peak_flops=989e12,
    bandwidth=3.35e12,
    memory=80e9,
    fabric=450e9,
    source="NVIDIA H100 datasheet",
)
H200 = GPU(
    name="H200",
    peak_flops=989e12,
    bandwidth=4.8e12,
    memory=141e9,
    fabric=450e9,
    source="NVIDIA H200 datasheet",
)
B200 = GPU(
    name="B200",
    peak_flops=2250e12,
    bandwidth=8e12,
    memory=180e9,
    fabric=900e9,
    source="NVIDIA DGX B200 datasheet, an eighth of the system's",
)
MI300X = GPU(
    name="MI300X",
    peak_flops=1307.4e12,
    bandwidth=5.3e12,
    memory=192e9,
    fabric=448e9,
    source="AMD Instinct MI300X data sheet; fabric: 7 links of 64 GB/s",
)
GPUS = (L40S, A100_80GB, H100_SXM, H200, B200, MI300X)

PCIE_4 = Link(name="PCIe 4.0 x16", bandwidth=25e9, source="31.5 GB/s on the wire; about 25 GB/s usable")
PCIE_5 = Link(name="PCIe 5.0 x16", bandwidth=50e9, source="twice PCIe 4.0, with the same usable share")
RDMA_100G = Link(name="100 Gb/s RDMA", bandwidth=12.5e9, source="line rate")
RDMA_200G = Link(name="200 Gb/s RDMA", bandwidth=25e9, source="line rate")
RDMA_400G = Link(name="400 Gb/s RDMA", bandwidth=50e9, source="line rate")
NVLINK = Link(
    name="NVLink-class", bandwidth=400e9, source="450 GB/s on the wire (H100); about 400 GB/s usable"
)
LINKS = (PCIE_4, PCIE_5, RDMA_100G, RDMA_200G, RDMA_400G, NVLINK)
