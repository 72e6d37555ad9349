"""Split or not: the whole form."""

from __future__ import annotations

from lib import calibration
from lib import decide as deciding
from lib.decide import Case, Verdict
from lib.goodput import SLO
from lib.live import GPU, LINK, MODEL, Answer, Choice, Number, Plot, Refused, bars, calculates, rule

SEED, COUNT, TARGET = 4, 60, 0.9  # one draw, its requests, and the share of them that must keep the targets
ROWS = ("one pool", "two pools", "free copies")
QUESTIONS = (  # all that `lib.decide.forks` may ask
    "Is the handoff fast enough?",
    "Does one pool keep the targets at this load?",
    "Is only the first token late?",
    "Do prompts stall the answers?",
    "Do two pools keep them, with this handoff?",
    "Does the context grow from turn to turn?",
    "Can history change?",
    "Does the frontend show in the GPU nodes' CPU profile?",
)


@calculates(
    "Decide your own case",
    Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
    Choice("gpu", "GPU", "L40S", tuple(GPU)),
    Number("prefill", "Engines for prompts, if split", "", 1, 1, 8),
    Number("decode", "Engines for answers, if split", "", 1, 1, 8),
    Choice("tensor_parallel", "GPUs to one engine", "1", ("1", "2", "4", "8")),
    Choice("link", "Link between the pools", "PCIe 4.0 x16", tuple(LINK)),
    Number("handoff", "Handoff as measured; 0: by the link", "ms", 1300, 0, 60_000, 100),
    Number("rate", "Load", "requests a second", 0.4, 0.01, 100, 0.1, whole=False),
    Number("prompt", "Mean prompt", "tokens", 8192, 1, 65_536, 1024),
    Number("output", "Mean answer", "tokens", 256, 2, 1024, 64),
    Number("spread", "Their deviation over the mean", "", 0, 0, 1, 0.1, whole=False),
    Number("ttft", "First token within", "s", 2, 0.05, 60, 0.5, whole=False),
    Number("itl", "99 % of an answer's gaps within", "ms", 100, 1, 5000, 10),
    Number("new", "New tokens a turn; 0: no history", "tokens", 0, 0, 65_536, 100),
    Choice("history", "Can history change?", "no", ("no", "yes")),
    Number("cpu", "CPU time a request; 0: not asked", "ms", 0, 0, 60_000, 100),
)
def decide(
    model: str, gpu: str, prefill: int, decode: int, tensor_parallel: str, link: str,
    handoff: int, rate: float, prompt: int, output: int, spread: float,
    ttft: float, itl: int, new: int, history: str, cpu: int,
) -> Answer:  # fmt: skip
    """Return where the chapter's flow ends, on a smaller draw, and without trying what may be off."""
    chip, degree = GPU[gpu], int(tensor_parallel)
    if new > prompt:
        raise Refused({"new": f"new={new:,} exceeds the prompt; use 0 to {prompt:,} tokens"})
    case = Case(
        MODEL[model], chip, deciding.poisson(rate, prompt, output, spread, COUNT),
        SLO(ttft, itl=itl / 1e3), LINK[link], handoff / 1e3 if handoff else None, cpu / 1e3 if cpu else None,
        history == "yes", (prefill + decode) * degree, degree, new or None, calibration.efficiency(chip),
        False, TARGET, None, (SEED,),
    )  # fmt: skip
    fits = deciding.fit(case)
    if not fits.answer:
        raise Refused({"tensor_parallel": fits.number})
    seen = deciding.verdict(case, prefill)
    limit = deciding.handoff_limit(case, prefill)
    asked = {fork.question: fork for fork in deciding.forks(case, seen, limit)}
    reason = deciding.reason(case, seen, limit)
    return {
        "say": [
            f"{seen.recommendation[0].upper()}{seen.recommendation[1:]}: {reason}.",
            f"One draw of {COUNT} requests, and every number taken to be right. The chapter plays more of "
            "them, and asks what would turn the answer.",
        ],
        "table": {
            "question": list(QUESTIONS),
            "answer": [("yes" if asked[q].answer else "no") if q in asked else "–" for q in QUESTIONS],
            "number": [asked[q].number if q in asked else "–" for q in QUESTIONS],
        },
        "plot": plot(seen),
    }


def plot(seen: Verdict) -> Plot:
    """Return bars for the shares of requests that keep the targets."""
    shares = (100 * seen.together, 100 * seen.apart, 100 * seen.free)
    return {
        "title": "Requests that keep the targets, in one pool and in two",
        "alt": "Three bars: the share of requests that keep the targets in one pool, in two, and in two "
        "between which copies take no time. A line marks the share that is asked.",
        "x": {"label": "keep the targets, %", "ends": (0, 100)},
        "y": {"label": ""},
        "rows": list(ROWS),
        "marks": [
            *(
                bars(name, colour, [(name, 0, share)])
                for name, colour, share in zip(ROWS, ("waiting", "decode", "transfer"), shares, strict=True)
            ),
            rule("asked", 100 * TARGET, "ink"),
        ],
    }
