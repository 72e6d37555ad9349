"""What others measured, and what this book predicts for it.

One short function for each entry of `lib/data/measured.toml` models its set-up and returns a `Figure` for
every number in it. Efficiencies come from `calibration` (one kernel database); nothing is fitted to what is
predicted here. Where a set-up leaves something open, `ENTRIES` says what was taken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from math import fsum
from typing import Any

from lib import calibration, data, kv_cache
from lib.goodput import SLO, attainment, goodput
from lib.hardware import (
    A10,
    A100_80GB,
    GPU,
    H100_SXM,
    H200,
    H800,
    L40S,
    MI300X,
    PCIE_4,
    RDMA_100G,
    RDMA_400G,
    Link,
    in_fp8,
)
from lib.models import (
    GPT_OSS_120B,
    LLAMA_2_70B,
    OPT_13B,
    QWEN2_5_7B,
    QWEN2_5_7B_INT4,
    QWEN3_8B,
    QWEN3_235B_FP8,
    Model,
)
from lib.parallelism import all_reduce_time, divide, interconnect
from lib.roofline import Efficiency, Work, decode, ideal_time, prefill, step_time
from lib.scheduler import vllm
from lib.simulator import (
    Collocated,
    Deployment,
    Disaggregated,
    Engine,
    Pull,
    Trace,
    alternate,
    least_loaded,
    percentile,
    simulate,
)
from lib.workload import Request, poisson

SEEDS = range(5)
NOTES = ("id", "source", "setup")
GIVEN = "part of the set-up"
FITTED = "the efficiencies come from it"

Path = tuple[str, ...]


WORDS = {"itl": "ITL", "ttft": "TTFT", "e2e": "E2E", "kv": "KV", "pd": "P/D", "1p1d": "1P1D", "tp8": "TP8"}
WORDS |= {"2xtp4": "2 x TP4"} | {gpu: gpu.upper() for gpu in ("l40s", "a100", "h100", "h200", "b200")}
ENDS = ("lowest", "highest")
PROMPTS = [f"{n:,} tokens" for n in data.measurements()["mooncake-h800-transfer"]["prompt_tokens"]]
ITEMS = {  # what the items of a list stand for
    "pd_itl_p99_ms_range": ENDS,
    "itl_p50_ms_range": ENDS,
    "prompt_tokens": ("first", "second", "third", "fourth"),
    "kv_transfer_ms": PROMPTS,
    "ttft_ms": PROMPTS,
    "prefill_ms": ("2,048 tokens", "8,192 tokens"),
    "decode_ms": ("1 stream", "8 streams", "32 streams"),
    "layer_transfer_ms": ("8K tokens", "16K tokens"),
    "layer_compute_ms": ("8K tokens", "16K tokens"),
}
DROPPED = {"ms", "s", "range", "req", "per", "gpu"}  # units, which stand apart


def words(key: str) -> str:
    """Return a key of the file in words: "TTFT p50 at 0.2" for ttft_p50_s_at_0_2."""
    if re.fullmatch(r"\d+\.\d+", key):
        return f"at {key} req/s"
    parts = re.sub(r"at_(\d)_(\d)", r"at_\1.\2_req/s", key).split("_")
    return " ".join(WORDS.get(part, part) for part in parts if part not in DROPPED)


@dataclass(frozen=True)
class Figure:
    """A measured number, in the unit that its source gives, beside the book's prediction of it.

    `path` leads to the number within its entry. `why` says why nothing is predicted, or why the prediction
    does not count as one.
    """

    entry: str
    path: Path
    unit: str
    printed: Decimal | int
    predicted: float | None
    why: str = ""

    @property
    def measured(self) -> float:
        """The measured number as a float."""
        return float(self.printed)

    @property
    def name(self) -> str:
        """The path in words: "P/D, ITL p99"."""
        above = (None, *self.path)
        named = [
            ITEMS[key][int(part)] if key in ITEMS and part.isdigit() else words(part)
            for key, part in zip(above, self.path, strict=False)
        ]
        return ", ".join(filter(None, named))

    @property
    def factor(self) -> float:
        """Prediction over measurement."""
        return (self.predicted or 0.0) / self.measured

    @property
    def too_fast(self) -> bool:
        """Whether the prediction promises more speed than was measured: less time, or more per second."""
        return self.counts and (self.factor < 1) == (self.unit in ("ms", "s")) and self.unit != "times"

    @property
    def counts(self) -> bool:
        """Whether it is a prediction of something that was measured."""
        return self.predicted is not None and not self.why


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Decimal | int]]:
    """Yield (path, number) for every number in an entry; the items of a list are counted from 0."""
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list):
        items = ((str(i), item) for i, item in enumerate(value))
    else:
        yield path, value
        return
    for key, item in items:
        if path or key not in NOTES:
            yield from leaves(item, (*path, key))


def figures(entry: str, unit: str, why: str = "", **predicted: Any) -> list[Figure]:
    """Return a figure for every number below the keys given: key=predictions, in the same shape.

    A single None stands for all numbers below its key.
    """
    found = []
    for key, ours in predicted.items():
        numbers = dict(leaves(ours, (key,)))
        for path, measured in leaves(data.measurements()[entry][key], (key,)):
            value = None if ours is None else float(numbers[path])
            found.append(Figure(entry, path, unit, measured, value, why))
    return found


def factors(found: Iterable[Figure]) -> list[float]:
    """Return by which factor, 1 or more, each prediction is off that counts; the best one first."""
    return sorted(max(figure.factor, 1 / figure.factor) for figure in found if figure.counts)


# ---------------------------------------------------------------------------------------- how things run


def engine(model: Model, gpu: GPU, degree: int = 1, **limits: Any) -> Engine:
    """Return an engine: calibrated efficiencies, vLLM's rules, its GPUs talking over what joins them."""
    return Engine(
        model,
        gpu,
        tensor_parallel=degree,
        efficiency=calibration.efficiency(gpu),
        link=interconnect(gpu, degree) if degree > 1 else None,
        policy=vllm,
        **limits,
    )


