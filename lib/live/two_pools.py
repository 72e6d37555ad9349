"""How wide a copy of the model should be, asked by prompts and by answers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from lib import hardware, parallelism
from lib.capacity import OVERLOADED
from lib.live import GPU, MODEL, WIDTHS, Answer, Choice, Number, Refused, bars, calculates, short, unshared
from lib.measured import typically
from lib.models import Model
from lib.roofline import Efficiency
from lib.simulator import Engine

REACHED = Efficiency(compute=0.45, bandwidth=0.75)  # the review's


@calculates(
    "Size two pools yourself",
    Choice("model", "Model", "Llama-3.1-70B", tuple(MODEL)),
    Choice("gpu", "GPU", "H100 SXM", tuple(GPU)),
    Number("prompt", "Prompt", "tokens", 8192, 1, 131_072, 1024),
    Number("context", "Context of a stream", "tokens", 4096, 1, 131_072, 1024),
    Number("target", "Between tokens at most", "ms", 40, 1, 1000, 5),
    Number("rate", "Load", "requests a second", 2, 0.01, 1000, 1, whole=False),
    Number("output", "Answer", "tokens", 256, 1, 8192, 64),
)
def two_pools(
    model: str, gpu: str, prompt: int, context: int, target: int, rate: float, output: int
) -> Answer:
    """Return for each width of a copy what a prompt takes, what decode stands, and the GPUs for a load."""
    network, chip = MODEL[model], GPU[gpu]
    fits_context("prompt", "Prompt and answer", prompt + output, model)
    fits_context("context", "Context of a stream", context, model)
    first: dict[int, float] = {}  # all by width
    pace: dict[int, float] = {}
    streams, limit, prompts, answers = {}, {}, {}, {}
    for width in map(int, WIDTHS):
        if heads := unshared(network, width):
            limit[width] = f"{heads} do not divide"
        elif parallelism.free(network, chip, width) <= 0:
            limit[width] = "weights do not fit"
        else:
            one = engine(network, chip, width)
            first[width] = one.step_seconds(((prompt, 0),))
            prompts[width] = copies(rate * first[width])
            streams[width], limit[width] = most(one, context, target / 1e3)
            if streams[width]:
                pace[width] = one.step_seconds((), streams[width], streams[width] * context)
                answers[width] = copies(rate * output * pace[width] / streams[width])
    if not first:
        raise Refused({"gpu": f"GPU: no copy of {model} starts on up to {width} {gpu}; choose a larger GPU"})
    if not answers:
        raise Refused({
            "target": f"Between tokens at most: {target} ms, or the memory, leaves no stream; "
            "choose a longer time, a shorter context or another GPU"
        })  # fmt: skip
    gpus = {name: {width: width * held.copies for width, held in pool.items()}
            for name, pool in (("prompts", prompts), ("answers", answers))}  # fmt: skip
    fewest, least = (min(pool, key=pool.__getitem__) for pool in gpus.values())
    soonest = min(first, key=first.__getitem__)
    return {
        "say": [
            f"At this load prompts need at least {count(gpus['prompts'][fewest])} (TP{fewest}, then busy "
            f"{100 * prompts[fewest].busy:.0f} % of the time), and answers at least "
            f"{count(gpus['answers'][least])} (TP{least}, {100 * answers[least].busy:.0f} % full). "
            "A promise for waiting times asks for more.",
            f"A first token is there soonest as TP{soonest}: after {short(1e3 * first[soonest])} ms.",
            typically(network, chip, old=True),
        ],
        "table": {
            "a copy on": [
                "prefill, ms",
                "GPUs for prompts",
                "streams",
                "limited by",
                "between tokens, ms",
                "tokens/s per GPU",
                "GPUs for answers",
            ],
            **{
                f"TP{width}": [
                    cell(first, width, 1e3),
                    cell(gpus["prompts"], width),
                    cell(streams, width),
                    limit[width],
                    cell(pace, width, 1e3),
                    streams[width] / pace[width] / width if width in pace else "–",
                    cell(gpus["answers"], width),
                ]
                for width in map(int, WIDTHS)
            },
        },
        "plot": {
            "title": "GPUs for the same load, by the width of a copy",
            "alt": "For each width of a copy two bars end to end: the GPUs that prompts need at the chosen "
            "load, and those that answers need. A width on which no engine starts has none.",
            "x": {
                "label": "GPUs",
                "ends": (0, 1.05 * max(n + gpus["answers"].get(w, 0) for w, n in gpus["prompts"].items())),
            },
            "y": {"label": ""},
            "rows": [f"TP{width}" for width in WIDTHS],
            "marks": [
                bars("for prompts", "prefill", [(f"TP{w}", 0, n) for w, n in gpus["prompts"].items()]),
                bars(
                    "for answers",
                    "decode",
                    [
                        (f"TP{w}", gpus["prompts"][w], gpus["prompts"][w] + n)
                        for w, n in gpus["answers"].items()
                    ],
                ),
            ],
        },
    }


class Held(NamedTuple):
    """The copies that keep up with a load, and the share of their time, or of their streams, it takes."""

    copies: int
    busy: float


def count(gpus: int) -> str:
    """Return so many GPUs in words."""
    return f"{gpus:,} GPU{'s' * (gpus != 1)}"


def copies(load: float) -> Held:
    """Return the fewest copies that a load of so many leaves below `OVERLOADED`."""
    fewest = ceil(load / OVERLOADED)
    return Held(fewest, load / fewest)


def engine(model: Model, gpu: hardware.GPU, width: int) -> Engine:
    """Return a copy on so many GPUs, at the review's efficiencies, that computes a prompt in one step."""
    link = parallelism.interconnect(gpu, width) if width > 1 else None
    return Engine(model, gpu, width, token_budget=None, efficiency=REACHED, link=link)


def most(one: Engine, context: int, target: float) -> tuple[int, str]:
    """Return how many streams of `context` tokens a copy decodes at once, and what limits them."""
    fitting = parallelism.fits(one.model, one.gpu, one.tensor_parallel, context)

    def late(streams: int) -> bool:
        return one.step_seconds((), streams, streams * context) > target

    if not fitting or not late(fitting):
        return fitting, "memory"
    return bisect_left(range(1, fitting + 1), True, key=late), "target"


def fits_context(knob: str, label: str, tokens: int, model: str) -> None:
    """Refuse more tokens than a model reads."""
    longest = MODEL[model].context
    if longest is not None and tokens > longest:
        raise Refused({knob: f"{label}: {tokens:,} tokens, but {model} reads {longest:,} at most"})


def cell(column: Mapping[int, float], width: int, scale: float = 1) -> float | str:
    """Return what the table shows of a width."""
    return column[width] * scale if width in column else "–"
