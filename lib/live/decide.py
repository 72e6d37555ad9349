"""Split or not: the whole form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from lib import capacity, models, workload
from lib.decide import Advice, Case, Load, Timed, poisson, questions, recorded, words
from lib.decide import decide as advise
from lib.decide.prices import KERNELS, REVIEW, ROOFLINE
from lib.decide.questions import QUESTIONS
from lib.goodput import SLO
from lib.live import (
    GPU,
    LINK,
    MODEL,
    Answer,
    Choice,
    Group,
    Number,
    Plot,
    Refused,
    Text,
    bars,
    calculates,
    rule,
)
from lib.models import Model

ROWS = 2000  # requests of a recording, at most
IN_A_LINK = 1500  # characters of a text, at most
ABSENT = "# "  # what a link says in place of a longer one
ANY, SAME = "any", "as above"
STEPS = {
    "the sum of its kernels": KERNELS,
    "a roofline, calibrated": ROOFLINE,
    "the review's roofline": REVIEW,
}
LAYOUTS = ("one pool", "other steps or engines", "two pools", "free copies")


@calculates(
    "Decide your own case",
    Group("The model and the machine", (
        Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
        Choice("gpu", "GPU", "L40S", tuple(GPU)),
        Choice("link", "Link between the pools", "PCIe 4.0 x16", tuple(LINK)),
        Number("gpus", "GPUs in all", "", 2, 1, 64),
        Choice("degree", "GPUs to one engine", "1", (ANY, "1", "2", "4", "8")),
        Choice("prefill_degree", "to one for prompts, if split", SAME, (SAME, "1", "2", "4", "8")),
        Choice("decode_degree", "to one for answers, if split", SAME, (SAME, "1", "2", "4", "8")),
        Number("split", "Engines for prompts, if split", "", 0, 0, 63, zero="the best"),
        Text("config", "Your own model: its config.json",
             "Optional, in place of the model above. A link to this form carries the fields that count.",
             '{"model_type": "llama", "hidden_size": 4096, …}'),
    )),
    Group("The load", (
        Number("rate", "Load", "requests a second", 0.4, 0.01, 100, 0.1, whole=False),
        Number("prompt", "Mean prompt", "tokens", 8192, 1, 65_536, 1024),
        Number("output", "Mean answer", "tokens", 256, 2, 32_768, 64),
        Number("spread", "Spread of both: standard deviation over mean", "", 0, 0, 1, 0.1, whole=False),
        Number("hit", "Of a prompt found in the prefix cache", "%", 0, 0, 100, 10),
        Number("new", "New tokens a turn", "tokens", 0, 0, 65_536, 100, zero="no history"),
        Choice("history", "Can history change?", "no", ("no", "yes")),
        Text("csv", "Your own load: a recording as CSV",
             f"Optional, in place of load and lengths; at most {ROWS} requests. A link to this form carries "
             f"up to {IN_A_LINK:,} characters; whoever opens the link of a longer one is asked to paste it.",
             "arrival_s,prompt_tokens,output_tokens\n0,8192,256\n2.5,4096,300"),
    )),
    Group("The targets", (
        Number("ttft", "First token within", "s", 2, 0, 60, 0.5, whole=False, zero="no target"),
        Number("itl", "99 % of an answer's gaps within", "ms", 100, 0, 5000, 10, zero="no target"),
        Number("tpot", "An answer's mean gap within", "ms", 0, 0, 5000, 10, zero="no target"),
        Number("gap", "An answer's longest gap within", "ms", 0, 0, 60_000, 100, zero="no target"),
        Number("target", "Share of requests that must keep them", "%", 90, 1, 100),
    )),
    Group("What you measured", (
        Choice("steps", "What a step takes", next(iter(STEPS)), tuple(STEPS)),
        Number("handoff", "Handoff of a mean prompt's cache", "ms", 1300, 0, 60_000, 100, zero="by the link"),
        Number("prefill", "A mean prompt alone", "ms", 0, 0, 600_000, 100, whole=False, zero="as calibrated"),
        Number("decode", "One decode step after it", "ms", 0, 0, 9999, 1, whole=False, zero="as calibrated"),
        Number("cpu", "CPU time a request", "ms", 0, 0, 60_000, 100, zero="not asked"),
    )),
    Group("Money", (
        Number("price", "Price of a GPU-hour", "", 0, 0, 1000, 0.5, whole=False, zero="not asked"),
    )),
)  # fmt: skip
def decide(**knobs: Any) -> Answer:
    """Return the chapter's advice: what was understood, the layouts side by side, questions, the margin."""
    asked = SimpleNamespace(**knobs)
    case, link = read(asked)
    with beside("gpus", **ARGUMENTS):
        advice = advise(case)
    forks = {fork.question: fork for fork in advice.forks}
    answer = advice.recommendation[0].upper() + advice.recommendation[1:]
    leaning = "" if advice.leaning == advice.recommendation else (
        f" If every number is right: {advice.leaning}. Measure {'; and '.join(advice.measure)}."
    )  # fmt: skip
    stresses = [f"{stress.name}: {stress.recommendation}" for stress in advice.stresses]
    return {
        "say": [
            f"{answer}: {advice.reason}.{leaning}",
            f"Understood: {'; '.join(words.understood(case))}. Assumed: {'; '.join(words.assumed(case))}.",
            f"How few GPUs would keep the targets: {questions.enough(advice.needed)}.",
            f"{words.typical(case)} What the answer would be with {'; '.join(stresses)}.",
        ],
        "table": words.table(advice),
        "more": {
            "question": list(QUESTIONS),
            "answer": [("yes" if forks[q].answer else "no") if q in forks else "–" for q in QUESTIONS],
            "number": [forks[q].number if q in forks else "–" for q in QUESTIONS],
        },
        "plot": plot(advice, case.target),
        "link": link,
    }


