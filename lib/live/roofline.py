"""What one decode step waits for, and where it stands under the roof."""

from __future__ import annotations

from lib.live import GPU, MODEL, Answer, Choice, Number, calculates, line, points, rule, short
from lib.roofline import bound, decode, ideal_time, prefill, ridge

LEFT, RIGHT = 0.5, 30_000  # FLOPs per byte, the ends of the plot


@calculates(
    "Move the points under the roof",
    Choice("gpu", "GPU", "L40S", tuple(GPU)),
    Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
    Number("batch", "Streams that decode", "streams", 64, 1, 4096),
    Number("context", "Context of each stream", "tokens", 1024, 1, 131_072, 1024),
    Number("prompt", "Prompt that is prefilled", "tokens", 8192, 1, 131_072, 1024),
)
def roofline(gpu: str, model: str, batch: int, context: int, prompt: int) -> Answer:
    """Return intensity, limit and ideal time of a decode step and of a prompt, with both under the roof."""
    chip, network = GPU[gpu], MODEL[model]
    steps = {
        f"decode {batch:,} × {context:,}": decode(network, batch, context),
        f"prefill {prompt:,}": prefill(network, prompt),
    }
    times = [ideal_time(work, chip) for work in steps.values()]
    reached = [work.flops / time / 1e12 for work, time in zip(steps.values(), times, strict=True)]
    limits = [bound(work, chip) for work in steps.values()]
    edge, peak = ridge(chip), chip.peak_flops / 1e12
    roof = [LEFT, edge, RIGHT]
    decoding, reading = steps.values()
    return {
        "say": [
            f"A decode step waits for {limits[0]}: {short(decoding.intensity)} FLOPs per byte, and the ridge "
            f"is at {edge:.0f}. The prompt waits for {limits[1]}, at {reading.intensity:,.0f}.",
            f"Reading the prompt takes as long as {times[1] / times[0]:,.1f} such steps.",
        ],
        "table": {
            "step": list(steps),
            "FLOPs per byte": [work.intensity for work in steps.values()],
            "limited by": limits,
            "ideal time, ms": [1e3 * time for time in times],
            "attainable TFLOP/s": reached,
        },
        "plot": {
            "title": f"{model} on one {gpu}",
            "alt": "Attainable TFLOP/s against FLOPs per byte. The roof rises to the ridge and is flat from "
            f"there. The decode step is limited by {limits[0]}, the prompt by {limits[1]}.",
            "x": {"label": "arithmetic intensity, FLOPs per byte", "log": True, "ends": (LEFT, RIGHT)},
            "y": {"label": "attainable TFLOP/s", "log": True, "ends": (0.2, 4000)},
            "marks": [
                line("the roof", "ink", roof, [min(x * chip.bandwidth / 1e12, peak) for x in roof]),
                rule("ridge", edge),
                points("this decode step", "decode", [decoding.intensity], [reached[0]]),
                points("this prompt", "prefill", [reading.intensity], [reached[1]], "square"),
            ],
        },
    }
