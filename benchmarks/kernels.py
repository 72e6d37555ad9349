"""How long it takes to price a step kernel by kernel.

    python benchmarks/kernels.py

Microseconds of CPU time of one core for one step, the best of five times a thousand: its seconds, and all of
its kernels one by one. A step of Llama-3.1-70B should stay below 30.
"""

import time

from lib.hardware import H100_SXM
from lib.kernels import Steps
from lib.models import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_1_70B, NEMOTRON_3_NANO

STEPS = {
    "32 answers": ((), 32, 32 * 4096),
    "a prompt and 32 answers": (((2048, 2048),), 32, 32 * 4096),
}


def microseconds(call, step, times):
    """Of one call, the best of five rounds."""
    rounds = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(times):
            call(*step)
        rounds.append((time.process_time() - begin) / times)
    return min(rounds) * 1e6


def main():
    for model in (LLAMA_3_1_70B, GPT_OSS_120B, DEEPSEEK_V3, NEMOTRON_3_NANO):
        steps = Steps(model, H100_SXM, 4)
        for name, step in STEPS.items():
            fast, each = microseconds(steps.seconds, step, 1000), microseconds(steps.kernels, step, 200)
            print(f"{model.name}, {name}: {fast:.1f} us, kernel by kernel {each:.1f} us")


if __name__ == "__main__":
    main()
