"""What the wait for a first token is made of, with two GPUs side by side and with two in a row."""

from __future__ import annotations

from math import fsum

from lib.hardware import L40S
from lib.live import LINK, Answer, Choice, Number, bars, calculates, short
from lib.models import QWEN2_5_7B
from lib.scheduler import vllm
from lib.simulator import Collocated, Disaggregated, Engine, Pull, Streamed, Trace, least_loaded, simulate
from lib.workload import poisson

COUNT, SEED, OUTPUT = 100, 0, 256  # the chapter's draw
PULLED, BY_LAYER = "decode pulls it after prefill", "prefill pushes it layer by layer"
PARTS = {  # each between two moments, and its colour
    "queue": ("arrival", "prefill_start", "waiting"),
    "prefill": ("prefill_start", "prefill_end", "prefill"),
    "until the copy starts": ("prefill_end", "copy_start", "other"),
    "copy": ("copy_start", "copy_end", "transfer"),
    "notice": ("copy_end", "decode_queue", "other"),
    "queue for a step": ("decode_queue", "decode_start", "other"),
    "first step": ("decode_start", "first_token", "decode"),
}
GROUPS = {"queue": "waiting", "prefill": "prefill", "copy": "transfer", "waits for steps": "other",
          "first step": "decode"}  # fmt: skip


@calculates(
    "Wait for a first token yourself",
    Number("prompt", "Prompt", "tokens", 8192, 16, 32_768, 1024),
    Choice("link", "Link between the two GPUs", "PCIe 4.0 x16", tuple(LINK)),
    Choice("sent", "The cache moves when", PULLED, (PULLED, BY_LAYER)),
    Number("rate", "Load", "requests a second", 0.4, 0.01, 5, 0.1, whole=False),
)
def first_token(prompt: int, link: str, sent: str, rate: float) -> Answer:
    """Return the mean of each part of the wait, over one draw of 100 requests, in both layouts."""
    engine = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)
    handoff = Pull(LINK[link]) if sent == PULLED else Streamed(LINK[link])
    load = poisson(rate, COUNT, SEED, prompt, OUTPUT)
    rows = {
        "not split": simulate(load, Collocated(engine, 2, least_loaded)),
        "split": simulate(load, Disaggregated(engine, engine, handoff=handoff)),
    }
    parts = {name: means(trace) for name, trace in rows.items()}
    whole = {name: fsum(each) for name, each in parts.items()}
    copy = parts["split"][list(PARTS).index("copy")]
    added = fsum(parts["split"][2:])
    return {
        "say": [
            f"From the end of prefill to the first token a split takes {short(added)} ms on average, of "
            f"which the link {short(copy)} ms.",
            f"All in all its first token comes after {short(whole['split'])} ms, that of two GPUs side by "
            f"side after {short(whole['not split'])} ms. One draw of {COUNT} requests.",
        ],
        "table": {
            "part, mean in ms": [*PARTS, "sum"],
            **{name: [*each, whole[name]] for name, each in parts.items()},
        },
        "plot": {
            "title": "The wait for a first token, part by part",
            "alt": "Two stacked bars of the mean time to a first token: of two GPUs side by side, and split.",
            "x": {"label": "mean wait for the first token, ms", "ends": (0, 1.04 * max(whole.values()))},
            "y": {"label": ""},
            "rows": list(rows),
            "marks": [bars(name, colour, stacked(parts, colour)) for name, colour in GROUPS.items()],
        },
    }


def means(trace: Trace) -> list[float]:
    """Return the mean of each part, in ms; without a second pool all but two are 0."""
    return [
        1e3
        * fsum(end - start for start, end in zip(getattr(trace, since), getattr(trace, until), strict=True))
        / len(trace)
        for since, until, _ in PARTS.values()
    ]


def stacked(parts: dict[str, list[float]], colour: str) -> list[tuple[str, float, float]]:
    """Return the bars of a colour: the row of each, its start and its end."""
    spans = []
    for row, each in parts.items():
        ends = [fsum(each[: i + 1]) for i in range(len(each))]
        for (*_, own), length, end in zip(PARTS.values(), each, ends, strict=True):
            if own == colour and length:
                spans.append((row, end - length, end))
    return spans
