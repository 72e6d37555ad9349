"""Record what vLLM's own scheduler does with the workloads in lib/data/vllm (README.md beside this).

It drives vLLM's `Scheduler` as its engine core does: one step composed at a time, or one ahead where
scheduling is asynchronous. No model runs: every sampled token is made up, and a step lasts what this book's
roofline says. It is run by a Python that has vLLM, not by the book's.
"""
# ruff: noqa: E402 (paths and vLLM's environment have to be set first)

import argparse
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, inf
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}

import torch
import vllm
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.roofline import PUBLISHED, Work, decode, prefill, step_time

TRACES = ROOT / "lib" / "data" / "vllm"
GENERATED = 7  # the token that the made-up sampler draws, every time
DIGITS = 12
MODEL = {  # the shape of Qwen2.5-7B, from which vLLM makes its own configuration; it loads no weights
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
}


# ------------------------------------------------------------------------------------- vLLM's scheduler


def scheduler(rules: Mapping[str, Any], pulls: bool = False) -> Scheduler:
    """Return vLLM's scheduler under the rules of a trace; `pulls`: prompts' caches come from elsewhere."""
    block = rules["block_tokens"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="bfloat16")
    cache = CacheConfig(block_size=block, enable_prefix_caching=rules["prefix_caching"])
    cache.num_gpu_blocks = rules["kv_blocks"]
    remote = KVTransferConfig(
        kv_connector="Elsewhere", kv_role="kv_both", kv_connector_module_path="elsewhere"
    )
    config = VllmConfig(
        model_config=model,
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=max(rules["token_budget"], rules["max_num_seqs"]),
            max_num_scheduled_tokens=rules["token_budget"],  # vLLM refuses a smaller budget by the other name
            max_num_seqs=rules["max_num_seqs"],
            max_model_len=model.max_model_len,
            long_prefill_token_threshold=rules["long_prefill_token_threshold"],
            async_scheduling=rules["async"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            watermark=0.0,
        ),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=remote if pulls else None,
    )
    attention = FullAttentionSpec(block_size=block, num_kv_heads=4, head_size=128, dtype=torch.bfloat16)
    return (AsyncScheduler if rules["async"] else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=rules["kv_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=block,
    )


def tokens(prompt: Iterable[Sequence[Any]], numbers: dict[str, int]) -> list[int]:
    """Return a prompt's token ids: of a label the first n of its own, of "#7" n generated ones."""
    ids: list[int] = []
    for label, n in prompt:
        first = 1000 + numbers.setdefault(label, len(numbers)) * 1_000_000
        ids += [GENERATED] * n if label == f"#{GENERATED}" else range(first, first + n)
    return ids


def requests(rows: Sequence[Mapping[str, Any]], block: int, outputs: int | None = None) -> list[Request]:
    """Return vLLM's requests; `outputs`: so many tokens of each, in place of its own number."""
    init_none_hash(sha256)
    hasher = get_request_block_hasher(block, sha256)
    numbers: dict[str, int] = {}
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=tokens(row["prompt"], numbers),
            sampling_params=SamplingParams(max_tokens=outputs or row["output_tokens"], ignore_eos=True),
            pooling_params=None,
            arrival_time=row["arrival_s"],
            block_hasher=hasher,
        )
        for number, row in enumerate(rows)
    ]


# ------------------------------------------------------------------------------------- one engine's clock


@dataclass
class Launched:
    """A step that the scheduler has composed and the worker has been given."""

    composed: SchedulerOutput
    start: float
    end: float
    work: dict[str, list[int]]  # request: [new tokens, tokens already computed]
    preempted: list[str]
    received: set[str]  # whose copy the worker finds complete when it launches the step


