"""A step, kernel by kernel."""

import csv
import re
import tomllib
from dataclasses import replace
from functools import reduce
from importlib.resources import files
from itertools import chain
from math import fsum
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import data, kernels, measured
from lib.hardware import A10, A100_80GB, B200, GPU, GPUS, H100_SXM, H200, H800, L40S, MI300X
from lib.kernels import OF_2024, ByKernels, Kernel, Runtime, Steps, borrowed, step_kernels
from lib.models import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    MODELS,
    NEMOTRON_3_NANO,
    QWEN2_5_7B,
    QWEN2_5_7B_INT4,
    QWEN3_235B_FP8,
)
from lib.parallelism import divide
from lib.roofline import Work, decode_uneven, ideal_time, prefill

KINDS = (QWEN2_5_7B, QWEN2_5_7B_INT4, GPT_OSS_120B, DEEPSEEK_V3, NEMOTRON_3_NANO, QWEN3_235B_FP8)
TYPED = Path(__file__).with_name("kernel-constants.csv")


class Step(NamedTuple):
    """What is in a step."""

    chunks: tuple[tuple[int, int], ...]
    batch: int
    context: int


def work(model, step):
    """The roofline's count of the same step."""
    parts = [prefill(model, *chunk) for chunk in step.chunks]
    if step.batch:
        parts.append(decode_uneven(model, step.batch, step.context))
    return reduce(Work.__add__, parts)


@st.composite
def steps(draw):
    """Steps of prompts, of answers, and of both."""
    pieces = st.tuples(st.integers(1, 8192), st.integers(0, 50_000))
    chunks = tuple(draw(st.lists(pieces, max_size=3)))
    batch = draw(st.integers(0 if chunks else 1, 256))
    return Step(chunks, batch, batch * draw(st.integers(1, 20_000)))


models = st.sampled_from(MODELS)
gpus = st.sampled_from(GPUS)
degrees = st.sampled_from([1, 2, 4, 8])


# ------------------------------------------------------------------ laws


@given(models, gpus, degrees, steps())
def test_the_parts_add_up_to_the_whole(model, gpu, degree, step):
    engine = Steps(model, gpu, degree)
    parts = engine.kernels(*step)
    assert engine.seconds(*step) == pytest.approx(fsum([part.seconds for part in parts]), rel=1e-12)
    assert all(part.seconds > 0 and part.number >= 1 for part in parts)


@given(models, gpus, degrees, steps(), st.integers(1, 2000))
def test_more_tokens_are_never_faster(model, gpu, degree, step, more):
    engine = Steps(model, gpu, degree)
    seconds = engine.seconds(*step)
    assert engine.seconds((*step.chunks, (more, 0)), step.batch, step.context) > seconds
    if step.chunks:
        (tokens, past), *others = step.chunks
        assert engine.seconds(((tokens + more, past), *others), step.batch, step.context) >= seconds
        assert engine.seconds(((tokens, past + more), *others), step.batch, step.context) >= seconds
    if step.batch:
        assert engine.seconds(step.chunks, step.batch, step.context + more) >= seconds
    assert engine.seconds(step.chunks, step.batch + more, step.context + more) > seconds


@given(models, gpus, degrees, st.booleans(), steps())
def test_no_step_is_faster_than_the_roofline_allows(model, gpu, degree, by_experts, step):
    engine = Steps(model, gpu, degree, degree if by_experts else 1)
    fastest = replace(gpu, peak_flops=gpu.peak(model.arithmetic))
    least = ideal_time(divide(work(model, step), model, degree), fastest)
    assert engine.seconds(*step) >= least * (1 - 1e-9)


def test_no_share_of_a_table_exceeds_one():
    for gpu, table in data.read("kernels.toml")["gpu"].items():
        for kind, entry in table.items():
            for share in ("compute", "bandwidth"):
                assert 0 < entry.get(share, 1) <= 1, (gpu, kind)


