"""What the turns of a conversation cost in prefill, with one server and with a one-way handoff."""

from __future__ import annotations

from lib.live import GPU, LINK, MODEL, WIDTHS, Answer, Choice, Number, calculates, line, points, starts
from lib.measured import typically
from lib.parallelism import interconnect
from lib.roofline import PUBLISHED
from lib.simulator import Engine

TURNS = [1, 2, 3, 4, 5, 6]


@calculates(
    "Lead a conversation of your own",
    Number("first", "First prompt", "tokens", 4000, 1, 100_000, 500),
    Number("answer", "Every answer", "tokens", 600, 1, 20_000, 100),
    Number("message", "Every message after it", "tokens", 400, 1, 20_000, 100),
    Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
    Choice("gpu", "GPU", "L40S", tuple(GPU)),
    Choice("gpus", "GPUs to a copy", "1", WIDTHS),
    Choice("link", "Link for the way back", "PCIe 4.0 x16", tuple(LINK)),
)
def multi_turn(first: int, answer: int, message: int, model: str, gpu: str, gpus: str, link: str) -> Answer:
    """Return for each turn its prompt and the time of its prefill, with the last answer at hand or not."""
    network, chip, width = MODEL[model], GPU[gpu], int(gpus)
    prompts = [first + (turn - 1) * (answer + message) for turn in TURNS]
    starts(model, gpu, gpus, first=("Six turns, from the first prompt on", prompts[-1] + answer))
    between = interconnect(chip, width) if width > 1 else None
    one = Engine(network, chip, width, token_budget=None, efficiency=PUBLISHED, link=between)

    def ms(new: int, cached: int) -> float:
        return 1e3 * one.step_seconds(((new, cached),))

    known = [prompt - message for prompt in prompts[1:]]
    together = [ms(first, 0), *(ms(message, cached) for cached in known)]
    one_way = [ms(first, 0), *(ms(answer + message, cached - answer) for cached in known)]
    factor = one_way[4] / together[4]
    pull = 1e3 * LINK[link].time(network.kv_bytes(answer))
    return {
        "say": [
            f"On turn five a one-way handoff makes prefill take {factor:.2f} times as long: "
            f"{one_way[4]:,.1f} ms in place of {together[4]:,.1f} ms.",
            f"Pulling the answer back would take {pull:,.2f} ms on a wire that carries nothing else, "
            f"computing it again takes {one_way[4] - together[4]:,.1f} ms.",
            typically(network, chip, old=True, phases=("first token",)),
        ],
        "table": {
            "turn": TURNS,
            "prompt sent, tokens": prompts,
            "one server, ms": together,
            "one-way P/D, ms": one_way,
            "times as long": [far / near for far, near in zip(one_way, together, strict=True)],
        },
        "plot": {
            "title": "The distance between the lines is the last answer, computed again",
            "alt": "Prefill time against the turn, from the second on: one server, and a one-way handoff.",
            "x": {"label": "turn", "whole": True, "ends": (1.8, 6.2)},
            "y": {"label": "prefill, ms", "ends": (0, 1.1 * max(one_way[1:]))},
            "marks": [
                line("one server", "prefill", TURNS[1:], together[1:]),
                line("one-way P/D", "prefill", TURNS[1:], one_way[1:], dash=True),
                points("", "prefill", TURNS[1:] * 2, [*together[1:], *one_way[1:]]),
            ],
        },
    }
