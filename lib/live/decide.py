"""Split or not: the whole form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

from lib import calibration, models, workload
from lib.decide import handoff, layouts, margin, questions
from lib.decide.case import Case, Load, poisson, recorded
from lib.decide.layouts import Option
from lib.decide.questions import Verdict, lasting, percent
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
from lib.roofline import Efficiency

SEEDS, COUNT = (0, 1), 100  # the chapter's draws; where that takes more than 100 requests, the first of them
FEW = 30  # requests on which the best split is sought
ENGINES, ROWS, TOKENS = 8, 200, 200_000  # at most: engines, and requests and output tokens of a recording
IN_A_LINK = 1500  # characters of a text, at most
ABSENT = "# "  # what a link says in place of a longer one
LAYOUTS = ("one pool", "two pools", "free copies")
QUESTIONS = (  # all that `lib.decide.fit` and `lib.decide.forks` may ask
    "Does the model fit?",
    "Is the handoff fast enough?",
    "Does one pool keep the targets at this load?",
    "Is only the first token late?",
    "Do prompts stall the answers?",
    "Do two pools keep them, with this handoff?",
    "Does the context grow from turn to turn?",
    "Can history change?",
    "Does the frontend show in the GPU nodes' CPU profile?",
)
PREDICTED = {  # a row of the table: what of an `Option`, and times what
    "TTFT p50, s": ("ttft_p50", 1),
    "TTFT p99, s": ("ttft_p99", 1),
    "ITL p50, ms": ("itl_p50", 1e3),
    "ITL p99, ms": ("itl_p99", 1e3),
    "keep the targets, %": ("attainment", 100),
    "goodput, req/s": ("goodput", 1),
    "cost of 1 M tokens": ("cost", 1),
}


@calculates(
    "Decide your own case",
    Group("The model and the machine", (
        Choice("model", "Model", "Qwen2.5-7B", tuple(MODEL)),
        Choice("gpu", "GPU", "L40S", tuple(GPU)),
        Choice("link", "Link between the pools", "PCIe 4.0 x16", tuple(LINK)),
        Number("gpus", "GPUs in all", "", 2, 2, 64),
        Choice("degree", "GPUs to one engine", "1", ("1", "2", "4", "8")),
        Number("split", "Engines for prompts, if split", "", 0, 0, ENGINES - 1, zero="the best"),
        Text("config", "Your own model: its config.json",
             "Optional, in place of the model above. A link to this form carries the fields that count.",
             '{"model_type": "llama", "hidden_size": 4096, …}'),
    )),
    Group("The load", (
        Number("rate", "Load", "requests a second", 0.4, 0.01, 100, 0.1, whole=False),
        Number("prompt", "Mean prompt", "tokens", 8192, 1, 65_536, 1024),
        Number("output", "Mean answer", "tokens", 256, 2, 1024, 64),
        Number("spread", "Their deviation over the mean", "", 0, 0, 1, 0.1, whole=False),
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
    """Return where the chapter's flow ends, and both layouts side by side; nothing is taken to be off."""
    asked = SimpleNamespace(**knobs)
    case, link = read(asked)
    fits = questions.fit(case)
    if not fits.answer:
        raise Refused({"degree": fits.number})
    if asked.split >= case.engines:
        raise Refused(
            {"split": f"split={asked.split} leaves none for answers; use 1 to {case.engines - 1}, or 0"}
        )
    n_prefill = asked.split or best_split(case)
    seen = questions.verdict(case, n_prefill)
    limit = handoff.handoff_limit(case, n_prefill)
    forks = {fork.question: fork for fork in (fits, *questions.forks(case, seen, limit))}
    pools = (n_prefill, case.engines - n_prefill)
    both = (layouts.together(case), layouts.apart(case, n_prefill, case.copy))
    answer = seen.recommendation[0].upper() + seen.recommendation[1:]
    reached = case.efficiency
    return {
        "say": [
            f"{answer}: {questions.reason(case, seen, limit)}.",
            drawn(case, n_prefill, limit),
            f"If split, {pools[0]} for prompts and {pools[1]} for answers. Steps reach "
            f"{percent(reached.compute)} of the GPU's arithmetic and {percent(reached.bandwidth)} of its "
            f"bandwidth, as {'you measured' if case.timed else 'calibrated'}.",
            "The chapter’s function also tries what may be off, smaller steps and more GPUs.",
        ],
        "table": compared([layouts.option(case, "", layout, pools) for layout in both]),
        "more": {
            "question": list(QUESTIONS),
            "answer": [("yes" if forks[q].answer else "no") if q in forks else "–" for q in QUESTIONS],
            "number": [forks[q].number if q in forks else "–" for q in QUESTIONS],
        },
        "plot": plot(seen, case.target),
        "link": link,
    }


# ---- from knobs to a case


@contextmanager
def beside(knob: str, **others: str) -> Iterator[None]:
    """Say what is wrong beside a knob: of `others`, argument=knob, the first that the message names."""
    try:
        yield
    except Refused:
        raise
    except ValueError as error:
        named = [other for argument, other in others.items() if f"{argument}=" in str(error)]
        raise Refused({(named or [knob])[0]: str(error)}) from None


