"""The roofline: the review's figures, and the laws that work and its prices obey on any input."""

from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.hardware import GPU, GPUS, L40S
from lib.models import DEEPSEEK_V3, GPT_OSS_120B, MODELS, NEMOTRON_3_NANO, QWEN2_5_7B
from lib.page.published import agrees, find, get
from lib.roofline import (
    NO_WORK,
    PUBLISHED,
    Efficiency,
    Work,
    bound,
    decode,
    decode_uneven,
    ideal_time,
    out_of_window,
    prefill,
    ridge,
    step_time,
)

models = st.sampled_from(MODELS)
without_windows = st.sampled_from([model for model in MODELS if not model.window])
gpus = st.sampled_from(GPUS)
tokens = st.integers(1, 200_000)
pasts = st.integers(0, 200_000)
batches = st.integers(1, 1024)
amounts = st.integers(0, 10**17)
works = st.builds(Work, amounts, amounts, amounts, amounts)
efficiencies = st.builds(Efficiency, st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 1))

ROWS = {
    "prefill 8,192": prefill(QWEN2_5_7B, 8192),
    "prefill chunk 2,048 after 3,072": prefill(QWEN2_5_7B, 2048, past=3072),
    "decode 1 stream at 8,192": decode(QWEN2_5_7B, 1, 8192),
    "decode 2 streams at 8,192": decode(QWEN2_5_7B, 2, 8192),
    "decode 64 streams at 1,024": decode(QWEN2_5_7B, 64, 1024),
}


# ------------------------------------------------------------------ the review's figures


def test_the_table_of_workloads_is_reproduced():
    published = find("roofline")
    work = [ROWS[row] for row in published["rows"]]
    assert agrees([w.intensity for w in work], published["flops_per_byte"])
    assert agrees([bound(w, L40S) for w in work], published["bound"])
    assert agrees([ideal_time(w, L40S) * 1e3 for w in work], published["ideal_ms"])


def test_the_ridge_of_the_l40s_is_reproduced():
    assert agrees(ridge(L40S), find("roofline.ridge_flops_per_byte"))


def test_a_pass_is_free_until_its_matrices_take_as_long_as_reading_the_weights():
    bend = next(n for n in range(1, 8192) if bound(prefill(QWEN2_5_7B, n), L40S) == "compute")
    one, before, there = (ideal_time(prefill(QWEN2_5_7B, n), L40S) for n in (1, bend - 1, bend))
    assert one == before < there
    head, layers = QWEN2_5_7B.head_params, QWEN2_5_7B.layer_params  # 2 P bytes are read, 2 FLOPs a token done
    assert bend == pytest.approx((ridge(L40S) * (layers + head) - head) / layers, rel=0.01)


def test_a_full_chunk_at_the_reviews_efficiency_stalls_as_long_as_published():
    chunk = ROWS["prefill chunk 2,048 after 3,072"]
    alone = step_time(chunk, L40S, Efficiency(compute=PUBLISHED.compute))
    assert agrees(alone * 1e3, find("roofline.chunk_2048_at_47_percent_ms"))


def test_the_calibration_is_the_reviews():
    published = get("calibration")
    assert (
        Efficiency(published["eta_compute"], published["eta_bandwidth"], published["overhead_s"]) == PUBLISHED
    )


@pytest.mark.parametrize("way", ["collocated", "one_way", "bidirectional"])
def test_the_cost_of_every_turn_is_reproduced(way):
    published = find("multi_turn")
    new_tokens, history = published[f"{way}_new_tokens"], published["history"]
    again = 600 if way == "one_way" else 0  # the last answer, whose cache stayed with decode
    past = [max(0, before - again) for before in history]
    milliseconds = [
        1e3 * step_time(prefill(QWEN2_5_7B, new, cached), L40S, PUBLISHED)
        for new, cached in zip(new_tokens, past, strict=True)
    ]
    assert agrees(milliseconds, published[f"{way}_ms"])


# ------------------------------------------------------------------ work


@given(n=st.integers(1, 60), past=st.integers(0, 60))
def test_attention_of_a_prompt_counts_every_query_with_every_key_before_it(n, past):
    pairs = sum(past + i for i in range(1, n + 1))
    assert prefill(QWEN2_5_7B, n, past).attention_flops == 4 * 28 * 28 * 128 * pairs


