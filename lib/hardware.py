"""GPUs and links: what a datasheet promises, each entry with its source.

FLOP/s are dense bf16, never the doubled figure for structured sparsity. Bandwidths are bytes per second,
those of links and fabrics in one direction. Memory is in bytes, a datasheet's GB taken as 10^9.
"""

from dataclasses import dataclass, replace

from lib import checks

PRECISIONS = ("bf16", "fp8", "fp4")  # of arithmetic, the widest first


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


PCIE_4 = Link(
    name="PCIe 4.0 x16", bandwidth=25e9, source="usable, of 31.5 GB/s on the wire (16 GT/s x 16 lanes)"
)
PCIE_5 = Link(name="PCIe 5.0 x16", bandwidth=50e9, source="usable, the same share of 63 GB/s on the wire")


@dataclass(frozen=True)
class GPU:
    """One GPU: peak FLOP/s (dense bf16), memory bandwidth (bytes/s), memory (bytes).

    `fabric` is what it can send to all its neighbours together over NVLink or Infinity Fabric, in bytes/s;
    None where it has neither. `neighbours`: to how many GPUs the fabric has links of their own, each with an
    equal part of it; None: a switch gives all of it to any. `fp8_flops`, `fp4_flops` are the dense peaks
    there; None where it has no such arithmetic. `per_node` GPUs share a server; `host` is the bus to it.
    `source` says where the figures stand.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory: float
    fabric: float | None = None
    source: str = "given by the reader"
    fp8_flops: float | None = None
    fp4_flops: float | None = None
    neighbours: int | None = None
    per_node: int = 8
    host: Link = PCIE_4

    def __post_init__(self) -> None:
        checks.named("GPU", name=self.name, source=self.source)
        checks.positive("GPU", peak_flops=self.peak_flops, bandwidth=self.bandwidth, memory=self.memory)
        checks.counts("GPU", per_node=self.per_node)
        if self.neighbours is not None:
            checks.counts("GPU", neighbours=self.neighbours)
        for figure in ("fabric", "fp8_flops", "fp4_flops"):
            if getattr(self, figure) is not None:
                checks.positive("GPU", **{figure: getattr(self, figure)})

    def peak(self, arithmetic: str = "bf16") -> float:
        """Return the dense peak in FLOP/s at which products in "bf16", "fp8" or "fp4" are computed.

        A GPU without the arithmetic computes in the next wider that it has: its weights are unpacked first.
        """
        if arithmetic not in PRECISIONS:
            raise ValueError(f"GPU.peak: arithmetic={arithmetic!r}; use one of {', '.join(PRECISIONS)}")
        peaks = (self.fp4_flops, self.fp8_flops, self.peak_flops)[2 - PRECISIONS.index(arithmetic) :]
        return next(peak for peak in peaks if peak)

    def fabric_in(self, degree: int | None = None) -> float | None:
        """Return what the fabric carries for one GPU within a group of `degree`, in bytes/s; None: nothing.

        Of links to single neighbours, only those to the group's others; None for `degree`: all of them.
        """
        if self.fabric is None or self.neighbours is None or degree is None:
            return self.fabric
        if degree - 1 > self.neighbours:
            return None
        return self.fabric * max(1, degree - 1) / self.neighbours


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
    host=PCIE_5,
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
    host=PCIE_5,
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
    host=PCIE_5,
    source="NVIDIA H200 datasheet 3002446: arithmetic and NVLink as H100",
)
B200 = GPU(
    name="B200",
    peak_flops=2250e12,
    bandwidth=8e12,
    memory=180e9,
    fabric=900e9,
    fp8_flops=4500e12,
    fp4_flops=9000e12,
    host=PCIE_5,
    source="NVIDIA DGX B200 datasheet (resources.nvidia.com/en-us-dgx-systems/dgx-b200-datasheet), "
    "one of eight GPUs: 72 PFLOP/s FP8 with sparsity is a quarter of that in dense bf16, 64 TB/s, 1,440 GB; "
    "144 PFLOP/s FP4 with sparsity",
)
MI300X = GPU(
    name="MI300X",
    peak_flops=1307.4e12,
    bandwidth=5.3e12,
    memory=192e9,
    fabric=448e9,
    fp8_flops=2614.9e12,
    neighbours=7,
    host=PCIE_5,
    source="AMD Instinct MI300X data sheet; fabric: 7 Infinity Fabric links of 64 GB/s",
)
L4 = GPU(
    name="L4",
    peak_flops=121e12,
    bandwidth=300e9,
    memory=24e9,
    fp8_flops=242.5e12,
    source="NVIDIA L4 datasheet: 242 TFLOP/s bf16 and 485 FP8 with sparsity",
)
L40 = GPU(
    name="L40",
    peak_flops=181.05e12,
    bandwidth=864e9,
    memory=48e9,
    fp8_flops=362e12,
    source="NVIDIA L40 datasheet: 181.05 TFLOP/s bf16 and 362 FP8, dense",
)
A100_40GB = GPU(
    name="A100 40 GB SXM",
    peak_flops=312e12,
    bandwidth=1555e9,
    memory=40e9,
    fabric=300e9,
    source="NVIDIA A100 datasheet: as the one of 80 GB, with HBM2 of 1,555 GB/s",
)
H100_PCIE = GPU(
    name="H100 PCIe",
    peak_flops=756.5e12,
    bandwidth=2e12,
    memory=80e9,
    fabric=300e9,
    fp8_flops=1513e12,
    neighbours=1,
    host=PCIE_5,
    source="NVIDIA H100 datasheet: 1,513 TFLOP/s bf16 with sparsity, 2 TB/s; a bridge of 600 GB/s in both "
    "directions together joins two",
)
H100_NVL = GPU(
    name="H100 NVL",
    peak_flops=835.5e12,
    bandwidth=3.9e12,
    memory=94e9,
    fabric=300e9,
    fp8_flops=1670.5e12,
    neighbours=1,
    host=PCIE_5,
    source="NVIDIA H100 datasheet: 1,671 TFLOP/s bf16 and 3,341 FP8 with sparsity, 3.9 TB/s, 94 GB; a bridge "
    "of 600 GB/s in both directions together joins two",
)
H20 = GPU(
    name="H20",
    peak_flops=148e12,
    bandwidth=4e12,
    memory=96e9,
    fabric=450e9,
    fp8_flops=296e12,
    host=PCIE_5,
    source="no public datasheet was found; sellers and the press agree on 148 TFLOP/s bf16, 296 FP8, "
    "4.0 TB/s, 96 GB, NVLink 900 GB/s in both directions together",
)
B300 = GPU(
    name="B300",
    peak_flops=2250e12,
    bandwidth=8e12,
    memory=288e9,
    fabric=900e9,
    fp8_flops=4500e12,
    fp4_flops=13.5e15,
    host=PCIE_5,
    source="NVIDIA DGX B300 datasheet, one of eight GPUs: 72 PFLOP/s FP8 with sparsity, 108 FP4 dense, "
    "2.3 TB; NVLink 1.8 TB/s in both directions together",
)
RTX_PRO_6000 = GPU(
    name="RTX PRO 6000",
    peak_flops=500e12,
    bandwidth=1792e9,
    memory=96e9,
    fp8_flops=1000e12,
    fp4_flops=2000e12,
    host=PCIE_5,
    source="NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet: 1, 2 and 4 PFLOP/s with sparsity in "
    "bf16, FP8 and FP4; 1,792 GB/s: NVIDIA aiconfigurator-core 0.12.0, systems/rtx_pro_6000_server.yaml",
)
MI325X = GPU(
    name="MI325X",
    peak_flops=1307.4e12,
    bandwidth=6e12,
    memory=256e9,
    fabric=448e9,
    fp8_flops=2614.9e12,
    neighbours=7,
    host=PCIE_5,
    source="AMD Instinct MI325X data sheet; fabric: 7 Infinity Fabric links of 64 GB/s",
)
MI355X = GPU(
    name="MI355X",
    peak_flops=2516.6e12,
    bandwidth=8e12,
    memory=288e9,
    fabric=537.6e9,
    fp8_flops=5033.2e12,
    fp4_flops=10066.3e12,
    neighbours=7,
    host=PCIE_5,
    source="AMD Instinct MI355X data sheet; fabric: 7 Infinity Fabric links of 76.8 GB/s",
)
GPUS = (
    L40S, A10, A100_80GB, H100_SXM, H800, H200, B200, MI300X, L4, L40, A100_40GB, H100_PCIE, H100_NVL, H20,
    B300, RTX_PRO_6000, MI325X, MI355X,
)  # fmt: skip


RDMA_100G = Link(name="100 Gb/s RDMA", bandwidth=12.5e9, source="line rate")
RDMA_200G = Link(name="200 Gb/s RDMA", bandwidth=25e9, source="line rate")
RDMA_400G = Link(name="400 Gb/s RDMA", bandwidth=50e9, source="line rate")
NVLINK = Link(name="NVLink-class", bandwidth=400e9, source="usable, of 450 GB/s on the wire (H100)")
LINKS = (PCIE_4, PCIE_5, RDMA_100G, RDMA_200G, RDMA_400G, NVLINK)
