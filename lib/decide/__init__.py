"""Split or not: an answer with its numbers and its reasons.

`decide` asks first what starts and what lasts (`lib.capacity`), then plays the workload under vLLM's rules
until its queues are steady (`lib.steady`), and walks the questions; `python -m lib.decide` does it from a
command line, the form of the chapter in a browser. What the answer hangs on is tried as well: what steps
take, this book's typical errors, the handoff.

In the order of reading: `case` (what is asked), `prices` (of a step), `layouts` (what there is), `questions`,
`margin` (what would change the answer), here (the answer); then `table` (the guide's), `words`, `reading` and
`command`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from lib.decide.case import Case, Load, poisson, recorded
from lib.decide.layouts import ROUGH, Fewest, Look, Option, fewest, left_for_copies, option
from lib.decide.margin import COPY, Stress, stresses
from lib.decide.prices import PRICES, Longer, Timed, reached
from lib.decide.questions import MEASURE, Fork, Plan, also, forks, plan, reason, verdict
from lib.decide.table import GUIDES_BOX, ROWS

__all__ = [
    "GUIDES_BOX",
    "PRICES",
    "ROWS",
    "Advice",
    "Case",
    "Load",
    "Longer",
    "Timed",
    "decide",
    "poisson",
    "reached",
    "recorded",
]

Tell = Callable[[float, str], None]  # the share that is done, and what is next


@dataclass(frozen=True)
class Advice:
    """The recommendation and how it came about.

    - `meets`: whether any of the layouts keeps the targets as given;
    - `leaning`: the answer if all numbers were right; it is the recommendation unless that is to measure;
    - `measure`: what to measure, if the answer hangs on it;
    - `also`: what holds besides: a render tier, the way back, a guard, how few GPUs;
    - `collocated`: one pool as it is; `other`: another way to run it that keeps the targets; `disaggregated`:
      two pools. None where there is no such layout;
    - `free`: the share that would keep the targets apart, if copies took no time;
    - `handoff`, `handoff_limit`: seconds of the copy, and up to about how many the split keeps the targets
      (None: not even without a copy);
    - `needed`: how few GPUs would do; `stresses`: what was tried.
    """

    recommendation: str
    reason: str
    forks: tuple[Fork, ...]
    collocated: Option
    other: Option | None
    disaggregated: Option | None
    free: float | None
    leaning: str
    meets: bool
    measure: tuple[str, ...]
    also: tuple[str, ...]
    handoff: float
    handoff_limit: float | None
    needed: Fewest
    stresses: tuple[Stress, ...]
    plan: Plan


def decide(case: Case, tell: Tell | None = None) -> Advice:
    """Return whether to split the GPUs into a prefill and a decode pool for this workload, and why.

    `tell` is told how far it is. ValueError where no engine would start.
    """
    return answer(case, tell or say_nothing)


def say_nothing(done: float, what: str) -> None:
    """Tell nobody how far it is."""


@lru_cache(maxsize=16)
def answer(case: Case, tell: Tell) -> Advice:
    """Return the advice for a case; the last few are kept."""
    tell(0.0, "the best split")
    compared = plan(case)
    tell(0.2, "one pool and two")
    look = Look(case, ROUGH)
    found = verdict(case, compared, look, through=True)
    own, two = compared.pools[0], compared.split
    limit = left_for_copies(case, look(two, 0.0)) if two else None
    tell(0.35, "how much load each stands")
    collocated = option(case, own, found.together)
    other = option(case, *found.other) if found.other else None
    disaggregated = option(case, two, look(two)) if two else None
    tell(0.6, "how few GPUs would do")
    needed = fewest(case, found.other[0] if found.other else own, two, look)
    tell(0.8, "what would change the answer")
    tried = stresses(case, compared, look, found)
    moved = tuple(stress for stress in tried if stress.recommendation != found.recommendation)
    measure = tuple(dict.fromkeys(stress.measure for stress in moved))
    if found.recommendation == MEASURE:
        measure = measure or (COPY,)
    tell(1.0, "")
    return Advice(
        recommendation=MEASURE if measure else found.recommendation,
        reason=reason(case, compared, found, limit),
        forks=tuple(forks(case, compared, found, limit)),
        collocated=collocated,
        other=other,
        disaggregated=disaggregated,
        free=found.free.share if found.free else None,
        leaning=found.recommendation,
        meets=any(o is not None and o.attainment >= case.target for o in (collocated, other, disaggregated)),
        measure=measure,
        also=tuple(also(case, found, needed)),
        handoff=case.handoff,
        handoff_limit=limit,
        needed=needed,
        stresses=tried,
        plan=compared,
    )
