"""Write lib/data/measurements/silicon-sample.toml from a table of the package aiconfigurator-core 0.12.0.

    pip download --no-deps aiconfigurator-core==0.12.0
    unzip -j aiconfigurator_core-*.whl '*/silicon_sample.csv'
    python tools/silicon_sample.py silicon_sample.csv

The rule, which looks at no prediction: rows of the file's dated dumps (by their fields of InferenceX, whose
scripts are public and say what `BY_SCRIPT` holds, ten requests a stream, and lengths drawn evenly from 0.8 to
all of those given); one pool under vLLM, neither attention nor experts spread in another way than by tensor
parallelism; prompts of 1,024 or 8,192 tokens and answers of 1,024; and of rows for the same point the one
measured last. Of the SETS below all of 4 to 64 streams; of the OTHERS 4, 16 and 64.
"""

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

STREAMS = (4, 8, 16, 32, 64)
MODELS = {
    "openai/gpt-oss-120b": ("gpt-oss-120b", "fp4", "mxfp4"),
    "meta-llama/Llama-3.1-70B": ("Llama-3.1-70B", "fp8", "fp8"),
    "MiniMaxAI/MiniMax-M2.5": ("MiniMax-M2.5", "fp8", "fp8"),
}
GPUS = {"h100_sxm": "H100 SXM", "h200_sxm": "H200", "b200_sxm": "B200"}
SETS = {  # whole series, and whether a first token of theirs gave the seconds of a front
    ("gpt-oss-120b", "H200"): True,
    ("Llama-3.1-70B", "H100 SXM"): True,
    ("MiniMax-M2.5", "H200"): False,
}
OTHERS = [
    ("gpt-oss-120b", "H100 SXM"),
    ("gpt-oss-120b", "B200"),
    ("Llama-3.1-70B", "H200"),
    ("Llama-3.1-70B", "B200"),
]
HEAD = """# The form of this file: lib/measurements.py. Rows chosen, and written, by tools/silicon_sample.py.
# Lengths, requests, budgets, type of the cache: InferenceX's scripts, whose runs these are by all fields.

[source]
id = "silicon-sample"
title = "NVIDIA aiconfigurator-core 0.12.0 (PyPI, Apache-2.0), systems/silicon_sample.csv"
address = "https://pypi.org/project/aiconfigurator-core/0.12.0/"
published = "2026"
seen = 2026-12-01
"""
MXFP4 = {"H100 SXM": "marlin", "H200": "marlin", "B200": "fp8"}  # by the scripts for gpt-oss-120b, since
# January 2026: VLLM_MXFP4_USE_MARLIN=1, and VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1
BY_SCRIPT = {  # benchmarks/*.sh of SemiAnalysisAI/InferenceX at the time: token budget, type of the cache
    ("gpt-oss-120b", "H100 SXM"): (8192, "bf16"),
    ("gpt-oss-120b", "H200"): (8192, "bf16"),
    ("gpt-oss-120b", "B200"): (8192, "fp8"),
    ("Llama-3.1-70B", "H100 SXM"): (8192, "fp8"),
    ("Llama-3.1-70B", "H200"): (8192, "fp8"),
    ("Llama-3.1-70B", "B200"): (8192, "fp8"),
}


def told(row: dict[str, str], key: str) -> str:
    """Return what a row's field about its origin says under a key."""
    found = re.search(rf"{key}=([^;T]+)", row["silicon_data_source"])
    return found[1].strip() if found else ""


def points(rows: list[dict[str, str]]) -> dict[tuple, dict[int, dict[str, str]]]:
    """Return (model, GPU, prompt, degree) -> streams -> the row measured last."""
    found: dict[tuple, dict[int, dict[str, str]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (told(row, "measured"), row["id"])):
        model, theirs, _ = MODELS.get(row["model_path"], ("", "", ""))
        dump = re.match(r"source_file=\d{4}-\d\d-\d\d\.csv|db-dump", row["silicon_data_source"])
        plain = row["attention_dp_size"] == "1" and row["moe_ep_size"] in ("", "1") and row["pp_size"] == "1"
        fits = row["osl"] == "1024" and row["isl"] in ("1024", "8192") and row["precision"] == theirs
        if (
            dump
            and plain
            and fits
            and row["backend"] == "vllm"
            and row["mode"] == "agg"
            and row["system"] in GPUS
        ):
            key = (model, GPUS[row["system"]], int(row["isl"]), int(row["tp_size"]))
            found[key][int(told(row, "silicon_concurrency"))] = row
    return found


def measurement(key: tuple, series: dict[int, dict[str, str]], gave: bool) -> str:
    """Return a measurement in TOML: a series over the streams."""
    model, gpu, prompt, degree = key
    precision = next(ours for name, _, ours in MODELS.values() if name == model)
    rows = [series[streams] for streams in sorted(series)]
    versions = [row["backend_version"] or "unknown" for row in rows]
    numbers = {
        name: [f"{float(row[column]):.4g}" for row in rows]
        for name, column in (("ttft_mean_ms", "silicon_ttft_ms"), ("tpot_mean_ms", "silicon_tpot_ms"))
    }
    lines = [
        f'id = "silicon-sample-{model.lower()}-{gpu.split()[0].lower()}-tp{degree}-{prompt}"',
        f'locator = "the row {rows[0]["id"]}, and those with other streams"',
        f'model = "{model}"',
        f'precision = "{precision}"',
        f'gpu = "{gpu}"',
        'engine = "vLLM"',
        f"version = {quoted(versions)}",
        f"tensor_parallel = {degree}",
        f"prompt_tokens = {{ max = {prompt}, share = 0.8 }}",
        "output_tokens = { max = 1024, share = 0.8 }",
        f"streams = [{', '.join(map(str, sorted(series)))}]",
        f"requests = [{', '.join(str(10 * streams) for streams in sorted(series))}]",
        *(f"{name} = [{', '.join(plain(number) for number in column)}]" for name, column in numbers.items()),
    ]
    if (model, gpu) in BY_SCRIPT:
        budget, cached = BY_SCRIPT[model, gpu]
        lines.append(f"token_budget = {budget}")
        lines += ['cache_precision = "fp8"'] if cached == "fp8" else []
    if model == "gpt-oss-120b":
        lines += [f'mxfp4 = "{MXFP4[gpu]}"', 'chosen_late = ["mxfp4"]']
    if gave and prompt == 1024:
        lines.append('constant = ["ttft_mean_ms/0"]')
    return "\n[[measurement]]\n" + "\n".join(lines) + "\n"


def quoted(words: list[str]) -> str:
    """Return one string, or a list of strings where they differ."""
    return f'"{words[0]}"' if len(set(words)) == 1 else "[" + ", ".join(f'"{word}"' for word in words) + "]"


def plain(number: str) -> str:
    """Return four digits without an exponent."""
    return f"{float(number):.0f}" if "e" in number else number


def main(path: str) -> None:
    """Write the file."""
    with open(path, newline="") as file:
        found = points(list(csv.DictReader(file)))
    blocks = []
    for chosen, streams in ((SETS, STREAMS), (OTHERS, (4, 16, 64))):
        for model, gpu in chosen:
            for key in sorted(key for key in found if key[:2] == (model, gpu)):
                series = {n: row for n, row in found[key].items() if n in streams}
                if series:
                    blocks.append(measurement(key, series, SETS.get((model, gpu), False)))
    target = Path(__file__).parent.parent / "lib/data/measurements/silicon-sample.toml"
    target.write_text(HEAD + "".join(blocks))


if __name__ == "__main__":
    main(sys.argv[1])
