"""Who gets how many tokens in an engine's next step.

A step is one forward pass. A *decode*, a request whose answer has begun, gets one token in it; a *chunk* is a
piece of a prompt. A policy decides which: it is asked for a `Plan` whenever a step can be composed, and told
when that step has been run.

- `textbook`: the rules of many a whiteboard and of the published review.
- `vllm`: the rules of vLLM's own scheduler (read from 0.31.0), one step at a time.
- `separate`: the same, but prompts in steps of their own: SGLang's habit, and that of engines of 2024.

Fields are named as in vLLM where it has a name. Not here: how long a step takes, and when it is composed
(`lib.simulator`).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from sys import maxsize
from typing import NamedTuple, Protocol

from lib.kv_cache import BLOCK_TOKENS, blocks
from lib.workload import GENERATED

Part = tuple[str | int, int]  # a label, and how many tokens of its endless sequence
NEVER = maxsize  # steps


@dataclass(slots=True, eq=False)
class Job:
    """A request as one engine sees it: what it has to compute and to emit there, and how far it is.

    - `request`: its row in the workload. `parts`: its prompt as labelled parts, for prefix caching.
    - `num_computed_tokens`: those whose keys and values are in the cache, or will be when the steps composed
      so far have run; `emitted`: tokens that have come out. `in_flight`: 1 while one is being computed.
    - `num_external_tokens`: so many of its first tokens were computed elsewhere. `waiting_for_remote_kvs`:
      but their cache is not here yet; what is missing of it is computed here if it is less than
      `recompute_threshold` tokens, or if `source`, the job that retained it, has lost its blocks.
    - `blocks`: the cache blocks that it holds; `hashed`: how many of them can be found by their content,
      `block_hashes`, which all that it will ever fill have.
      `retained`: it holds them after its end, until `free`.
    """

    request: int
    prompt: int
    output: int
    parts: tuple[Part, ...] = ()
    num_external_tokens: int = 0
    num_computed_tokens: int = 0
    emitted: int = 0
    in_flight: int = 0
    waiting_for_remote_kvs: bool = False
    recompute_threshold: int = 1
    source: "Job | None" = None
    retained: bool = False
    blocks: list[int] = field(default_factory=list)
    hashed: int = 0
    block_hashes: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer that are known by now."""
        return self.prompt + self.emitted

    @property
    def prefilling(self) -> bool:
        """Whether some of its tokens will still have to be computed after the steps composed so far."""
        return not self.in_flight and self.num_computed_tokens < self.num_tokens


class Chunk(NamedTuple):
    """`tokens` tokens of a job, computed in one step after `past` tokens before them.

    `single`: it is one token past the prompt (an answer that is computed again), and costs what a decode
    costs.
    """

    job: Job
    tokens: int
    past: int
    single: bool = False


class Plan(NamedTuple):
    """One step's composition, and how many times in a row it can run if nobody arrives.

    Chunks go on where those of the step before ended. `context`: tokens that all decodes,
    and chunks that cost the same, attend to together. `emitting`: who emits a token at the end: the decodes,
    and whose chunk is its last. `preempted`: who lost its place and its blocks. `copies`: whose cache starts
    to be copied in when the step starts, or need not be.
    """

    chunks: tuple[Chunk, ...]
    decodes: tuple[Job, ...]
    context: int
    emitting: tuple[Job, ...]
    steps: int = 1
    preempted: tuple[Job, ...] = ()
    copies: tuple[Job, ...] = ()


class Limits(NamedTuple):
    """What a policy has to respect.

    Tokens a step (None: no limit), requests in progress, cache blocks (block 0 is never handed out), whether
    blocks are found again by their content, and tokens a step for one request (0: no limit).
    """

    token_budget: int | None
    max_num_seqs: int
    blocks: int
    prefix_caching: bool = False
    long_prefill_token_threshold: int = 0


