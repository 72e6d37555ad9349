"""Constants: starts and shares of `lib/data/kernels.toml`, and from whom a GPU borrows what it lacks."""

from functools import cache
from math import log

from lib import checks, data
from lib.hardware import A100_80GB, B200, GPU, H100_SXM, H200, L40S
from lib.kernels.price import Rates, Runtime

LENDERS = {  # whose starts and shares a GPU borrows where it has no table of its own: first the nearest chip
    "L40S": ("A40", "H100 SXM"),  # its generation's FP8, and a card without NVLink
    "L40": ("L40S", "A40", "H100 SXM"),
    "L4": ("L40S", "A40", "H100 SXM"),
    "A10": ("A40", "A100 80 GB SXM"),  # the A40's chip, cut down
    "A100 80 GB SXM": ("A40", "H100 SXM"),
    "A100 40 GB SXM": ("A100 80 GB SXM", "A40", "H100 SXM"),
    "H100 SXM": ("H200",),
    "H100 PCIe": ("H100 SXM",),
    "H100 NVL": ("H100 SXM",),
    "H200": ("H100 SXM",),  # the same chip with other memory
    "H800": ("H100 SXM",),  # the same chip with a narrower NVLink
    "H20": ("H100 SXM",),  # the same chip with little arithmetic, of which it may reach more
    "B200": ("H200", "H100 SXM"),
    "B300": ("B200", "H200", "H100 SXM"),
    "RTX PRO 6000": ("B200", "H200", "H100 SXM"),
    "MI300X": ("H200", "H100 SXM"),  # another maker: the nearest in bandwidth and memory, the weakest case
    "MI325X": ("MI300X", "H200", "H100 SXM"),
    "MI355X": ("MI300X", "H200", "H100 SXM"),
}
TIMED = (L40S, A100_80GB, H100_SXM, H200, B200)  # with a table of nearly every kernel
LAST = ("A100 80 GB SXM", "B200")  # weights of four bits were timed there only, and FP4


def lenders(gpu: GPU) -> tuple[str, ...]:
    """Return whose tables hold for a GPU, its own first.

    One that the catalogue does not have borrows from the nearest in peak and bandwidth that somebody timed.
    """
    if gpu.name in LENDERS:
        return (gpu.name, *LENDERS[gpu.name], *LAST)

    def distance(known: GPU) -> float:
        peak, bandwidth = known.peak_flops / gpu.peak_flops, known.bandwidth / gpu.bandwidth
        return abs(log(peak)) + abs(log(bandwidth))

    nearest = min(TIMED, key=distance).name
    return (nearest, *LENDERS[nearest], *LAST)


@cache
def rates(gpu: GPU, kernel: str) -> Rates:
    """Return what a kind of kernel takes on a GPU: its own peak and bandwidth, at its table's shares."""
    tables = data.read("kernels.toml")["gpu"]
    for name in lenders(gpu):
        entry = tables.get(name, {}).get(kernel)
        if entry is not None:
            reduces = kernel.startswith("all_reduce")
            bandwidth = fabric(gpu, int(kernel.rpartition("_")[2])) if reduces else gpu.bandwidth
            per_flop = 1 / (peak(gpu, kernel) * float(entry.get("compute", 1)))
            per_byte = 1 / (bandwidth * float(entry["bandwidth"])) if "bandwidth" in entry else 0.0
            overlap = not kernel.startswith(("prompt", "experts")) and entry.get("form") != "sum"
            return Rates(float(entry["start_us"]) / 1e6, per_flop, per_byte, overlap, name)
    raise ValueError(f"kernels: no table for {kernel!r} on {gpu.name}; use one of {', '.join(kinds())}")


def kinds() -> tuple[str, ...]:
    """Return the kinds of kernels that some GPU has a table of."""
    tables = data.read("kernels.toml")["gpu"]
    return tuple(sorted({kind for table in tables.values() for kind in table}))


def input_bytes(kernel: str) -> float:
    """Return the bytes of a value that goes into a product: those of its arithmetic, in FP4 with a scale."""
    return (4 + 8 / 16) / 8 if kernel.endswith("_fp4") else 1 if "_fp8" in kernel else 2


def fabric(gpu: GPU, degree: int) -> float:
    """Return bytes/s of a GPU within a group: over NVLink or Infinity Fabric, else over its bus."""
    return gpu.fabric_in(degree) or gpu.host.bandwidth


def peak(gpu: GPU, kernel: str) -> float:
    """Return the FLOP/s of the data sheet for a kind of kernel: FP4's or FP8's in those, else bf16's."""
    return gpu.peak("fp4" if kernel.endswith("_fp4") else "fp8" if "_fp8" in kernel else "bf16")


def uneven(degree: int) -> float:
    """Return how much fuller the fullest of so many GPUs is than the mean, where each holds whole experts."""
    factors = data.read("kernels.toml")["uneven"]
    known = [int(key) for key in factors if int(key) <= degree]
    return float(factors[str(max(known))]["factor"]) if known else 1.0


# ------------------------------------------------------------------ an engine around its kernels


def _engine(name: str, unit: float) -> float:
    return float(data.read("kernels.toml")["engine"][name]) * unit


OF_2024 = Runtime(fused=False, recorded=256, cpu=_engine("cpu_2024_ms", 1e-3))  # prompts are not recorded
FRONT = _engine("front_ms", 1e-3)  # seconds of a request outside its engine, at each server that it passes
RENDER = _engine("render_us_per_token", 1e-6)  # seconds to tokenize one token of a prompt


def front(tokens: int) -> float:
    """Return the seconds that a request of so many prompt tokens spends in front of an engine."""
    checks.counts("front", tokens=tokens)
    return FRONT + RENDER * tokens


# ------------------------------------------------------------------ what to doubt

GUESSES = (  # of the model, whatever the GPU; those of one table stand in the file
    (
        "states",
        "Mamba's cost what a gated delta rule's do, and a prompt's scan a pass every 256 tokens",
    ),
    ("index", "the indexer of sparse attention is priced like attention over its keys"),
    ("all-reduce", "more than eight GPUs are taken to reach what eight do"),
    ("elementwise", "how many small kernels a layer has: five where a compiler fuses them, eight where not"),
    ("experts", "how unevenly whole experts are visited: by a power law of 1.2, not by anybody's traffic"),
    ("recorded", "engines of 2024 record steps of at most 256 tokens"),
    ("CPU", "7 ms a step in engines of 2024: one served token, less the kernels of its step"),
    ("front", "23 ms a request: served first tokens less their steps, of an earlier fit; not fitted again"),
)


def doubtful() -> list[tuple[str, str, str]]:
    """Return what is guessed, chosen late or owed to served requests: GPU or "every", kernel, why."""
    entries = [
        (gpu, kernel, entry.get("guess") or entry.get("late"))
        for gpu, table in data.read("kernels.toml")["gpu"].items()
        for kernel, entry in table.items()
    ]
    return [*[entry for entry in entries if entry[2]], *[("every", name, why) for name, why in GUESSES]]