def read(asked: SimpleNamespace) -> tuple[Case, dict[str, str]]:
    """Return the case that is asked about, and what a link holds of its texts."""
    chip, degree = GPU[asked.gpu], int(asked.degree)
    if asked.gpus > ENGINES * degree:
        raise Refused({"gpus": f"gpus={asked.gpus} are too many here; use at most {ENGINES * degree}"})
    model, short_config = read_model(asked)
    load, short_csv = read_load(asked)
    measured = read_efficiency(asked, model, load)
    with beside("csv" if asked.csv else "output", gpus="gpus", handoff_s="handoff", new_tokens="new"):
        case = Case(
            model, chip, load, read_targets(asked), LINK[asked.link], asked.handoff / 1e3 or None,
            asked.cpu / 1e3 or None, asked.history == "yes", asked.gpus, degree, asked.new or None,
            measured or calibration.efficiency(chip), measured is not None, asked.target / 100,
            asked.price or None, SEEDS[: 1 if load.alike or asked.gpus > 2 * degree else 2],
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
        return poisson(asked.rate, asked.prompt, asked.output, asked.spread, COUNT), ""
    with beside("csv"):
        rows = workload.read(unfolded(asked.csv, "csv").encode())
        if len(rows) > ROWS or sum(row.output_tokens for row in rows) > TOKENS:
            raise ValueError(
                f"csv: {len(rows):,} requests with long answers take too long here; use at most {ROWS}, and "
                f"{TOKENS:,} tokens of answers, or python -m lib.decide --csv"
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


def read_efficiency(asked: SimpleNamespace, model: Model, load: Load) -> Efficiency | None:
    """Return the efficiencies of the times that were measured; None if none were."""
    if not asked.prefill and not asked.decode:
        return None
    if not asked.prefill or not asked.decode:
        missing = "decode" if asked.prefill else "prefill"
        raise Refused({missing: f"{missing}=0, but the other time is given; use both, or neither"})
    rows = load.draw(load.rate, SEEDS[0])
    prompt = round(sum(row.prompt_tokens for row in rows) / len(rows))
    with beside("prefill", prefill_s="prefill", decode_s="decode"):
        return margin.reached(
            model, GPU[asked.gpu], prompt, asked.prefill / 1e3, asked.decode / 1e3, int(asked.degree)
        )


def best_split(case: Case) -> int:
    """Return the best split, as sought on a few requests."""
    rows = case.load.draw(case.load.rate, SEEDS[0])[:FEW]
    few = Load(case.load.rate, lambda rate, seed: case.load.draw(rate, seed)[:FEW], case.load.alike)
    return layouts.best_split(replace(case, load=few, seeds=SEEDS[:1])) if len(rows) > 1 else 1


# ---- from a case to words


def drawn(case: Case, n_prefill: int, limit: float | None) -> str:
    """Return what the targets leave a handoff, and how far that is luck: each draw, or half of one, alone."""
    if case.load.alike:
        played = f"your {len(case.requests)} requests as recorded"
    else:
        played = f"{('one draw', 'two draws')[len(case.seeds) - 1]} of {COUNT} requests"
    said = f"The targets leave a handoff {words(limit)}, by {played}"
    if case.slo.ttft is None:
        return f"{said}: first tokens have no target."
    left = handoff.slack(case, n_prefill)
    halves = len(left) == 1
    if halves:
        middle = len(left[0]) // 2
        left = [left[0][:middle], left[0][middle:]]
    about = [handoff.shared(case.target, part) for part in left]
    one, two = ["no time" if value <= 0 else lasting(float(f"{value:.2g}")) for value in about]
    return f"{said}; by the first{' half' * halves} alone about {one}, by the second {two}."


def words(limit: float | None) -> str:
    """Return a handoff limit in a word or two."""
    return "no time" if limit is None else "any time" if limit == inf else lasting(limit)


def compared(options: Sequence[Option]) -> dict[str, list[Any]]:
    """Return layouts beside each other, as the columns of a table."""
    columns = [
        [
            "–" if getattr(option, name) is None else scale * getattr(option, name)
            for name, scale in PREDICTED.values()
        ]
        for option in options
    ]
    return {"at this load": list(PREDICTED), **dict(zip(LAYOUTS, columns, strict=False))}


def plot(seen: Verdict, target: float) -> Plot:
    """Return bars for the shares of requests that keep the targets."""
    shares = (100 * seen.together, 100 * seen.apart, 100 * seen.free)
    return {
        "title": "Requests that keep the targets, in one pool and in two",
        "alt": "Three bars: the share of requests that keep the targets in one pool, in two, and in two "
        "between which copies take no time. A line marks the share that is asked.",
        "x": {"label": "keep the targets, %", "ends": (0, 100)},
        "y": {"label": ""},
        "rows": list(LAYOUTS),
        "marks": [
            *(
                bars(name, colour, [(name, 0, share)])
                for name, colour, share in zip(
                    LAYOUTS, ("waiting", "decode", "transfer"), shares, strict=True
                )
            ),
            rule("asked", 100 * target, "ink"),
        ],
    }