@dataclass
class Instance:
    """One engine: vLLM's scheduler, a worker that takes the clock's time for a step, and what came of it."""

    scheduler: Scheduler
    transfer_s: float = 0.0
    idle_poll_s: float = 0.0
    pulled: bool = False  # prompts' caches were computed elsewhere
    steps: list[Launched] = field(default_factory=list)
    emitted: dict[str, list[float]] = field(default_factory=dict)
    copies: dict[str, float] = field(default_factory=dict)  # request: when its copy ends
    noticed: set[str] = field(default_factory=set)
    free: float = 0.0  # when the worker has run all it was given

    def play(self, arrivals: Iterable[tuple[float, Request]], depth: int) -> None:
        """Play all requests to their end; `depth`: steps composed before the oldest's output is processed.

        This is the loop of vLLM's `EngineCore.step_with_batch_queue`; depth 1 is that of its `step`.
        """
        coming = deque(sorted(arrivals, key=lambda pair: (pair[0], int(pair[1].request_id))))
        queue: deque[Launched] = deque()
        now = 0.0
        while coming or queue or self.scheduler.has_requests():
            if not queue and not self.scheduler.has_requests():
                now = max(now, coming[0][0])
            while coming and coming[0][0] <= now:
                self.scheduler.add_request(coming.popleft()[1])
            if len(queue) < depth and self.scheduler.has_requests():
                queue.append(self.launch(now))
                if len(queue) < depth:
                    continue
            oldest = queue.popleft()
            now = max(now, oldest.end)
            self.process(oldest, now)
            if not any(step.work or step.received for step in (oldest, *queue)):
                now = self.idle(now, coming)

    def launch(self, now: float) -> Launched:
        """Compose the next step and give it to the worker."""
        composed = self.scheduler.schedule()
        work = {
            name: [n, self.scheduler.requests[name].num_computed_tokens - n]
            for name, n in composed.num_scheduled_tokens.items()
        }
        start = max(now, self.free)
        self.free = start + (self.duration(work) if work else 0.0)
        received = {name for name, end in self.copies.items() if end <= now} - self.noticed
        self.noticed |= received
        for name in getattr(composed.kv_connector_metadata, "loads", ()):
            self.copies[name] = now + self.transfer_s
        preempted = sorted(composed.preempted_req_ids or (), key=int)
        step = Launched(composed, start, self.free, work, preempted, received)
        if work:
            self.steps.append(step)
        return step

    def process(self, step: Launched, now: float) -> None:
        """Give the scheduler a step's output: a token of each request that has computed all it has."""
        names = list(step.work)
        drawn = []
        for name in names:
            request = self.scheduler.requests.get(name)
            whole = request is not None and sum(step.work[name]) >= request.num_tokens
            drawn.append([GENERATED] if whole else [])
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=drawn,
            kv_connector_output=KVConnectorOutput(finished_recving=step.received) if step.received else None,
        )
        for outputs in self.scheduler.update_from_output(step.composed, output).values():
            for one in outputs.outputs:
                self.emitted.setdefault(one.request_id, []).extend([now] * len(one.new_token_ids))

    def idle(self, now: float, coming: Sequence[tuple[float, Request]]) -> float:
        """Return when a worker with nothing to do looks again: at its poll, or the next event if later."""
        events = [end for name, end in self.copies.items() if name not in self.noticed]
        events += [coming[0][0]] if coming else []
        if not events or not self.scheduler.has_unfinished_requests():
            return now
        return max(now + self.idle_poll_s, min(events, default=inf))

    def duration(self, work: Mapping[str, Sequence[int]]) -> float:
        """Return the seconds of a step: an answer's token is a decode, all else a chunk of a prompt."""
        parts, weights = [], 0.0
        for name, (n, past) in work.items():
            prompt = self.scheduler.requests[name].num_prompt_tokens - self.pulled
            single = n == 1 and past >= prompt
            parts.append(decode(QWEN2_5_7B, 1, past + 1) if single else prefill(QWEN2_5_7B, n, past))
            weights = max(weights, parts[-1].weight_bytes)
        total = Work(
            gemm_flops=fsum([part.gemm_flops for part in parts]),
            attention_flops=fsum([part.attention_flops for part in parts]),
            weight_bytes=weights,
            kv_bytes=fsum([part.kv_bytes for part in parts]),
        )
        return step_time(total, L40S, PUBLISHED)


# ------------------------------------------------------------------------------------- traces


