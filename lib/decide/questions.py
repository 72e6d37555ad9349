"""The questions of the flow in their order, with the number behind each answer, and where they end."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from lib import capacity
from lib.capacity import Busy
from lib.decide.case import Case
from lib.decide.layouts import (
    Fewest,
    Look,
    Pool,
    Seen,
    Split,
    best_split,
    engine,
    pools,
)
from lib.parallelism import USABLE_MEMORY, room
from lib.simulator import Engine

STAY = "stay collocated"
SMALL = "small steps"
LARGER = "larger engines"
SPLIT = "disaggregate"
FIX = "fix the transfer first"
MEASURE = "measure first"
NOTHING = "no layout meets the targets"

QUESTIONS = (
    FITS,
    LASTS,
    QUICK,
    CALM,
    LATE,
    STALLS,
    TUNED,
    APART,
    GROWS,
    CHANGES,
    SHOWS,
) = (  # all that may be asked
    "Does the model fit?",
    "Can they keep up with the load?",
    "Is the handoff fast enough?",
    "Does one pool keep the targets at this load?",
    "Is only the first token late?",
    "Do prompts stall the answers?",
    "Do small steps or larger engines keep them?",
    "Do two pools keep them, with this handoff?",
    "Does the context grow from turn to turn?",
    "Can history change?",
    "Does the frontend show in the GPU nodes' CPU profile?",
)


@dataclass(frozen=True)
class Fork:
    """One question of the flow, its answer, the number behind it, and the rows of the table that it is."""

    question: str
    answer: bool
    number: str
    rows: tuple[int, ...] = ()


class Plan(NamedTuple):
    """What is compared: ways to run one pool, as it is first; and the best split, if there is one."""

    pools: tuple[Pool, ...]
    split: Split | None


def plan(case: Case) -> Plan:
    """Return what is compared for a case. ValueError where no engine starts on its GPUs."""
    found = Plan(pools(case), best_split(case))
    if not found.pools and not found.split:
        least = next((n for n in capacity.POWERS if n > case.gpus or n not in case.degrees), 1)
        capacity.starts("decide", case.model, case.gpu, case.tensor_parallel or case.gpus, case.longest)
        raise ValueError(
            f"decide: gpus={case.gpus} are no multiple of an engine's; use a multiple of {least}"
        )
    return found


@dataclass(frozen=True)
class Verdict:
    """Where the flow ends for a case, and what it has seen on the way.

    `together`: one pool as it is. `other`: the first other way to run it that keeps the targets, and what it
    does; None where none does, or none was asked for. `apart`: two pools; `free`: the same, if copies took no
    time: never worse, for who gets a copy sooner may still be unlucky in whom it meets.
    """

    recommendation: str
    together: Seen
    other: tuple[Pool, Seen] | None = None
    apart: Seen | None = None
    free: Seen | None = None

    def late(self, case: Case) -> bool:
        """Whether only first tokens are late in one pool as it is."""
        return self.together.first < case.target <= self.together.rest


def verdict(case: Case, compared: Plan, look: Look, through: bool = False) -> Verdict:
    """Return where the flow ends; `look` says what a layout does at the load.

    `through`: having looked at two pools, whatever comes before.
    """
    own, *others = compared.pools
    one = look(own)
    late = one.first < case.target <= one.rest
    other = split = free = None
    if one.share < case.target:
        tried = [pool for pool in others if not (late and pool.budget)]  # small steps hasten no first token
        other = next(((pool, look(pool)) for pool in tried if look(pool).share >= case.target), None)
    calm = one.share >= case.target or other is not None
    if compared.split and (through or not calm):
        split, free = look(compared.split), look(compared.split, 0.0)
        free = max(free, split, key=lambda found: found.share)
    if one.share >= case.target:
        end = STAY
    elif other:
        end = SMALL if other[0].budget else LARGER
    elif late:  # the first token is what is late, and a split adds to every one of them
        end = MEASURE if split and split.share >= case.target else STAY
    elif split and split.share >= case.target:
        end = SPLIT
    else:
        end = FIX if free and free.share >= case.target else NOTHING
    return Verdict(end, one, other, split, free)


# ------------------------------------------------------------------ the questions


def fit(case: Case, compared: Plan) -> Fork:
    """Return how the weights and the longest request fit into an engine."""
    degree = compared.pools[0].degree
    usable = USABLE_MEMORY * degree * case.gpu.memory
    return Fork(
        FITS,
        True,
        f"{case.model.resident_bytes / 1e9:.1f} GB of weights in {usable / 1e9:.1f} GB usable; room for "
        f"{room(case.model, case.gpu, degree):,} tokens, the longest request has {case.longest:,}",
    )


def lasts(case: Case, compared: Plan, found: Verdict) -> Fork:
    """Return how busy the load keeps each pool, the link and the frontend's cores."""
    said = [f"one pool {busy_words(found.together.busy)}"]
    able = not found.together.overloaded
    if compared.split and found.apart:
        said.append(f"two pools: {busy_words(found.apart.busy)}")
        able = able or not found.apart.overloaded
        if case.link and case.handoff_s is None:
            share = case.load.rate * case.wire / compared.split.n_prefill
            said.append(f"the link of a prefill engine {percent(share)}")
    return Fork(LASTS, able, "; ".join(said))


