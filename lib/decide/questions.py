"""The questions of the flow in their order, with the number behind each answer, and where they end."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from lib.decide.case import Case
from lib.decide.layouts import apart, default_limits, engine, passes, share, together, traces
from lib.goodput import SLO, mean_of
from lib.parallelism import USABLE_MEMORY
from lib.simulator import Collocated, Engine, Trace, simulate
from lib.workload import Request

STAY = "stay collocated"
SPLIT = "disaggregate"
FIX = "fix the transfer first"
MEASURE = "measure first"
NOTHING = "no layout meets the targets"

SMALL_CHUNKS = 512  # tokens a step: what to try before a split


@dataclass(frozen=True)
class Fork:
    """One question of the flow, its answer, the number behind it, and the rows of the table that it is."""

    question: str
    answer: bool
    number: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Where the flow ends for a case, and what it has seen on the way: shares of requests in time."""

    recommendation: str
    together: float
    first: float  # together, first tokens alone
    rest: float  # together, gaps alone
    apart: float
    free: float  # apart, if copies took no time


def verdict(case: Case, n_prefill: int) -> Verdict:
    """Return where the flow ends, with that many engines for prompts."""
    both = share(case, together(case))
    first = share(case, together(case), SLO(ttft=case.slo.ttft)) if case.slo.ttft is not None else 1.0
    gaps = gaps_alone(case.slo)
    rest = share(case, together(case), gaps) if gaps else 1.0
    split, free = (share(case, apart(case, n_prefill, copy)) for copy in (case.copy, 0.0))
    late = first < case.target <= rest
    if both >= case.target:
        end = STAY
    elif late:  # the first token is what is late, and a split adds to every one of them
        end = MEASURE if split >= case.target else STAY
    elif split >= case.target:
        end = SPLIT
    else:
        end = FIX if free >= case.target else NOTHING
    return Verdict(end, both, first, rest, split, free)


def gaps_alone(slo: SLO) -> SLO | None:
    """Return what the SLO says of gaps; None if that is nothing."""
    gaps = (slo.tpot, slo.itl, slo.gap)
    return SLO(None, *gaps) if any(gaps) else None


def fit(case: Case) -> Fork:
    """Return whether an engine has room for the weights and the longest request; else what would have."""
    question = "Does the model fit?"
    degrees = (case.tensor_parallel, *(2**i for i in range(11) if 2**i > case.tensor_parallel))
    rooms = {degree: room(case, degree) for degree in degrees}
    needed, have = case.longest, rooms[case.tensor_parallel]
    usable = USABLE_MEMORY * case.tensor_parallel * case.gpu.memory
    weights = f"{case.model.resident_bytes / 1e9:.1f} GB of weights in {usable / 1e9:.1f} GB usable"
    if have >= needed:
        return Fork(
            question, True, f"{weights}; room for {have:,} tokens, the longest request has {needed:,}"
        )
    enough = [degree for degree in degrees if rooms[degree] >= needed]
    would = f"tensor_parallel={enough[0]} would do" if enough else "use a smaller model or a larger GPU"
    return Fork(question, False, f"{weights}; room for {max(0, have):,} of {needed:,} tokens; {would}")


def room(case: Case, degree: int) -> int:
    """Return for how many tokens an engine on `degree` GPUs has room: 0 where not even the weights fit."""
    try:
        one = Engine(case.model, case.gpu, tensor_parallel=degree)
    except ValueError:
        return 0
    return one.kv_tokens


def forks(case: Case, seen: Verdict, limit: float | None) -> Iterable[Fork]:
    """Yield the questions of the flow in their order, to its end; then those that are asked anyway."""
    how = "measured" if case.handoff_s is not None else "predicted"
    quick = limit is not None and case.handoff <= limit
    yield Fork("Is the handoff fast enough?", quick, f"{lasting(case.handoff)} {how}; {within(limit)}", (6,))
    calm = seen.together >= case.target
    kept = f"{percent(seen.together)} keep the targets, {percent(case.target)} asked"
    yield Fork("Does one pool keep the targets at this load?", calm, kept, (7,))
    if not calm:
        late = seen.first < case.target <= seen.rest
        parts = f"first tokens in time: {percent(seen.first)}; gaps in time: {percent(seen.rest)}"
        yield Fork("Is only the first token late?", late, parts, (5,))
        if not late:
            yield prompts_collide(case)
        better = seen.apart >= case.target
        number = f"{percent(seen.apart)} keep the targets apart, {percent(seen.free)} if copies took no time"
        yield Fork("Do two pools keep them, with this handoff?", better, number, (1, 2, 6))
    if case.new_tokens is not None:
        yield context_grows(case)
    if case.history_can_change:
        yield Fork("Can history change?", True, "as you say; a cache is right for one token sequence only")
    if case.cpu_s_per_request is not None:
        cores = case.cpu_s_per_request * case.load.rate
        number = f"{cores:.3g} cores at {case.load.rate:.3g} req/s"
        yield Fork("Does the frontend show in the GPU nodes' CPU profile?", cores >= 1, number, (4,))