# ---- from knobs to a case

ARGUMENTS = {  # of a case, and of its load: the knobs that they are set by
    "prefill_tensor_parallel": "prefill_degree", "decode_tensor_parallel": "decode_degree",
    "tensor_parallel": "degree", "gpus": "gpus", "handoff_s": "handoff", "new_tokens": "new", "link": "link",
    "n_prefill": "split", "prefill_s": "prefill", "decode_s": "decode", "longest": "prompt",
}  # fmt: skip


@contextmanager
def beside(knob: str, **others: str) -> Iterator[None]:
    """Say what is wrong beside a knob: of `others`, argument=knob, the first that the message names."""
    try:
        yield
    except Refused:
        raise
    except ValueError as error:
        message = str(error)
        found = sorted((message.find(f"{name}="), name) for name in others if f"{name}=" in message)
        place = others[found[0][1]] if found else knob
        for name, other in others.items():
            label = next(known.label for known in decide.knobs if known.name == other)
            message = message.replace(f"{name}=", f"{label}: ")
        raise Refused({place: message.removeprefix("decide: ").removeprefix("timed: ")}) from None


def read(asked: SimpleNamespace) -> tuple[Case, dict[str, str]]:
    """Return the case that is asked about, and what a link holds of its texts."""
    model, short_config = read_model(asked)
    load, short_csv = read_load(asked)
    degree = None if asked.degree == ANY else int(asked.degree)
    pools = [None if one == SAME else int(one) for one in (asked.prefill_degree, asked.decode_degree)]
    with beside("csv" if asked.csv else "output", **ARGUMENTS):
        case = Case(
            model, GPU[asked.gpu], load, read_targets(asked), LINK[asked.link], asked.gpus, degree,
            pools[0], pools[1], asked.split or None,
            handoff_s=asked.handoff / 1e3 or None, cpu_s_per_request=asked.cpu / 1e3 or None,
            history_can_change=asked.history == "yes", new_tokens=asked.new or None,
            price=STEPS[asked.steps], timed=read_timed(asked, model, load), target=asked.target / 100,
            price_per_gpu_hour=asked.price or None,
        )  # fmt: skip
    texts = {"config": short_config, "csv": short_csv}
    return case, {name: text for name, text in texts.items() if text}