@given(model=models, lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=6), past=pasts)
def test_a_prompt_is_the_sum_of_its_chunks(model, lengths, past):
    whole = prefill(model, sum(lengths), past)
    starts = [past + sum(lengths[:i]) for i in range(len(lengths))]
    chunks = [prefill(model, n, start) for n, start in zip(lengths, starts, strict=True)]
    head = 2 * model.head_params  # every chunk's last token passes the head, of a whole prompt only one
    assert sum(chunk.attention_flops for chunk in chunks) == whole.attention_flops
    assert sum(chunk.gemm_flops - head for chunk in chunks) == whole.gemm_flops - head


@given(model=models, batch=batches, context=tokens)
def test_a_decode_step_is_its_streams_together_with_the_weights_read_once(model, batch, context):
    one, all_of_them = decode(model, 1, context), decode(model, batch, context)
    assert all_of_them.gemm_flops == batch * one.gemm_flops
    assert all_of_them.attention_flops == batch * one.attention_flops
    assert all_of_them.kv_bytes == batch * one.kv_bytes
    assert all_of_them.weight_bytes == model.weight_bytes(batch)


@given(model=without_windows, contexts=st.lists(tokens, min_size=1, max_size=8))
def test_uneven_contexts_cost_what_their_streams_cost_one_by_one(model, contexts):
    together = decode_uneven(model, len(contexts), sum(contexts))
    assert together.kv_bytes == sum(decode(model, 1, context).kv_bytes for context in contexts)
    assert together.attention_flops == sum(decode(model, 1, context).attention_flops for context in contexts)


@given(contexts=st.lists(st.integers(128, 10**5), min_size=1, max_size=8))
def test_uneven_contexts_beyond_the_window_add_up_too(contexts):
    together = decode_uneven(GPT_OSS_120B, len(contexts), sum(contexts))
    assert together.kv_bytes == sum(decode(GPT_OSS_120B, 1, context).kv_bytes for context in contexts)
    assert together.attention_flops == sum(
        decode(GPT_OSS_120B, 1, context).attention_flops for context in contexts
    )


@given(n=st.integers(1, 60), past=st.integers(0, 60), window=st.integers(1, 80))
def test_a_window_leaves_out_every_key_before_it(n, past, window):
    assert out_of_window(n, past, window) == sum(max(0, past + i - window) for i in range(1, n + 1))


