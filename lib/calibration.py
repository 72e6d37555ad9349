"""How far below the roof a GPU stays: efficiencies from one published database, and nothing else.

The database holds kernels that NVIDIA timed under vLLM, put together to steps of one model on five GPUs: a
prompt of 8,192 tokens, and decode steps of 1, 8 and 32 streams at a context of 8k. An efficiency is the
book's own ideal time over the database's measured one. It knows no engine: no scheduler, no CPU, no network.
"""

from math import fsum

from lib import data
from lib.hardware import (
    A10,
    A100_40GB,
    A100_80GB,
    B200,
    B300,
    GPU,
    H20,
    H100_NVL,
    H100_PCIE,
    H100_SXM,
    H200,
    H800,
    L4,
    L40,
    L40S,
    MI300X,
    MI325X,
    MI355X,
    RTX_PRO_6000,
)
from lib.models import QWEN2_5_7B
from lib.roofline import Efficiency, Work, decode, ideal_time, prefill

DATABASE = "kernel-database-qwen25-7b"
COVERED = {L40S: "l40s", A100_80GB: "a100", H100_SXM: "h100", H200: "h200", B200: "b200"}
STAND_INS = {  # GPU -> whose efficiencies it is given
    A10: A100_80GB,  # Ampere, too
    H800: H100_SXM,  # the same chip
    MI300X: H200,  # another maker: only the nearest in bandwidth and memory, the weakest case of all
    L4: L40S,  # Ada, too
    L40: L40S,
    A100_40GB: A100_80GB,
    H100_PCIE: H100_SXM,  # Hopper, too
    H100_NVL: H100_SXM,
    H20: H100_SXM,
    B300: B200,  # Blackwell, too
    RTX_PRO_6000: L40S,  # Blackwell, but a card with GDDR memory as this one
    MI325X: H200,  # as MI300X
    MI355X: B200,  # as MI300X
}

PREFILL = prefill(QWEN2_5_7B, 8192)
DECODES = tuple(decode(QWEN2_5_7B, batch, 8192) for batch in (1, 8, 32))


def stand_in(gpu: GPU) -> GPU:
    """Return the GPU whose efficiencies hold for this one: itself, if the database covers it.

    ValueError for a GPU that has none: take the efficiencies of one that you think is like it.
    """
    if gpu not in COVERED and gpu not in STAND_INS:
        covered = ", ".join(known.name for known in COVERED)
        raise ValueError(
            f"calibration: none published for {gpu.name}; use the efficiency of one of {covered}, or your own"
        )
    return STAND_INS.get(gpu, gpu)


def seconds(gpu: GPU, mode: str = "measured") -> list[float]:
    """Return the database's seconds of `PREFILL` and of each of `DECODES`.

    `mode` is "measured", or "speed_of_light": what the database itself takes for ideal. Its decode steps
    at "8k" are taken to have 8,192 tokens of context.
    """
    entry = data.measurements()[DATABASE][COVERED[gpu]]
    row = entry if mode == "measured" else entry[mode]
    return [float(ms) / 1e3 for ms in (row["prefill_ms"], *row["decode_ms"])]


def shares(gpu: GPU, mode: str = "measured") -> list[float]:
    """Return the book's ideal time over the database's, for `PREFILL` and for each of `DECODES`."""
    works: list[Work] = [PREFILL, *DECODES]
    return [ideal_time(work, gpu) / time for work, time in zip(works, seconds(gpu, mode), strict=True)]


def efficiency(gpu: GPU) -> Efficiency:
    """Return the efficiencies of the GPU, or of the one that stands in for it.

    Of arithmetic, the share that the prompt reaches; of bandwidth, the mean share of the decode steps;
    no overhead, for the database has no engine around the kernels.
    """
    compute, *bandwidths = shares(stand_in(gpu))
    return Efficiency(compute, fsum(bandwidths) / len(bandwidths))
