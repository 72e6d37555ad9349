"""What the answer would be if something were otherwise, and what to measure if that changes it."""

from dataclasses import dataclass, replace

from lib import checks, data, measured, parallelism
from lib.decide.case import Case
from lib.decide.questions import Plan, verdict
from lib.hardware import GPU, PCIE_4
from lib.kv_cache import transfer_time
from lib.models import QWEN2_5_7B, Model
from lib.roofline import Efficiency, decode, ideal_time, prefill

STEPS = "on one of your engines, the time of a mean prompt alone and of one decode step"
COPY = "the handoff: first tokens of a split at low load, less those of one engine"


@dataclass(frozen=True)
class Stress:
    """What the answer would be if something were otherwise."""

    name: str
    recommendation: str
    measure: str


def wire_factor() -> float:
    """Return by what factor the guide's own handoff outlasts the wire: the slowest one published."""
    theirs = float(data.read("published.toml")["kv_calculator"]["guide_measured_ms"]) / 1e3
    return theirs / transfer_time(QWEN2_5_7B, 8192, PCIE_4)


def model_error(model: Model, gpu: GPU) -> tuple[float, str]:
    """Return by what factor these answers' price, the roofline's, is typically off, and whose figures say so.

    The median over what others measured of such models, on the same GPU where that is enough.
    """
    error = measured.typical_error(model, gpu, old=True)
    return error.median, ", ".join(error.sources)


def reached(
    model: Model, gpu: GPU, prompt: int, prefill_s: float, decode_s: float, tensor_parallel: int = 1
) -> Efficiency:
    """Return the efficiencies of an engine on which two things were timed, in seconds.

    A prompt of `prompt` tokens alone, and one decode step of a single stream with that context. ValueError
    where one is faster than the GPU's peak.
    """
    checks.positive("reached", prefill_s=prefill_s, decode_s=decode_s)
    ideal = [
        ideal_time(parallelism.divide(work, model, tensor_parallel), gpu)
        for work in (prefill(model, prompt), decode(model, 1, prompt))
    ]
    for name, least, given in zip(("prefill_s", "decode_s"), ideal, (prefill_s, decode_s), strict=True):
        if given < least:
            raise ValueError(
                f"reached: {name}={given!r} is less than {gpu.name} needs at its peak, {least:.3g} s for "
                f"{prompt:,} tokens; use the times of one prompt alone and of one step"
            )
    return Efficiency(ideal[0] / prefill_s, ideal[1] / decode_s)


def scaled(case: Case, factor: float) -> Case:
    """Return the case with both efficiencies times a factor, at most 1."""
    own = case.reached
    slower = Efficiency(min(1, own.compute * factor), min(1, own.bandwidth * factor), own.overhead)
    return replace(case, efficiency=slower)


def stresses(case: Case, compared: Plan) -> tuple[Stress, ...]:
    """Return what the answer would be otherwise.

    At efficiencies 20 % off; unless they were measured, with this book's typical error; unless that was
    measured, with a handoff as slow as the guide's.
    """
    tried = [
        ("efficiencies 20 % lower", scaled(case, 0.8), STEPS),
        ("efficiencies 20 % higher", scaled(case, 1.2), STEPS),
    ]
    if case.efficiency is None:
        error, _ = model_error(case.model, case.gpu)
        name = f"all steps {error:.2f} times as long, this book's typical error"
        tried.append((name, scaled(case, 1 / error), STEPS))
    if case.handoff_s is None and compared.split:
        slow = case.wire * wire_factor()
        name = f"handoff {wire_factor():.0f} times the wire, {slow:.2g} s, as the guide's"
        tried.append((name, replace(case, handoff_s=slow), COPY))
    return tuple(Stress(name, verdict(other, compared).recommendation, what) for name, other, what in tried)
