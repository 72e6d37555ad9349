"""How fast the simulator is, beside a plain loop over the same requests.

    python benchmarks/simulator.py            # up to 100,000 requests, a few minutes
    python benchmarks/simulator.py --million  # one row more

The yardstick is `plain`: one step after the other, the textbook's rules, every decode at the price of one
fixed context, nothing computed but the time of every token. Requests per second of CPU time of one core,
garbage collection off for everybody; the best of three. Machines differ and are noisy: read the ratios.
"""

import argparse
import gc
import resource
import time
from collections import deque
from dataclasses import replace

from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.roofline import PUBLISHED
from lib.scheduler import vllm
from lib.simulator import Collocated, Engine, percentile, simulate
from lib.workload import poisson

REAL = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)


def plain(requests, engines, budget=2048, context=8192 + 128):
    """Token times of every request, one step after the other."""
    model = QWEN2_5_7B
    params, head, pair = model.layer_params, model.head_params, model.flops_per_pair
    weights, cache = model.streamed_bytes, model.kv_bytes_per_token * context
    rate, bandwidth = L40S.peak_flops * PUBLISHED.compute, L40S.bandwidth * PUBLISHED.bandwidth

    def seconds(decodes, tokens, past):
        flops = decodes * (2 * (params + head) + pair * context)
        if tokens:
            flops += 2 * params * tokens + 2 * head + pair * tokens * (2 * past + tokens + 1) / 2
        return max(flops / rate, (weights + decodes * cache) / bandwidth) + PUBLISHED.overhead

    times = [[] for _ in requests]
    for engine in range(engines):
        coming = deque(
            (request.arrival, row) for row, request in enumerate(requests) if row % engines == engine
        )
        waiting, decoding, now = deque(), [], 0.0
        while coming or waiting or decoding:
            while coming and coming[0][0] <= now:
                waiting.append([coming.popleft()[1], 0])
            if not waiting and not decoding:
                now = coming[0][0]
                continue
            tokens = past = 0
            if waiting:
                row, past = waiting[0]
                tokens = min(budget - len(decoding), requests[row].prompt - past)
            now += seconds(len(decoding), tokens, past)
            for stream in decoding:
                times[stream].append(now)
            decoding = [stream for stream in decoding if len(times[stream]) < requests[stream].output_tokens]
            if tokens:
                waiting[0][1] += tokens
                if past + tokens == requests[row].prompt:
                    waiting.popleft()
                    times[row].append(now)
                    decoding.append(row)
    return times


def percentiles(trace):
    """Everything that a table of latencies shows; ITL both pooled and, its 99th percentile, per request."""
    found = [trace.itl(q) for q in (50, 90, 99)]
    for column in (trace.worst_gap, trace.ttft, trace.tpot, trace.e2e):
        ordered = sorted(column)
        found += [percentile(ordered, q) for q in (50, 90, 99)]
    return found


def cost(work, repeats=3):
    """Best CPU seconds of a call, and what it returned."""
    best, result = float("inf"), None
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
        gc.enable()
    return best, result


def row(name, requests, deployment, yardstick, obvious=0):
    """One line: requests per second, the ratio to the yardstick, and with percentiles."""
    count, repeats = len(requests), 5 if len(requests) <= 20_000 else 1
    alone = tables = float("inf")
    for _ in range(repeats):
        seconds, trace = cost(lambda: simulate(requests, deployment), 1)
        alone = min(alone, seconds)
        tables = min(tables, cost(lambda trace=trace: percentiles(trace), 1)[0])
    ratio, all_in = (yardstick * alone / count) ** -1, (yardstick * (alone + tables) / count) ** -1
    line = f"{name:<44}{count / alone:>10,.0f}{ratio:>8.1f}{all_in:>8.1f}"
    if obvious:
        slow, _ = cost(lambda: simulate(requests[:obvious], deployment, jump=False), 1)
        line += f"{(slow / obvious) / (alone / count):>10.1f}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{line:<82}{peak:>8,.0f}", flush=True)


def conversations(count, seed):
    """Requests that share a system prompt of 4,096 tokens and bring 500 of their own."""
    return [
        replace(request, prompt=(("system", 4096), (f"user {i}", 500)))
        for i, request in enumerate(poisson(2, count, seed, output_tokens=100))
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", action="store_true", help="simulate a million requests as well")
    parser.add_argument("--quick", action="store_true", help="leave out all rows above 10,000 requests")
    options = parser.parse_args()
    two = Collocated(REAL, 2)
    requests = poisson(1, 10_000, 0)
    seconds, _ = cost(lambda: plain(requests, 2))
    yardstick = len(requests) / seconds  # requests per second
    print("vLLM's rules, asynchronous, true contexts; 8,192 -> 256 tokens where nothing is said\n")
    print(f"{'':<44}{'req/s':>10}{'x plain':>8}{'+ perc.':>8}{'x obvious':>10}  {'MB peak':>8}")
    print(f"{'the plain loop, 1 req/s on 2 GPUs':<44}{yardstick:>10,.0f}{1:>8.1f}")
    for count in (1_000, 10_000, 100_000, 1_000_000):
        if count <= 10_000 or (count == 100_000 and not options.quick) or options.million:
            name = f"{count:,} requests, 1 req/s on 2 GPUs"
            row(name, poisson(1, count, 0), two, yardstick, obvious=300 if count == 10_000 else 0)
    row("10,000, overload: 2 req/s", poisson(2, 10_000, 0), two, yardstick, 300)
    row("10,000, 500 -> 100 at 20 req/s", poisson(20, 10_000, 0, 500, 100), two, yardstick, 1000)
    tight = Collocated(replace(REAL, kv_blocks=1200), 2)
    row("2,000, 1,200 blocks of cache", poisson(1, 2_000, 0), tight, yardstick, 300)
    cached = Collocated(replace(REAL, prefix_caching=True), 2)
    row("1,000, prefix caching, 4,596 -> 100, 2 req/s", conversations(1_000, 0), cached, yardstick, 300)


if __name__ == "__main__":
    main()