def test_a_window_halves_the_attention_of_a_long_prompt_whose_every_second_layer_has_one():
    windowed = prefill(GPT_OSS_120B, 100_000).attention_flops
    whole = 4 * 36 * 64 * 64 * (100_000 * 100_001 // 2)
    assert windowed / whole == pytest.approx(0.5, rel=0.01)


def test_a_state_is_read_and_written_for_every_stream_and_does_not_grow_with_context():
    short, long = (decode(NEMOTRON_3_NANO, 8, context).kv_bytes for context in (1, 1001))
    assert long - short == 8 * 1000 * NEMOTRON_3_NANO.kv_bytes_per_token
    assert short - 8 * NEMOTRON_3_NANO.kv_bytes_per_token == 8 * 2 * NEMOTRON_3_NANO.state_bytes


def test_latent_attention_works_more_in_decode_to_read_less():
    expanded = DEEPSEEK_V3.with_attention * 2 * 128 * (192 + 128)
    assert DEEPSEEK_V3.flops_per_pair == expanded
    assert (
        decode(DEEPSEEK_V3, 1, 1000).attention_flops
        == 1000 * DEEPSEEK_V3.decode_flops_per_pair
        > 1000 * expanded
    )


@given(first=works, second=works, third=works)
def test_adding_work_is_commutative_and_associative(first, second, third):
    assert first + second == second + first
    assert (first + second) + third == first + (second + third)
    assert first + NO_WORK == first


@given(first=works, second=works)
def test_a_mixed_step_reads_the_weights_once(first, second):
    both = first + second
    assert both.flops == first.flops + second.flops
    assert both.kv_bytes == first.kv_bytes + second.kv_bytes
    assert both.weight_bytes == max(first.weight_bytes, second.weight_bytes)


@given(model=models, n=tokens, past=pasts, batch=batches)
def test_work_is_counted_in_whole_numbers(model, n, past, batch):
    for work in (prefill(model, n, past), decode(model, batch, n)):
        assert all(isinstance(amount, int) and amount >= 0 for amount in (work.flops, work.bytes))


def test_work_without_bytes_is_infinitely_intense():
    assert Work(1, 0, 0, 0).intensity == inf


# ------------------------------------------------------------------ prices


@given(work=works, gpu=gpus, efficiency=efficiencies)
def test_no_step_is_faster_than_the_roofline(work, gpu, efficiency):
    assert ideal_time(work, gpu) <= step_time(work, gpu, efficiency)
    assert ideal_time(work, gpu) == step_time(work, gpu, Efficiency())


@given(work=works, gpu=gpus)
def test_the_bound_says_which_of_the_two_takes_longer(work, gpu):
    computing = Fraction(work.flops) * Fraction(gpu.bandwidth)
    reading = Fraction(work.bytes) * Fraction(gpu.peak_flops)
    if abs(computing - reading) > reading / 10**9:  # nearer than that it is a tie in floats
        assert bound(work, gpu) == ("compute" if computing > reading else "memory")


@given(model=models, gpu=gpus, n=tokens, past=pasts, more=st.integers(1, 1000))
def test_more_tokens_or_more_past_never_cost_less(model, gpu, n, past, more):
    price = step_time(prefill(model, n, past), gpu, PUBLISHED)
    assert step_time(prefill(model, n + more, past), gpu, PUBLISHED) >= price
    assert step_time(prefill(model, n, past + more), gpu, PUBLISHED) >= price


@given(model=models, gpu=gpus, batch=batches, context=tokens, more=st.integers(1, 1000))
def test_more_streams_or_more_context_never_cost_less(model, gpu, batch, context, more):
    price = step_time(decode(model, batch, context), gpu, PUBLISHED)
    assert step_time(decode(model, batch + more, context), gpu, PUBLISHED) >= price
    assert step_time(decode(model, batch, context + more), gpu, PUBLISHED) >= price


@given(first=works, second=works, gpu=gpus)
def test_sharing_a_step_costs_at_most_as_much_as_two_steps(first, second, gpu):
    apart = step_time(first, gpu, PUBLISHED) + step_time(second, gpu, PUBLISHED)
    assert step_time(first + second, gpu, PUBLISHED) <= apart * (1 + 1e-12)


@given(efficiency=efficiencies, better=st.floats(1, 3), work=works)
def test_a_better_gpu_is_never_slower(efficiency, better, work):
    fast = GPU("fast", L40S.peak_flops * better, L40S.bandwidth * better, L40S.memory)
    assert step_time(work, fast, efficiency) <= step_time(work, L40S, efficiency)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: prefill(QWEN2_5_7B, 0), "prefill: tokens=0 will not do; use a whole number of at least 1"),
        (lambda: prefill(QWEN2_5_7B, 2.5), "prefill: tokens=2.5"),
        (
            lambda: prefill(QWEN2_5_7B, 1, past=-1),
            "prefill: past=-1 will not do; use a whole number of at least 0",
        ),
        (lambda: decode(QWEN2_5_7B, 0, 10), "decode: batch=0"),
        (lambda: decode(QWEN2_5_7B, 1, 0), "decode: context=0"),
        (lambda: decode(QWEN2_5_7B, True, 10), "decode: batch=True"),
        (lambda: decode_uneven(QWEN2_5_7B, 2, nan), "decode_uneven: total_context=nan"),
    ],
)
def test_impossible_work_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()


@pytest.mark.parametrize("name", ["compute", "bandwidth", "overhead"])
@pytest.mark.parametrize("value", [-0.1, nan, inf, True])
def test_impossible_efficiencies_are_refused(name, value):
    with pytest.raises(ValueError, match=f"Efficiency: {name}="):
        Efficiency(**{name: value})


@pytest.mark.parametrize("name", ["compute", "bandwidth"])
@pytest.mark.parametrize("value", [0, 1.01, 47])
def test_an_efficiency_is_a_share_of_the_peak(name, value):
    with pytest.raises(ValueError, match="is no share; use a number above 0 and at most 1"):
        Efficiency(**{name: value})