def read_model(asked: SimpleNamespace) -> tuple[Model, str]:
    """Return the model, and its config.json in short."""
    if not asked.config:
        return MODEL[asked.model], ""
    with beside("config"):
        config = models.parse(unfolded(asked.config, "config"))
        model = models.read(config)
        short = json.dumps(models.needed(config), separators=(",", ":"))
    return model, shortened(short, "a config.json")


def read_load(asked: SimpleNamespace) -> tuple[Load, str]:
    """Return the load, and its recording in short."""
    if not asked.csv:
        return poisson(asked.rate, asked.prompt, asked.output, asked.spread, asked.hit / 100), ""
    with beside("csv"):
        rows = workload.read(unfolded(asked.csv, "csv").encode())
        if len(rows) > ROWS:
            raise ValueError(
                f"{len(rows):,} requests take too long here; use at most {ROWS:,}, or serving-decide --trace"
            )
        return recorded(rows), shortened(asked.csv, f"{len(rows)} requests")


def shortened(text: str, what: str) -> str:
    """Return the text if a link can hold it; else what it will say instead."""
    return text if len(text) <= IN_A_LINK else f"{ABSENT}{what}, too long for a link: paste the text again"


def unfolded(text: str, knob: str) -> str:
    """Return the text, unless a link said that it is not there."""
    if text.startswith(ABSENT):
        raise Refused({knob: text.removeprefix(ABSENT)})
    return text


def read_targets(asked: SimpleNamespace) -> SLO:
    """Return the targets, of which there must be one."""
    limits = {name: getattr(asked, name) / 1e3 or None for name in ("tpot", "itl", "gap")}
    if not asked.ttft and not any(limits.values()):
        raise Refused({"ttft": "ttft=0, and no other target; use at least one of the four"})
    with beside("gap"):
        return SLO(asked.ttft or None, **limits)


def read_timed(asked: SimpleNamespace, model: Model, load: Load) -> Timed | None:
    """Return what was timed, on the smallest engine that starts unless one is asked for; None if nothing."""
    if not asked.prefill and not asked.decode:
        return None
    if not asked.prefill or not asked.decode:
        missing, label = (
            ("decode", "One decode step") if asked.prefill else ("prefill", "A mean prompt alone")
        )
        raise Refused({missing: f"{label}: 0, but the other time is given; use both, or neither"})
    prompt = round(fmean(row.prompt_tokens for row in load.sample))
    least = capacity.smallest(model, GPU[asked.gpu], prompt + 1)
    degree = least if asked.degree == ANY else int(asked.degree)
    return Timed(prompt, asked.prefill / 1e3, asked.decode / 1e3, degree)


# ---- from an answer to a plot


def plot(advice: Advice, target: float) -> Plot:
    """Return bars for the shares of requests that keep the targets; none where there is no such layout."""
    options = (advice.collocated, advice.other, advice.disaggregated)
    shares = [option.attainment if option else 0.0 for option in options] + [advice.free or 0.0]
    colours = ("waiting", "cpu", "decode", "transfer")
    return {
        "title": "Requests that keep the targets, in one pool and in two",
        "alt": "Four bars: the share of requests that keep the targets in one pool as it is, in one with "
        "other steps or engines if that is what keeps them, in two, and in two between which copies take no "
        "time. A line marks the share that is asked.",
        "x": {"label": "keep the targets, %", "ends": (0, 100)},
        "y": {"label": ""},
        "rows": list(LAYOUTS),
        "marks": [
            *(
                bars(name, colour, [(name, 0, 100 * share)])
                for name, colour, share in zip(LAYOUTS, colours, shares, strict=True)
            ),
            rule("asked", 100 * target, "ink"),
        ],
    }
