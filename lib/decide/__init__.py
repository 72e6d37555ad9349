"""Split or not: an answer with its numbers and its reasons.

`decide` plays the workload on both layouts under vLLM's rules and walks the questions; `python -m lib.decide`
does it from a command line. Prompts are computed whole (no prefix caching), and every cache has the link to
itself. What the answer hangs on is tried as well: efficiencies, this book's typical errors, the handoff.

In the order of reading: `case` (what is asked), `layouts`, `questions`, `handoff` (how long it may take),
`margin` (what would change the answer), here (the answer); then `table` (the guide's), `reading` (what a
command line says) and `command`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lib import calibration
from lib.decide.case import Case, Load, poisson, recorded
from lib.decide.handoff import handoff_limit
from lib.decide.layouts import Option, apart, best_split, option, together
from lib.decide.margin import COPY, Stress, reached, stresses
from lib.decide.questions import MEASURE, Fork, also, fit, forks, reason, verdict
from lib.decide.table import GUIDES_BOX, ROWS
from lib.goodput import SLO
from lib.hardware import GPU, Link
from lib.models import Model
from lib.roofline import Efficiency
from lib.workload import Request

__all__ = ["GUIDES_BOX", "ROWS", "Advice", "decide", "poisson", "reached", "recorded"]

TOO_BIG = "does not fit"


@dataclass(frozen=True)
class Advice:
    """The recommendation and how it came about.

    - `meets`: whether any of the two layouts keeps the targets as given;
    - `leaning`: the answer if all numbers were right; it is the recommendation unless that is to measure;
    - `measure`: what to measure, if the answer hangs on it;
    - `also`: what holds besides: a render tier, the way back, a guard, smaller chunks first;
    - `handoff`, `handoff_limit`: seconds of the copy, and up to how many the split keeps the targets (None:
      not even without a copy);
    - `stresses`: what was tried.

    Without a layout that fits, `collocated` and `disaggregated` are None.
    """

    recommendation: str
    reason: str
    forks: tuple[Fork, ...]
    collocated: Option | None
    disaggregated: Option | None
    leaning: str
    meets: bool = False
    measure: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    handoff: float = 0.0
    handoff_limit: float | None = None
    stresses: tuple[Stress, ...] = ()


def decide(
    model: Model,
    gpu: GPU,
    workload: Load | Sequence[Request],
    slo: SLO,
    link: Link | None,
    handoff_s: float | None = None,
    cpu_s_per_request: float | None = None,
    history_can_change: bool = False,
    gpus: int = 2,
    tensor_parallel: int = 1,
    new_tokens: int | None = None,
    efficiency: Efficiency | None = None,
    target: float = 0.9,
    price_per_gpu_hour: float | None = None,
    seeds: Sequence[int] = (0, 1),
) -> Advice:
    """Return whether to split `gpus` GPUs into a prefill and a decode pool for this workload, and why.

    - `workload`: a `Load`, or requests as recorded; `slo`: what at least `target` of them must keep to.
    - `handoff_s`: seconds of a prompt's copy as measured; None: predicted from the cache and the `link`.
    - `cpu_s_per_request`: CPU time around the engine (template, tokens, parsers), None: not asked.
    - `new_tokens`: what a turn adds to its history, on average; None: prompts have no history.
    - `history_can_change`: whether a template or a harness may edit earlier turns.
    - `tensor_parallel`: GPUs to one engine, in both pools.
    - `efficiency`: as measured (see `reached`); None: the GPU's, from `calibration`.

    ValueError where the arguments contradict each other.
    """
    load = workload if isinstance(workload, Load) else recorded(workload)
    return answer(Case(
        model, gpu, load, slo, link, handoff_s, cpu_s_per_request, history_can_change, gpus, tensor_parallel,
        new_tokens, calibration.efficiency(gpu) if efficiency is None else efficiency, efficiency is not None,
        target, price_per_gpu_hour, tuple(seeds)[:1] if load.alike else tuple(seeds),
    ))  # fmt: skip


@lru_cache(maxsize=16)
def answer(case: Case) -> Advice:
    """Return the advice for a case; the last few are kept."""
    fits = fit(case)
    if not fits.answer:
        return Advice(TOO_BIG, fits.number, (fits,), None, None, TOO_BIG)
    n_prefill = best_split(case)
    seen = verdict(case, n_prefill)
    limit = handoff_limit(case, n_prefill)
    tried = stresses(case, n_prefill)
    moved = tuple(stress for stress in tried if stress.recommendation != seen.recommendation)
    measure = tuple(dict.fromkeys(stress.measure for stress in moved))
    if seen.recommendation == MEASURE:
        measure = measure or (COPY,)
    pools = (n_prefill, case.engines - n_prefill)
    return Advice(
        recommendation=MEASURE if measure else seen.recommendation,
        reason=reason(case, seen, limit),
        forks=(fits, *forks(case, seen, limit)),
        collocated=option(case, f"{case.engines} engines for both", together(case), (0, 0)),
        disaggregated=option(
            case, f"{pools[0]} for prompts, {pools[1]} for answers", apart(case, n_prefill, case.copy), pools
        ),
        leaning=seen.recommendation,
        meets=max(seen.together, seen.apart) >= case.target,
        measure=measure,
        also=tuple(also(case, seen, n_prefill)),
        handoff=case.handoff,
        handoff_limit=limit,
        stresses=tried,
    )
