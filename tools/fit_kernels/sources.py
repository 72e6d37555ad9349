"""The tables, row by row: what a timed kernel computes and moves, by the counts of `lib.kernels`."""

import csv
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lib import kernels
from lib.hardware import A100_80GB, B200, B300, GPU, H100_SXM, H200, L40S, MI300X, RTX_PRO_6000

from .fit import Column, Rows

A40 = GPU("A40", 149.7e12, 696e9, 48e9, source="NVIDIA A40 datasheet: 149.7 TFLOP/s dense, 696 GB/s")
FOLDERS = {
    L40S: "l40s",
    A100_80GB: "a100_sxm",
    H100_SXM: "h100_sxm",
    H200: "h200_sxm",
    B200: "b200_sxm",
    B300: "b300_sxm",
    RTX_PRO_6000: "rtx_pro_6000_server",
}
L2 = {L40S: 96e6, A100_80GB: 40e6, H100_SXM: 50e6, H200: 50e6, B200: 126e6, B300: 126e6}  # bytes
L2[RTX_PRO_6000] = 128e6
TINY = 1e-6  # seconds at full bandwidth: so short a read does not matter beside the start
TILE = 16  # half of the larger token counts are one beyond a multiple: a tile nearly empty, on purpose
SMALLEST = 1024  # matrices of a model's layers are not smaller than that on either side
REDUCES = {
    L40S: "0.22.0",
    A100_80GB: "0.14.0",
}  # vLLM's version in the table of all-reduces, where not 0.24.0
Entry = tuple[GPU, str, str, Rows, str]  # GPU, kernel, form, rows, table
WEIGHT = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int4_wo": (4 + 16 / 128) / 8}  # bytes, with scales
WEIGHT |= dict.fromkeys(("w4a16_mxfp4", "w4a8_mxfp4_mxfp8"), (4 + 8 / 32) / 8) | {"nvfp4": (4 + 8 / 16) / 8}
NAMES = {"bfloat16": "bf16", "int4_wo": "int4", "w4a16_mxfp4": "mxfp4", "nvfp4": "fp4"}
NAMES |= {"w4a8_mxfp4_mxfp8": "mxfp4_fp8", "marlin": "mxfp4_marlin"}


def entries(tables: Path, aiter: Path, vidur: Path) -> Iterator[Entry]:
    """Every kernel that has rows."""
    for gpu in FOLDERS:
        yield from gemms(tables, gpu)
        yield from attention(tables, gpu)
        yield from latent_attention(tables, gpu)
        yield from experts(tables, gpu)
        yield from states(tables, gpu)
        yield from all_reduces(tables, gpu)
    yield from tuned(aiter)
    yield from profiled(vidur)


def read(tables: Path, gpu: GPU, path: str) -> tuple[dict[str, Any], str]:
    """A table's columns, whole numbers as floats, and its name."""
    import pyarrow.parquet as parquet  # only here: the tests of the fit do without

    (file,) = tables.glob(f"aiconfigurator_core/systems/data/{FOLDERS[gpu]}/{path}.parquet")
    table = parquet.read_table(file)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    numbers = {name: column.astype(float) for name, column in columns.items() if column.dtype.kind in "iuf"}
    return columns | numbers, f"aiconfigurator-core 0.12.0, {FOLDERS[gpu]}/{path}"


def chosen(columns: dict[str, Any], choice: Any) -> dict[str, Any]:
    """The rows that are chosen, in the table's order."""
    return {name: column[choice] for name, column in columns.items()}


def rows(gpu: GPU, work: tuple[Column, Column], seconds: Column, kernel: str = "") -> Rows:
    """What the work would take at the data sheet's rates, beside what it took."""
    flops, nbytes = work
    return Rows(flops / kernels.peak(gpu, kernel), nbytes / gpu.bandwidth, seconds)