class Scheduler(Protocol):
    """An engine's queue and running requests, under one policy."""

    def add(self, job: Job) -> None:
        """Let a job join the queue."""

    def plan(self) -> Plan | None:
        """Composition of the next step; None where there is nothing to do."""

    def repeat(self, plan: Plan, steps: int, ahead: bool) -> None:
        """The plan just composed is run so many times before it is run for the last time.

        `ahead`: each of these steps is composed before the one in front of it has been run.
        """

    def advance(self, plan: Plan) -> list[Job]:
        """Note that the plan has been run (once); who finished with it."""

    def arrived(self, job: Job) -> None:
        """Note that a job's copy is here."""

    def free(self, job: Job) -> None:
        """Take the blocks of a job that has kept them beyond its end."""


Policy = Callable[[Limits], Scheduler]


# ---------------------------------------------------------------------------------------- textbook


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
        if job.num_external_tokens:
            job.num_computed_tokens = min(job.num_external_tokens, job.prompt)
        self.waiting.append(job)

    def arrived(self, job: Job) -> None:
        """Nothing to note: a job joins this queue when its copy is here."""

    def free(self, job: Job) -> None:
        """Nothing to take: memory is never short."""

    def plan(self) -> Plan | None:
        """Composition of the next step; it repeats until a decode finishes, or up to the last chunk."""
        while self.waiting and self.waiting[0].num_computed_tokens == self.waiting[0].prompt and self._room():
            self.decoding.append(self.waiting.popleft())
        decodes = tuple(self.decoding)
        context = sum([job.prompt + job.emitted for job in decodes])
        chunk = self._chunk()
        steps = min([job.output - job.emitted for job in decodes]) if decodes else NEVER
        if chunk:
            whole = (chunk.job.prompt - chunk.past - 1) // chunk.tokens  # chunks before the last one
            if whole:
                return Plan((chunk,), decodes, context, decodes, min(steps, whole))
            return Plan((chunk,), decodes, context, (*decodes, chunk.job))
        if decodes:
            return Plan((), decodes, context, decodes, steps)
        return None

    def _room(self) -> bool:
        return len(self.decoding) < self.limits.max_num_seqs

    def _chunk(self) -> Chunk | None:
        """The next piece of the oldest waiting prompt; None if there is none or no budget for it."""
        if not self.waiting or not self._room():
            return None
        oldest = self.waiting[0]
        tokens = oldest.prompt - oldest.num_computed_tokens
        if self.limits.token_budget is not None:
            tokens = min(tokens, self.limits.token_budget - len(self.decoding))
        return Chunk(oldest, tokens, oldest.num_computed_tokens) if tokens > 0 else None

    def repeat(self, plan: Plan, steps: int, ahead: bool) -> None:
        """The plan is run so many times before its last one."""
        for chunk in plan.chunks:
            chunk.job.num_computed_tokens += chunk.tokens * steps
        for job in plan.emitting:
            job.emitted += steps

    def advance(self, plan: Plan) -> list[Job]:
        """Note that the plan has been run (once); who finished with it."""
        for chunk in plan.chunks:
            chunk.job.num_computed_tokens += chunk.tokens
            if chunk.job.num_computed_tokens == chunk.job.prompt:
                self.decoding.append(self.waiting.popleft())
        for job in plan.emitting:
            job.emitted += 1
        finished = [job for job in plan.emitting if job.emitted == job.output]
        if finished:
            self.decoding = [job for job in self.decoding if job.emitted < job.output]
        return finished


textbook: Policy = Textbook


# ---------------------------------------------------------------------------------------- vLLM


