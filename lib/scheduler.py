"""Who gets how many tokens in an engine's next step.

A step is one forward pass. Every *decode* in it, a request whose answer has begun, gets one token; what is
left of the token budget can go to *chunks*, pieces of prompts. A policy decides which: it is asked for a
`Plan` whenever a step can start, and told afterwards how many such steps were run.

`textbook` is the policy of many a whiteboard and of the published review: decodes first, then one chunk of
the oldest waiting prompt.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(slots=True, eq=False)
class Job:
    """A request as one engine sees it: what it still has to compute and to emit there.

    `request` is the request's row in the workload. A job that arrives with its prompt computed elsewhere
    has `computed == prompt` from the start.
    """

    request: int
    prompt: int
    output: int
    computed: int = 0
    emitted: int = 0

    @property
    def context(self) -> int:
        """Tokens that its next decode step attends to: the prompt and what has been emitted."""
        return self.prompt + self.emitted


class Chunk(NamedTuple):
    """`tokens` tokens of a job's prompt, computed in one step after `past` tokens computed before."""

    job: Job
    tokens: int
    past: int

    @property
    def last(self) -> bool:
        """Whether the prompt is complete with it, so that the step ends with a token."""
        return self.past + self.tokens == self.job.prompt


class Plan(NamedTuple):
    """One step's composition, and how many times in a row it can run if nobody arrives."""

    chunks: tuple[Chunk, ...]
    decodes: tuple[Job, ...]
    steps: int


class Limits(NamedTuple):
    """What a policy has to respect: tokens a step (None: no limit) and sequences in progress."""

    token_budget: int | None
    max_num_seqs: int


class Scheduler(Protocol):
    """An engine's queue and running requests, under one policy."""

    def add(self, job: Job) -> None:
        """Let a job join the queue."""

    def plan(self) -> Plan | None:
        """Composition of the next step; None where there is nothing to do."""

    def advance(self, plan: Plan, steps: int) -> list[Job]:
        """Record that `steps` steps of the plan were run; the jobs that finished with the last of them."""

    @property
    def load(self) -> int:
        """Requests here: waiting and running."""


Policy = Callable[[Limits], Scheduler]


class Textbook:
    """Decodes first, then one chunk of the oldest waiting prompt.

    - Every decode takes part in every step.
    - The oldest prompt that is not complete gets what the decodes leave of the budget, or less if less is
      left of it. Only that one: unused budget is lost.
    - A request that is complete joins the decodes before the next step; so does one whose prompt was
      computed elsewhere, as soon as it arrives.
    - At most `max_num_seqs` requests are in progress. Memory is never short.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Job] = deque()
        self.decoding: list[Job] = []

    def add(self, job: Job) -> None:
        """Let a job join the queue."""
        self.waiting.append(job)

    def plan(self) -> Plan | None:
        """Composition of the next step; it repeats, without a chunk, until the first decode finishes."""
        while self.waiting and self.waiting[0].computed == self.waiting[0].prompt and self._room():
            self.decoding.append(self.waiting.popleft())
        chunk = self._chunk()
        if chunk:
            return Plan((chunk,), tuple(self.decoding), 1)
        if not self.decoding:
            return None
        return Plan((), tuple(self.decoding), min([job.output - job.emitted for job in self.decoding]))

    def _room(self) -> bool:
        return len(self.decoding) < self.limits.max_num_seqs

    def _chunk(self) -> Chunk | None:
        """The next piece of the oldest waiting prompt; None if there is none or no budget for it."""
        if not self.waiting or not self._room():
            return None
        oldest = self.waiting[0]
        tokens = oldest.prompt - oldest.computed
        if self.limits.token_budget is not None:
            tokens = min(tokens, self.limits.token_budget - len(self.decoding))
        return Chunk(oldest, tokens, oldest.computed) if tokens > 0 else None

    def advance(self, plan: Plan, steps: int) -> list[Job]:
        """Record that `steps` steps of the plan were run; the jobs that finished with the last of them."""
        for job in plan.decodes:
            job.emitted += steps
        for chunk in plan.chunks:
            chunk.job.computed += chunk.tokens
            if chunk.last:
                chunk.job.emitted = 1
                self.decoding.append(self.waiting.popleft())
        finished = [job for job in self.decoding if job.emitted == job.output]
        if finished:
            self.decoding = [job for job in self.decoding if job.emitted < job.output]
        return finished

    @property
    def load(self) -> int:
        """Requests here: waiting and running."""
        return len(self.waiting) + len(self.decoding)


textbook: Policy = Textbook
