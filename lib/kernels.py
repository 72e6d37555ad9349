"""A step, kernel by kernel: what each takes to start, to compute and to read.

A GPU works a step off as a row of kernels, one after the other. Each takes

    start + work

and its work is arithmetic, at a share of the GPU's peak, and bytes, at a share of its bandwidth: the longer
of both where they overlap (matrix products, attention over an answer's cache), their sum where they do not
(attention over a prompt, experts). That is the roofline again, but one for every kernel: a step is as long
as the sum of its kernels, and hides nothing of one under another.

Starts and shares stand in `lib/data/kernels.toml`. `tools/fit_kernels` took them from kernels that others
timed alone, never from a step or a served request, so that those are predicted.

What is guessed: a state of Mamba is priced like one of a gated delta rule, and a prompt's scan as one pass
over its states every `SCAN` tokens; an indexer of sparse attention as attention over its keys; GPUs beyond
eight that add up their results are taken to reach what eight do. The file marks its own guesses.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import fsum, log
from typing import Any, NamedTuple, Protocol

from lib import checks, data
from lib.hardware import A100_80GB, B200, GPU, H100_SXM, H200, L40S
from lib.models import FFN, Attention, Experts, Latent, Layers, Mixer, Model, Recurrent
from lib.roofline import out_of_window

Work = tuple[float, float]  # FLOPs and bytes
Chunks = Sequence[tuple[int, int]]  # (tokens, past) of each piece of a prompt

REDUCED = (2, 4, 8)  # GPUs whose all-reduces somebody timed
SCAN = 256  # tokens of a prompt between two passes over a state

# ------------------------------------------------------------------ what a kernel computes and moves


def product(tokens: float, inner: float, outer: float, weight_bytes: float, value_bytes: float) -> Work:
    """Return FLOPs and bytes of a matrix product: `tokens` x `inner` by `inner` x `outer`.

    Weights and inputs are read at the bytes given, results written in two.
    """
    nbytes = inner * outer * weight_bytes + tokens * inner * value_bytes + 2 * tokens * outer
    return 2 * tokens * inner * outer, nbytes


def prompt_attention(
    pairs: float, queries: float, keys: float, heads: float, kv_heads: float, widths: float
) -> Work:
    """Return FLOPs and bytes of attention over so many pairs of a query and a key.

    `widths`: of a head's key and value together. Queries, keys and values are read, results written, in bf16.
    """
    return 2 * pairs * heads * widths, 2 * widths * (queries * heads + keys * kv_heads)


def experts(
    tokens: float,
    visited: float,
    top_k: float,
    d_model: float,
    width: float,
    matrices: int,
    weight_bytes: float,
) -> Work:
    """Return FLOPs and bytes of experts: both products, what lies between them, the sum of what they say.

    Each token visits `top_k` experts of `matrices` (3: gated, 2) d_model x `width` each; `visited` are read.
    """
    visits = tokens * top_k
    weights = visited * matrices * d_model * width * weight_bytes
    return 2 * matrices * visits * d_model * width, weights + 2 * visits * (2 * d_model + matrices * width)


def input_bytes(kernel: str) -> float:
    """Return the bytes of a value that goes into a product: those of its arithmetic, in FP4 with a scale."""
    return (4 + 8 / 16) / 8 if kernel.endswith("_fp4") else 1 if "_fp8" in kernel else 2


def fabric(gpu: GPU, degree: int) -> float:
    """Return bytes/s of a GPU within a group: over NVLink or Infinity Fabric, else over its bus."""
    return gpu.fabric_in(degree) or gpu.host.bandwidth


def peak(gpu: GPU, kernel: str) -> float:
    """Return the FLOP/s of the data sheet for a kind of kernel: FP4's or FP8's in those, else bf16's."""
    return gpu.peak("fp4" if kernel.endswith("_fp4") else "fp8" if "_fp8" in kernel else "bf16")


# ------------------------------------------------------------------ what that takes on a GPU

