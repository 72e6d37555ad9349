"""One step, taken apart: its kernels by family, and what each family's time goes to."""

from __future__ import annotations

from math import fsum, inf

from lib.kernels import borrowed, by_family, split, step_kernels
from lib.live import GPU, MODEL, Answer, Choice, Number, Refused, bars, calculates, short
from lib.models import Model
from lib.parallelism import free

GROUPS = ("1", "2", "4", "8")
SHOWN = (  # all but what waits, which today's engines do not
    "matrix products",
    "experts",
    "attention of prompts",
    "attention of answers",
    "states",
    "small kernels",
    "all-reduces",
)
COLOURS = {"start": "waiting", "arithmetic": "other", "bytes": "extra"}


@calculates(
    "Take a step apart",
    Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
    Choice("gpu", "GPU", "L40S", tuple(GPU)),
    Choice("group", "GPUs to an engine", "1", GROUPS),
    Number("tokens", "Prompt tokens in the step", "tokens", 2044, 0, 32_768, 256, zero="no prompt"),
    Number("past", "Tokens of that prompt before them", "tokens", 3072, 0, 131_072, 1024),
    Number("streams", "Streams that get a token", "streams", 4, 0, 1024, zero="no answers"),
    Number("context", "Context of each stream", "tokens", 8320, 1, 131_072, 1024),
)
def a_step(model: str, gpu: str, group: str, tokens: int, past: int, streams: int, context: int) -> Answer:
    """Return a step's seconds, and for each family of its kernels how many, how long, and what bounds it."""
    network, chip, degree = MODEL[model], GPU[gpu], int(group)
    check(network, degree, tokens, past, streams, context)
    chunks = ((tokens, past),) if tokens else ()
    kernels = step_kernels(network, chip, chunks, streams, streams * context, tensor_parallel=degree)
    families = {name: by_family(kernels)[name] for name in SHOWN}
    parts = {name: split(members) for name, members in families.items()}
    times = {name: 1e3 * fsum(part.values()) for name, part in parts.items()}
    total, number = fsum(times.values()), sum([kernel.number for kernel in kernels])
    longest = max(times, key=lambda name: times[name])
    lent = borrowed(kernels, chip)
    starts = 1e3 * fsum([part["start"] for part in parts.values()])
    room = free(network, chip, degree)
    return {
        "say": [
            f"The step takes {short(total)} ms and has {number:,} kernels. Starting them takes "
            f"{short(starts)} ms of that: {100 * starts / total:.0f} %.",
            f"Most goes to {longest}: {short(times[longest])} ms, {100 * times[longest] / total:.0f} %.",
            (f"Borrowed: starts and shares of the {', '.join(lent)}." if lent else f"All timed on the {gpu}.")
            + (" The weights would not fit." if room < 0 else ""),
        ],
        "table": {
            "kernels": [*families],
            "how many": [sum([kernel.number for kernel in members]) for members in families.values()],
            "time, ms": [*times.values()],
            "share, %": [100 * time / total for time in times.values()],
            "bound by": [most(part) for part in parts.values()],
        },
        "plot": {
            "title": f"One step of {model} on {degree} {gpu}: {short(total)} ms",
            "alt": "A row for each family of kernels. A bar begins where the one above ends, and is divided "
            f"into starts, arithmetic and bytes. The longest is that of {longest}.",
            "x": {"label": "ms of the step, by family of kernels", "ends": (0, 1.02 * total)},
            "y": {"label": ""},
            "rows": [*map(brief, families)],
            "marks": [bars(part, colour, spans(parts, part)) for part, colour in COLOURS.items()],
        },
    }


def check(model: Model, degree: int, tokens: int, past: int, streams: int, context: int) -> None:
    """Refused says which knobs make no step of this model, by their labels."""
    wrong = {}
    if not tokens and not streams:
        wrong["tokens"] = "Prompt tokens in the step and streams are both 0: use at least one of either"
    if model.heads % degree:
        wrong["group"] = f"GPUs to an engine: {degree} do not divide the {model.heads} heads; use fewer"
    longest = model.context or inf
    if tokens and tokens + past > longest:
        wrong["past"] = (
            f"Tokens of that prompt before them: {past:,} and the step's {tokens:,} exceed the model's "
            f"context; use at most {max(0, longest - tokens):,}"
        )
    if streams and context > longest:
        wrong["context"] = f"Context of each stream: {context:,} exceeds the model's; use at most {longest:,}"
    if wrong:
        raise Refused(wrong)


def most(part: dict[str, float]) -> str:
    """Return what most of a family's time goes to, or a dash where it takes none."""
    return max(part, key=lambda name: part[name]) if any(part.values()) else "–"


def spans(parts: dict[str, dict[str, float]], wanted: str) -> list[tuple[str, float, float]]:
    """Return where that part of each family's bar begins and ends, in ms, one family after the other."""
    found, now = [], 0.0
    for name, part in parts.items():
        for piece, seconds in part.items():
            begin, now = now, now + 1e3 * seconds
            if piece == wanted and seconds:
                found.append((brief(name), begin, now))
    return found


def brief(name: str) -> str:
    """Return a family's name as a row of the plot has room for it on a phone."""
    return name.removeprefix("attention of ")