def gemms(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """Matrix products under vLLM; in FP8 by blocks under SGLang or TensorRT-LLM.

    (vLLM's were timed without a graph, so that every row holds the start of several kernels from Python.) In
    bf16 a product takes the longer of computing and reading. In narrower types it computes twice as fast and
    more, and reading no longer hides behind that: the form is the one that fits its rows better.
    """
    old = gpu is A100_80GB
    files = {"bfloat16": "gemm/vllm/" + ("0.14.0" if old else "0.24.0")}
    if old:
        files["int4_wo"] = "gemm/trtllm/1.0.0"
    else:
        files["fp8"] = files["bfloat16"]
        files["fp8_block"] = "gemm/trtllm/1.3.0rc20" if gpu in (L40S, RTX_PRO_6000) else "gemm/sglang/0.5.14"
        if gpu in (B200, B300):
            files["nvfp4"] = files["bfloat16"]
    for kind, file in files.items():
        table, name = read(tables, gpu, file + "/gemm_perf")
        fits = (table["gemm_dtype"] == kind) & (table["n"] >= SMALLEST) & (table["k"] >= SMALLEST)
        fits &= (table["m"] % TILE == 0) | (table["m"] < TILE)
        row = chosen(table, fits)
        kernel = f"gemm_{NAMES.get(kind, kind)}"
        work = kernels.product(row["m"], row["k"], row["n"], WEIGHT[kind], kernels.input_bytes(kernel))
        form = "max" if kind == "bfloat16" else "either"
        yield gpu, kernel, form, rows(gpu, work, row["latency"] / 1e3, kernel), name


def attention(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """Attention with heads, bf16, no window: prompts of 64 tokens on, answers after 127 tokens or more."""
    folder = "attention/vllm/" + ("0.14.0" if gpu is A100_80GB else "0.24.0")
    table, name = read(tables, gpu, folder + "/context_attention_perf")
    for width in (64, 128):
        fits = whole(table) & (table["head_dim"] == width)
        row = chosen(table, fits & (table["isl"] >= 64) & (table["batch_size"] <= 32))
        if len(row["isl"]):
            heads, kv_heads = row["num_heads"], key_heads(row)
            streams, tokens = row["batch_size"], row["isl"]
            pairs = streams * tokens * (tokens + 1) / 2
            every = streams * tokens
            work = kernels.prompt_attention(pairs, every, every, heads, kv_heads, 2 * width)
            yield gpu, f"prompt_attention_{width}", "sum", rows(gpu, work, row["latency"] / 1e3), name
    table, name = read(tables, gpu, folder + "/generation_attention_perf")
    width = table["head_dim"]
    row = chosen(table, whole(table) & ((width == 64) | (width == 128)) & (table["step"] >= 127))
    nbytes = row["batch_size"] * (row["step"] + 1) * 2 * key_heads(row) * row["head_dim"] * 2
    seen = from_memory(gpu, 0 * nbytes, nbytes, row["latency"] / 1e3)
    yield gpu, "answer_attention", "reading", seen, name


def from_memory(gpu: GPU, flops: Column, nbytes: Column, seconds: Column) -> Rows:
    """Only rows that read from memory, or next to nothing.

    A benchmark reads the same cache again and again: what fits into the L2 stays there, and an L40S then
    reads 2.5 times as fast as its memory can. A step's layers take turns, and find nothing of theirs in it.
    """
    fits = (nbytes > 1.5 * L2[gpu]) | (nbytes / gpu.bandwidth < TINY)
    return rows(gpu, (flops[fits], nbytes[fits]), seconds[fits])


def whole(table: dict[str, Any]) -> Any:
    """Which rows look back at everything, at a cache in bf16."""
    window = table.get("window_size", np.zeros(len(table["latency"])))
    return (table["kv_cache_dtype"] == "bfloat16") & (window == 0)


def key_heads(row: dict[str, Any]) -> Column:
    """Heads of keys and values; 0 in the table stands for as many as of queries."""
    heads: Column = np.where(row["num_key_value_heads"] == 0, row["num_heads"], row["num_key_value_heads"])
    return heads


def latent_attention(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """MLA of DeepSeek-V3: prompts with keys of 192 and values of 128, answers on latents of 576 and 512."""
    if gpu in (L40S, A100_80GB, RTX_PRO_6000):  # few rows, or of a kernel that is ten times off: they borrow
        return
    table, name = read(tables, gpu, "mla/trtllm/1.3.0rc20/context_mla_perf")
    fits = (table["kv_cache_dtype"] == "bfloat16") & (table["isl"] >= 64) & (table["batch_size"] <= 32)
    row = chosen(table, fits)
    streams, tokens, heads = row["batch_size"], row["isl"], row["num_heads"]
    work = kernels.prompt_attention(
        streams * tokens * (tokens + 1) / 2, streams * tokens, streams * tokens, heads, heads, 192 + 128
    )
    yield gpu, "prompt_attention_latent", "sum", rows(gpu, work, row["latency"] / 1e3), name
    table, name = read(tables, gpu, "mla/sglang/0.5.14/generation_mla_perf")
    row = chosen(table, (table["kv_cache_dtype"] == "bfloat16") & (table["step"] >= 127))
    contexts = row["batch_size"] * (row["step"] + 1)
    flops = 2 * contexts * row["num_heads"] * (576 + 512)
    seen = from_memory(gpu, flops, contexts * 576 * 2, row["latency"] / 1e3)
    yield gpu, "answer_attention_latent", "max", seen, name


def experts(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """Fused experts on one GPU, or its share of their width, tokens spread unevenly (a power law of 1.01).

    In MXFP4 rows of gpt-oss's own kernel; and apart from them those of Marlin's kernels, which widen weights
    of four bits, in MXFP4 and in whole numbers: a table has one model's of each.
    """
    old = gpu is A100_80GB
    table, name = read(tables, gpu, f"moe/vllm/{'0.14.0' if old else '0.24.0'}/moe_perf")
    own = np.array(["gptoss" in source for source in table["kernel_source"]])
    marlin = np.array(["marlin" in source for source in table["kernel_source"]]) & ~own
    each = np.array([WEIGHT.get(dtype, 0.0) for dtype in table["moe_dtype"]])
    for kind in ("bfloat16", "fp8_block", "w4a16_mxfp4", "marlin", "w4a8_mxfp4_mxfp8", "nvfp4"):
        width = table["inter_size"] / table["moe_tp_size"]
        fits = marlin if kind == "marlin" else (table["moe_dtype"] == kind) & ~marlin
        fits = fits & (table["moe_ep_size"] == 1) & (width >= 128)
        fits &= table["distribution"] == "power_law_1.01"
        row = chosen(table, fits)
        if not len(row["topk"]):
            continue
        count, visits = row["num_experts"], row["topk"]
        visited = count * (1 - (1 - visits / count) ** row["num_tokens"])
        work = kernels.experts(
            row["num_tokens"], visited, visits, row["hidden_size"], width[fits], 3, each[fits]
        )
        kernel = f"experts_{NAMES.get(kind, kind)}"
        yield gpu, kernel, "sum", rows(gpu, work, row["latency"] / 1e3, kernel), name


def states(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """States of a gated delta rule, of 4 bytes a value, read and written once for every answer's token."""
    engine = "sglang/0.5.10" if gpu is A100_80GB else "vllm/0.24.0"
    table, name = read(tables, gpu, f"linear_attention/{engine}/gdn_perf")
    recurrent = np.array(["recurrent" in source for source in table["kernel_source"]])
    row = chosen(table, recurrent & (table["phase"] == "generation"))
    nbytes = 2 * row["batch_size"] * row["num_v_heads"] * row["head_k_dim"] * row["head_v_dim"] * 4
    yield gpu, "states", "reading", from_memory(gpu, 0 * nbytes, nbytes, row["latency"] / 1e3), name


def all_reduces(tables: Path, gpu: GPU) -> Iterator[Entry]:
    """All-reduces in a recorded graph, up to 128 MiB. `message_size` counts elements, of two bytes each."""
    table, name = read(tables, gpu, f"comm/vllm/{REDUCES.get(gpu, '0.24.0')}/custom_allreduce_perf")
    for degree in (2, 4, 8):
        fits = (table["backend"] == "vllm_graph") & (table["num_gpus"] == degree)
        row = chosen(table, fits & (table["message_size"] <= 2**26))
        order = np.argsort(row["message_size"])
        nbytes = 2 * (degree - 1) / degree * 2 * row["message_size"][order]
        reading = nbytes / kernels.fabric(gpu, degree)
        measured = Rows(0 * reading, reading, row["latency"][order] / 1e3)
        yield gpu, f"all_reduce_{degree}", "reading", measured, name


def launch(tables: Path, gpu: GPU) -> tuple[float, str]:
    """Seconds to start one kernel from Python: an eager all-reduce of a few bytes between two GPUs."""
    table, name = read(tables, gpu, f"comm/vllm/{REDUCES.get(gpu, '0.24.0')}/custom_allreduce_perf")
    fits = (table["backend"] == "vllm_eager") & (table["num_gpus"] == 2) & (table["message_size"] <= 4096)
    return float(np.median(table["latency"][fits])) / 1e3, name


def uneven(tables: Path, degree: int) -> tuple[float, int, str]:
    """How much longer experts take on the fullest of so many GPUs than if tokens were spread evenly.

    A power law of 1.2 over balanced, the median over shapes in the H200's table and 4,096 tokens or more,
    where arithmetic decides.
    """
    table, name = read(tables, H200, "moe/vllm/0.24.0/moe_perf")
    fits = (table["num_tokens"] >= 4096) & (table["moe_ep_size"] == degree) & (table["moe_tp_size"] == 1)
    keys = ("kernel_source", "moe_dtype", "hidden_size", "inter_size", "topk", "num_experts", "num_tokens")
    seconds: dict[Any, dict[Any, float]] = {"balanced": {}, "power_law_1.2": {}, "power_law_1.01": {}}
    for place in np.flatnonzero(fits):
        shape = tuple([table[key][place] for key in keys])
        seconds[table["distribution"][place]][shape] = float(table["latency"][place])
    even, skewed = seconds["balanced"], seconds["power_law_1.2"]
    ratios = [skewed[shape] / even[shape] for shape in even if shape in skewed]
    return float(np.median(ratios)), len(ratios), name


def committed(clone: Path, path: str) -> list[dict[str, str]]:
    """The rows of a CSV at a clone's head; the clone may be bare."""
    text = subprocess.run(
        ["git", "-C", str(clone), "show", f"HEAD:{path}"], capture_output=True, text=True, check=True
    ).stdout
    return list(csv.DictReader(io.StringIO(text)))


def head(clone: Path) -> str:
    """The commit of a clone's head."""
    command = ["git", "-C", str(clone), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def column(rows: list[dict[str, str]], name: str) -> Column:
    """A column of numbers."""
    return np.array([float(row[name]) for row in rows])


TUNED_GEMMS = ("qwen36_27b", "qwen3_vl_32b", "qwen3_vl_235b", "glm5_1", "ds_v3")
TUNED_EXPERTS = {
    "experts_fp8_block": (
        "a8w8_blockscale_tuned_fmoe_glm5_1",
        "a8w8_blockscale_tuned_fmoe_ds_v3",
        "mimo_v2_5_pro_tuned_fmoe",
    ),
    "experts_bf16": ("qwen3_235b_bf16_tuned_fmoe",),
}


def tuned(aiter: Path) -> Iterator[Entry]:
    """The MI300X (304 compute units): the best kernels that AITER's authors found, in FP8 and bf16.

    Their matrices fit into its last cache of 256 MB and were read from there, so that what is read hides
    nothing: the sum fits, and the larger of both does not know a bandwidth.
    """
    folder, version = "aiter/configs/model_configs", f"ROCm/aiter {head(aiter)}"
    found = []
    for name in TUNED_GEMMS:
        found += committed(aiter, f"{folder}/a8w8_blockscale_tuned_gemm_{name}.csv")
    row = [one for one in found if one["gfx"] == "gfx942" and one["cu_num"] == "304"]
    work = kernels.product(column(row, "M"), column(row, "K"), column(row, "N"), 1, 1)
    source = f"{version}, {folder}/a8w8_blockscale_tuned_gemm_*.csv"
    yield (
        MI300X,
        "gemm_fp8_block",
        "sum",
        rows(MI300X, work, column(row, "us") / 1e6, "gemm_fp8_block"),
        source,
    )
    for kernel, names in TUNED_EXPERTS.items():
        row = [one for name in names for one in committed(aiter, f"{folder}/{name}.csv")]
        row = [one for one in row if one["cu_num"] == "304" and float(one["us"]) > 0]
        tokens, count, visits = (column(row, name) for name in ("token", "expert", "topk"))
        visited = count * (1 - (1 - visits / count) ** tokens)
        each = 1 if kernel == "experts_fp8_block" else 2
        hidden, width = column(row, "model_dim"), column(row, "inter_dim")
        work = kernels.experts(tokens, visited, visits, hidden, width, 3, each)
        source = f"{version}, {folder}/{', '.join(names)}.csv"
        yield MI300X, kernel, "sum", rows(MI300X, work, column(row, "us") / 1e6, kernel), source


VIDUR = {A40: "a40", A100_80GB: "a100", H100_SXM: "h100"}
PARTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")


def profiled(vidur: Path) -> Iterator[Entry]:
    """Vidur's profiles (fp16): norms and activations on three GPUs, matrix products on the A40."""
    version = f"microsoft/vidur {head(vidur)}"
    for gpu, folder in VIDUR.items():
        path = f"data/profiling/compute/{folder}"
        models = ["Qwen/Qwen-72B", "codellama/CodeLlama-34b-Instruct-hf", "internlm/internlm-20b"]
        models += ["meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-7b-hf"]
        row = [one for model in models for one in committed(vidur, f"{path}/{model}/mlp.csv")]
        tokens, hidden, inner = (column(row, name) for name in ("num_tokens", "n_embd", "n_expanded_embd"))
        degree, heads, kv_heads = (
            column(row, name) for name in ("num_tensor_parallel_workers", "n_head", "n_kv_head")
        )
        source = f"{version}, {path}/*/mlp.csv"
        norm, act = column(row, "time_stats.input_layernorm.median"), column(row, "time_stats.mlp_act.median")
        nbytes = np.concatenate([4 * tokens * hidden, 6 * tokens * inner / degree])
        yield (
            gpu,
            "elementwise",
            "reading",
            rows(gpu, (0 * nbytes, nbytes), np.concatenate([norm, act]) / 1e3),
            source,
        )
        if gpu is not A40:
            continue
        attended = hidden * (1 + 2 * kv_heads / heads) / degree
        shapes = [(hidden, attended), (hidden / degree, hidden), (hidden, 2 * inner / degree)]
        shapes.append((inner / degree, hidden))
        works = [kernels.product(tokens, k, n, 2, 2) for k, n in shapes]
        work = np.concatenate([one[0] for one in works]), np.concatenate([one[1] for one in works])
        seconds = np.concatenate([column(row, f"time_stats.{part}.median") for part in PARTS]) / 1e3
        yield gpu, "gemm_bf16", "max", rows(gpu, work, seconds), source


def over_pcie(vidur: Path) -> tuple[Rows, str]:
    """All-reduces of four A100s in two pairs: between the pairs there is PCIe 4.0 only."""
    path = "data/profiling/network/a100_pairwise_nvlink/all_reduce.csv"
    row = [one for one in committed(vidur, path) if one["num_workers"] == "4"]
    nbytes = 2 * 3 / 4 * column(row, "size")
    reading = nbytes / kernels.fabric(A40, 4)
    seconds = column(row, "time_stats.all_reduce.median") / 1e3
    return Rows(0 * reading, reading, seconds), f"microsoft/vidur {head(vidur)}, {path}"