@given(models, gpus, steps())
def test_one_gpu_of_a_group_of_one_does_everything_and_talks_to_nobody(model, gpu, step):
    rows = step_kernels(model, gpu, *step, tensor_parallel=1)
    assert rows == Steps(model, gpu, 1, 1).kernels(*step)
    assert "all-reduce" not in [row.name for row in rows]


@given(models, gpus, steps())
def test_two_gpus_do_each_no_more_than_one_would(model, gpu, step):
    def work_of(degree):
        rows = Steps(model, gpu, degree).kernels(*step)
        return fsum([row.seconds - row.number * row.start for row in rows if row.name != "all-reduce"])

    assert work_of(2) <= work_of(1) * (1 + 1e-9)


@given(gpus, steps())
def test_whole_experts_on_each_gpu_cost_what_the_fullest_has_to_do(gpu, step):
    def experts(**degrees):
        rows = step_kernels(GPT_OSS_120B, gpu, *step, tensor_parallel=8, **degrees)
        return next(row for row in rows if row.name == "experts")

    divided, whole = experts(), experts(expert_parallel=8)
    assert whole.arithmetic == pytest.approx(kernels.uneven(8) * divided.arithmetic, rel=1e-9)


@given(models, gpus, steps(), st.integers(0, 10_000))
def test_a_step_that_is_not_recorded_takes_a_launch_for_each_kernel_at_least(model, gpu, step, recorded):
    quick, late = Steps(model, gpu), Steps(model, gpu, runtime=Runtime(recorded=recorded))
    rows = quick.kernels(*step)
    floor = sum([row.number for row in rows]) * kernels.rates(gpu, "launch").start
    tokens = step.batch + sum([tokens for tokens, _ in step.chunks])
    expected = max(floor, quick.seconds(*step)) if tokens > recorded else quick.seconds(*step)
    assert late.seconds(*step) == pytest.approx(expected, rel=1e-9)
    assert fsum([row.seconds for row in late.kernels(*step)]) == pytest.approx(expected, rel=1e-9)


@given(models, gpus, steps())
def test_the_cpu_of_an_engine_of_2024_comes_on_top(model, gpu, step):
    engine = Steps(model, gpu, runtime=OF_2024)
    idle = Steps(model, gpu, runtime=replace(OF_2024, cpu=0.0))
    assert engine.seconds(*step) == pytest.approx(idle.seconds(*step) + 0.007, rel=1e-9)
    assert engine.kernels(*step)[-1].name == "CPU between steps"


@given(models, gpus, degrees, steps(), st.sampled_from([kernels.TODAY, OF_2024]))
def test_families_and_what_their_time_goes_to_add_up_to_the_step(model, gpu, degree, step, runtime):
    engine = Steps(model, gpu, degree, runtime=runtime)
    families = kernels.by_family(engine.kernels(*step))
    assert tuple(families) == kernels.FAMILIES
    parts = [kernels.split(members) for members in families.values()]
    total = fsum(chain.from_iterable(part.values() for part in parts))
    assert total == pytest.approx(engine.seconds(*step), rel=1e-9)


def test_a_family_is_told_by_what_a_kernel_does():
    def names(model, family, **set_up):
        rows = step_kernels(model, H200, ((100, 0),), 1, 9, **set_up)
        return {row.name for row in kernels.by_family(rows)[family]}

    assert names(LLAMA_3_1_8B, "matrix products") == {
        "query, key, value",
        "attention output",
        "FFN in",
        "FFN out",
        "head",
    }
    assert names(DEEPSEEK_V3, "attention of answers") == {"attention of answers"}
    assert "queries to latents" in names(DEEPSEEK_V3, "matrix products")
    assert names(NEMOTRON_3_NANO, "states") == {"states"}
    assert names(LLAMA_3_1_8B, "all-reduces", tensor_parallel=2) == {"all-reduce"}
    assert names(LLAMA_3_1_8B, "waiting", runtime=OF_2024) == {"CPU between steps"}


