"""Which price a step is given, and what two measured times make of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from lib import calibration, checks, parallelism
from lib.hardware import GPU
from lib.kernels import ByKernels
from lib.models import Model
from lib.roofline import PUBLISHED, Efficiency, WorkPrice, decode, ideal_time, prefill, step_time
from lib.simulator import Engine
from lib.simulator.engine import Price

KERNELS, ROOFLINE, REVIEW = PRICES = ("kernels", "roofline", "review")
SAID = {
    KERNELS: "steps are the sum of their kernels, as others timed them",
    ROOFLINE: "steps are one roofline, at efficiencies calibrated for this GPU",
    REVIEW: "steps are one roofline, at the review's efficiencies",
}


class Timed(NamedTuple):
    """Two things timed on an engine of `tensor_parallel` GPUs, in seconds.

    `prefill_s`: a prompt of `prompt` tokens alone; `decode_s`: one decode step of a single stream after it.
    """

    prompt: int
    prefill_s: float
    decode_s: float
    tensor_parallel: int = 1


class Longer(NamedTuple):
    """How many times as long a step takes: the part that prompts add to it, and the rest."""

    prompts: float = 1.0
    answers: float = 1.0


AS_PRICED = Longer()


@dataclass(frozen=True)
class Scaled:
    """A price by kernels, times a factor for what prompts add to a step, and one for the rest of it."""

    of: ByKernels
    longer: Longer

    def seconds_on(self, engine: Engine) -> Callable[[tuple[tuple[int, int], ...], int, int], float]:
        """Return the seconds of a step on that engine."""
        price, (prompts, answers) = self.of.seconds_on(engine), self.longer

        def seconds(chunks: tuple[tuple[int, int], ...], batch: int, context: int) -> float:
            if not chunks or not batch or prompts == answers:
                return (prompts if chunks else answers) * price(chunks, batch, context)
            rest = price((), batch, context)
            return answers * rest + prompts * (price(chunks, batch, context) - rest)

        return seconds

    def answers_on(self, engine: Engine) -> Callable[[int, int, int], list[float]]:
        """Return the seconds of steps in a row without a prompt."""
        run, longer = self.of.answers_on(engine), self.longer.answers
        return lambda *steps: [longer * seconds for seconds in run(*steps)]


def checked(owner: str, model: Model, gpu: GPU, timed: Timed) -> tuple[float, float]:
    """Return the seconds of both at the GPU's peak; ValueError where it was timed to be faster."""
    prompt, prefill_s, decode_s, degree = timed
    checks.positive(owner, prefill_s=prefill_s, decode_s=decode_s)
    works = prefill(model, prompt), decode(model, 1, prompt)
    least = [ideal_time(parallelism.divide(work, model, degree), gpu) for work in works]
    for name, ideal, given in zip(("prefill_s", "decode_s"), least, timed[1:3], strict=True):
        if given < ideal:
            raise ValueError(
                f"{owner}: {name}={given!r} is less than {gpu.name} needs at its peak, {ideal:.3g} s for "
                f"{prompt:,} tokens; use the times of one prompt alone and of one step"
            )
    return least[0], least[1]


def reached(model: Model, gpu: GPU, timed: Timed) -> Efficiency:
    """Return the efficiencies at which a roofline takes as long as was timed.

    ValueError where that is faster than the GPU's peak.
    """
    least = checked("reached", model, gpu, timed)
    return Efficiency(least[0] / timed.prefill_s, least[1] / timed.decode_s)


@lru_cache(maxsize=64)
def factors(model: Model, gpu: GPU, timed: Timed, budget: int) -> Longer:
    """Return how many times as long as by their kernels the prompt and the step took that were timed.

    The prompt comes in steps of `budget` tokens. ValueError where that is faster than the GPU's peak.
    """
    checked("factors", model, gpu, timed)
    one = Engine(model, gpu, timed.tensor_parallel, token_budget=budget, price=ByKernels())
    return Longer(
        timed.prefill_s / alone(one, timed.prompt),
        timed.decode_s / one.step_seconds((), 1, timed.prompt + 1),
    )


def alone(engine: Engine, prompt: int, cached: int = 0) -> float:
    """Return the seconds in which an engine with nothing else to do computes a prompt, in full steps."""
    each = engine.token_budget or prompt
    return sum(
        engine.step_seconds(((min(each, prompt - past), past),)) for past in range(cached, prompt, each)
    )


def priced(
    name: str, model: Model, gpu: GPU, timed: Timed | None, longer: Longer, budget: int
) -> tuple[Price | WorkPrice, Efficiency]:
    """Return the price and the efficiencies of an `Engine`, by one of PRICES, as timed; then times `longer`.

    A roofline's efficiencies do not exceed 1 by that.
    """
    if name == KERNELS:
        own = factors(model, gpu, timed, budget) if timed else AS_PRICED
        both = Longer(own.prompts * longer.prompts, own.answers * longer.answers)
        return ByKernels() if both == AS_PRICED else Scaled(ByKernels(), both), PUBLISHED
    own_share = calibration.efficiency(gpu) if name == ROOFLINE else PUBLISHED
    share = reached(model, gpu, timed) if timed else own_share
    slower = Efficiency(
        min(1, share.compute / longer.prompts), min(1, share.bandwidth / longer.answers), share.overhead
    )
    return step_time, slower