def step(work: Work, tokens: int, of: Engine) -> float:
    """Return the seconds of one step over `tokens` tokens on an engine."""
    share = divide(work, of.model, of.tensor_parallel)
    seconds = step_time(share, of.gpu, of.efficiency)
    return seconds + (all_reduce_time(of.model, tokens, of.tensor_parallel, of.link) if of.link else 0.0)


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return fsum(values) / len(values)


def traces(deployment: Deployment, rate: float, count: int, prompt: int, output: int) -> list[Trace]:
    """Return a trace for each seed: `count` equal requests, Poisson, `rate` a second, lengths in tokens."""
    return [simulate(poisson(rate, count, seed, prompt, output), deployment) for seed in SEEDS]


def ms(seeds: Sequence[Trace], statistic: Callable[[Trace], float]) -> float:
    """Return a statistic in milliseconds: of each seed by itself, then the mean over the seeds."""
    return 1e3 * mean([statistic(trace) for trace in seeds])


def mean_gap(trace: Trace) -> float:
    """Return the mean of all gaps between tokens, pooled."""
    pot = trace.pooled_gaps
    return fsum(seconds * count for seconds, count in pot) / sum(count for _, count in pot)


# ---------------------------------------------------------------------------------------- the entries


def guide(copy: float | Link = PCIE_4) -> list[Figure]:
    """The guide's own benchmark: Qwen2.5-7B, two L40S on PCIe; collocated, and prefill beside decode."""
    one = engine(QWEN2_5_7B, L40S, asynchronous=True)
    setups: dict[str, Deployment] = {
        "collocated": Collocated(one, 2, least_loaded),
        "pd": Disaggregated(one, one, handoff=Pull(copy)),
    }
    runs = {
        (name, rate): traces(setup, rate, 100, 8192, 256)
        for name, setup in setups.items()
        for rate in (0.2, 0.4, 1.0, 2.0)
    }
    tails = {key: ms(seeds, lambda trace: trace.itl(99)) for key, seeds in runs.items()}
    medians = [ms(seeds, lambda trace: trace.itl(50)) for (_, rate), seeds in runs.items() if rate <= 1]
    pd = [tail for (name, _), tail in tails.items() if name == "pd"]
    entry = "guide-l40s"
    return [
        *figures(
            entry,
            "ms",
            collocated_itl_p99_ms={rate: tails["collocated", float(rate)] for rate in ("0.2", "0.4", "2.0")},
            pd_itl_p99_ms_range=[min(pd), max(pd)],
            itl_p50_ms_range=[min(medians), max(medians)],
        ),
        *figures(
            entry,
            "s",
            ttft_p50_s_at_0_2={
                name: ms(runs[name, 0.2], lambda trace: percentile(trace.ttft, 50)) / 1e3 for name in setups
            },
        ),
    ]