def test_of_two_that_overlap_the_longer_counts():
    rows = [Kernel("a", 2, 1e-6, 3e-6, 5e-6, True, "t"), Kernel("b", 1, 1e-6, 3e-6, 2e-6, False, "t")]
    assert kernels.split(rows) == pytest.approx({"start": 3e-6, "arithmetic": 3e-6, "bytes": 12e-6})


# ------------------------------------------------------------------ kernels by hand


def row(rows, name):
    (found,) = [one for one in rows if one.name == name]
    return found


def test_a_product_takes_its_start_and_the_longer_of_both():
    rows = step_kernels(LLAMA_3_1_8B, H100_SXM, ((2048, 0),))
    found = row(rows, "FFN in")
    assert found.number == 32
    assert found.arithmetic == pytest.approx(2 * 2048 * 4096 * 28672 / (0.805 * 989e12))
    nbytes = 4096 * 28672 * 2 + 2048 * (4096 + 28672) * 2
    assert found.reading == pytest.approx(nbytes / (0.870 * 3.35e12))
    assert found.seconds == pytest.approx(32 * (3.77e-6 + found.arithmetic))
    assert found.bound == "arithmetic"


def test_attention_of_a_prompt_takes_the_sum_of_both():
    found = row(step_kernels(LLAMA_3_1_8B, H100_SXM, ((2048, 1000),)), "attention of prompts")
    pairs = 2048 * 1000 + 2048 * 2049 / 2
    assert found.arithmetic == pytest.approx(4 * pairs * 32 * 128 / (0.675 * 989e12))
    assert found.reading == pytest.approx(2 * 128 * (2 * 2048 * 32 + 2 * 3048 * 8) / (0.43 * 3.35e12))
    assert found.seconds == pytest.approx(32 * (13.4e-6 + found.arithmetic + found.reading))


def test_attention_of_answers_reads_their_cache():
    found = row(step_kernels(LLAMA_3_1_8B, H100_SXM, (), 16, 16 * 4000), "attention of answers")
    assert found.reading == pytest.approx(16 * 4000 * 2 * 8 * 128 * 2 / (0.875 * 3.35e12))
    assert found.bound == "bytes"


def test_a_window_ends_what_answers_read_and_prompts_pair():
    rows = step_kernels(GPT_OSS_120B, H200, ((4096, 4096),), 4, 4 * 8192)
    seen = [one.reading for one in rows if one.name == "attention of answers"]
    assert max(seen) / min(seen) == pytest.approx(8192 / 128)
    paired = [one.arithmetic for one in rows if one.name == "attention of prompts"]
    assert max(paired) / min(paired) == pytest.approx((4096 * 4096 + 4096 * 4097 / 2) / (4096 * 128))


def test_experts_read_those_that_are_visited():
    def found(tokens):
        return row(step_kernels(QWEN3_235B_FP8, H200, (), tokens, tokens), "experts")

    assert found(1).reading * 0.987 * 4.8e12 == pytest.approx(
        8 * 3 * 4096 * 1536 + 8 * 2 * (2 * 4096 + 3 * 1536)
    )
    assert found(1000).reading > 15 * found(1).reading  # all 128, and what lies between
    assert found(16).bound == "bytes"
    assert found(1).bound == "start"


def test_fp8_computes_at_its_own_peak_and_borrows_where_the_gpu_has_none():
    fast = row(step_kernels(QWEN3_235B_FP8, H100_SXM, ((8192, 0),)), "attention output")
    assert fast.arithmetic == pytest.approx(2 * 8192 * 64 * 128 * 4096 / (0.719 * 1979e12))
    wide = row(step_kernels(QWEN3_235B_FP8, A100_80GB, ((8192, 0),)), "attention output")
    assert wide.arithmetic == pytest.approx(2 * 8192 * 64 * 128 * 4096 / (0.843 * 312e12))


