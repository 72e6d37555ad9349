"""Steps: what one has in it, counted, and what that adds up to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, inf
from typing import Any, Protocol

from lib import checks
from lib.hardware import GPU
from lib.kernels.layers import TOKENS, Count, Parts, Term
from lib.kernels.price import TODAY, Kernel, Rates, Runtime
from lib.kernels.tables import rates
from lib.models import Experts, Model
from lib.roofline import out_of_window

Chunks = Sequence[tuple[int, int]]  # (tokens, past) of each piece of a prompt
SCAN = 256  # tokens of a prompt between two passes over a state


def _tokens(chunks: Chunks) -> int:
    return sum([tokens for tokens, _ in chunks])


def _keys(chunks: Chunks, window: int | None) -> int:
    return sum([tokens + (min(past, window) if window else past) for tokens, past in chunks])


def _pairs(chunks: Chunks, window: int | None) -> int:
    pairs = sum([tokens * (2 * past + tokens + 1) // 2 for tokens, past in chunks])
    return pairs - sum([out_of_window(*chunk, window) for chunk in chunks]) if window else pairs


Counter = Callable[[Chunks, int, int, int | None], float]
COUNTED: dict[str, Counter] = {
    "tokens": lambda chunks, batch, context, window: batch + _tokens(chunks),
    "answers": lambda chunks, batch, context, window: batch,
    "requests": lambda chunks, batch, context, window: batch + len(chunks),
    "seen": lambda chunks, batch, context, window: min(context, batch * window) if window else context,
    "queries": lambda chunks, batch, context, window: _tokens(chunks),
    "keys": lambda chunks, batch, context, window: _keys(chunks, window),
    "pairs": lambda chunks, batch, context, window: _pairs(chunks, window),
    "passes": lambda chunks, batch, context, window: batch + len(chunks) + _tokens(chunks) / SCAN,
}
"""What a step has so many of: tokens; requests, and answers among them; tokens that answers see; queries,
keys and pairs of them in prompts' attention; passes over states. With a window only its tokens are seen;
answers' contexts are then taken as equal."""


