"""The simulator beside peers from PyPI, on the same requests: 8,192 -> 256 tokens at 1 req/s on two L40S.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install -r benchmarks/peers.txt
    PYTHONPATH=. /tmp/peers/bin/python benchmarks/peers.py

The peers are no dependency of the book: they live in a virtual environment of their own. Requests per second
of CPU time of one core, garbage collection off for everybody, the best of three. The medians stand beside the
speeds: they differ a little because the models do. (`sched-sim` prices a step by the number of parameters and
counts no arithmetic of attention.)

What else was tried is written in `peers.txt`.
"""

from importlib.metadata import version

from simulator import cost, plain

from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.roofline import PUBLISHED
from lib.scheduler import textbook, vllm
from lib.simulator import Collocated, Engine, percentile, simulate
from lib.workload import poisson

COUNT = 1_000
REQUESTS = poisson(1, COUNT, 0)


def sched_sim():
    """Medians of TTFT and of the mean gap from sched-sim: one simulation a GPU, requests in turn."""
    from sched_sim.core.event_engine import Simulator
    from sched_sim.core.request import Request
    from sched_sim.hardware.latency_model import RooflineLatencyModel
    from sched_sim.hardware.profile import HardwareProfile
    from sched_sim.memory.block_manager import BlockManager
    from sched_sim.memory.preemption import PreemptionHandler, PreemptionMode
    from sched_sim.schedulers.chunked import ChunkedPrefillScheduler

    model = QWEN2_5_7B
    hardware = HardwareProfile(
        name="L40S",
        vram_gb=L40S.memory / 1e9,
        memory_bandwidth_gb_s=L40S.bandwidth * PUBLISHED.bandwidth / 1e9,
        fp16_tflops=L40S.peak_flops / 1e12,
        tensor_core_efficiency=PUBLISHED.compute,
        kernel_launch_overhead_ms=1000 * PUBLISHED.overhead,
        parameter_count_billions=model.params / 1e9,
        num_layers=model.layers,
        hidden_size=model.d_model,
        num_heads=model.heads,
        num_kv_heads=model.kv_heads,
        head_dim=model.head_dim,
    )
    ttft, tpot = [], []
    for engine in (0, 1):
        latency, blocks = RooflineLatencyModel(hardware), BlockManager(hardware)
        preemption = PreemptionHandler(blocks, latency, PreemptionMode.RECOMPUTE)
        scheduler = ChunkedPrefillScheduler(blocks, latency, preemption, 256, 2048)
        simulator = Simulator(hardware, scheduler)
        mine = [
            Request(request_id=str(row), arrived_at=r.arrival, prompt_tokens=8192, output_tokens=256)
            for row, r in enumerate(REQUESTS)
            if row % 2 == engine
        ]
        simulator.submit_workload(mine)
        simulator.run()
        ttft += [r.first_token_at - r.arrived_at for r in mine]
        tpot += [(r.completed_at - r.first_token_at) / r.output_tokens for r in mine]
    return percentile(ttft, 50), percentile(tpot, 50)


def ours(policy):
    """The same from this simulator."""
    asynchronous = {"asynchronous": True} if policy is vllm else {}
    engine = Engine(QWEN2_5_7B, L40S, policy=policy, **asynchronous)
    trace = simulate(REQUESTS, Collocated(engine, 2))
    return percentile(trace.ttft, 50), percentile(trace.tpot, 50)


def main():
    rows = {
        "plain loop, textbook rules": lambda: plain(REQUESTS, 2),
        "this simulator, textbook rules": lambda: ours(textbook),
        "this simulator, vLLM's rules": lambda: ours(vllm),
        f"sched-sim {version('sched-sim')}": sched_sim,
    }
    print(f"{'':<36}{'req/s':>10}{'TTFT, s':>10}{'a token, ms':>13}")
    for name, play in rows.items():
        seconds, answer = cost(play)
        medians = f"{answer[0]:>10.3f}{1000 * answer[1]:>13.1f}" if isinstance(answer, tuple) else ""
        print(f"{name:<36}{COUNT / seconds:>10,.0f}{medians}", flush=True)


if __name__ == "__main__":
    main()