def test_latents_are_expanded_for_prompts_and_read_as_they_are_for_answers():
    prompt = step_kernels(DEEPSEEK_V3, H200, ((2048, 0),), tensor_parallel=8)
    answer = step_kernels(DEEPSEEK_V3, H200, (), 32, 32 * 2048, tensor_parallel=8)
    names = {one.name for one in prompt} ^ {one.name for one in answer}
    assert names == {
        "out of the latents",
        "attention of prompts",
        "queries to latents",
        "attention of answers",
        "latents to values",
    }
    one = next(found for found in answer if found.name == "attention of answers")
    assert one.reading == pytest.approx(32 * 2048 * 576 * 2 / (0.851 * 4.8e12))  # not divided by eight


def test_states_are_read_and_written_for_every_answer_however_long():
    def reading(context):
        rows = step_kernels(NEMOTRON_3_NANO, H100_SXM, (), 8, 8 * context)
        return row(rows, "states").reading

    assert reading(100) == reading(100_000)
    per_layer = NEMOTRON_3_NANO.state_bytes / 23
    assert reading(100) == pytest.approx(2 * 8 * per_layer / (0.882 * 3.35e12))


def test_an_all_reduce_sends_each_result_around():
    found = row(step_kernels(LLAMA_3_1_70B, H100_SXM, ((1024, 0),), tensor_parallel=8), "all-reduce")
    assert found.number == 160
    nbytes = 2 * 7 / 8 * 1024 * 8192 * 2
    assert found.reading == pytest.approx(nbytes / (0.728 * 450e9), rel=0.1)


def test_a_request_spends_time_in_front_of_its_engine():
    assert kernels.front(9000) == pytest.approx(0.023 + 9000 * 1.7e-6)


# ------------------------------------------------------------------ whose constants


def test_a_gpu_without_a_table_borrows_and_says_from_whom():
    step = ((2048, 0),), 8, 8 * 2048
    assert borrowed(step_kernels(QWEN2_5_7B, H100_SXM, *step), H100_SXM) == {}
    lent = borrowed(step_kernels(QWEN2_5_7B, H800, *step), H800)
    assert list(lent) == ["H100 SXM"]
    assert "FFN in" in lent["H100 SXM"]
    assert list(borrowed(step_kernels(QWEN2_5_7B, H200, *step), H200)) == ["H100 SXM"]  # norms and the like
    assert set(borrowed(step_kernels(QWEN2_5_7B, A10, *step), A10)) == {"A40", "A100 80 GB SXM"}
    assert set(borrowed(step_kernels(QWEN2_5_7B, MI300X, *step), MI300X)) == {"H200", "H100 SXM"}


def test_what_is_borrowed_are_shares_not_rates():
    for kind in ("gemm_bf16", "answer_attention"):
        lent, own = kernels.rates(MI300X, kind), kernels.rates(H200, kind)
        assert lent.start == own.start
        assert lent.per_byte * MI300X.bandwidth == pytest.approx(own.per_byte * H200.bandwidth)


def test_a_gpu_of_the_readers_own_borrows_from_the_nearest():
    mine = GPU("mine", 1000e12, 3.3e12, 80e9, fp8_flops=2000e12)
    assert kernels.lenders(mine)[0] == "H100 SXM"
    assert kernels.rates(mine, "gemm_bf16").per_flop == pytest.approx(1 / (0.805 * 1000e12))


def test_every_kernel_has_a_table_on_every_gpu():
    for gpu in GPUS:
        for kind in kernels.kinds():
            assert kernels.rates(gpu, kind).start >= 0
    with pytest.raises(ValueError, match="no table for 'convolution_3d' on L40S; use one of all_reduce_2, "):
        kernels.rates(L40S, "convolution_3d")


def constants(read):
    """Return every number of the file in the second copy's order."""
    numbers = []
    for gpu, table in read["gpu"].items():
        for kind, entry in table.items():
            fields = ("start_us", "compute", "bandwidth", "form", "rows", "median_error", "p90_error")
            numbers.append([gpu, kind, *[str(entry.get(field, "")) for field in fields]])
    for degree, entry in read["uneven"].items():
        numbers.append(["uneven", degree, str(entry["factor"]), "", "", "", str(entry["rows"]), "", ""])
    for name, value in read["engine"].items():
        if not isinstance(value, str):
            numbers.append(["engine", name, str(value), *[""] * 6])
    return numbers