LENDERS = {  # whose starts and shares a GPU borrows where it has no table of its own: first the nearest chip
    "L40S": ("A40", "H100 SXM"),  # its generation's FP8, and a card without NVLink
    "L40": ("L40S", "A40", "H100 SXM"),
    "L4": ("L40S", "A40", "H100 SXM"),
    "A10": ("A40", "A100 80 GB SXM"),  # the A40's chip, cut down
    "A100 80 GB SXM": ("A40", "H100 SXM"),
    "A100 40 GB SXM": ("A100 80 GB SXM", "A40", "H100 SXM"),
    "H100 SXM": ("H200",),
    "H100 PCIe": ("H100 SXM",),
    "H100 NVL": ("H100 SXM",),
    "H200": ("H100 SXM",),  # the same chip with other memory
    "H800": ("H100 SXM",),  # the same chip with a narrower NVLink
    "H20": ("H100 SXM",),  # the same chip with little arithmetic, of which it may reach more
    "B200": ("H200", "H100 SXM"),
    "B300": ("B200", "H200", "H100 SXM"),
    "RTX PRO 6000": ("B200", "H200", "H100 SXM"),
    "MI300X": ("H200", "H100 SXM"),  # another maker: the nearest in bandwidth and memory, the weakest case
    "MI325X": ("MI300X", "H200", "H100 SXM"),
    "MI355X": ("MI300X", "H200", "H100 SXM"),
}
TIMED = (L40S, A100_80GB, H100_SXM, H200, B200)  # with a table of nearly every kernel
LAST = ("A100 80 GB SXM", "B200")  # weights of four bits were timed there only, and FP4


@dataclass(frozen=True, slots=True)
class Rates:
    """What one kind of kernel takes on one GPU: seconds to start, a FLOP and a byte; and whose table says so.

    `overlap`: whether it computes while it reads.
    """

    start: float
    per_flop: float
    per_byte: float
    overlap: bool
    table: str


def lenders(gpu: GPU) -> tuple[str, ...]:
    """Return whose tables hold for a GPU, its own first.

    One that the catalogue does not have borrows from the nearest in peak and bandwidth that somebody timed.
    """
    if gpu.name in LENDERS:
        return (gpu.name, *LENDERS[gpu.name], *LAST)

    def distance(known: GPU) -> float:
        peak, bandwidth = known.peak_flops / gpu.peak_flops, known.bandwidth / gpu.bandwidth
        return abs(log(peak)) + abs(log(bandwidth))

    nearest = min(TIMED, key=distance).name
    return (nearest, *LENDERS[nearest], *LAST)


@cache
def rates(gpu: GPU, kernel: str) -> Rates:
    """Return what a kind of kernel takes on a GPU: its own peak and bandwidth, at its table's shares."""
    tables = data.read("kernels.toml")["gpu"]
    for name in lenders(gpu):
        entry = tables.get(name, {}).get(kernel)
        if entry is not None:
            reduces = kernel.startswith("all_reduce")
            bandwidth = fabric(gpu, int(kernel.rpartition("_")[2])) if reduces else gpu.bandwidth
            per_flop = 1 / (peak(gpu, kernel) * float(entry.get("compute", 1)))
            per_byte = 1 / (bandwidth * float(entry["bandwidth"])) if "bandwidth" in entry else 0.0
            overlap = not kernel.startswith(("prompt", "experts")) and entry.get("form") != "sum"
            return Rates(float(entry["start_us"]) / 1e6, per_flop, per_byte, overlap, name)
    raise ValueError(f"kernels: no table for {kernel!r} on {gpu.name}; use one of {', '.join(kinds())}")


def kinds() -> tuple[str, ...]:
    """Return the kinds of kernels that some GPU has a table of."""
    tables = data.read("kernels.toml")["gpu"]
    return tuple(sorted({kind for table in tables.values() for kind in table}))


def doubtful() -> list[tuple[str, str, str]]:
    """Return the constants that are guessed, or were chosen late: GPU, kernel, and what to know of them."""
    return [
        (gpu, kernel, entry.get("guess") or entry["late"])
        for gpu, table in data.read("kernels.toml")["gpu"].items()
        for kernel, entry in table.items()
        if "guess" in entry or "late" in entry
    ]


def uneven(degree: int) -> float:
    """Return how much fuller the fullest of so many GPUs is than the mean, where each holds whole experts."""
    factors = data.read("kernels.toml")["uneven"]
    known = [int(key) for key in factors if int(key) <= degree]
    return float(factors[str(max(known))]["factor"]) if known else 1.0


class Kernel(NamedTuple):
    """Kernels of one kind in a step: how many, and the seconds of one to start, to compute and to read."""

    name: str
    number: int
    start: float
    arithmetic: float
    reading: float
    overlap: bool
    table: str

    @property
    def seconds(self) -> float:
        """Seconds of all of them."""
        work = max(self.arithmetic, self.reading) if self.overlap else self.arithmetic + self.reading
        return self.number * (self.start + work)

    @property
    def bound(self) -> str:
        """What most of that is: "start", "arithmetic" or "bytes"."""
        parts = {"start": self.start, "arithmetic": self.arithmetic, "bytes": self.reading}
        return max(parts, key=lambda part: parts[part])


# ------------------------------------------------------------------ a step


