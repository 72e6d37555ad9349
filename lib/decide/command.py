"""`python -m lib.decide`: the decision from a command line."""

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lib import capacity, checks, models, names
from lib.decide import Case, decide, reading
from lib.decide.prices import KERNELS, PRICES, Timed
from lib.decide.questions import lasting
from lib.decide.reading import number, whole
from lib.decide.words import report
from lib.goodput import SLO
from lib.hardware import GPU, GPUS, LINKS, Link
from lib.models import MODELS, Model
from lib.simulator import percentile
from lib.traffic import Traffic
from lib.traffic.cells import PER_SECOND

NAME = "serving-decide"
KINDS = (
    "CSV with arrival_s, prompt_tokens, output_tokens; a trace of Azure, BurstGPT, Mooncake, vLLM or Dynamo; "
    "a result of vllm bench serve, GuideLLM or AIPerf"
)


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


def read_timed(arguments: argparse.Namespace, model: Model, gpu: GPU, found: Traffic | None) -> Timed | None:
    """Return what was timed, on the smallest engine that starts unless one is asked for; None if nothing."""
    times = reading.read_times(arguments, found)
    return times and Timed(*times, arguments.tensor_parallel or capacity.smallest(model, gpu, times[0] + 1))


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
    made = reading.Parser(prog=NAME, description="Split prefill from decode, or not?")
    add = made.add_argument
    add("--model", required=True, help="a name in the book's catalogue, or the path of a config.json")
    add("--gpu", required=True, help=", ".join(gpu.name for gpu in GPUS))
    add(
        "--link",
        help="between the pools: " + ", ".join(link.name for link in LINKS) + ", or a number of Gb/s",
    )
    add("--gpus", type=whole, default=2, help="GPUs in all (2)")
    add("--tensor-parallel", type=whole, help="GPUs to one engine (any number that starts)")
    add("--prefill-tensor-parallel", type=whole, help="GPUs to an engine for prompts, if split")
    add("--decode-tensor-parallel", type=whole, help="GPUs to an engine for answers, if split")
    add("--prefill-engines", type=whole, help="engines for prompts, if split (the best)")
    add("--rate", type=number, help="requests per second, arriving at random")
    add("--prompt", type=whole, default=8192, help="mean tokens of a prompt (8192)")
    add("--output", type=whole, default=256, help="mean tokens of an answer (256)")
    add("--spread", type=number, default=0.0, help="standard deviation of both over the mean (0: all alike)")
    add("--hit-rate", type=number, default=0.0, help="share of each prompt found in the prefix cache (0)")
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
    add(
        "--steps",
        choices=PRICES,
        default=KERNELS,
        help="what a step takes: the sum of its kernels, or a roofline, calibrated or the review's (kernels)",
    )
    add("--price", type=number, help="of a GPU, an hour")
    add("--progress", action="store_true", help="say how far it is, even where nobody looks")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Print the advice for the command line's arguments; 2 and a message where they will not do."""
    arguments = parser().parse_args(given)
    try:
        found = reading.read_traffic(arguments)
        if found:
            say(heard(found) + "\n")
        case = asked(arguments, found)
        say(report(case, decide(case, bar if arguments.progress or sys.stderr.isatty() else None)))
    except ValueError as error:
        message = f"{NAME}: {reading.one_line(in_options(str(error)))}"
        print(reading.printable(message, sys.stderr.encoding), file=sys.stderr)
        return 2
    return 0


def say(text: str) -> None:
    """Print a text at once, in signs that the output has."""
    print(reading.printable(text, sys.stdout.encoding), flush=True)


def bar(done: float, what: str) -> None:
    """Draw how much is done, over what was drawn before; at the end nothing."""
    line = f"[{'#' * round(20 * done):20}] {what}" if done < 1 else ""
    print(f"\r{line:<60}", end="" if line else "\r", file=sys.stderr, flush=True)


def asked(arguments: argparse.Namespace, found: Traffic | None = None) -> Case:
    """Return the case that the command line asks about; `found`: the recording that it names."""
    limits = {
        name: None if value is None else value / 1e3
        for name, value in (("tpot", arguments.tpot_ms), ("itl", arguments.itl_ms), ("gap", arguments.gap_ms))
    }
    if arguments.ttft_s is None and not any(limits.values()):
        raise ValueError("no target; give at least one of --ttft-s, --tpot-ms, --itl-ms, --gap-ms")
    cpu = arguments.cpu_ms_per_request
    model, gpu = read_model(arguments.model), names.find("--gpu", arguments.gpu, GPUS)
    return Case(
        model,
        gpu,
        reading.read_load(arguments, found),
        SLO(arguments.ttft_s, **limits),
        read_link(arguments.link) if arguments.link else None,
        arguments.gpus,
        arguments.tensor_parallel,
        arguments.prefill_tensor_parallel,
        arguments.decode_tensor_parallel,
        arguments.prefill_engines,
        handoff_s=arguments.handoff_s,
        cpu_s_per_request=None if cpu is None else cpu / 1e3,
        history_can_change=arguments.history_can_change,
        new_tokens=arguments.new_tokens,
        price=arguments.steps,
        timed=read_timed(arguments, model, gpu, found),
        target=arguments.target,
        price_per_gpu_hour=arguments.price,
    )


def in_options(message: str) -> str:
    """Return a refusal with options for the names of arguments: --tensor-parallel 3 for tensor_parallel=3."""
    said = re.sub(r"\b(decide|poisson|SLO|Load|timed): ", "", message)
    for argument, option in OPTIONS.items():
        said = re.sub(rf"\b{argument}=", f"{option} ", said)
    return re.sub(r"\b(\w+_\w+)=", lambda found: reading.flag(found[1]) + " ", said)


OPTIONS = {  # whose names differ
    "n_prefill": "--prefill-engines", "price_per_gpu_hour": "--price", "gpus": "--gpus", "link": "--link",
    "target": "--target", "rate": "--rate", "prompt": "--prompt", "output": "--output", "spread": "--spread",
    "ttft": "--ttft-s, in s,", "tpot": "--tpot-ms, in s,", "itl": "--itl-ms, in s,", "gap": "--gap-ms, in s,",
    "cpu_s_per_request": "--cpu-ms-per-request, in s,", "prefill_s": "--prefill-ms, in s,",
    "decode_s": "--decode-ms, in s,", "tensor_parallel": "--tensor-parallel",
}  # fmt: skip