def typed():
    with TYPED.open(encoding="utf8") as file:
        return list(csv.reader(file))


def test_the_constants_are_those_that_were_read():
    """A second copy, so that a digit that slips shows."""
    assert constants(data.read("kernels.toml")) == typed()


FILE = files("lib.data").joinpath("kernels.toml").read_text("utf8")
DIGITS = [found.end() - 1 for found in re.finditer(r"^\w+ = (?:[\d.]|e-)+$", FILE, re.M)]


def test_every_number_of_the_file_is_one_of_the_constants():
    assert len(DIGITS) == sum(bool(re.fullmatch(r"[\d.e-]+", cell)) for row in typed() for cell in row[2:])


@given(st.sampled_from(DIGITS), st.integers(1, 9))
def test_a_constant_that_slips_by_a_digit_is_noticed_twice(place, step):
    """By the second copy, and by the kept predictions, which are of other constants then."""
    slipped = FILE[:place] + str((int(FILE[place]) + step) % 10) + FILE[place + 1 :]
    assert constants(tomllib.loads(slipped)) != typed()
    assert measured.fingerprint({"kernels.toml": slipped.encode()}) != measured.fingerprint()


def test_no_table_is_read_by_nobody():
    """Every table prices kernels of some GPU; the A40's products went into the A10's own table."""
    read = {(kernels.rates(gpu, kind).table, kind) for gpu in GPUS for kind in kernels.kinds()}
    tables = data.read("kernels.toml")["gpu"]
    assert {(gpu, kind) for gpu, table in tables.items() for kind in table} - read == {("A40", "gemm_bf16")}


def test_every_constant_has_a_source_and_doubts_are_listed():
    tables = data.read("kernels.toml")["gpu"]
    for entry in chain.from_iterable(table.values() for table in tables.values()):
        assert len(entry["source"]) > 20
    doubts = {(gpu, kind) for gpu, kind, _ in kernels.doubtful() if gpu != "every"}
    assert doubts == {("A10", "gemm_bf16"), *[("MI300X", f"all_reduce_{degree}") for degree in (2, 4, 8)]}
    assert all(len(why) > 20 for _, _, why in kernels.doubtful())


def test_doubts_name_the_front_and_what_the_model_guesses():
    said = {name: why for gpu, name, why in kernels.doubtful() if gpu == "every"}
    assert {"front", "CPU", "recorded", "states", "index", "elementwise", "experts", "all-reduce"} == set(
        said
    )
    assert f"{1e3 * kernels.front(1):.0f} ms" in said["front"]
    assert f"{1e3 * OF_2024.cpu:.0f} ms" in said["CPU"]
    assert f"{OF_2024.recorded} tokens" in said["recorded"]
    assert f"{kernels.SCAN} tokens" in said["states"]


def test_it_is_written_down_for_every_gpu_whose_table_it_borrows():
    assert set(kernels.LENDERS) == {gpu.name for gpu in GPUS}
    assert {name for names in kernels.LENDERS.values() for name in names} <= set(
        data.read("kernels.toml")["gpu"]
    )


GOOD = (L40S, A100_80GB, H100_SXM, H200, B200)


@pytest.mark.parametrize("gpu", GOOD, ids=lambda gpu: gpu.name)
def test_products_and_attention_in_bf16_are_within_a_tenth_on_rows_held_out(gpu):
    table = data.read("kernels.toml")["gpu"][gpu.name]
    kinds = ["gemm_bf16", "answer_attention", "prompt_attention_128"]
    kinds += ["prompt_attention_64"] if "prompt_attention_64" in table else []
    assert all(table[kind]["median_error"] <= 0.1 for kind in kinds)


# ------------------------------------------------------------------ refusals, and the price of an engine