@dataclass(frozen=True)
class Runtime:
    """How an engine starts its kernels.

    - `fused`: a compiler has put small kernels together: five of them a layer, else eight.
    - `recorded`: the most tokens of a step that is started as one recorded graph; None: any. A larger step
      takes `launch` seconds a kernel at least, for Python starts them one by one.
    - `cpu`: seconds between two steps in which the GPU waits.
    """

    fused: bool = True
    recorded: int | None = None
    cpu: float = 0.0

    def __post_init__(self) -> None:
        if self.recorded is not None:
            checks.counts_or_zero("Runtime", recorded=self.recorded)
        checks.not_negative("Runtime", cpu=self.cpu)


def _engine(name: str, unit: float) -> float:
    return float(data.read("kernels.toml")["engine"][name]) * unit


TODAY = Runtime()
OF_2024 = Runtime(fused=False, recorded=256, cpu=_engine("cpu_2024_ms", 1e-3))  # prompts are not recorded
FRONT = _engine("front_ms", 1e-3)  # seconds of a request outside its engine, at each server that it passes
RENDER = _engine("render_us_per_token", 1e-6)  # seconds to tokenize one token of a prompt


def front(tokens: int) -> float:
    """Return the seconds that a request of so many prompt tokens spends in front of an engine."""
    checks.counts("front", tokens=tokens)
    return FRONT + RENDER * tokens


Count = tuple[str, int | None]  # something that a step has a number of, where it matters of which window
TOKENS: Count = ("tokens", None)
ANSWERS: Count = ("answers", None)
REQUESTS: Count = ("requests", None)
PASSES: Count = ("passes", None)


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


