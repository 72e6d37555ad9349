"""GPUs and links: what a datasheet promises, each entry with its source.

FLOP/s are dense bf16, never the doubled figure for structured sparsity. Bandwidths are bytes per second,
those of links and fabrics in one direction. Memory is in bytes, a datasheet's GB taken as 10^9.
"""

from dataclasses import dataclass, replace

from lib import checks


@dataclass(frozen=True)
class GPU:
    """One GPU: peak FLOP/s (dense bf16), memory bandwidth (bytes/s), memory (bytes).

    `fabric` is what it can send to its neighbours over NVLink or Infinity Fabric, in bytes/s; None where it
    has neither. `fp8_flops` is the dense peak in FP8; None where it has no such arithmetic. `source` says
    where the figures stand.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory: float
    fabric: float | None = None
    source: str = "given by the reader"
    fp8_flops: float | None = None

    def __post_init__(self) -> None:
        checks.named("GPU", name=self.name, source=self.source)
        checks.positive("GPU", peak_flops=self.peak_flops, bandwidth=self.bandwidth, memory=self.memory)
        for figure in ("fabric", "fp8_flops"):
            if getattr(self, figure) is not None:
                checks.positive("GPU", **{figure: getattr(self, figure)})


@dataclass(frozen=True)
class Link:
    """A way from one GPU to another: usable bytes/s, and seconds before the first byte arrives."""

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


def in_fp8(gpu: GPU) -> GPU:
    """Return the GPU as a model in FP8 sees it: its peak is the FP8 one.

    Attention, which such a model still computes in 16 bits, then looks faster than it is.
    """
    if gpu.fp8_flops is None:
        raise ValueError(f"in_fp8: {gpu.name} has no fp8_flops; use a GPU with FP8 arithmetic")
    return replace(gpu, peak_flops=gpu.fp8_flops)


def gbps(bandwidth: float) -> float:
    """A bandwidth in bytes/s as network people say it: in Gb/s."""
    return bandwidth * 8 / 1e9


L40S = GPU(
    name="L40S",
    peak_flops=362e12,
    bandwidth=864e9,
    memory=48e9,
    fp8_flops=733e12,
    source="NVIDIA L40S datasheet (resources.nvidia.com/en-us-l40s/l40s-datasheet-28413)",
)
A10 = GPU(
    name="A10",
    peak_flops=125e12,
    bandwidth=600e9,
    memory=24e9,
    source="NVIDIA A10 datasheet (nvidia.com, a10/pdf/datasheet-new/nvidia-a10-datasheet.pdf)",
)
A100_80GB = GPU(
    name="A100 80 GB SXM",
    peak_flops=312e12,
    bandwidth=2039e9,
    memory=80e9,
    fabric=300e9,
    source="NVIDIA A100 datasheet 1758950-r4: NVLink 600 GB/s in both directions together",
)
H100_SXM = GPU(
    name="H100 SXM",
    peak_flops=989e12,
    bandwidth=3.35e12,
    memory=80e9,
    fabric=450e9,
    fp8_flops=1979e12,
    source="NVIDIA H100 datasheet (resources.nvidia.com/en-us-gpu-resources/h100-datasheet-24306): "
    "1,979 TFLOP/s with sparsity, NVLink 900 GB/s in both directions together",
)
H800 = GPU(
    name="H800",
    peak_flops=989e12,
    bandwidth=3.35e12,
    memory=80e9,
    fabric=200e9,
    fp8_flops=1979e12,
    source="no public datasheet was found; comparisons in the press agree that it is an H100 with NVLink cut "
    "from 900 to 400 GB/s in both directions together",
)
H200 = GPU(
    name="H200",
    peak_flops=989e12,
    bandwidth=4.8e12,
    memory=141e9,
    fabric=450e9,
    fp8_flops=1979e12,
    source="NVIDIA H200 datasheet 3002446: arithmetic and NVLink as H100",
)
B200 = GPU(
    name="B200",
    peak_flops=2250e12,
    bandwidth=8e12,
    memory=180e9,
    fabric=900e9,
    fp8_flops=4500e12,
    source="NVIDIA DGX B200 datasheet (resources.nvidia.com/en-us-dgx-systems/dgx-b200-datasheet), "
    "one of eight GPUs: 72 PFLOP/s FP8 with sparsity is a quarter of that in dense bf16, 64 TB/s, 1,440 GB",
)
MI300X = GPU(
    name="MI300X",
    peak_flops=1307.4e12,
    bandwidth=5.3e12,
    memory=192e9,
    fabric=448e9,
    fp8_flops=2614.9e12,
    source="AMD Instinct MI300X data sheet; fabric: 7 Infinity Fabric links of 64 GB/s",
)
GPUS = (L40S, A10, A100_80GB, H100_SXM, H800, H200, B200, MI300X)

PCIE_4 = Link(
    name="PCIe 4.0 x16", bandwidth=25e9, source="usable, of 31.5 GB/s on the wire (16 GT/s x 16 lanes)"
)
PCIE_5 = Link(name="PCIe 5.0 x16", bandwidth=50e9, source="usable, the same share of 63 GB/s on the wire")
RDMA_100G = Link(name="100 Gb/s RDMA", bandwidth=12.5e9, source="line rate")
RDMA_200G = Link(name="200 Gb/s RDMA", bandwidth=25e9, source="line rate")
RDMA_400G = Link(name="400 Gb/s RDMA", bandwidth=50e9, source="line rate")
NVLINK = Link(name="NVLink-class", bandwidth=400e9, source="usable, of 450 GB/s on the wire (H100)")
LINKS = (PCIE_4, PCIE_5, RDMA_100G, RDMA_200G, RDMA_400G, NVLINK)
