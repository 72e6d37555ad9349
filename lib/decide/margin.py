"""What the answer would be if something were otherwise, and what to measure if that changes it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lib import data, measured
from lib.decide.case import Case
from lib.decide.layouts import Known, Look, Pool, Seen, Split
from lib.decide.prices import KERNELS, Longer
from lib.decide.questions import LARGER, SMALL, STAY, Plan, Verdict, verdict
from lib.hardware import PCIE_4
from lib.kv_cache import transfer_time
from lib.measured import Error
from lib.models import QWEN2_5_7B

STEPS = "on one of your engines, the time of a mean prompt alone and of one decode step"
COPY = "the handoff: first tokens of a split at low load, less those of one engine"
SPEEDS = 0.8, 1.2  # of the steps, in place of 1


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


def typical(case: Case, phase: str) -> Error:
    """Return by which factor the case's price is typically off, of "first token" or "between tokens".

    Over what others measured of such models, on the same GPU where that is enough; none of those figures gave
    a constant. The review's price is taken to be as far off as the roofline's.
    """
    return measured.typical_error(case.model, case.gpu, phase, old=case.price != KERNELS)


def longer(case: Case, prompts: float, answers: float) -> Case:
    """Return the case with steps so many times as long: what prompts add to them, and the rest."""
    own = case.longer
    return replace(case, longer=Longer(own.prompts * prompts, own.answers * answers))


def stresses(case: Case, compared: Plan, look: Look, found: Verdict) -> tuple[Stress, ...]:
    """Return what the answer, `found`, would be otherwise.

    With steps a fifth slower and faster; unless they were timed, with this book's typical error;
    unless that was measured, with a handoff as slow as the guide's. `look` has seen what the answer is of:
    what follows from that is not played again.
    """
    slow, fast = (1 / speed for speed in SPEEDS)
    slower = [(slow, slow)]
    names = [f"steps at {speed:g} times the speed" for speed in SPEEDS]
    if case.timed is None:
        errors = typical(case, "first token").median, typical(case, "between tokens").median
        slower.append(errors)
        names.append(
            f"prompts {errors[0]:.2f} and answers {errors[1]:.2f} times as long, this book's typical error"
        )
    ends = list(when_longer(case, compared, look, found, slower))
    quick = longer(case, fast, fast)
    ends.insert(1, verdict(quick, compared, Look(quick, known=kept(look))).recommendation)
    tried = [(name, end, STEPS) for name, end in zip(names, ends, strict=True)]
    if case.handoff_s is None and compared.split:
        late = replace(case, handoff_s=case.wire * wire_factor())
        name = f"handoff {wire_factor():.0f} times the wire, {late.handoff:.2g} s, as the guide's"
        if found.recommendation in (STAY, SMALL, LARGER) and not found.late(case):
            end = found.recommendation  # which hands nothing over
        else:
            end = verdict(late, compared, Look(late, known=but_copies(look))).recommendation
        tried.append((name, end, COPY))
    return tuple(Stress(*one) for one in tried)


def when_longer(
    case: Case, compared: Plan, look: Look, found: Verdict, by: list[tuple[float, float]]
) -> Iterator[str]:
    """Yield where the flow ends with steps longer by each of these factors.

    Longer steps keep no target that shorter ones missed. So if the longest change nothing, none does.
    """
    longest = max(prompts for prompts, _ in by), max(answers for _, answers in by)

    def end(factors: tuple[float, float]) -> str:
        slow = longer(case, *factors)
        return verdict(slow, compared, Look(slow, known=failed(look, compared.pools[0]))).recommendation

    worst = end(longest)
    for factors in by:
        yield worst if worst == found.recommendation or factors == longest else end(factors)


# ------------------------------------------------------------------ what follows from what was seen


def failed(look: Look, own: Pool) -> Known:
    """Return who is known to fail with longer steps: who does, but `own` by first tokens only."""

    def known(layout: Pool | Split, free: bool) -> Seen | None:
        found = look.found.get((layout, free))
        if found is None:
            return None
        best = max(found.share, found.rest) if layout == own else found.share
        return found if best < look.case.target else None

    return known


def kept(look: Look) -> Known:
    """Return who is known to keep the targets with shorter steps: who keeps them already."""

    def known(layout: Pool | Split, free: bool) -> Seen | None:
        found = look.found.get((layout, free))
        return found if found and found.share >= look.case.target else None

    return known


def but_copies(look: Look) -> Known:
    """Return what is known where only copies take longer: all but the split with its copies."""

    def known(layout: Pool | Split, free: bool) -> Seen | None:
        return look.found.get((layout, free)) if free or isinstance(layout, Pool) else None

    return known
