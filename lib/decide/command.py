"""`python -m lib.decide`: the decision from a command line."""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lib import checks, models, names
from lib.decide import Advice, decide, reading
from lib.decide.layouts import Option
from lib.decide.margin import reached
from lib.decide.questions import lasting, percent
from lib.decide.reading import number, whole
from lib.goodput import SLO
from lib.hardware import GPU, GPUS, LINKS, Link
from lib.models import MODELS, Model
from lib.roofline import Efficiency
from lib.simulator import percentile
from lib.traffic import Traffic
from lib.traffic.cells import PER_SECOND

KINDS = (
    "CSV with arrival_s, prompt_tokens, output_tokens; a trace of Azure, BurstGPT, Mooncake, vLLM or Dynamo; "
    "a result of vllm bench serve, GuideLLM or AIPerf"
)


def report(advice: Advice) -> str:
    """Return the advice as text, in lines of at most 78 characters."""
    lines = [f"Answer: {advice.recommendation}"]
    if advice.leaning != advice.recommendation:
        lines.append(f"If every number below is right: {advice.leaning}")
    lines += [f"  because {advice.reason}", *(f"  measure {what}" for what in advice.measure)]
    if advice.collocated and not advice.meets:
        lines.append("No layout of these GPUs meets the targets.")
    lines += ["", "How it came about"]
    lines += [f"  {fork.question} {'yes' if fork.answer else 'no'}: {fork.number}" for fork in advice.forks]
    if advice.also:
        lines += ["", "Besides", *(f"  {extra}" for extra in advice.also)]
    options = [option for option in (advice.collocated, advice.disaggregated) if option]
    if options:
        lines += ["", "Predicted, at the load asked", *compared(options)]
    if advice.stresses:
        lines += ["", "What the answer would be with"]
        lines += [f"  {stress.name}: {stress.recommendation}" for stress in advice.stresses]
    wrapped = [
        textwrap.wrap(line, 78, subsequent_indent="    ") if len(line) > 78 else [line] for line in lines
    ]
    return "\n".join([part for line in wrapped for part in line])