@pytest.mark.parametrize(
    "step",
    [((), 0, 0), ((), 2, 1), ((), 0, 5), ((), -1, 5), (((0, 0),), 0, 0), (((5, -1),), 0, 0)],
)
def test_what_is_no_step_is_refused(step):
    with pytest.raises(ValueError, match=re.escape("kernels: chunk")):
        Steps(QWEN2_5_7B, L40S).seconds(*step)
    with pytest.raises(ValueError, match=re.escape("kernels: chunk")):
        Steps(QWEN2_5_7B, L40S).kernels(*step)


def test_experts_are_divided_among_all_or_none():
    with pytest.raises(ValueError, match="expert_parallel=3 will not do; use 1, or tensor_parallel=4"):
        Steps(GPT_OSS_120B, H200, 4, 3)


def test_an_engine_is_priced_by_its_own_kernels():
    class Engine(NamedTuple):
        model: object
        gpu: GPU
        tensor_parallel: int

    step = ((512, 0),), 4, 4000
    price = ByKernels(expert_parallel=True).seconds_on(Engine(GPT_OSS_120B, H200, 4))
    assert price(*step) == Steps(GPT_OSS_120B, H200, 4, 4).seconds(*step)
    old = ByKernels(runtime=OF_2024).seconds_on(Engine(QWEN2_5_7B, L40S, 1))
    assert old(*step) == Steps(QWEN2_5_7B, L40S, runtime=OF_2024).seconds(*step)


# ------------------------------------------------------------------ against what was served


def per_token(model, gpu, degree, prompt, answer, streams):
    """Seconds a token in a closed loop: a step of all streams, and the others' prompts that fall into it.

    Lengths are random between 0.8 of the maximum and all of it, so 0.9 on average. While a stream answers,
    each of the others starts one request: its prompt shares a step with the answers.
    """
    engine = Steps(model, gpu, degree, runtime=Runtime(mxfp4="marlin"))  # as the benchmark's scripts say
    prompt, answer = round(0.9 * prompt), round(0.9 * answer)
    context = prompt + answer // 2
    alone = engine.seconds((), streams, streams * context)
    shared = engine.seconds(((prompt, 0),), streams - 1, (streams - 1) * context)
    without = engine.seconds((), streams - 1, (streams - 1) * context)
    return alone + (streams - 1) / answer * (shared - without)


LLAMA_FP8 = replace(
    LLAMA_3_1_70B,
    name="Llama-3.1-70B FP8",
    arithmetic="fp8",
    groups=tuple(
        replace(group, bytes=replace(group.bytes, mixer=1, ffn=1)) for group in LLAMA_3_1_70B.groups
    ),
)
SERVED = [  # silicon_sample.csv of aiconfigurator-core 0.12.0: time per output token, outputs of 1,024
    (GPT_OSS_120B, H200, 1, 1024, 4, 6.332e-3, 1.08),
    (GPT_OSS_120B, H200, 1, 8192, 64, 41.83e-3, 1.17),
    (GPT_OSS_120B, H200, 8, 1024, 16, 4.621e-3, 1.11),
    (LLAMA_FP8, H100_SXM, 2, 1024, 4, 17.41e-3, 1.02),
    (LLAMA_FP8, H100_SXM, 4, 8192, 32, 32.82e-3, 1.04),
    (LLAMA_FP8, H100_SXM, 8, 8192, 8, 11.59e-3, 0.99),
]


@pytest.mark.parametrize(("model", "gpu", "degree", "prompt", "streams", "measured", "factor"), SERVED)
def test_steps_last_about_as_long_as_served_tokens_take(
    model, gpu, degree, prompt, streams, measured, factor
):
    predicted = per_token(model, gpu, degree, prompt, 1024, streams)
    assert predicted / measured == pytest.approx(factor, abs=0.02)


def test_a_kernel_says_what_bounds_it():
    assert Kernel("x", 1, 3e-6, 1e-6, 2e-6, True, "t").bound == "start"
    assert Kernel("x", 2, 3e-6, 1e-6, 2e-6, True, "t").seconds == pytest.approx(10e-6)
    assert Kernel("x", 2, 3e-6, 1e-6, 2e-6, False, "t").seconds == pytest.approx(12e-6)
