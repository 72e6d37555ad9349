"""How wide a copy of the model should be, asked by prompts and by answers."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from lib import data, parallelism
from lib.live import GPU, MODEL, Answer, Choice, Number, Refused, bars, calculates, short
from lib.models import Model
from lib.roofline import Efficiency

REACHED = Efficiency(compute=0.45, bandwidth=0.75)  # the review's
WIDTHS = (1, 2, 4, 8)  # GPUs to a copy


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
    params = counted(network)
    first: dict[int, float] = {}  # all by width
    pace: dict[int, float] = {}
    streams, prompts, answers, limit = {}, {}, {}, {}
    for width in WIDTHS:
        if parallelism.free(network, chip, width) <= 0:
            continue
        first[width] = parallelism.prefill_ttft(network, chip, width, prompt, REACHED, params)
        prompts[width] = width * ceil(rate * first[width])
        arguments = (network, chip, width, context, target / 1e3, REACHED, params)
        streams[width], limit[width] = parallelism.decode_batch(*arguments)
        if streams[width]:
            pace[width] = parallelism.decode_itl(*arguments[:3], streams[width], context, REACHED, params)
            answers[width] = width * ceil(rate * output * pace[width] / streams[width])
    if not answers:
        raise Refused(
            {"target": f"target={target} ms, or the memory, leaves no stream; use more, or another GPU"}
        )
    fewest, least = min(prompts, key=prompts.__getitem__), min(answers, key=answers.__getitem__)
    soonest = min(first, key=first.__getitem__)
    return {
        "say": [
            f"At this load {prompts[fewest]:,} GPUs suffice for prompts, as TP{fewest}, and "
            f"{answers[least]:,} for answers, as TP{least}, if nobody queues.",
            f"A first token is there soonest as TP{soonest}: after {short(1e3 * first[soonest])} ms.",
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
                    cell(prompts, width),
                    cell(streams, width),
                    limit.get(width, "weights"),
                    cell(pace, width, 1e3),
                    streams[width] / pace[width] / width if width in pace else "–",
                    cell(answers, width),
                ]
                for width in WIDTHS
            },
        },
        "plot": {
            "title": "GPUs for the same load, by the width of a copy",
            "alt": "For each width of a copy two bars end to end: the GPUs that prompts need at the chosen "
            "load, and those that answers need. A width on which the weights do not fit has none.",
            "x": {"label": "GPUs", "ends": (0, 1.05 * max(prompts[w] + answers.get(w, 0) for w in prompts))},
            "y": {"label": ""},
            "rows": [f"TP{width}" for width in WIDTHS],
            "marks": [
                bars("for prompts", "prefill", [(f"TP{w}", 0, prompts[w]) for w in prompts]),
                bars(
                    "for answers",
                    "decode",
                    [(f"TP{w}", prompts[w], prompts[w] + answers[w]) for w in answers],
                ),
            ],
        },
    }


def counted(model: Model) -> float | None:
    """Return the parameters as the model's card counts them, where the review names one; else None."""
    card = data.read("published.toml")["models"].get(model.name, {})
    return float(card["params"]) if "params" in card else None


def cell(column: Mapping[int, float], width: int, scale: float = 1) -> float | str:
    """Return what the table shows of a width."""
    return column[width] * scale if width in column else "–"
