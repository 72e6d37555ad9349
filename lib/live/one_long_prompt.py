"""A long prompt arrives while others read: what everybody sees, under three arrangements."""

from __future__ import annotations

from itertools import pairwise

from lib.live import GPU, Answer, Choice, Number, bars, calculates, rule, ticks
from lib.models import QWEN2_5_7B
from lib.simulator import Collocated, Deployment, Disaggregated, Engine, Trace, simulate
from lib.workload import Request

DELAY = 0.1  # seconds after the readers both stream


@calculates(
    "Send a prompt of your own",
    Number("prompt", "N's prompt", "tokens", 8192, 64, 65_536, 1024),
    Number("chunk", "Chunk on one GPU", "tokens", 2048, 64, 65_536, 256),
    Number("transfer", "Handoff between two GPUs", "ms", 20, 0, 10_000, 10),
    Number("readers", "Readers", "", 2, 1, 64),
    Choice("gpu", "GPU", "L40S", tuple(GPU)),
)
def one_long_prompt(prompt: int, chunk: int, transfer: int, readers: int, gpu: str) -> Answer:
    """Return the longest stall of the readers and N's first token, with their timelines."""
    whole = engine(gpu, None)
    arrangements: dict[str, Deployment] = {
        "whole": Collocated(whole),
        "chunks": Collocated(engine(gpu, chunk + readers)),
        "P/D": Disaggregated(whole, whole, handoff=transfer / 1e3),
    }
    scenes = {name: play(deployment, prompt, readers) for name, deployment in arrangements.items()}
    horizon = 1.1 * max(trace.first_token[-1] - zero for trace, zero in scenes.values())
    stalls = [1e3 * stall(trace, zero, horizon) for trace, zero in scenes.values()]
    first = [1e3 * trace.ttft[-1] for trace, _ in scenes.values()]
    computed, copied, tokens = [], [], []
    for name, (trace, zero) in scenes.items():
        computed += [
            (f"{name}: N", step.start - zero, step.end - zero)
            for step in trace.steps()
            if readers in step.chunks
        ]
        if trace.decode_queue[-1] > trace.prefill_end[-1]:
            copied.append((f"{name}: N", trace.prefill_end[-1] - zero, trace.decode_queue[-1] - zero))
        times = trace.emitted()
        for who, row in (("A", 0), ("N", -1)):
            tokens += [(f"{name}: {who}", t - zero) for t in times[row] if 0 <= t - zero <= horizon]
    return {
        "say": [
            f"In one piece the readers stall for {stalls[0]:,.0f} ms, in chunks of {chunk:,} for at most "
            f"{stalls[1]:,.0f} ms, and with a GPU for the prompt for {stalls[2]:,.0f} ms.",
            f"N's first token comes after {first[0]:,.0f}, {first[1]:,.0f} and {first[2]:,.0f} ms.",
        ],
        "table": {
            "arrangement": [
                "one GPU, in one piece",
                f"one GPU, chunks of {chunk:,}",
                f"P/D, handoff of {transfer:,} ms",
            ],
            "longest stall of the readers, ms": stalls,
            "N's first token, ms": first,
        },
        "plot": {
            "title": f"A reader, and N with {prompt:,} tokens",
            "alt": "Timelines of one reader and of N, under three arrangements: marks for tokens, bars for "
            "N's prompt and for its handoff.",
            "x": {"label": "seconds", "ends": (0, horizon)},
            "y": {"label": ""},
            "rows": [f"{name}: {who}" for name in scenes for who in "AN"],
            "marks": [
                bars("N's prompt", "prefill", computed),
                bars("handoff", "transfer", copied),
                ticks("a token", "decode", tokens),
                rule("N arrives", DELAY),
            ],
        },
    }


def engine(gpu: str, budget: int | None) -> Engine:
    """Return the chapter's engine on a GPU."""
    return Engine(QWEN2_5_7B, GPU[gpu], token_budget=budget, decode_context=2048)


def play(deployment: Deployment, prompt: int, readers: int) -> tuple[Trace, float]:
    """Return the scene, and the moment at which all readers stream: N comes a little later."""
    pair = [Request(0, 1, 400)] * readers
    zero = max(simulate(pair, deployment).first_token)
    return simulate([*pair, Request(zero + DELAY, prompt, 100)], deployment), zero


def stall(trace: Trace, zero: float, horizon: float) -> float:
    """Return the longest gap of any reader, in seconds, from when all stream to the end of what is shown."""
    longest = 0.0
    for times in trace.emitted()[:-1]:
        seen = [t for t in times if zero <= t <= zero + horizon]
        longest = max([longest, *(later - earlier for earlier, later in pairwise(seen))])
    return longest