def busy_words(busy: Iterable[Busy]) -> str:
    """Return how busy pools are, in words."""
    return ", ".join(
        f"{pool.pool if pool.pool != 'collocated' else ''} {percent(pool.share)} busy"
        f"{' (overloaded)' if pool.overloaded else ''}".strip()
        for pool in busy
    )


def forks(case: Case, compared: Plan, found: Verdict, limit: float | None) -> Iterable[Fork]:
    """Yield the questions of the flow in their order."""
    yield fit(case, compared)
    yield lasts(case, compared, found)
    if compared.split:
        how = "measured" if case.handoff_s is not None else "predicted"
        quick = limit is not None and case.handoff <= limit
        number = f"{lasting(case.handoff)} {how}; {within(limit)}"
        yield Fork(QUICK, quick, number, (6,))
    calm = found.together.share >= case.target
    kept = f"{keeping(found.together)}, {percent(case.target)} asked"
    yield Fork(CALM, calm, kept, (7,))
    if not calm:
        one = found.together
        late = found.late(case)
        parts = f"first tokens in time: {percent(one.first)}; gaps in time: {percent(one.rest)}"
        yield Fork(LATE, late, parts, (5,))
        if not late:
            yield prompts_collide(case, compared, found)
        yield other_settings(compared, found)
        if compared.split and found.apart and found.free:
            better = found.apart.share >= case.target
            number = f"{keeping(found.apart)} apart, {percent(found.free.share)} if copies took no time"
            yield Fork(APART, better, number, (1, 2, 6))
    if case.new_tokens is not None:
        yield context_grows(case, compared)
    if case.history_can_change:
        yield Fork(CHANGES, True, "as you say; a cache is right for one token sequence only")
    if case.cpu_s_per_request is not None:
        cores = case.cpu_s_per_request * case.load.rate
        number = f"{cores:.3g} cores busy at {case.load.rate:.3g} req/s"
        yield Fork(SHOWS, cores >= 1, number, (4,))


def other_settings(compared: Plan, found: Verdict) -> Fork:
    """Return whether one pool keeps the targets in small steps, or with larger engines."""
    if found.other:
        pool, kept = found.other
        number = f"{pool}: {keeping(kept)}"
    else:
        number = "none of " + "; ".join(map(str, compared.pools[1:])) if compared.pools[1:] else "none to try"
    return Fork(TUNED, found.other is not None, number)


def prompts_collide(case: Case, compared: Plan, found: Verdict) -> Fork:
    """Return how many gaps have somebody's prompt in their step, and what share of time prompts take."""
    pool = compared.pools[0]
    one = engine(case, pool.degree)
    alone = one.step_seconds(((round(case.prompt - case.cached), round(case.cached)),))
    busy = case.load.rate * alone / pool.engines
    trace = found.together.trace
    gaps = trace.share_with_prefill(2) if trace else 1.0
    carry = f"{100 * gaps:.1f} % of gaps carry a prompt; " if trace else ""
    number = f"{carry}a prompt takes {lasting(alone)}, all of them {percent(busy)} of the time"
    return Fork(STALLS, gaps > 0.01, number, (1, 2))