def compared(options: Sequence[Option]) -> list[str]:
    """Return the layout of each option, and then their numbers as lines of a table, side by side."""
    pools = ("one pool", "two pools")
    layouts = [f"  {pool}: {option.layout}" for pool, option in zip(pools, options, strict=True)]
    cells: list[tuple[str, ...]] = [("", *pools)]
    for name in ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99"):
        kind, percentile_ = name.upper().split("_")
        cells.append((f"{kind} {percentile_.lower()}", *(lasting(getattr(o, name)) for o in options)))
    cells.append(("keep the targets", *(percent(option.attainment) for option in options)))
    cells.append(("goodput", *(f"{option.goodput:.3g} req/s" for option in options)))
    if any(option.cost is not None for option in options):
        costs = ["–" if option.cost is None else f"{option.cost:.2f}" for option in options]
        cells.append(("cost, 1 M tokens", *costs))
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return layouts + [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def read_model(wanted: str) -> Model:
    """Return a model of the catalogue, or the one that a config.json describes."""
    path = Path(wanted)
    if not wanted.endswith(".json") and not path.is_file():
        return names.find("--model", wanted, MODELS, ", or the path of a config.json")
    return models.read_file(path)


def read_link(wanted: str) -> Link:
    """Return a link of the catalogue, or one of so many Gb/s."""
    try:
        speed = float(wanted)
    except ValueError:
        return names.find("--link", wanted, LINKS, ", or a number of Gb/s")
    checks.positive("--link", Gbps=speed)
    return Link(f"{speed:g} Gb/s", speed * 1e9 / 8)


def read_efficiency(
    arguments: argparse.Namespace, model: Model, gpu: GPU, found: Traffic | None
) -> Efficiency | None:
    """Return the efficiencies of the times that were measured; None if none were."""
    times = reading.read_times(arguments, found)
    return times and reached(model, gpu, *times, arguments.tensor_parallel)


def heard(found: Traffic) -> str:
    """Return what was understood of a recording, and what it measured, in lines of at most 78 characters."""
    lines = textwrap.wrap(f"Read {found}", 78, subsequent_indent="    ")
    if found.measured:
        times = {"TTFT": found.measured.ttft, "mean gap": found.measured.tpot}
        gaps = [gap for gaps in found.measured.gaps for gap in gaps]
        times |= {"ITL": tuple(gaps)} if gaps else {}
        said = "; ".join(
            f"{name} p50 {lasting(percentile(values, 50))}, p99 {lasting(percentile(values, 99))}"
            for name, values in times.items()
        )
        lines += textwrap.wrap(f"Measured there: {said}.", 78, subsequent_indent="    ")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = reading.Parser(prog="python -m lib.decide", description="Split prefill from decode, or not?")
    add = made.add_argument
    add("--model", required=True, help="a name in the book's catalogue, or the path of a config.json")
    add("--gpu", required=True, help=", ".join(gpu.name for gpu in GPUS))
    add(
        "--link",
        help="between the pools: " + ", ".join(link.name for link in LINKS) + ", or a number of Gb/s",
    )
    add("--gpus", type=whole, default=2, help="GPUs in all (2)")
    add("--tensor-parallel", type=whole, default=1, help="GPUs to one engine (1)")
    add("--rate", type=number, help="requests per second, arriving at random")
    add("--prompt", type=whole, default=8192, help="mean tokens of a prompt (8192)")
    add("--output", type=whole, default=256, help="mean tokens of an answer (256)")
    add("--spread", type=number, default=0.0, help="standard deviation of both over the mean (0: all alike)")
    add("--trace", "--csv", help="requests as recorded, in place of these: " + KINDS)
    add("--trace-time", choices=tuple(PER_SECOND), help="unit of its arrivals, if not what the format says")
    add("--calibrate", action="store_true", help="take times of steps from requests that ran alone in it")
    add("--new-tokens", type=whole, help="tokens that a turn adds to its history, on average")
    add("--history-can-change", action="store_true", help="a template or a harness may edit earlier turns")
    add("--ttft-s", type=number, help="target: seconds to the first token")
    add("--tpot-ms", type=number, help="target: mean gap of an answer")
    add("--itl-ms", type=number, help="target: 99th percentile of an answer's gaps")
    add("--gap-ms", type=number, help="target: longest gap of an answer")
    add("--target", type=number, default=0.9, help="share of requests that must keep them (0.9)")
    add("--handoff-s", type=number, help="seconds of a cache's transfer, as measured")
    add("--prefill-ms", type=number, help="measured: a mean prompt alone")
    add("--decode-ms", type=number, help="measured: a decode step of one stream with that context")
    add("--cpu-ms-per-request", type=number, help="CPU time around the engine")
    add("--price", type=number, help="of a GPU, an hour")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Print the advice for the command line's arguments; 2 and a message where they will not do."""
    arguments = parser().parse_args(given)
    try:
        found = reading.read_traffic(arguments)
        if found:
            say(heard(found) + "\n")
        say(report(advise(arguments, found)))
    except ValueError as error:
        message = f"python -m lib.decide: {reading.one_line(str(error))}"
        print(reading.printable(message, sys.stderr.encoding), file=sys.stderr)
        return 2
    return 0


def say(text: str) -> None:
    """Print a text at once, in signs that the output has."""
    print(reading.printable(text, sys.stdout.encoding), flush=True)


def advise(arguments: argparse.Namespace, found: Traffic | None = None) -> Advice:
    """Return the advice that the command line asks for; `found`: for the recording that it names."""
    limits = {
        name: None if value is None else value / 1e3
        for name, value in (("tpot", arguments.tpot_ms), ("itl", arguments.itl_ms), ("gap", arguments.gap_ms))
    }
    if arguments.ttft_s is None and not any(limits.values()):
        raise ValueError("no target; give at least one of --ttft-s, --tpot-ms, --itl-ms, --gap-ms")
    cpu = arguments.cpu_ms_per_request
    model, gpu = read_model(arguments.model), names.find("--gpu", arguments.gpu, GPUS)
    return decide(
        model,
        gpu,
        reading.read_load(arguments, found),
        SLO(arguments.ttft_s, **limits),
        read_link(arguments.link) if arguments.link else None,
        handoff_s=arguments.handoff_s,
        cpu_s_per_request=None if cpu is None else cpu / 1e3,
        history_can_change=arguments.history_can_change,
        gpus=arguments.gpus,
        tensor_parallel=arguments.tensor_parallel,
        new_tokens=arguments.new_tokens,
        efficiency=read_efficiency(arguments, model, gpu, found),
        target=arguments.target,
        price_per_gpu_hour=arguments.price,
    )