def mooncake_a10(entry: str, degree: int, prompt: int, rate: float, count: int) -> list[Figure]:
    """Qwen2.5-7B in 4 bits on A10s under SGLang: a server for prefill and one for decode, or two of both."""
    one = engine(QWEN2_5_7B_INT4, A10, degree)
    setups: dict[str, Deployment] = {
        "pd_1p1d": Disaggregated(one, one, handoff=RDMA_100G),
        "two_collocated": Collocated(one, 2, alternate),
    }
    predicted: dict[str, Any] = {}
    for name, setup in setups.items():
        seeds = traces(setup, rate, count, prompt, 512)
        predicted[name] = {
            "ttft_mean_ms": ms(seeds, lambda trace: mean(trace.ttft)),
            "ttft_p99_ms": ms(seeds, lambda trace: percentile(trace.ttft, 99)),
            "itl_mean_ms": ms(seeds, mean_gap),
            "itl_p99_ms": ms(seeds, lambda trace: trace.itl(99)),
        }
    return figures(entry, "ms", **predicted)


def mooncake_a10_tp4() -> list[Figure]:
    """Two servers of four A10: 50 prompts of 8,192 tokens, one a second."""
    return mooncake_a10("mooncake-a10-tp4", 4, 8192, 1.0, 50)


def mooncake_a10_tp2() -> list[Figure]:
    """The same on two A10 each: 200 prompts of 2,048 tokens, four a second."""
    return mooncake_a10("mooncake-a10-tp2", 2, 2048, 4.0, 200)


def mooncake_h800() -> list[Figure]:
    """Qwen3-8B on eight H800 for prefill and eight for decode, one request at a time."""
    entry = "mooncake-h800-transfer"
    roce = Link("8 x RoCE", 200e9, source="the source's own theoretical maximum")
    one = engine(QWEN3_8B, H800, 8, token_budget=8192)
    setup = Disaggregated(one, one, handoff=Pull(roce))
    prompts = data.measurements()[entry]["prompt_tokens"]
    alone = [simulate([Request(0, prompt, 128)], setup).ttft[0] for prompt in prompts]
    moved = [kv_cache.transfer_time(QWEN3_8B, prompt, roce) for prompt in prompts]
    return [
        *figures(entry, "tokens", GIVEN, prompt_tokens=None),
        *figures(entry, "ms", kv_transfer_ms=[1e3 * s for s in moved], ttft_ms=[1e3 * s for s in alone]),
    ]


def llm_d(prefill_efficiency: Efficiency | None = None) -> list[Figure]:
    """gpt-oss-120b on 16 H200: eight for prefill and two groups of four for decode, or 16 replicas."""
    entry = "llm-d-h200"
    requests = [Request(i / 45, 5000, 250) for i in range(45 * 30)]
    one = engine(GPT_OSS_120B, H200, token_budget=8192, asynchronous=True)
    one = replace(one, efficiency=prefill_efficiency or one.efficiency)
    four = engine(GPT_OSS_120B, H200, 4, token_budget=8192, asynchronous=True)
    handoff = Pull(kv_cache.transfer_time(GPT_OSS_120B, 5000, RDMA_400G))
    setups: dict[str, Deployment] = {
        "pd": Disaggregated(one, four, 8, 2, handoff, least_loaded),
        "collocated": Collocated(one, 16, alternate),
    }
    found = []
    for name, setup in setups.items():
        trace = simulate(requests, setup)
        seconds = {"e2e_mean_s": mean(trace.e2e), "e2e_p95_s": percentile(trace.e2e, 95)}
        rest = {
            "itl_mean_ms": 1e3 * mean_gap(trace),
            "ttft_mean_ms": 1e3 * mean(trace.ttft),
            "ttft_p95_ms": 1e3 * percentile(trace.ttft, 95),
        }
        shape: dict[str, Any] = {name: seconds | rest}
        for figure in figures(entry, "", **shape):
            found.append(replace(figure, unit="s" if figure.path[1].endswith("_s") else "ms"))
    return found


