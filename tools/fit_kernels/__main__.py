"""python -m tools.fit_kernels TABLES AITER VIDUR [FILE]: fit every kernel, write the file, print errors."""

import sys
from collections.abc import Iterator
from pathlib import Path

from lib.hardware import A10, GPU, L40S, MI300X

from . import sources
from .fit import Fit, fit

HEAD = """\
# Kernels: what each takes, in seconds to start and in shares of its GPU's data sheet.
# Written by `python -m tools.fit_kernels`, which says from what; not to be edited by hand.
# Errors, |predicted / measured - 1|, are of rows held out: the median, and what nine in ten stay below.
"""
ENGINE = """\
[engine]
cpu_2024_ms = 7.0
cpu_2024_source = "vLLM blog 2024-09-05: 13 ms a token for Llama-3-8B on one H100, vLLM 0.5.3, light load, \
less 6.4 ms of kernels"
front_ms = 23.0
front_source = "first tokens of two sets of silicon_sample.csv in aiconfigurator-core 0.12.0 (gpt-oss-120b \
on H200, Llama-3.1-70B FP8 on H100; 4 streams, prompts of 1,024), less their prefill steps; lent from an \
earlier fit, not refitted here"
render_us_per_token = 1.7
render_source = "15 ms for 9,000 tokens: vLLM's render server, as its guide to disaggregation quotes it"
"""


def micro(seconds: float) -> float:
    """Microseconds, to three digits."""
    return float(f"{seconds * 1e6:.3g}")


def table(gpu: str, kernel: str, **fields: object) -> str:
    """One table of the file."""
    lines = [f'[gpu."{gpu}".{kernel}]']
    for name, value in fields.items():
        if value is not None:
            lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    return "\n".join(lines) + "\n"


def fitted(gpu: str, kernel: str, found: Fit, source: str) -> str:
    """A kernel's constants, with their errors and their source."""
    return table(
        gpu,
        kernel,
        start_us=micro(found.start),
        compute=found.compute,
        bandwidth=found.bandwidth,
        form="sum" if kernel.startswith("gemm") and found.form == "sum" else None,
        rows=found.rows,
        median_error=float(f"{found.median:.3f}"),
        p90_error=float(f"{found.p90:.3f}"),
        source=source,
    )


def not_fitted(tables: Path, vidur: Path, known: dict[tuple[GPU, str], Fit]) -> Iterator[str]:
    """What no row of a kernel table says: found elsewhere, or a guess that says so."""
    for gpu in sources.FOLDERS:
        seconds, source = sources.launch(tables, gpu)
        yield table(gpu.name, "launch", start_us=micro(seconds), source=source)
    rows, source = sources.over_pcie(vidur)
    yield table(
        A10.name,
        "all_reduce_4",
        start_us=micro(known[L40S, "all_reduce_4"].start),
        bandwidth=fit("reading", rows).bandwidth,
        source=source + ": two pairs of A100s, the rate only; the start is that of four L40S in a graph",
    )
    yield table(
        A10.name,
        "all_reduce_2",
        start_us=micro(known[L40S, "all_reduce_2"].start),
        bandwidth=known[L40S, "all_reduce_2"].bandwidth,
        source="the L40S's, over the same bus: aiconfigurator-core 0.12.0, l40s/comm/vllm/0.22.0",
    )
    yield table(
        A10.name,
        "gemm_bf16",
        start_us=micro(known[sources.A40, "gemm_bf16"].start),
        compute=0.5,
        bandwidth=known[sources.A40, "gemm_bf16"].bandwidth,
        source="modula-systems/modula, pull request 1: a training reaches 43.46 % of an A10's 125 TFLOP/s in "
        "all (karpathy/llm.c, pull request 621: 43.4 %, or 22.5 % at the boost clock); start and bandwidth: "
        "the A40's",
        late="half of the peak, chosen after figures of A10s in the book were seen to come out too fast; the "
        "A40's table says 0.74",
    )
    for degree in (2, 4, 8):
        yield table(
            MI300X.name,
            f"all_reduce_{degree}",
            start_us=10.0,
            bandwidth=0.68,
            source="AMD's validation guide for the MI300X: 304 GB/s on eight, of 448; not looked up again",
            guess="the start; and that two and four GPUs reach the same share of the links between them",
        )
    for degree in (2, 4, 8, 16, 32):
        ratio, count, source = sources.uneven(tables, degree)
        yield f'[uneven."{degree}"]\nfactor = {ratio:.3g}\nrows = {count}\nsource = "{source}"\n'
    yield ENGINE


def main() -> None:
    """Fit, print and write."""
    tables, aiter, vidur = (Path(name) for name in sys.argv[1:4])
    file = Path(sys.argv[4] if len(sys.argv) > 4 else "lib/data/kernels.toml")
    parts, known = [HEAD], {}
    print("| GPU | kernel | rows | start, shares | median error | 90 % |\n|---|---|---|---|---|---|")
    for gpu, kernel, form, rows, source in sources.entries(tables, aiter, vidur):
        known[gpu, kernel] = found = fit(form, rows)
        shares = ", ".join(str(share) for share in (found.compute, found.bandwidth) if share is not None)
        print(
            f"| {gpu.name} | {kernel} | {found.rows} | {found.start * 1e6:.3g} us, {shares} "
            f"| {found.median:.1%} | {found.p90:.1%} |"
        )
        parts.append(fitted(gpu.name, kernel, found, source))
    parts += not_fitted(tables, vidur, known)
    file.write_text("\n".join(parts), encoding="utf8")


if __name__ == "__main__":
    main()
