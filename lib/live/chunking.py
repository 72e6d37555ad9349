"""How long a step with a chunk keeps everybody waiting, against the token budget."""

from __future__ import annotations

from lib.hardware import L40S
from lib.live import Answer, Number, Refused, calculates, line, points, rule, short
from lib.models import QWEN2_5_7B
from lib.simulator import Engine

ENGINE = Engine(QWEN2_5_7B, L40S)
ROOM = ENGINE.kv_tokens  # tokens
BUDGETS = tuple(2**power for power in range(7, 15))


@calculates(
    "Cut a prompt yourself",
    Number("budget", "Token budget of a step", "tokens", 2048, 64, 16_384, 256),
    Number("streams", "Streams that are writing", "", 2, 1, 256),
    Number("context", "Context of each", "tokens", 8320, 16, 131_072, 1024),
    Number("prompt", "Prompt that arrives", "tokens", 8192, 16, 131_072, 1024),
)
def chunking(budget: int, streams: int, context: int, prompt: int) -> Answer:
    """Return how long steps take without and with a chunk of the prompt, and until its first token."""
    if budget <= streams:
        raise Refused({"budget": f"budget={budget} has no room for a chunk; use more than {streams} tokens"})
    if streams * context > ROOM:
        raise Refused(
            {"context": f"context={context:,} does not fit; use at most {ROOM // streams:,} tokens"}
        )
    plain = 1e3 * ENGINE.step_seconds((), streams, streams * context)
    own = chunks(budget, streams, context, prompt)
    whole = [ms for tokens, ms in own if tokens == own[0][0]]
    swept = {
        size: [ms for _, ms in chunks(size, streams, context, prompt)] for size in BUDGETS if size > streams
    }
    longest, together = max(ms for _, ms in own), sum(ms for _, ms in own)
    highest = max(together, *(sum(each) for each in swept.values()))
    stages = {
        "no chunk": (0, plain),
        "first chunk": own[0],
        "last full chunk": (own[0][0], whole[-1]),
        "the prompt in all": (prompt, together),
    }
    return {
        "say": [
            f"Streams get a token every {short(plain)} ms, and while the prompt passes every "
            f"{short(longest)} ms at worst: {longest / plain:.1f} times as long.",
            f"The prompt takes {len(own):,} step{'s' * (len(own) > 1)}: its own first token comes "
            f"{short(together)} ms after the first of them begins.",
        ],
        "table": {
            "step": list(stages),
            "prompt tokens": [tokens for tokens, _ in stages.values()],
            "takes, ms": [ms for _, ms in stages.values()],
        },
        "plot": {
            "title": "How long everybody waits at worst, and the prompt all in all",
            "alt": "Two lines against the token budget of a step: the longest step rises with it until the "
            "whole prompt fits into one, the time of all the prompt's steps falls a little. A dotted line "
            "marks the budget that was chosen.",
            "x": {"label": "token budget of a step", "log": True, "ends": (BUDGETS[0] / 2, BUDGETS[-1])},
            "y": {"label": "ms", "log": True, "ends": (0.8 * plain, 1.3 * highest)},
            "marks": [
                line(
                    "all steps of the prompt", "prefill", list(swept), [sum(each) for each in swept.values()]
                ),
                line("longest step", "decode", list(swept), [max(each) for each in swept.values()]),
                line(
                    "a step without a chunk",
                    "waiting",
                    [BUDGETS[0] / 2, BUDGETS[-1]],
                    [plain, plain],
                    dash=True,
                ),
                points("", "prefill", [budget], [together], "square"),
                points("", "decode", [budget], [longest]),
                rule("this budget", budget, "ink"),
            ],
        },
    }


def chunks(budget: int, streams: int, context: int, prompt: int) -> list[tuple[int, float]]:
    """Return for each step of the prompt its tokens of it, and how many ms it takes."""
    steps, past = [], 0
    while past < prompt:
        tokens = min(budget - streams, prompt - past)
        seconds = ENGINE.step_seconds(((tokens, past),), streams, streams * context)
        steps.append((tokens, 1e3 * seconds))
        past += tokens
    return steps
