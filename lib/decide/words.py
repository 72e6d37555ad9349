"""An answer in words: what was understood, what was assumed, and the layouts beside each other."""

import textwrap
from collections.abc import Sequence
from math import inf

from lib.decide import Advice, prices
from lib.decide.case import Case
from lib.decide.layouts import Option, default_limits
from lib.decide.questions import enough, lasting, percent
from lib.measured import typically
from lib.steady import MOST

WIDTH = 78


def understood(case: Case) -> list[str]:
    """Return what was asked, in sentences."""
    model, gpu, load = case.model, case.gpu, case.load
    rows = load.sample
    spread = len({(row.prompt_tokens, row.output_tokens) for row in rows}) > 1
    lengths = f"{case.prompt:,.0f} tokens a prompt, {case.output:,.0f} an answer"
    longest = f", the longest {case.longest:,} together" if spread else ""
    came = "arriving at random"
    if load.recorded:
        span = duration(rows[-1].arrival - rows[0].arrival)
        came = f"{load.recorded:,} requests as recorded, over {span}, repeated; {played(load.recorded)}"
    degree = (
        f"{case.tensor_parallel} to an engine"
        if case.tensor_parallel
        else f"to an engine any of {', '.join(map(str, case.degrees))}"
    )
    return [
        f"{model.name}: {model.resident_bytes / 1e9:.1f} GB of weights, "
        f"{model.resident_bytes / model.params:.2g} bytes each on average, products in {model.arithmetic}; "
        f"{model.kv_bytes_per_token:,} bytes of cache a token, {model.cache_bytes:g} a value"
        + (f", and {model.state_bytes / 1e6:.3g} MB of states a request" if model.state_bytes else ""),
        f"{case.gpus} x {gpu.name}: {gpu.memory / 1e9:g} GB, {gpu.bandwidth / 1e9:,.0f} GB/s, "
        f"{gpu.peak(model.arithmetic) / 1e12:,.0f} TFLOP/s in {model.arithmetic}; {degree}",
        f"{load.rate:.3g} req/s, {came}; {lengths}{longest}"
        + (f"; {percent(case.cached / case.prompt)} of prompts found in a cache" if case.cached else ""),
    ]


def assumed(case: Case) -> list[str]:
    """Return what nobody said, in sentences."""
    tokens, seqs = default_limits(case.gpu)
    said = [f"vLLM's defaults: steps of {tokens:,} tokens, {seqs:,} requests at once"]
    if not case.cached:
        said.append("no prompt finds anything in a cache")
    said.append(priced(case))
    if case.handoff_s is None and case.link:
        said.append(f"{case.link.name} at its full rate, to each cache alone: {lasting(case.wire)} a prompt")
    return said


def played(recorded: int) -> str:
    """Return how many of a recording's requests are played, in words."""
    if recorded <= MOST:
        return f"played until queues are steady, {MOST:,} at most"
    return f"lengths and rate are those of all, played are the first {MOST:,} at most"


def priced(case: Case) -> str:
    """Return what steps are taken to take, in a sentence."""
    said = prices.SAID[case.price]
    if case.timed and case.price == prices.KERNELS:
        longer = prices.factors(case.model, case.gpu, case.timed, default_limits(case.gpu)[0])
        return f"{said}, times {longer.prompts:.2f} for prompts and {longer.answers:.2f} for answers as timed"
    if case.timed:
        reached = prices.reached(case.model, case.gpu, case.timed)
        return (
            f"steps are one roofline, at the {percent(reached.compute)} of the GPU's arithmetic and "
            f"{percent(reached.bandwidth)} of its bandwidth that were timed"
        )
    return said


def typical(case: Case) -> str:
    """Return how far off the book's predictions are for the like of this, in a sentence."""
    return typically(case.model, case.gpu, old=case.price != prices.KERNELS)


def duration(seconds: float) -> str:
    """Return a span in the unit that suits it."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def report(case: Case, advice: Advice) -> str:
    """Return the advice as text, in lines of at most 78 characters."""
    lines = ["Understood", *indented(understood(case)), "Assumed", *indented(assumed(case)), ""]
    lines.append(f"Answer: {advice.recommendation}")
    if advice.leaning != advice.recommendation:
        lines.append(f"If every number below is right: {advice.leaning}")
    lines += [f"  because {advice.reason}", *(f"  measure {what}" for what in advice.measure)]
    if not advice.meets:
        lines.append("No layout of these GPUs meets the targets.")
    lines += ["", "How it came about"]
    lines += [f"  {fork.question} {'yes' if fork.answer else 'no'}: {fork.number}" for fork in advice.forks]
    if advice.also:
        lines += ["", "Besides", *indented(advice.also)]
    lines += ["", "Predicted, at the load asked", *compared(advice)]
    lines += ["", "How few GPUs would keep the targets", f"  {enough(advice.needed)}"]
    lines += ["", "What the answer would be with"]
    lines += [f"  {stress.name}: {stress.recommendation}" for stress in advice.stresses]
    lines += ["", typical(case)]
    wrapped = [
        textwrap.wrap(line, WIDTH, subsequent_indent="    ") if len(line) > WIDTH else [line]
        for line in lines
    ]
    return "\n".join([part for line in wrapped for part in line])


def indented(lines: Sequence[str]) -> list[str]:
    """Return the lines, set in."""
    return [f"  {line}" for line in lines]


COLUMNS = ("one pool", "other steps or engines", "two pools")
MEASURES = (  # of an `Option`: name, unit, field, times what
    ("TTFT p50", "s", "ttft_p50", 1.0),
    ("TTFT p99", "s", "ttft_p99", 1.0),
    ("ITL p50", "ms", "itl_p50", 1e3),
    ("ITL p99", "ms", "itl_p99", 1e3),
    ("keep the targets", "%", "attainment", 100.0),
    ("give or take", "%", "spread", 100.0),
    ("busiest pool", "% busy", "busiest", 100.0),
    ("goodput", "req/s", "goodput", 1.0),
    ("cost of 1 M tokens", "", "cost", 1.0),
)


def table(advice: Advice) -> dict[str, list[float | str]]:
    """Return the layouts beside each other, as columns; what there is not is a dash."""
    found: dict[str, list[float | str]] = {
        "at this load": [f"{name}, {unit}" if unit else name for name, unit, _, _ in MEASURES]
    }
    options = (advice.collocated, advice.other, advice.disaggregated)
    for column, option in zip(COLUMNS, options, strict=True):
        found[column] = [value(option, field, scale) for _, _, field, scale in MEASURES]
    return found


def value(option: Option | None, field: str, scale: float) -> float | str:
    """Return a number of an option; a dash where there is none."""
    found = None if option is None else getattr(option, field)
    if found is None or found == inf or (option and option.overloaded and field in ("attainment", "spread")):
        return "–" if option is None or found is None or found == inf else "overloaded"
    return scale * float(found)


def compared(advice: Advice) -> list[str]:
    """Return the layout of each option, and then their numbers as lines of a table, side by side."""
    columns = table(advice)
    options = dict(zip(COLUMNS, (advice.collocated, advice.other, advice.disaggregated), strict=True))
    there = [name for name in COLUMNS if options[name]]
    layouts = [f"  {name}: {option.layout}" for name in there if (option := options[name])]
    cells = [("", *there)]
    for row, name in enumerate(columns["at this load"]):
        values = [columns[column][row] for column in there]
        if any(shown != "–" for shown in values):
            cells.append((str(name), *(v if isinstance(v, str) else f"{v:.3g}" for v in values)))
    widths = [max(len(row[place]) for row in cells) for place in range(len(there) + 1)]
    return layouts + [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