class Blocks:
    """The cache of one engine: which blocks are free, in the order of their reuse, and what they hold.

    A block that is full can be found by its content, the tokens from the start of the request to the end of
    the block, until it is handed out again. Block 0 is never handed out.
    """

    def __init__(self, count: int) -> None:
        self.blank = list(range(count - 1, 0, -1))  # free, found by nothing: the last is handed out first
        self.free: OrderedDict[int, None] = OrderedDict()  # free, but found: after those, oldest first
        self.users = [0] * count  # requests that hold a block
        self.content: dict[int, int] = {}  # block -> what it can be found by
        self.holder: dict[int, int] = {}  # and the other way round: the one that got it first
        self.doubles: dict[int, list[int]] = {}  # and those after it, where there are any

    @property
    def num_free_blocks(self) -> int:
        """How many blocks nobody holds."""
        return len(self.blank) + len(self.free)

    def find(self, contents: Sequence[int]) -> list[int]:
        """One block for each of the contents, up to the first that is nowhere."""
        found = [*map(self.holder.get, contents, repeat(0)), 0]  # block 0 is nobody's
        return found[: found.index(0)]

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds."""
        return list(map(self.users.__getitem__, blocks)).count(0)

    def share(self, blocks: list[int]) -> None:
        """One more request holds these blocks."""
        users, free = self.users, self.free
        for block in blocks:
            if not users[block]:
                del free[block]
            users[block] += 1

    def take(self, count: int) -> list[int]:
        """That many free blocks, the first of the free list; what they held is forgotten."""
        taken = [self.blank.pop() if self.blank else self._forget() for _ in range(count)]
        for block in taken:
            self.users[block] = 1
        return taken

    def _forget(self) -> int:
        """The first free block among those that can be found, which from now on it cannot."""
        block, _ = self.free.popitem(last=False)
        content = self.content.pop(block)
        doubles = self.doubles.get(content, [])
        if self.holder[content] != block:
            doubles.remove(block)
        elif doubles:
            self.holder[content] = doubles.pop(0)
        else:
            del self.holder[content]
        return block

    def label(self, block: int, content: int) -> None:
        """From now on the block is found by this content."""
        self.content[block] = content
        if self.holder.setdefault(content, block) != block:
            self.doubles.setdefault(content, []).append(block)

    def release(self, blocks: list[int]) -> None:
        """A request gives up its blocks, the last first.

        Those that nobody else holds are free: at the front of the list where they cannot be found, at the
        back where they can.
        """
        users, free, known, unknown = self.users, self.free, self.content, []
        for block in reversed(blocks):
            users[block] -= 1
            if not users[block]:
                if block in known:
                    free[block] = None
                else:
                    unknown.append(block)
        self.blank += reversed(unknown)


class CountedBlocks:
    """The same where nobody looks for blocks by their content: then only how many are free matters."""

    def __init__(self, count: int) -> None:
        self.num_free_blocks = count - 1

    def take(self, count: int) -> list[int]:
        """That many free blocks; all go by the number 0."""
        self.num_free_blocks -= count
        return [0] * count

    def release(self, blocks: list[int]) -> None:
        """A request gives up its blocks."""
        self.num_free_blocks += len(blocks)


class VLLM:
    """vLLM's rules, in the order in which a step is composed.

    1. Running requests first, in the order of their admission: each gets what it still has to compute, or
       what is left of the budget. One token for a decode, the rest of the prompt for a chunk: there is no
       other difference between them.
    2. A request that needs a block when none is free takes those of the last running request, which goes
       back to the head of the queue and starts again from nothing (its answer so far is computed again as if
       it were part of the prompt); again and again, until there is a block or it was itself the last.
    3. Then, unless somebody was preempted, waiting requests are admitted, first come first served, while
       budget and `max_num_seqs` last and the cache has room for all that they know, prompt and answer. The
       first that does not fit ends it.
    4. With prefix caching, a request starts after the longest prefix of whole blocks that the cache still
       holds, of all its tokens but the last.
    5. `long_prefill_token_threshold` caps what one request gets, unless it is the only one.
    6. Whose prompt, or the beginning of it, was computed elsewhere reserves blocks for that, waits outside
       the queue until the copy is here, then computes the rest: at least its last prompt token again. Waiting
       for a copy costs no budget. Only what prefix caching has not found here is copied.

    A request that has computed all it knows emits a token at the end of the step. Asynchronously the next
    step is composed before that: the token in flight counts as known, and a request that waits for its last
    one keeps place and blocks, but gets nothing.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Job] = deque()
        self.copied: list[Job] = []  # blocks reserved, copy under way or here
        self.running: list[Job] = []
        self.shared = Blocks(limits.blocks) if limits.prefix_caching else None
        self.cache = self.shared or CountedBlocks(limits.blocks)
        self.names: Names = {}

    def add(self, job: Job) -> None:
        """Let a job join the queue."""
        if self.shared:
            job.block_hashes = block_hashes(job, job.prompt + job.output, self.names)
        self.waiting.append(job)

    def arrived(self, job: Job) -> None:
        """Note that a job's copy is here: it counts as computed, but for the last token of the prompt."""
        job.waiting_for_remote_kvs = False
        job.num_computed_tokens = min(job.num_external_tokens, job.prompt - 1)
        self._cache_blocks(job, job.num_external_tokens)

    def free(self, job: Job) -> None:
        """Take the blocks of a job that has kept them beyond its end."""
        self.cache.release(job.blocks)
        job.blocks = []

    # ------------------------------------------------------------ composing a step

    def plan(self) -> Plan | None:
        """Composition of the next step; None where there is nothing to do."""
        step = _Step(self.limits.token_budget)
        crowd = len(self.running) + len(self.waiting) + len(self.copied)
        long_prefill_limit = self.limits.long_prefill_token_threshold if crowd > 1 else 0
        self._serve_running(step, long_prefill_limit)
        if not step.preempted and self._admit_copied(step, long_prefill_limit):
            self._admit_waiting(step, long_prefill_limit)
        return step.plan(self._alike(step))

    def _alike(self, step: "_Step") -> int:
        """How many steps in a row are composed like this one, if nothing arrives.

        Only decodes, none of them done before the last of these steps, blocks for all of them, and nobody who
        could be admitted.
        """
        full = len(self.running) >= self.limits.max_num_seqs or not step.left
        queue = bool(self.waiting) or not all([job.waiting_for_remote_kvs for job in self.copied])
        if step.chunks or len(step.decodes) < len(self.running) or step.preempted or (queue and not full):
            return 1
        steps = min([job.output - job.emitted - job.in_flight + 1 for job in step.decodes], default=1)
        new = sum([blocks(job.num_computed_tokens + steps) - len(job.blocks) for job in step.decodes])
        return steps if new <= self.cache.num_free_blocks else 1

    def repeat(self, plan: Plan, steps: int, ahead: bool) -> None:
        """Compose the plan so many times more, and run it as often: decodes fill their blocks, take new ones.

        The order matters to the cache: step after step, in each in the order of admission.
        """
        if not self.shared:
            for job in plan.decodes:
                job.num_computed_tokens += steps
                job.emitted += steps
                self._extend(job, job.num_computed_tokens)
            return
        events = []
        for index, job in enumerate(plan.decodes):
            new = -job.num_computed_tokens % BLOCK_TOKENS  # steps until it needs a block
            full = new if ahead else (new - 1) % BLOCK_TOKENS  # until the one that it fills can be found
            events += [(step, index, 0, job) for step in range(new, steps, BLOCK_TOKENS)]
            events += [(step, index, 1, job) for step in range(full, steps, BLOCK_TOKENS)]
            job.num_computed_tokens += steps
            job.emitted += steps
        for step, _, label, job in sorted(events):
            computed = job.num_computed_tokens - steps + step
            if label:
                self._cache_blocks(job, computed + (not ahead))
            else:
                job.blocks += self.cache.take(1)

    def _serve_running(
        self, step: "_Step", long_prefill_limit: int, only: Sequence[Job] | None = None
    ) -> None:
        index = 0
        while index < len(self.running) and step.left:
            job = self.running[index]
            index += 1
            if only is not None and job not in only:
                continue
            if job.emitted + job.in_flight == job.output:
                continue  # its last token is in flight
            tokens = step.share(job.num_tokens + job.in_flight - job.num_computed_tokens, long_prefill_limit)
            while not self._extend(job, job.num_computed_tokens + tokens):
                victim = self.running.pop()
                self._preempt(victim)
                step.preempted.append(victim)
                if victim is job:
                    return
            self._compute(step, job, tokens)

    def _preempt(self, job: Job) -> None:
        self.cache.release(job.blocks)
        job.blocks, job.hashed, job.in_flight = [], 0, 0
        job.num_computed_tokens = job.num_external_tokens = 0
        self.waiting.appendleft(job)

    def _admit_copied(self, step: "_Step", long_prefill_limit: int) -> bool:
        """Let those in whose copy is here; False if one finds no blocks for the rest of its prompt."""
        for job in [job for job in self.copied if not job.waiting_for_remote_kvs]:
            if not step.left or len(self.running) >= self.limits.max_num_seqs:
                return True
            tokens = step.share(job.num_tokens - job.num_computed_tokens, long_prefill_limit)
            if not self._extend(job, job.num_computed_tokens + tokens):
                return False
            self.copied.remove(job)
            self.running.append(job)
            self._compute(step, job, tokens)
        return True

    def _admit_waiting(self, step: "_Step", long_prefill_limit: int) -> None:
        while self.waiting and step.left and len(self.running) < self.limits.max_num_seqs:
            job = self.waiting[0]
            found = self._find(job)
            if not self._fits(job, found):
                return
            self.waiting.popleft()
            if self.shared:
                self.shared.share(found)
            job.blocks, job.hashed = found, len(found)
            job.num_computed_tokens = len(found) * BLOCK_TOKENS
            if job.num_external_tokens and self._waits_for_copy(step, job):
                continue
            self.running.append(job)
            tokens = step.share(job.num_tokens - job.num_computed_tokens, long_prefill_limit)
            self._extend(job, job.num_computed_tokens + tokens)
            self._compute(step, job, tokens)

    def _waits_for_copy(self, step: "_Step", job: Job) -> bool:
        """Reserve blocks for what was computed elsewhere, unless it is gone, or too little to be copied."""
        gone = job.source is not None and not job.source.blocks
        missing = job.num_external_tokens - job.num_computed_tokens
        if job.waiting_for_remote_kvs and (gone or missing < job.recompute_threshold):
            job.waiting_for_remote_kvs, job.num_external_tokens = False, 0
            step.copies.append(job)
            return False
        self._extend(job, job.num_external_tokens)
        if not job.waiting_for_remote_kvs:
            self.arrived(job)
            return False
        self.copied.append(job)
        step.copies.append(job)
        return True

    def _compute(self, step: "_Step", job: Job, tokens: int) -> None:
        """Give the job that many tokens of the step; it emits one if it has then computed all it knows."""
        past = job.num_computed_tokens
        job.num_computed_tokens += tokens
        emits = job.num_computed_tokens == job.num_tokens + job.in_flight
        single = tokens == 1 and past >= job.prompt - (job.num_external_tokens >= job.prompt)
        self._cache_blocks(job, min(job.num_computed_tokens, job.num_tokens))
        job.in_flight += emits
        step.add(Chunk(job, tokens, past, single), emits)

    # ------------------------------------------------------------ blocks

    def _find(self, job: Job) -> list[int]:
        if not self.shared:
            return []
        return self.shared.find(job.block_hashes[: (job.num_tokens - 1) // BLOCK_TOKENS])

    def _fits(self, job: Job, found: list[int]) -> bool:
        """Whether all that the job knows has room, beside what was promised to others."""
        new = blocks(job.num_tokens) - len(found) + (self.shared.idle(found) if self.shared else 0)
        if job.num_external_tokens:
            begun = [other for other in self.running if other.prefilling] + self.copied
            new += sum([blocks(other.num_tokens) - len(other.blocks) for other in begun])
        return new <= self.cache.num_free_blocks

    def _extend(self, job: Job, tokens: int) -> bool:
        """Give the job blocks for that many tokens in all; False, and none, if there are not enough."""
        missing = blocks(tokens) - len(job.blocks)
        if missing > self.cache.num_free_blocks:
            return False
        if missing > 0:
            job.blocks += self.cache.take(missing)
        return True

    def _cache_blocks(self, job: Job, tokens: int) -> None:
        """Let the blocks that are full of the job's first `tokens` tokens be found."""
        full = tokens // BLOCK_TOKENS
        if self.shared and full > job.hashed:
            for place in range(job.hashed, full):
                self.shared.label(job.blocks[place], job.block_hashes[place])
            job.hashed = full

    # ------------------------------------------------------------ after a step

    def advance(self, plan: Plan) -> list[Job]:
        """Note that the step has been run: tokens in flight come out, and who has got all of them leaves."""
        for job in plan.emitting:
            job.emitted += 1
            if job.in_flight:  # else it has been preempted since
                job.in_flight -= 1
                self._cache_blocks(job, job.num_computed_tokens - job.in_flight)
            if job.emitted == job.output and not job.retained:
                self.free(job)
        finished = [job for job in plan.emitting if job.emitted == job.output]
        if finished:
            self.running = [job for job in self.running if job.emitted < job.output]
            self.waiting = deque([job for job in self.waiting if job.emitted < job.output])
        return finished


vllm: Policy = VLLM


class Separate(VLLM):
    """vLLM's rules, but a step is of prompts or of answers, and prompts go first.

    While a prompt can be computed, answers wait. SGLang schedules so unless mixed chunks are switched on, and
    so did vLLM before its chunked prefill, DistServe, and others of 2024.
    """

    def plan(self) -> Plan | None:
        """Composition of the next step; None where there is nothing to do."""
        step = _Step(self.limits.token_budget)
        self._serve_running(step, 0, [job for job in self.running if job.num_computed_tokens < job.prompt])
        if not step.preempted and self._admit_copied(step, 0):
            self._admit_waiting(step, 0)
        if not (step.chunks or step.preempted):
            self._serve_running(step, 0)
        return step.plan(self._alike(step))


separate: Policy = Separate


class _Step:
    """A step that is being composed: what is left of its budget, and who got what."""

    def __init__(self, budget: int | None) -> None:
        self.left: float = inf if budget is None else budget
        self.chunks: list[Chunk] = []
        self.decodes: list[Job] = []
        self.context = 0
        self.emitting: list[Job] = []
        self.preempted: list[Job] = []
        self.copies: list[Job] = []

    def share(self, tokens: int, long_prefill_limit: int) -> int:
        """How many of the tokens that a request asks for it gets."""
        return int(min(tokens, long_prefill_limit or tokens, self.left))

    def add(self, piece: Chunk, emits: bool) -> None:
        self.left -= piece.tokens
        if emits:
            self.emitting.append(piece.job)
        if piece.single:
            self.context += piece.past + 1
        if piece.single and emits:
            self.decodes.append(piece.job)
        else:
            self.chunks.append(piece)

    def plan(self, steps: int) -> Plan | None:
        if not (self.chunks or self.decodes or self.copies or self.preempted):
            return None
        lists = (self.emitting, self.preempted, self.copies)
        emitting, preempted, copies = (tuple(jobs) for jobs in lists)
        return Plan(tuple(self.chunks), tuple(self.decodes), self.context, emitting, steps, preempted, copies)


Names = dict[object, int]  # numbers of what blocks can begin with


def block_hashes(job: Job, tokens: int, names: Names) -> list[int]:
    """What the whole blocks of a job's first tokens can be found by: all tokens up to the end of each.

    Tokens are named by the labelled parts that they come from, and such names get numbers, noted in `names`.
    Generated tokens all look the same, and the same as parts labelled "#7".
    """
    parts: list[Part] = []
    for label, count in (*(job.parts or ((job.request, job.prompt),)), (GENERATED, job.output)):
        if label == GENERATED and parts and parts[-1][0] == GENERATED:
            parts[-1] = (GENERATED, parts[-1][1] + count)
        elif count:
            parts.append((label, count))
    found: list[int] = []
    before = 0
    for place, (label, count) in enumerate(parts):
        ends = range((len(found) + 1) * BLOCK_TOKENS, min(before + count, tokens) + 1, BLOCK_TOKENS)
        if ends:  # the blocks that end in this part: named by all that comes before, and it
            name = names.setdefault((*parts[:place], label), len(names)) << 32
            found += range(name + ends[0] - before, name + ends[-1] - before + 1, BLOCK_TOKENS)
        before += count
    return found