def record(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace of a workload: what stands in `inputs`, and what vLLM's scheduler made of it."""
    rules, rows = {"block_tokens": 16} | inputs["scheduler"], inputs["requests"]
    depth = 2 if rules["async"] else 1
    given = {name: inputs[name] for name in INPUTS if name in inputs}
    arrivals = [row["arrival_s"] for row in rows]
    if "transfer_s" not in inputs:
        engine = Instance(scheduler(rules))
        engine.play(zip(arrivals, requests(rows, rules["block_tokens"]), strict=True), depth)
        steps = [[tidy(step.start), tidy(step.end), step.work, step.preempted] for step in engine.steps]
        return given | {"steps": steps, "emitted_s": keyed(engine.emitted)}
    first = Instance(scheduler(rules))
    first.play(zip(arrivals, requests(rows, rules["block_tokens"], outputs=1), strict=True), depth)
    done = {name: times[0] for name, times in first.emitted.items()}
    second = Instance(scheduler(rules, pulls=True), inputs["transfer_s"], inputs["idle_poll_s"], pulled=True)
    queued = [(done[one.request_id], one) for one in requests(rows, rules["block_tokens"])]
    second.play(queued, depth)
    return given | {
        "prefill_done_s": keyed(done),
        "copy_done_s": keyed(second.copies),
        "decode_steps": [
            [tidy(step.start), tidy(step.end), {name: n for name, (n, _) in step.work.items()}]
            for step in second.steps
        ],
        "emitted_s": keyed(second.emitted),
    }


INPUTS = ("name", "about", "source", "scheduler", "clock", "transfer_s", "idle_poll_s", "requests")


def tidy(value: Any) -> Any:
    """Return a time, or a list of times, at the traces' precision."""
    return [tidy(each) for each in value] if isinstance(value, list) else float(f"{value:.{DIGITS}g}")


def keyed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return times by request, in order of their numbers."""
    return {name: tidy(values[name]) for name in sorted(values, key=int)}


def flat(value: Any) -> str:
    """Return JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def written(trace: Mapping[str, Any]) -> str:
    """Return a trace as its file holds it: inputs indented, a step a line."""

    def lines() -> Iterator[str]:
        for name, value in trace.items():
            if name.endswith("steps"):
                yield f' "{name}": [\n' + ",\n".join(f"  {flat(step)}" for step in value) + "\n ]"
            elif name == "emitted_s":
                yield f' "{name}": {flat(value)}'
            else:
                yield f' "{name}": ' + json.dumps(value, indent=1).replace("\n", "\n ")

    return "{\n" + ",\n".join(lines()) + "\n}\n"


def differences(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Return, for each outcome that differs, its name and the first place where it does."""
    found = []
    for name in ours.keys() | stored.keys():
        one, two = ours.get(name), stored.get(name)
        if one == two:
            continue
        both = list(zip(one, two, strict=False)) if isinstance(one, list) and isinstance(two, list) else []
        first = next((pair for pair in both if pair[0] != pair[1]), (one, two))
        found.append(f"{name}: {str(first[0])[:120]} where {str(first[1])[:120]} is stored")
    return sorted(found)


def main() -> int:
    """Record every trace; say which are the stored ones, and write them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="traces whose inputs to play; without any: all")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the new traces into this folder")
    given = parser.parse_args()
    files = given.files or [*sorted(TRACES.glob("*.json")), TRACES / "random.jsonl"]
    print(f"vLLM {vllm.__version__}")
    differ = 0
    for path in files:
        text = path.read_text()
        rows = path.suffix == ".jsonl"
        stored = [json.loads(line) for line in text.splitlines()] if rows else [json.loads(text)]
        traces = [record(one) for one in stored]
        again = "".join(f"{flat(one)}\n" for one in traces) if rows else written(traces[0])
        found = [each for one, two in zip(traces, stored, strict=True) for each in differences(one, two)]
        differ += bool(found)
        same = "the same bytes" if again == text else "the same values"
        print(f"{path.name}: {'; '.join(found[:3]) or same}", flush=True)
        if given.write:
            given.write.mkdir(parents=True, exist_ok=True)
            (given.write / path.name).write_text(again)
    print(f"{len(files) - differ} of {len(files)} as stored")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
