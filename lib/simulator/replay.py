"""vLLM's own records, played again: what its scheduler did, and what this one does with the same inputs.

The records lie in `lib/data/vllm`. Not here: the rules (`lib.scheduler`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.scheduler import vllm
from lib.simulator.deployment import Collocated, Disaggregated
from lib.simulator.engine import Engine
from lib.simulator.fleet import simulate
from lib.simulator.handoff import Pull
from lib.simulator.trace import Step
from lib.workload import Request


def replay(inputs: Mapping[str, Any], jump: bool = True) -> dict[str, Any]:
    """What vLLM's scheduler does with the inputs of a scheduler trace, in the form of such a trace.

    `inputs` has `scheduler` (async, token_budget, max_num_seqs, kv_blocks, prefix_caching,
    long_prefill_token_threshold) and `requests` (arrival_s, prompt, output_tokens). The clock is that of
    Qwen2.5-7B on one L40S at the review's calibration. Returns

    - `steps`: [start, end, {request: [tokens, tokens computed before]}, [preempted]], and `emitted_s`: for
      each request the times of its tokens;
    - where the inputs have `transfer_s` and `idle_poll_s`, one prefill and one decode engine:
      `prefill_done_s`, `copy_done_s`, `decode_steps`: [start, end, {request: tokens}], `emitted_s`.

    All times in seconds, requests by their number as a string.
    """
    rules = inputs["scheduler"]
    engine = Engine(
        QWEN2_5_7B,
        L40S,
        token_budget=rules["token_budget"],
        max_num_seqs=rules["max_num_seqs"],
        kv_blocks=rules["kv_blocks"],
        policy=vllm,
        asynchronous=rules["async"],
        prefix_caching=rules["prefix_caching"],
        long_prefill_token_threshold=rules["long_prefill_token_threshold"],
    )
    requests = [
        Request(row["arrival_s"], tuple([(label, n) for label, n in row["prompt"]]), row["output_tokens"])
        for row in inputs["requests"]
    ]
    if "transfer_s" not in inputs:
        trace = simulate(requests, Collocated(engine), jump=jump)
        return {"steps": [_listed(step) for step in trace.steps()], "emitted_s": _keyed(trace.emitted())}
    pull = Pull(inputs["transfer_s"], inputs["idle_poll_s"])
    trace = simulate(requests, Disaggregated(engine, engine, handoff=pull), jump=jump)
    decode = [_listed(step) for step in trace.steps() if trace.roles[step.engine] == "decode"]
    return {
        "prefill_done_s": _keyed(trace.prefill_end),
        "copy_done_s": _keyed(trace.copy_end),
        "decode_steps": [
            [start, end, {row: tokens for row, (tokens, _) in work.items()}] for start, end, work, _ in decode
        ],
        "emitted_s": _keyed(trace.emitted()),
    }


def _listed(step: Step) -> tuple[float, float, dict[str, list[int]], list[str]]:
    work = {str(row): list(piece) for row, piece in step.chunks.items()}
    work |= {str(row): [1, past] for row, past in step.decodes.items()}
    return step.start, step.end, work, [str(row) for row in sorted(step.preempted)]


def _keyed(column: Sequence[Any]) -> dict[str, Any]:
    return {str(row): value for row, value in enumerate(column)}
