"""Workloads: who asks for what, and when.

A workload is a sequence of `Request`s in order of arrival. It comes from a random process with a seed
(`poisson`, `bursts`) or from a file (`read`), and `check` refuses one that no clock could play. In a
`ClosedLoop` arrivals depend on answers instead.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from lib import checks

if TYPE_CHECKING:
    from lib.traffic import Traffic

GENERATED = "#7"  # the label of generated tokens

Prompt = int | tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One request: arrival in seconds, its prompt, and how many tokens it will be answered with.

    A prompt is a number of tokens, or, where it matters which tokens they are (prefix caching), a tuple of
    `(label, n)`: the first n tokens of the endless sequence of that label. Equal labels mean equal tokens,
    different labels share none. Generated tokens are the label "#7".

    Requests with the same `session` are the turns of a conversation, each of which continues the one before.

    `cached`: so many of the prompt's first tokens need not be computed, for whoever serves it has them in its
    cache: a hit that is taken as given, where a scheduler with prefix caching would look for it.
    """

    arrival: float
    prompt: Prompt
    output_tokens: int
    session: int | None = None
    cached: int = 0

    def __post_init__(self) -> None:
        fault = _fault(self)
        if fault:
            raise ValueError(f"Request: {fault}")

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        if isinstance(self.prompt, int):
            return self.prompt
        return sum(n for _, n in self.prompt)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _fault(request: Request) -> str:
    """What is wrong with a request by itself; an empty string where nothing is."""
    arrival, prompt = request.arrival, request.prompt
    if not checks.finite(arrival) or arrival < 0:
        return f"arrival={arrival!r} is no time; use seconds, finite and at least 0"
    if not isinstance(prompt, int | tuple) or isinstance(prompt, bool):
        return f"prompt={prompt!r} is no prompt; use a number of tokens or a tuple of (label, tokens)"
    if isinstance(prompt, tuple):
        if not prompt or not all(len(part) == 2 and _is_count(part[1]) for part in prompt):
            return f"prompt={prompt!r} has an empty part; use (label, tokens) with at least 1 token each"
    elif prompt < 1:
        return f"prompt={prompt!r} is too short; use at least 1 token"
    if not _is_count(request.output_tokens):
        return f"output_tokens={request.output_tokens!r} is not a count; use a whole number of at least 1"
    if request.session is not None and (
        isinstance(request.session, bool) or not isinstance(request.session, int)
    ):
        return f"session={request.session!r} is no session; use a whole number, or None"
    if request.cached and (not _is_count(request.cached) or request.cached >= request.prompt_tokens):
        return f"cached={request.cached!r} will not do; use 0 to {request.prompt_tokens - 1} tokens"
    return ""


def check(requests: Iterable[Request]) -> tuple[Request, ...]:
    """The workload as a tuple; ValueError, naming the row, where it is empty or its arrivals go backwards."""
    rows = tuple(requests)
    if not rows:
        raise ValueError("workload: no requests; use at least one")
    for row in range(1, len(rows)):
        if rows[row].arrival < rows[row - 1].arrival:
            raise ValueError(
                f"workload, row {row}: arrival={rows[row].arrival!r} lies before row {row - 1}'s "
                f"{rows[row - 1].arrival!r}; sort the rows by arrival"
            )
    return rows


def lengths(
    count: int, seed: int, prompt: Prompt, output_tokens: int, share: float = 1.0
) -> tuple[tuple[Prompt, int], ...]:
    """`count` pairs of a prompt and an answer, each between `share` and all of these, any as likely.

    The shortest is `share` of the longest, rounded down, and at least 1 token; prompts are drawn first, then
    answers. So draw the load generators of vLLM up to 2025, of SGLang and of InferenceX
    (--random-range-ratio). With a share of 1 nothing is drawn.
    """
    checks.counts("lengths", count=count, output_tokens=output_tokens)
    checks.shares("lengths", share=share)
    if share == 1:
        return ((prompt, output_tokens),) * count
    if not isinstance(prompt, int):
        raise ValueError(f"lengths: prompt={prompt!r} has no length to draw; use tokens, or share=1")
    checks.counts("lengths", prompt=prompt)
    dice = random.Random(f"lengths {seed}")
    prompts, answers = (
        [dice.randint(max(1, int(share * longest)), longest) for _ in range(count)]
        for longest in (prompt, output_tokens)
    )
    return tuple(zip(prompts, answers, strict=True))


