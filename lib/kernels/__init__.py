"""A step, kernel by kernel: what each takes to start, to compute and to read.

A GPU works a step off as a row of kernels, one after the other: a step is as long as the sum of its kernels,
and hides nothing of one under another. `price` is the model, on one page; `tables` holds whose constants it
takes; `layers` takes a model apart into its kernels; `steps` counts what a step has of each, and adds up.

Starts and shares stand in `lib/data/kernels.toml`. `tools/fit_kernels` took them from kernels that others
timed alone, never from a step or a served request, so that those are predicted. `doubtful()` lists what is
guessed.
"""

from lib.kernels.price import (
    TODAY,
    WAYS,
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
from lib.kernels.steps import (
    FAMILIES,
    SCAN,
    ByKernels,
    Chunks,
    Steps,
    borrowed,
    by_family,
    family,
    split,
    step_kernels,
)
from lib.kernels.tables import (
    LENDERS,
    OF_2024,
    doubtful,
    fabric,
    front,
    input_bytes,
    kinds,
    lenders,
    peak,
    rates,
    uneven,
)

__all__ = [
    "FAMILIES",
    "LENDERS",
    "OF_2024",
    "SCAN",
    "TODAY",
    "WAYS",
    "ByKernels",
    "Chunks",
    "Kernel",
    "Rates",
    "Runtime",
    "Steps",
    "Work",
    "all_reduce",
    "answer_attention",
    "borrowed",
    "by_family",
    "doubtful",
    "experts",
    "fabric",
    "family",
    "front",
    "input_bytes",
    "kinds",
    "lenders",
    "peak",
    "product",
    "prompt_attention",
    "rates",
    "split",
    "step_kernels",
    "uneven",
]