@dataclass(frozen=True)
class Steps:
    """The steps of a model on `tensor_parallel` GPUs, as kernels on one of them.

    Tensor parallelism divides heads, FFNs and experts' widths; one KV head stays on every GPU at least, and
    MLA's latents on each. With `expert_parallel` equal to it, whole experts are divided instead, and all wait
    for the fullest GPU. After each mixer and each FFN the GPUs add up their results.
    """

    model: Model
    gpu: GPU
    tensor_parallel: int = 1
    expert_parallel: int = 1
    runtime: Runtime = TODAY

    def __post_init__(self) -> None:
        checks.counts("Steps", tensor_parallel=self.tensor_parallel, expert_parallel=self.expert_parallel)
        if self.expert_parallel not in (1, self.tensor_parallel):
            raise ValueError(
                f"Steps: expert_parallel={self.expert_parallel} will not do; use 1, or "
                f"tensor_parallel={self.tensor_parallel}"
            )

    def kernels(self, chunks: Chunks = (), batch: int = 0, context: int = 0) -> list[Kernel]:
        """Return what a step is made of.

        `chunks`: (tokens, past) of each piece of a prompt; `batch`: answers that get a token, of `context`
        tokens together. ValueError for a step with nothing in it.
        """
        counts = dict(zip(self._needed, self._counts(chunks, batch, context), strict=True))
        rows = [term.kernel(counts) for term in self.terms if counts[term.per]]
        operations, seconds = sum([row.number for row in rows]), fsum([row.seconds for row in rows])
        if late := self._late(counts[TOKENS], operations, seconds):
            rows.append(Kernel("waiting for launches", 1, late, 0.0, 0.0, True, self.launch.table))
        if self.runtime.cpu:
            rows.append(Kernel("CPU between steps", 1, self.runtime.cpu, 0.0, 0.0, True, "engine"))
        return rows

    def seconds(self, chunks: Chunks = (), batch: int = 0, context: int = 0) -> float:
        """Return the seconds of a step: the sum of `kernels`, to within rounding, in a tenth of the time."""
        if not chunks and 0 < batch <= context and self.runtime.recorded is None:
            fixed, seen = self._answers.get(batch) or self._of_answers(batch)
            return fixed + sum([(context if context < most else most) * each for most, each in seen])
        counts = self._counts(chunks, batch, context)
        total, tokens = 0.0, counts[0]
        for place, start, each in self._sums:
            if many := counts[place]:
                total += start + many * each
        for place, start, flop, fixed, byte in self._products:
            if many := counts[place]:
                computing, reading = many * flop, fixed + many * byte
                total += start + (computing if computing > reading else reading)
        for mixture, each in self._mixtures:
            total += mixture.visited(int(tokens)) * each
        if self.runtime.recorded is not None:
            operations = sum([number for place, number in self._operations if counts[place]])
            total += self._late(tokens, operations, total)
        return total + self.runtime.cpu

    def answers(self, batch: int, context: int, steps: int) -> list[float]:
        """Return the seconds of so many steps in a row without a prompt: each answer sees one token more."""
        fixed, seen = self._answers.get(batch) or self._of_answers(batch)
        if self.runtime.recorded is None and len(seen) == 1 and seen[0][0] == inf:
            each = seen[0][1]
            return [fixed + now * each for now in range(context, context + steps * batch, batch)]
        if self.runtime.recorded is None and len(seen) == 2:  # some layers with a window
            (most, one), (more, two) = seen
            return [
                fixed + ((now if now < most else most) * one + (now if now < more else more) * two)
                for now in range(context, context + steps * batch, batch)
            ]
        return [self.seconds((), batch, context + step * batch) for step in range(steps)]

    def _of_answers(self, batch: int) -> tuple[float, tuple[tuple[float, float], ...]]:
        """What so many answers take, whatever they see; and what they see at most of it, seconds of each.

        Nothing but speed: of a step without prompts, only what answers see grows from step to step.
        """
        seen = {window: [0.0] for name, window in self._needed if name == "seen"}
        counts = [count((), batch, 0, window) for count, window in self._counters]
        total = self.runtime.cpu
        for place, start, each in self._sums:
            name, window = self._needed[place]
            if name == "seen":
                total += start
                seen[window].append(each)
            elif many := counts[place]:
                total += start + many * each
        for place, start, flop, fixed, byte in self._products:
            name, window = self._needed[place]
            if name == "seen":
                total += start + fixed
                seen[window].append(max(flop, byte))
            elif many := counts[place]:
                total += start + max(many * flop, fixed + many * byte)
        for mixture, each in self._mixtures:
            total += mixture.visited(batch) * each
        found = total, tuple([
            (inf if window is None else batch * window, fsum(each)) for window, each in seen.items()
        ])  # fmt: skip
        self._answers[batch] = found
        return found

    @cached_property
    def _answers(self) -> dict[int, tuple[float, tuple[tuple[float, float], ...]]]:
        """`_of_answers`, by batch."""
        return {}

    def _counts(self, chunks: Chunks, batch: int, context: int) -> list[float]:
        """What is needed, in its order: tokens first."""
        if batch < 0 or context < batch or not (batch or chunks) or (context and not batch):
            raise ValueError(
                f"kernels: chunks={tuple(chunks)!r}, batch={batch!r}, context={context!r} is no step; use a "
                "chunk of (tokens, past), or a batch whose contexts add up to at least one token each"
            )
        for tokens, past in chunks:
            if tokens < 1 or past < 0:
                raise ValueError(f"kernels: chunk={(tokens, past)!r} will not do; use tokens >= 1, past >= 0")
        return [count(chunks, batch, context, window) for count, window in self._counters]

    @property
    def launch(self) -> Rates:
        """What it takes to start one kernel from Python."""
        return rates(self.gpu, "launch")

    def _late(self, tokens: float, operations: int, seconds: float) -> float:
        """Seconds in which the GPU waits for kernels that Python starts one by one."""
        if self.runtime.recorded is None or tokens <= self.runtime.recorded:
            return 0.0
        return max(0.0, operations * self.launch.start - seconds)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every kernel that a step may have, in the order in which they run."""
        return Parts(self.model, self.gpu, self.tensor_parallel, self.expert_parallel, self.runtime).terms()

    # The same, put together for `seconds`: all that adds up, what takes the longer of two, visited experts.

    @cached_property
    def _needed(self) -> tuple[Count, ...]:
        """What has to be counted of a step, tokens first."""
        found = [TOKENS, *[term.per for term in self.terms]]
        found += [count for term in self.terms for count, _ in term.nbytes]
        return tuple(dict.fromkeys(found))

    @cached_property
    def _counters(self) -> tuple[tuple[Counter, int | None], ...]:
        return tuple((COUNTED[name], window) for name, window in self._needed)

    @cached_property
    def _operations(self) -> tuple[tuple[int, int], ...]:
        return tuple((self._needed.index(term.per), term.number) for term in self.terms)

    @cached_property
    def _sums(self) -> tuple[tuple[int, float, float], ...]:
        """For each count: seconds if there are any, and seconds of each."""
        starts = dict.fromkeys(self._needed, 0.0)
        each = dict.fromkeys(self._needed, 0.0)
        for term in self.terms:
            if not term.races:
                number, own = term.number, term.rates
                starts[term.per] += number * (own.start + term.fixed * own.per_byte)
                each[term.per] += number * term.flops * own.per_flop
                for count, nbytes in term.nbytes:
                    each[count] += number * nbytes * own.per_byte
        return tuple((place, starts[count], each[count]) for place, count in enumerate(self._needed))

    @cached_property
    def _products(self) -> tuple[tuple[int, float, float, float, float], ...]:
        """What is counted; seconds to start, to compute for each, to read in any case and for each."""
        found = []
        for term in self.terms:
            if term.races:
                number, own = term.number, term.rates
                byte = fsum([nbytes for _, nbytes in term.nbytes])
                parts = (own.start, term.flops * own.per_flop, term.fixed * own.per_byte, byte * own.per_byte)
                start, flop, fixed, read = [number * part for part in parts]
                found.append((self._needed.index(term.per), start, flop, fixed, read))
        return tuple(found)

    @cached_property
    def _mixtures(self) -> tuple[tuple[Experts, float], ...]:
        """Experts, and the seconds that one of them takes to read where it is visited."""
        return tuple(
            (term.experts, term.number * term.each * term.rates.per_byte)
            for term in self.terms
            if term.experts is not None
        )


class SetUp(Protocol):
    """What of an engine a price asks for."""

    @property
    def model(self) -> Model: ...  # noqa: D102
    @property
    def gpu(self) -> GPU: ...  # noqa: D102
    @property
    def tensor_parallel(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class ByKernels:
    """A price for an engine: the sum of a step's kernels. Its efficiency and its link are of no concern.

    `expert_parallel`: whether whole experts are divided among the GPUs, not their widths.
    """

    expert_parallel: bool = False
    runtime: Runtime = TODAY

    def seconds_on(self, engine: SetUp) -> Callable[[tuple[tuple[int, int], ...], int, int], float]:
        """Return the seconds of a step on that engine: of chunks, answers, and the answers' contexts."""
        return self._steps(engine).seconds

    def answers_on(self, engine: SetUp) -> Callable[[int, int, int], list[float]]:
        """Return the seconds of steps in a row without a prompt: of answers, their contexts, steps."""
        return self._steps(engine).answers

    def _steps(self, engine: SetUp) -> Steps:
        degree = engine.tensor_parallel
        parallel = degree if self.expert_parallel else 1
        return Steps(engine.model, engine.gpu, degree, parallel, self.runtime)