def prompts_collide(case: Case) -> Fork:
    """Return how many gaps have somebody's prompt in their step, and what share of time prompts take."""
    gaps = mean_of(Trace.share_with_prefill, traces(case, together(case)), 2)
    alone = simulate([Request(0, round(case.prompt), 1)], Collocated(engine(case))).ttft[0]
    busy = case.load.rate * alone / case.engines
    number = f"{100 * gaps:.1f} % of gaps carry a prompt; {lasting(alone)} each, {percent(busy)} of the time"
    return Fork("Do prompts stall the answers?", gaps > 0.01, number, (1, 2))


def context_grows(case: Case) -> Fork:
    """Return what a turn's prefill takes if the last answer is pulled back, and if it is computed again."""
    assert case.new_tokens is not None
    one = Collocated(engine(case))
    answer = min(round(case.output), round(case.prompt) - case.new_tokens)
    back, again, whole = (prefill_seconds(one.engine, tokens, round(case.prompt)) for tokens in (
        case.new_tokens, case.new_tokens + answer, round(case.prompt)))  # fmt: skip
    number = (
        f"{case.new_tokens:,} of {case.prompt:,.0f} tokens are new: {lasting(back)} of prefill if all before "
        f"is kept, {lasting(again)} if the last answer is computed again, {lasting(whole)} if everything is"
    )
    return Fork("Does the context grow from turn to turn?", case.new_tokens < case.prompt, number, (3,))


def prefill_seconds(one: Engine, tokens: int, prompt: int) -> float:
    """Return the seconds in which an engine computes the last tokens of a prompt, in one step."""
    return one.step_seconds(((tokens, prompt - tokens),))


def reason(case: Case, seen: Verdict, limit: float | None) -> str:
    """Return in a sentence why the flow ends where it does."""
    one, two, first = percent(seen.together), percent(seen.apart), percent(seen.first)
    copy = lasting(case.handoff)
    if seen.recommendation == STAY and seen.together >= case.target:
        return f"one pool keeps the targets for {one} of requests"
    if seen.recommendation == STAY:
        return f"the first token is late ({first} in time), and a split adds {copy} to each ({two} in time)"
    if seen.recommendation == MEASURE:
        return f"the first token is late ({first} in time); a split helps ({two}) if the handoff is as said"
    if seen.recommendation == SPLIT:
        return f"two pools keep the targets for {two} of requests, one pool for {one}"
    if seen.recommendation == FIX:
        return f"a split would keep the targets, but the handoff takes {copy} and {within(limit)}"
    return f"one pool keeps the targets for {one} of requests, two pools for {two}"


def also(case: Case, seen: Verdict, n_prefill: int) -> Iterable[str]:
    """Yield what holds besides the recommendation."""
    budget = default_limits(case.gpu)[0]
    if seen.together < case.target and budget > SMALL_CHUNKS:
        small = share(case, together(case, SMALL_CHUNKS))
        if small >= case.target:
            yield (
                f"try first: one pool in steps of {SMALL_CHUNKS} tokens keeps the targets for "
                f"{percent(small)} (this model understates what small steps cost)"
            )
    if max(seen.together, seen.apart) < case.target:
        yield more_gpus(case, n_prefill)
    if case.new_tokens is not None and case.new_tokens < case.prompt:
        yield "if split: transfer in both directions, or offload to a shared cache, so that answers return"
    if case.history_can_change:
        yield "guard reuse: compare token IDs, and reuse up to the first difference; or leave it off"
    if case.cpu_s_per_request is not None and case.cpu_s_per_request * case.load.rate >= 1:
        yield "give the frontend a render tier of its own"


def more_gpus(case: Case, n_prefill: int) -> str:
    """Return with how many times the GPUs, up to eight, the targets would be kept."""
    for times in (2, 4, 8):
        larger = replace(case, gpus=times * case.gpus)
        layouts = {"one pool": together(larger), "two pools": apart(larger, times * n_prefill, case.copy)}
        for name, layout in layouts.items():
            if passes(larger, layout):
                return f"{larger.gpus} GPUs in {name} would keep the targets"
    return f"{8 * case.gpus} GPUs would not keep the targets either: ask for less, or for another GPU"


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{100 * value:.0f}\u00a0%"  # not to be torn apart at the end of a line


def lasting(seconds: float) -> str:
    """Return seconds in words, with three digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def within(limit: float | None) -> str:
    """Return a handoff limit in words."""
    if limit is None:
        return "no handoff is short enough at this load"
    return "first tokens have no target" if limit == inf else f"the targets leave {lasting(limit)}"