class Term(NamedTuple):
    """A kernel before its step: FLOPs and bytes for each of what the step counts, and bytes in any case.

    It runs where the step has some of `per`. `experts`: those whose weights it reads, as many as are visited,
    `each` bytes of one.
    """

    name: str
    number: int
    rates: Rates
    per: Count
    flops: float
    fixed: float
    nbytes: tuple[tuple[Count, float], ...]
    experts: Experts | None = None
    each: float = 0.0

    @property
    def races(self) -> bool:
        """Whether it takes the longer of two: it computes while it reads, the bytes of what it counts."""
        return self.rates.overlap and self.flops > 0

    def kernel(self, counts: dict[Count, float]) -> Kernel:
        """Return the kernel in a step that has these counts."""
        rates = self.rates
        nbytes = fsum([self.fixed, *[counts[count] * each for count, each in self.nbytes]])
        if self.experts is not None:
            nbytes += self.experts.visited(int(counts[TOKENS])) * self.each
        arithmetic, reading = counts[self.per] * self.flops * rates.per_flop, nbytes * rates.per_byte
        return Kernel(self.name, self.number, rates.start, arithmetic, reading, rates.overlap, rates.table)


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

    # ---------------------------------------------------------------- the model, as kernels

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every kernel that a step may have, in the order in which they run."""
        found = [self._elementwise("embedding", 1, 4 * self.model.d_model)]
        for group in self.model.groups:
            for mixer in group.mixers:
                found += self._mixer(group, mixer)
            found += self._ffn(group)
            found += self._between(group)
        return (*found, *self._ends())

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

    # ---------------------------------------------------------------- parts of a layer

    def _mixer(self, group: Layers, mixer: Mixer) -> Iterator[Term]:
        if isinstance(mixer, Attention):
            return self._attention(group, mixer)
        if isinstance(mixer, Latent):
            return self._latent(group, mixer)
        return self._recurrent(group, mixer)

    def _attention(self, group: Layers, mixer: Attention) -> Iterator[Term]:
        number, each, degree = group.count, group.bytes.mixer, self.tensor_parallel
        heads, kv_heads = mixer.heads / degree, max(1.0, mixer.kv_heads / degree)
        key, value = mixer.head_dim, mixer.value_dim
        kept = 0 if mixer.borrows else key + (0 if mixer.one_matrix else value)
        outer = heads * key * (2 if mixer.gated else 1) + kv_heads * kept
        yield self._product("query, key, value", number, self.model.d_model, outer, each)
        yield self._elementwise("rotation", number, 4 * (heads + kv_heads) * key)
        if not mixer.borrows:
            yield self._elementwise("cache write", number, 4 * kv_heads * (key + value))
        kind = "prompt_attention_64" if key <= 64 and self._tells_64 else "prompt_attention_128"
        yield self._prompts("attention of prompts", number, kind, mixer.window, heads, kv_heads, key + value)
        flops, nbytes = 2 * heads * (key + value), kv_heads * (key + value) * self.model.cache_bytes
        yield self._answers("attention of answers", number, "answer_attention", mixer.window, flops, nbytes)
        yield self._product("attention output", number, heads * value, self.model.d_model, each)

    @property
    def _tells_64(self) -> bool:
        """Whether one table tells heads of 64 from those of 128."""
        return rates(self.gpu, "prompt_attention_64").table == rates(self.gpu, "prompt_attention_128").table

    def _latent(self, group: Layers, mixer: Latent) -> Iterator[Term]:
        number, each, d_model, index = group.count, group.bytes.mixer, self.model.d_model, mixer.indexer
        heads, query = mixer.heads / self.tensor_parallel, mixer.d_nope + mixer.d_rope
        down = mixer.kv_rank + mixer.d_rope + (mixer.q_rank or 0)
        yield self._product("into the latents", number, d_model, down, each)
        yield self._product("queries", number, mixer.q_rank or d_model, heads * query, each)
        yield self._elementwise("rotation", number, 4 * (heads + 1) * mixer.d_rope)
        yield self._elementwise("cache write", number, 4 * mixer.cached)
        if index and not mixer.shares_index:
            width = index.heads * index.head_dim
            yield self._product("index queries", number, mixer.q_rank or d_model, width, each)
            yield self._product("index keys", number, d_model, index.head_dim + index.heads, each)
            prompts, answers = "prompt_attention_128", "answer_attention"
            yield self._prompts("index of prompts", number, prompts, None, index.heads, 1, index.head_dim)
            yield self._answers("index of answers", number, answers, None, 2 * width, index.cached_bytes)
        window = index.top_k if index else None
        wide = heads * (mixer.d_nope + mixer.d_value)
        kind, widths = "prompt_attention_latent", query + mixer.d_value
        yield self._product("out of the latents", number, mixer.kv_rank, wide, each, per=("keys", window))
        yield self._prompts("attention of prompts", number, kind, window, heads, heads, widths)
        inner, outer = (mixer.d_nope, heads * mixer.kv_rank), (mixer.kv_rank, heads * mixer.d_value)
        yield self._product("queries to latents", number, *inner, 2, per=ANSWERS)
        kind, flops = "answer_attention_latent", mixer.decode_flops_per_pair / self.tensor_parallel
        nbytes = mixer.cached * self.model.cache_bytes
        yield self._answers("attention of answers", number, kind, window, flops, nbytes)
        yield self._product("latents to values", number, *outer, 2, per=ANSWERS)
        yield self._product("attention output", number, heads * mixer.d_value, d_model, each)

    def _recurrent(self, group: Layers, mixer: Recurrent) -> Iterator[Term]:
        number, d_model, degree = group.count, self.model.d_model, self.tensor_parallel
        for name, size in mixer.weights:
            outer = size / d_model / degree
            yield self._product(name.replace("_", " "), number, d_model, outer, group.bytes.mixer)
        wide = mixer.channels + 2 * mixer.heads * mixer.head_dim
        yield self._elementwise("convolution and gate", number, 4 * wide / degree)
        nbytes = 2 * mixer.state_bytes(self.model.bytes_per_value) / degree
        yield self._term("states", number, "states", PASSES, 0.0, ((PASSES, nbytes),))

    def _ffn(self, group: Layers) -> Iterator[Term]:
        ffn = group.ffn
        if isinstance(ffn, FFN):
            yield from self._network(group, ffn.width, ffn.gated)
        elif isinstance(ffn, Experts):
            if ffn.d_shared:
                yield from self._network(group, ffn.d_shared, ffn.gated)
            yield from self._experts(group, ffn)

    def _network(self, group: Layers, width: int, gated: bool) -> Iterator[Term]:
        number, each, d_model = group.count, group.bytes.ffn, self.model.d_model
        inner, halves = width / self.tensor_parallel, 2 if gated else 1
        yield self._product("FFN in", number, d_model, halves * inner, each)
        yield self._elementwise("activation", number, 2 * (halves + 1) * inner)
        yield self._product("FFN out", number, inner, d_model, each)

    def _experts(self, group: Layers, ffn: Experts) -> Iterator[Term]:
        number, d_model, degree = group.count, self.model.d_model, self.tensor_parallel
        hidden = ffn.d_expert or d_model
        yield self._product("router", number, d_model, ffn.count, 2)
        yield self._elementwise("choice of experts", number, 4 * ffn.count)
        if ffn.d_expert:
            yield self._product("into the experts", number, d_model, hidden, group.bytes.ffn)
        visited, visits, width = 1.0, float(ffn.top_k), ffn.width / degree
        if self.expert_parallel > 1:
            visited, visits, width = 1 / degree, visits * uneven(degree) / degree, float(ffn.width)
        one = experts(0, visited, visits, hidden, width, ffn.factor, group.bytes.experts)[1]
        flops, nbytes = experts(1, 0, visits, hidden, width, ffn.factor, group.bytes.experts)
        kind = self._precision(group.bytes.experts, "experts")
        term = self._term("experts", number, kind, TOKENS, flops, ((TOKENS, nbytes),))
        yield term._replace(experts=ffn, each=one)
        if ffn.d_expert:
            yield self._product("out of the experts", number, hidden, d_model, group.bytes.ffn)

    def _between(self, group: Layers) -> Iterator[Term]:
        """Norms and residuals around a layer's parts, and the all-reduces after them."""
        parts, d_model = group.count * (bool(group.mixers) + bool(group.ffn)), self.model.d_model
        yield self._elementwise("norm and residual", parts, 8 * d_model)
        if not self.runtime.fused:
            yield self._elementwise("residual", parts, 6 * d_model)
            yield self._elementwise("copy", group.count, 4 * d_model)
        if self.tensor_parallel > 1:
            known = next((degree for degree in REDUCED if degree >= self.tensor_parallel), REDUCED[-1])
            nbytes = 2 * (1 - 1 / self.tensor_parallel) * d_model * self.model.bytes_per_value
            yield self._term("all-reduce", parts, f"all_reduce_{known}", TOKENS, 0.0, ((TOKENS, nbytes),))

    def _ends(self) -> Iterator[Term]:
        """The head, for every request in the step, and the choice of a token."""
        outer = self.model.vocab / self.tensor_parallel
        yield self._product("head", 1, self.model.d_model, outer, self.model.head_bytes, per=REQUESTS)
        yield self._elementwise("sampling", 4, 4 * self.model.vocab, per=REQUESTS)

    # ---------------------------------------------------------------- kinds of kernels

    def _term(
        self,
        name: str,
        number: int,
        kind: str,
        per: Count,
        flops: float,
        nbytes: tuple[tuple[Count, float], ...],
        fixed: float = 0.0,
    ) -> Term:
        return Term(name, number, rates(self.gpu, kind), per, flops, fixed, nbytes)

    def _product(
        self, name: str, number: int, inner: float, outer: float, each: float, per: Count = TOKENS
    ) -> Term:
        kind = self._precision(each, "gemm")
        value = input_bytes(kind)
        fixed = product(0, inner, outer, each, value)[1]
        flops, nbytes = product(1, inner, outer, 0, value)
        return self._term(name, number, kind, per, flops, ((per, nbytes),), fixed)

    def _elementwise(self, name: str, number: int, nbytes: float, per: Count = TOKENS) -> Term:
        return self._term(name, number, "elementwise", per, 0.0, ((per, nbytes),))

    def _prompts(
        self,
        name: str,
        number: int,
        kind: str,
        window: int | None,
        heads: float,
        kv_heads: float,
        widths: float,
    ) -> Term:
        flops = prompt_attention(1, 0, 0, heads, kv_heads, widths)[0]
        query = prompt_attention(0, 1, 0, heads, kv_heads, widths)[1]
        key = prompt_attention(0, 0, 1, heads, kv_heads, widths)[1]
        per: Count = ("pairs", window)
        return self._term(
            name, number, kind, per, flops, ((("queries", None), query), (("keys", window), key))
        )

    def _answers(
        self, name: str, number: int, kind: str, window: int | None, flops: float, nbytes: float
    ) -> Term:
        per: Count = ("seen", window)
        return self._term(name, number, kind, per, flops, ((per, nbytes),))

    def _precision(self, each: float, family: str) -> str:
        """Which table prices weights of so many bytes.

        In FP8, where the model computes in it and the GPU can: scaled by blocks if the model has experts, as
        all of the book's do, else by tensor. Weights narrower than the arithmetic are widened on the way.
        """
        arithmetic = self.model.arithmetic
        if each > 1.5:
            return f"{family}_bf16"
        if each < 0.9 and arithmetic == "fp4" and self.gpu.fp4_flops:
            return f"{family}_fp4"
        if each > 0.9 and arithmetic != "bf16" and self.gpu.fp8_flops:
            return f"{family}_fp8" if family == "gemm" and not self.model.experts else f"{family}_fp8_block"
        return "gemm_int4" if family == "gemm" else "experts_mxfp4"


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
        degree = engine.tensor_parallel
        parallel = degree if self.expert_parallel else 1
        return Steps(engine.model, engine.gpu, degree, parallel, self.runtime).seconds


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