def step_kernels(
    model: Model, gpu: GPU, chunks: Chunks = (), batch: int = 0, context: int = 0, **set_up: Any
) -> list[Kernel]:
    """Return what a step is made of: `Steps(model, gpu, **set_up).kernels(chunks, batch, context)`."""
    return Steps(model, gpu, **set_up).kernels(chunks, batch, context)


def borrowed(kernels: Sequence[Kernel], gpu: GPU) -> dict[str, list[str]]:
    """Return which kernels of a step are priced by another GPU's table: its name -> the kernels'."""
    found: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel.table not in (gpu.name, "engine"):
            found.setdefault(kernel.table, []).append(kernel.name)
    return found


FAMILIES = (
    "matrix products",
    "experts",
    "attention of prompts",
    "attention of answers",
    "states",
    "small kernels",
    "all-reduces",
    "waiting",
)


def family(kernel: Kernel) -> str:
    """Return to which of FAMILIES a kernel belongs; what waits is for the CPU, not a kernel."""
    words = kernel.name.split()
    if words[0] in ("attention", "index") and words[-1] in ("prompts", "answers"):
        return f"attention of {words[-1]}"
    known = {"experts": "experts", "states": "states", "all-reduce": "all-reduces"}
    waits = {"waiting for launches": "waiting", "CPU between steps": "waiting"}
    computes = "matrix products" if kernel.arithmetic else "small kernels"
    return (known | waits).get(kernel.name, computes)


def by_family(kernels: Sequence[Kernel]) -> dict[str, list[Kernel]]:
    """Return a step's kernels by family, each of FAMILIES, some of which may be empty."""
    return {name: [kernel for kernel in kernels if family(kernel) == name] for name in FAMILIES}


def split(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Return the seconds of kernels by what they go to; where two overlap, to the longer."""
    parts: dict[str, list[float]] = {"start": [], "arithmetic": [], "bytes": []}
    for kernel in kernels:
        number, races = kernel.number, kernel.overlap
        parts["start"].append(number * kernel.start)
        if not races or kernel.arithmetic > kernel.reading:
            parts["arithmetic"].append(number * kernel.arithmetic)
        if not races or kernel.arithmetic <= kernel.reading:
            parts["bytes"].append(number * kernel.reading)
    return {name: fsum(seconds) for name, seconds in parts.items()}