def poisson(
    rate: float,
    count: int,
    seed: int,
    prompt: Prompt = 8192,
    output_tokens: int = 256,
    share: float = 1.0,
) -> tuple[Request, ...]:
    """`count` requests that arrive independently of each other, `rate` a second on average.

    They are equal, or have `lengths` between `share` and all of `prompt` and `output_tokens`.

    Gaps are drawn from `random.Random(seed).expovariate(rate)`, arrivals are their running sum, and the
    first request comes after one gap. The same seed at another rate is the same pattern, stretched: two
    rates are compared on common random numbers.
    """
    if not checks.finite(rate) or rate <= 0:
        raise ValueError(f"poisson: rate={rate!r} will not do; use requests per second above 0")
    if not _is_count(count):
        raise ValueError(f"poisson: count={count!r} is not a count; use a whole number of at least 1")
    gap = random.Random(seed).expovariate
    now, requests = 0.0, []
    for asked, said in lengths(count, seed, prompt, output_tokens, share):
        now += gap(rate)
        requests.append(Request(now, asked, said))
    return tuple(requests)


def bursts(
    size: int,
    count: int,
    pause: float,
    prompt: Prompt = 8192,
    output_tokens: int = 256,
    share: float = 1.0,
    seed: int = 0,
) -> tuple[Request, ...]:
    """`count` bursts of `size` requests at once, `pause` seconds from each to the next; the first at 0.

    `share`, `seed`: of their `lengths`.
    """
    checks.counts("bursts", size=size, count=count)
    checks.not_negative("bursts", pause=pause)
    drawn = lengths(size * count, seed, prompt, output_tokens, share)
    return tuple(Request(place // size * float(pause), *pair) for place, pair in enumerate(drawn))


@dataclass(frozen=True)
class ClosedLoop:
    """`streams` clients, each of which sends its next request when it has its answer, `requests` in all.

    This is how `--max-concurrency` and GuideLLM's concurrent profile load a server: when a request arrives
    depends on the server, so there are `lengths`, in the order of sending, and no arrivals. All streams begin
    at 0. Lengths are drawn between `share` and all of `prompt` and `output_tokens`.
    """

    streams: int
    requests: int
    prompt: Prompt = 8192
    output_tokens: int = 256
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.counts("ClosedLoop", streams=self.streams, requests=self.requests)
        if self.requests < self.streams:
            raise ValueError(
                f"ClosedLoop: requests={self.requests} leave streams idle; use at least {self.streams}"
            )
        lengths(1, self.seed, self.prompt, self.output_tokens, self.share)
        Request(0.0, self.prompt, self.output_tokens)

    def lengths(self) -> tuple[tuple[Prompt, int], ...]:
        """The prompt and the tokens of the answer of each request, in the order in which they are sent."""
        return lengths(self.requests, self.seed, self.prompt, self.output_tokens, self.share)


def sessions(
    rate: float, count: int, turns: int, seed: int, first: int, answer: int, message: int, pause: float
) -> tuple[Request, ...]:
    """`count` conversations that begin at random, `rate` a second on average, in order of arrival.

    The first prompt has `first` tokens, every answer `answer`; each later turn sends all that was said and
    `message` tokens more, `pause` seconds after the turn before. (That is a fixed time, not one after the
    answer: choose it longer than an answer takes.)
    """
    checks.counts("sessions", turns=turns, first=first, answer=answer, message=message)
    checks.not_negative("sessions", pause=pause)
    requests = []
    for session, begin in enumerate(poisson(rate, count, seed)):
        prompt: tuple[tuple[str, int], ...] = ((f"prompt {session}", first),)
        for turn in range(turns):
            requests.append(Request(begin.arrival + turn * pause, prompt, answer, session))
            prompt = (*prompt, (GENERATED, answer), (f"message {session}.{turn}", message))
    return tuple(sorted(requests, key=attrgetter("arrival")))


def history(before: Request, turn: Request) -> int:
    """How many tokens at the beginning of a turn's prompt have keys and values left by the turn before.

    Those of its prompt and of its answer, but for the answer's last token, which nothing was computed after;
    up to the first that is another one now. None of prompts that are mere numbers.
    """
    same = 0
    if isinstance(before.prompt, tuple) and isinstance(turn.prompt, tuple):
        cached = (*before.prompt, (GENERATED, before.output_tokens - 1))
        for (label, tokens), (now, length) in zip(cached, turn.prompt, strict=False):
            if label != now:
                break
            same += min(tokens, length)
            if tokens != length:
                break
    return same


def read(source: str | Path | bytes, unit: str | None = None) -> "Traffic":
    """Return the traffic that a file records, with what was understood of it; see `lib.traffic.read`."""
    from lib import traffic  # which builds on this module

    return traffic.read(source, unit)
