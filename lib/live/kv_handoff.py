"""How much of a prompt's cache is exposed when it moves from prefill to decode."""

from __future__ import annotations

from lib import kv_cache
from lib.live import GPU, LINK, MODEL, WIDTHS, Answer, Choice, Number, bars, calculates, rule, short, starts
from lib.measured import typically
from lib.parallelism import interconnect
from lib.roofline import PUBLISHED
from lib.simulator import Engine

AFTER, BY_LAYER = "after prefill", "layer by layer"


@calculates(
    "Send a cache yourself",
    Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
    Number("tokens", "Prompt", "tokens", 8192, 64, 131_072, 1024),
    Choice("gpu", "GPU that prefills", "L40S", tuple(GPU)),
    Choice("gpus", "GPUs to a copy", "1", WIDTHS),
    Choice("link", "Link to decode", "PCIe 4.0 x16", tuple(LINK)),
    Choice("sent", "The cache leaves", AFTER, (AFTER, BY_LAYER)),
)
def kv_handoff(model: str, tokens: int, gpu: str, gpus: str, link: str, sent: str) -> Answer:
    """Return the size of a cache, the times of prefill and of the copy, and how much of that is exposed."""
    network, chip, width = MODEL[model], GPU[gpu], int(gpus)
    starts(model, gpu, gpus, tokens=("Prompt", tokens))
    between = interconnect(chip, width) if width > 1 else None
    one = Engine(network, chip, width, token_budget=None, efficiency=PUBLISHED, link=between)
    size, compute = kv_cache.size(network, tokens), one.step_seconds(((tokens, 0),))
    copy = LINK[link].time(size)
    exposed = {
        AFTER: kv_cache.exposed_after_prefill(copy),
        BY_LAYER: kv_cache.exposed_by_layer(copy, compute, network.layers),
    }
    pieces = 1 if sent == AFTER else network.layers
    end = compute + exposed[sent]
    return {
        "say": [
            f"The cache of {tokens:,} tokens has {short(size / 1e6)} MB. Computing it takes "
            f"{short(1e3 * compute)} ms, and copying it {short(1e3 * copy)} ms.",
            f"Sent {sent}, the copy makes the first token {short(1e3 * exposed[sent])} ms later: "
            f"{100 * exposed[sent] / compute:.1f} % of prefill's time.",
            typically(network, chip, old=True, phases=("first token",)),
        ],
        "table": {
            "the cache leaves": list(exposed),
            "cache, MB": [size / 1e6] * 2,
            "prefill, ms": [1e3 * compute] * 2,
            "copy, ms": [1e3 * copy] * 2,
            "exposed, ms": [1e3 * late for late in exposed.values()],
        },
        "plot": {
            "title": "Right of the dotted line the first token waits for the copy",
            "alt": f"Two bars over time. Prefill ends at a dotted line, the copy, {sent}, ends right of it.",
            "x": {"label": "time since prefill began, ms", "ends": (0, 1e3 * end * 1.02)},
            "y": {"label": ""},
            "rows": ["prefill", "copy"],
            "marks": [
                bars("prefill", "prefill", [("prefill", 0, 1e3 * compute)]),
                bars("copy", "transfer", [("copy", *span) for span in copies(compute, copy, pieces)]),
                rule("prompt done", 1e3 * compute),
            ],
        },
    }


def copies(compute: float, copy: float, pieces: int) -> list[tuple[float, float]]:
    """Return when each piece of a cache is on its way, in ms: once it is computed and the link is free."""
    spans, free = [], 0.0
    for piece in range(1, pieces + 1):
        start = max(free, compute * piece / pieces)
        free = start + copy / pieces
        spans.append((1e3 * start, 1e3 * free))
    return spans