def context_grows(case: Case, compared: Plan) -> Fork:
    """Return what a turn's prefill takes if the last answer is pulled back, and if it is computed again."""
    assert case.new_tokens is not None
    one = engine(case, compared.pools[0].degree)
    answer = min(round(case.output), round(case.prompt) - case.new_tokens)
    back, again, whole = (prefill_seconds(one, tokens, round(case.prompt)) for tokens in (
        case.new_tokens, case.new_tokens + answer, round(case.prompt)))  # fmt: skip
    number = (
        f"{case.new_tokens:,} of {case.prompt:,.0f} tokens are new: {lasting(back)} of prefill if all before "
        f"is kept, {lasting(again)} if the last answer is computed again, {lasting(whole)} if everything is"
    )
    return Fork(GROWS, case.new_tokens < case.prompt, number, (3,))


def prefill_seconds(one: Engine, tokens: int, prompt: int) -> float:
    """Return the seconds in which an engine computes the last tokens of a prompt, in one step."""
    return one.step_seconds(((tokens, prompt - tokens),))


# ------------------------------------------------------------------ reasons, and what holds besides


def reason(case: Case, compared: Plan, found: Verdict, limit: float | None) -> str:
    """Return in a sentence why the flow ends where it does."""
    one, first = keeping(found.together), percent(found.together.first)
    two = keeping(found.apart) if found.apart else "nobody asked"
    copy = lasting(case.handoff)
    if found.recommendation == STAY and found.together.share >= case.target:
        return f"in one pool {one}"
    if found.other:
        pool, kept = found.other
        return f"one pool with {pool}: {keeping(kept)}; as it is: {one}"
    if found.recommendation == STAY:
        split = f"a split adds {copy} to each ({two})" if found.apart else "there is nothing to split"
        return f"the first token is late ({first} in time), and {split}"
    if found.recommendation == MEASURE:
        return f"the first token is late ({first} in time); a split helps ({two}) if the handoff is as said"
    if found.recommendation == SPLIT:
        return f"in two pools {two}; in one {one}"
    if found.recommendation == FIX:
        return f"a split would keep the targets, but the handoff takes {copy} and {within(limit)}"
    return f"in one pool {one}" + (f"; in two {two}" if found.apart else "")


def also(case: Case, found: Verdict, needed: Fewest) -> Iterable[str]:
    """Yield what holds besides the recommendation."""
    if found.recommendation == SMALL:
        yield "small steps cost more than this model sees: try them on one engine first"
    if found.recommendation in (STAY, SMALL, LARGER) and found.apart and found.apart.share >= case.target:
        yield "two pools would keep the targets as well: compare the goodput"
    if found.recommendation in (NOTHING, FIX) or found.together.share < case.target <= found.together.rest:
        yield "how few GPUs would do: " + enough(needed)
    if case.new_tokens is not None and case.new_tokens < case.prompt:
        yield "if split: transfer in both directions, or offload to a shared cache, so that answers return"
    if case.history_can_change:
        yield "guard reuse: compare token IDs, and reuse up to the first difference; or leave it off"
    if case.cpu_s_per_request is not None and case.cpu_s_per_request * case.load.rate >= 1:
        yield "give the frontend a render tier of its own"


def enough(needed: Fewest) -> str:
    """Return in words how few GPUs keep the targets, and how few could keep up at all."""
    one = f"one pool {gpus(needed.one)} (at least {needed.one_floor} to keep up)"
    if needed.two_floor is None:
        return one
    prefill, decode = needed.two_floor
    return f"{one}; two pools {gpus(needed.two)} (at least {prefill} + {decode})"


def gpus(layout: Pool | Split | None) -> str:
    """Return the GPUs of a layout in words."""
    if layout is None:
        return "none of those tried"
    if isinstance(layout, Pool):
        return f"{layout.engines * layout.degree}"
    return f"{layout.n_prefill * layout.prefill_degree} + {layout.n_decode * layout.decode_degree}"


# ------------------------------------------------------------------ words


def keeping(found: Seen) -> str:
    """Return in words which share keeps the targets, or that a pool is overloaded."""
    worst = found.overloaded
    if worst:
        pool = "it is" if worst.pool == "collocated" else f"{worst.pool} is"
        return f"{pool} overloaded, {percent(worst.share)} busy"
    queues = "" if found.steady else " (queues still grow)"
    return f"{percent(found.share)} keep the targets{queues}"


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
    return "first tokens have no target" if limit == inf else f"the targets leave about {lasting(limit)}"