def mori_io() -> list[Figure]:
    """Qwen3-235B in FP8 on eight MI300X: how many of 100 requests keep to TTFT 1 s and ITL 50 ms."""
    model, gpu = QWEN3_235B_FP8, MI300X
    shared = {n: replace(engine(model, gpu, n, token_budget=8192), gpu=in_fp8(gpu)) for n in (4, 8)}
    part = replace(shared[4], token_budget=4096, max_num_seqs=64)
    read = kv_cache.transfer_time(model, 2000, RDMA_400G)
    write = kv_cache.exposed_by_layer(read, step(prefill(model, 2000), 2000, part), model.layers)
    setups: dict[str, Deployment] = {
        "collocated_tp8": Collocated(shared[8]),
        "collocated_2xtp4": Collocated(shared[4], 2, alternate),
        "pd_read": Disaggregated(part, part, handoff=Pull(read)),
        "pd_write": Disaggregated(part, part, handoff=write),
    }
    promise = SLO(ttft=1.0, itl=0.050)
    met = {
        name: 100 * mean([attainment(trace, promise) for trace in traces(setup, 8.0, 100, 2000, 1000)])
        for name, setup in setups.items()
    }
    return figures("mori-io-mi300x", "of 100", met_of_100=met)


def distserve() -> list[Figure]:
    """A model of 13 billion parameters on A100s: the highest rate per GPU at which 90 % keep to both."""
    one = engine(OPT_13B, A100_80GB)
    nvlink = interconnect(A100_80GB)
    both, first, rest = SLO(ttft=0.4, tpot=0.040), SLO(ttft=0.4), SLO(ttft=None, tpot=0.040)

    def best(setup: Deployment, promise: SLO, output: int = 64) -> float:
        workload = lambda rate, seed: poisson(rate, 300, seed, 512, output)  # noqa: E731
        return goodput(setup, promise, workload, seeds=(0, 1), precision=0.2).rate

    return figures(
        "distserve-a100",
        "req/s per GPU",
        req_per_s_per_gpu={
            "collocated": best(Collocated(one), both),
            "prefill_only": best(Collocated(one), first, 1),
            "decode_only": best(Disaggregated(one, one, 16, 1, nvlink), rest),
            "two_prefill_one_decode": best(Disaggregated(one, one, 2, 1, nvlink), both) / 3,
        },
    )


def splitwise() -> list[Figure]:
    """Llama-2-70B in 16 bits on eight GPUs, one request at a time."""
    found = []
    for name, gpu in {"h100": H100_SXM, "a100": A100_80GB}.items():
        one = engine(LLAMA_2_70B, gpu, 8)
        prompts = [1e3 * step(prefill(LLAMA_2_70B, tokens), tokens, one) for tokens in (2048, 8192)]
        token = 1e3 * step(decode(LLAMA_2_70B, 1, 2048), 1, one)
        shape: dict[str, Any] = {name: {"prefill_ms": prompts, "token_ms": token}}
        found += figures("splitwise-llama2-70b", "ms", **shape)
    return found


def kernel_database() -> list[Figure]:
    """What the efficiencies come from, beside what they give back and beside the book's ideal times."""
    found = []
    for gpu, name in calibration.COVERED.items():
        works = (calibration.PREFILL, *calibration.DECODES)
        reached = calibration.efficiency(gpu)
        ours = [1e3 * step_time(work, gpu, reached) for work in works]
        ideal = [1e3 * ideal_time(work, gpu) for work in works]
        shape: dict[str, Any] = {"prefill_ms": ours[0], "decode_ms": ours[1:]}
        shape["speed_of_light"] = {"prefill_ms": ideal[0], "decode_ms": ideal[1:]}
        entry: dict[str, Any] = {name: shape}
        found += figures(calibration.DATABASE, "ms", FITTED, **entry)
    return found


