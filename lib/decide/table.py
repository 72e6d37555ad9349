"""The guide's table as data: each row in this book's words, and a case of it."""

from dataclasses import dataclass
from typing import Any

from lib.decide.case import Case, poisson
from lib.goodput import SLO
from lib.hardware import L40S, PCIE_4
from lib.models import QWEN2_5_7B


@dataclass(frozen=True)
class Row:
    """A row of the guide's table in this book's words, and a case of it."""

    number: int
    situation: str
    recommendation: str
    case: Case


def box(rate: float, slo: SLO, prompt: int = 8192, output: int = 256, **more: Any) -> Case:
    """Return a case: the guide's model, GPUs and bus, an engine on each, with a load and whatever else."""
    load = poisson(rate, prompt, output)
    return Case(
        **{"link": PCIE_4, "tensor_parallel": 1, **more}, model=QWEN2_5_7B, gpu=L40S, load=load, slo=slo
    )


STEADY = SLO(ttft=2.0, itl=0.100)
ROWS = (
    Row(
        1,
        "the ITL p99 misses its target under the load of production",
        "split",
        box(0.4, STEADY, handoff_s=0.020),
    ),
    Row(
        2,
        "long prompts, many at once",
        "split, if the transfer is fast",
        box(0.8, SLO(ttft=5.0, itl=0.100), prompt=16384, handoff_s=0.040, gpus=4),
    ),
    Row(
        3,
        "chat or agents whose context grows from turn to turn",
        "split, with transfer both ways, or with a shared or offloaded cache",
        box(0.4, STEADY, prompt=8000, output=600, new_tokens=400, handoff_s=0.020, history_can_change=True),
    ),
    Row(
        4,
        "frontend work shows in the CPU profile of the GPU nodes",
        "a render tier of its own",
        box(4.0, SLO(ttft=2.0, itl=0.300), prompt=1024, output=128, cpu_s_per_request=0.3),
    ),
    Row(
        5,
        "the first token is what is late",
        "stay, or measure first",
        box(0.6, SLO(ttft=0.65, itl=0.300), handoff_s=0.020),
    ),
    Row(
        6,
        "the cache moves slowly",
        "mend that, or stay",
        box(0.4, STEADY, handoff_s=1.3),
    ),
    Row(
        7,
        "little traffic, or bursts, or patient users",
        "stay",
        box(0.05, SLO(ttft=10.0, tpot=0.100), handoff_s=0.020),
    ),
)
GUIDES_BOX = ROWS[5].case