def fabric_lib() -> list[Figure]:
    """Qwen3-235B, a layer's transfer and its arithmetic, for prompts of 8K and 16K tokens.

    Neither the GPU, nor the degree of parallelism, nor the network is known here, so no time can be
    predicted. But how both grow from the shorter prompt to the longer does not depend on them.
    """
    entry, why = "fabric-lib-qwen3-235b", "GPU, parallelism and network are not known here"
    found = figures(entry, "ms", why, layer_transfer_ms=None, layer_compute_ms=None)
    short, long = prefill(QWEN3_235B_FP8, 8192), prefill(QWEN3_235B_FP8, 16384)
    growth = {"layer_transfer_ms": 2.0, "layer_compute_ms": long.flops / short.flops}
    for key, predicted in growth.items():
        first, second = data.measurements()[entry][key]
        growth_measured = (second / first).quantize(Decimal("0.01"))
        found.append(Figure(entry, (key, "16K over 8K"), "times", growth_measured, predicted))
    return found


@dataclass(frozen=True)
class Entry:
    """How an entry of the file is modelled: its function, the GPUs it needs, what else was taken."""

    run: Callable[[], list[Figure]]
    gpus: tuple[GPU, ...]
    taken: str


ENTRIES = {
    "guide-l40s": Entry(
        guide,
        (L40S,),
        "8,192 prompt tokens; vLLM's default budget for 48 GB, 2,048 tokens; asynchronous scheduling; the "
        "least loaded replica; rates of 0.2, 0.4, 1 and 2 req/s; decode pulls over PCIe 4.0",
    ),
    "mooncake-a10-tp4": Entry(
        mooncake_a10_tp4,
        (A10,),
        "Poisson arrivals; arithmetic in 16 bits; chunks of 2,048 tokens, SGLang's default for 24 GB, but "
        "vLLM's scheduling; PCIe 4.0 between the GPUs of a server, 100 Gb/s between servers",
    ),
    "mooncake-a10-tp2": Entry(mooncake_a10_tp2, (A10,), "as for TP4"),
    "mooncake-h800-transfer": Entry(
        mooncake_h800,
        (H800,),
        "200 GB/s, which the source gives as the theoretical sum of its eight links; vLLM's default budget "
        "for 80 GB, 8,192 tokens; no proxy, no CPU",
    ),
    "llm-d-h200": Entry(
        llm_d,
        (H200,),
        "evenly spaced requests for 30 of the source's 120 seconds; vLLM's default budget for 141 GB, 8,192 "
        "tokens; asynchronous scheduling; arithmetic in 16 bits; replicas in turn, the split pools by load; "
        "decode pulls over 400 Gb/s",
    ),
    "mori-io-mi300x": Entry(
        mori_io,
        (MI300X,),
        "Poisson arrivals; budgets and sequence limits from the commands in the post, TP8 like TP4; the 99th "
        "percentile of a request's own gaps as its ITL; all arithmetic at the FP8 peak; 400 Gb/s for the "
        "handoff, hidden layer by layer in write mode",
    ),
    "distserve-a100": Entry(
        distserve,
        (A100_80GB,),
        "OPT-13B, which the authors evaluate, for the post names no model; steps of up to 2,048 tokens; for "
        "prefill alone answers of one token, for decode alone 16 GPUs of prefill; NVLink for the handoff",
    ),
    "splitwise-llama2-70b": Entry(
        splitwise, (H100_SXM, A100_80GB), "a token at the context of the shorter prompt"
    ),
    "kernel-database-qwen25-7b": Entry(
        kernel_database, tuple(calibration.COVERED), "a context of 8,192 tokens for its 8k"
    ),
    "fabric-lib-qwen3-235b": Entry(fabric_lib, (), "prompts of 8,192 and 16,384 tokens"),
}


@cache
def predict(entry: str) -> tuple[Figure, ...]:
    """Return the figures of an entry, worked out once."""
    return tuple(ENTRIES[entry].run())


def modelled(entry: str) -> str:
    """Return what was taken to model an entry, and whose efficiencies were used."""
    lent = {gpu: calibration.stand_in(gpu) for gpu in ENTRIES[entry].gpus}
    whose = [
        f"{gpu.name}'s" if gpu == own else f"{own.name}'s for the {gpu.name}" for gpu, own in lent.items()
    ]
    return ENTRIES[entry].taken + (f". Efficiencies: the {', the '.join(whose)}" if whose else "")
