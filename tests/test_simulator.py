import random
import tomllib
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from math import fsum, inf
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.data
from lib.hardware import GPU, L40S, PCIE_4, Link
from lib.models import LLAMA_3_1_8B, LLAMA_3_1_70B, QWEN2_5_7B
from lib.roofline import Efficiency, decode_uneven, ideal_time, in_series, prefill, step_time
from lib.scheduler import textbook, vllm
from lib.simulator import (
    Collocated,
    Disaggregated,
    Engine,
    PrefixAware,
    Pull,
    Shared,
    Streamed,
    alternate,
    least_loaded,
    percentile,
    simulate,
)
from lib.simulator.engine import StepCost
from lib.workload import Request, poisson, sessions

PUBLISHED = tomllib.loads(
    (Path(lib.data.__file__).parent / "published.toml").read_text(), parse_float=Decimal
)
REVIEW = Engine(QWEN2_5_7B, L40S, decode_context=8192 + 128)
OWN = Engine(QWEN2_5_7B, L40S)
WHOLE = replace(REVIEW, token_budget=None)
DEPLOYMENTS = {
    "collocated": Collocated(REVIEW, 2),
    "P/D, 1.3 s transfer": Disaggregated(WHOLE, REVIEW, handoff=1.3),
    "P/D, 20 ms transfer": Disaggregated(WHOLE, REVIEW, handoff=0.02),
}
SEEDS = range(5)


def as_printed(value, printed):
    """The value rounded to as many decimals as the printed one has."""
    return round(Decimal(value), -Decimal(printed).as_tuple().exponent)


# ------------------------------------------------------------------------------------ the review's figures


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize("column", range(6))
def test_the_serving_simulators_figures(name, column):
    rate = float(PUBLISHED["serving_sim"]["rates"][column])
    traces = [simulate(poisson(rate, 100, seed), DEPLOYMENTS[name]) for seed in SEEDS]
    computed = {
        "ttft_p50_s": [percentile(trace.ttft, 50) for trace in traces],
        "itl_p50_ms": [1000 * trace.itl(50) for trace in traces],
        "itl_p99_ms": [1000 * trace.itl(99) for trace in traces],
    }
    for key, values in computed.items():
        printed = PUBLISHED["serving_sim"][name][key][column]
        assert as_printed(fsum(values) / 5, printed) == printed, key


@pytest.mark.parametrize("load", ["0.4 req/s", "1.0 req/s"])
@pytest.mark.parametrize("row", range(5))
def test_the_chunk_sweeps_figures(load, row):
    engine = replace(REVIEW, token_budget=PUBLISHED["chunk_sweep"]["budgets"][row])
    traces = [simulate(poisson(float(load.split()[0]), 100, seed), Collocated(engine, 2)) for seed in SEEDS]
    computed = {
        "ttft_p50_s": [percentile(trace.ttft, 50) for trace in traces],
        "itl_p99_ms": [1000 * trace.itl(99) for trace in traces],
        "worst_gap_ms": [1000 * max(trace.worst_gap) for trace in traces],
    }
    for key, values in computed.items():
        printed = PUBLISHED["chunk_sweep"][load][key][row]
        assert as_printed(fsum(values) / 5, printed) == printed, key


def test_one_prefill_engine_saturates_where_the_review_says():
    trace = simulate([Request(0, 8192, 1)], Disaggregated(WHOLE, REVIEW))
    printed = PUBLISHED["serving_sim"]["prefill_saturation"]["req_per_s"]
    assert as_printed(1 / (trace.prefill_end[0] - trace.prefill_start[0]), printed) == printed


# ------------------------------------------------------------------------------------ small cases by hand


def tenth(work, gpu, efficiency):
    """Every step takes an eighth of a second: no rounding anywhere."""
    return 0.125


CLOCKWORK = Engine(QWEN2_5_7B, L40S, price=tenth, token_budget=10)


def test_one_request_is_prefilled_in_chunks_and_decoded_token_by_token():
    trace = simulate([Request(1, 25, 3)], Collocated(CLOCKWORK))
    assert trace.emitted() == [[1.375, 1.5, 1.625]]
    assert (trace.ttft, trace.tpot, trace.worst_gap, trace.e2e) == ([0.375], [0.125], [0.125], [0.625])
    assert [(step.start, step.chunks, step.decodes) for step in trace.steps()] == [
        (1.0, {0: (10, 0)}, {}),
        (1.125, {0: (10, 10)}, {}),
        (1.25, {0: (5, 20)}, {}),
        (1.375, {}, {0: 25}),
        (1.5, {}, {0: 26}),
    ]


def test_an_arrival_waits_for_the_step_in_progress_and_not_longer():
    trace = simulate([Request(0, 5, 20), Request(0.3, 5, 1)], Collocated(CLOCKWORK))
    assert trace.prefill_start[1] == 0.375
    assert trace.first_token[1] == 0.5


def test_an_arrival_at_the_very_start_of_a_step_is_part_of_it():
    trace = simulate([Request(0, 5, 20), Request(0.25, 5, 1)], Collocated(CLOCKWORK))
    assert trace.prefill_start[1] == 0.25


def test_the_first_token_of_a_split_request_is_the_first_decode_steps():
    trace = simulate([Request(0, 25, 3)], Disaggregated(CLOCKWORK, CLOCKWORK, handoff=1))
    assert trace.prefill_end == [0.375]
    assert trace.decode_queue == trace.decode_start == [1.375]
    assert trace.emitted() == [[1.5, 1.625, 1.75]]
    assert trace.roles == ("prefill", "decode")


def test_a_handoff_of_no_time_is_in_time_for_the_step_that_starts_then():
    requests = [Request(0, 10, 9), Request(0, 10, 9)]
    trace = simulate(requests, Disaggregated(CLOCKWORK, CLOCKWORK))
    assert trace.decode_start == trace.prefill_end == [0.125, 0.25]


def test_a_handoff_over_a_link_takes_as_long_as_the_prompts_cache():
    trace = simulate([Request(0, 8192, 2)], Disaggregated(WHOLE, REVIEW, handoff=PCIE_4))
    seconds = 8192 * QWEN2_5_7B.kv_bytes_per_token / PCIE_4.bandwidth
    assert trace.decode_queue[0] - trace.prefill_end[0] == pytest.approx(seconds, rel=1e-12)


def test_requests_alternate_between_replicas_or_go_where_there_is_room():
    requests = [
        Request(0, 10, 1),
        Request(0, 10, 1),
        Request(0.5, 10, 20),
        Request(0.75, 10, 1),
        Request(1, 10, 1),
    ]
    engines = {}
    for route in (alternate, least_loaded):
        trace = simulate(requests, Collocated(CLOCKWORK, 2, route))
        engines[route] = [spans[0].engine for spans in trace.spans]
    assert engines[alternate] == [0, 1, 0, 1, 0]
    assert engines[least_loaded] == [0, 1, 0, 1, 1]


def test_copies_over_a_shared_link_queue():
    link = Link("slow", bandwidth=10 * QWEN2_5_7B.kv_bytes_per_token)  # a 10-token prompt takes a second
    requests = [Request(0, 10, 1), Request(0, 10, 1), Request(5, 10, 1)]
    trace = simulate(requests, Disaggregated(CLOCKWORK, CLOCKWORK, handoff=Shared(link)))
    assert trace.copy_start == [0.125, 1.125, 5.125]
    assert trace.copy_end == trace.decode_queue == [1.125, 2.125, 6.125]
    alone = simulate(requests, Disaggregated(CLOCKWORK, CLOCKWORK, handoff=link))
    assert alone.copy_start == alone.prefill_end


def test_a_cache_that_is_streamed_leaves_only_its_last_layer_to_wait_for():
    deployment = Disaggregated(WHOLE, REVIEW, handoff=Streamed(PCIE_4))
    trace = simulate([Request(0, 8192, 2)], deployment)
    whole = deployment.transfer_time(8192)
    assert trace.copy_end[0] - trace.prefill_end[0] == pytest.approx(whole / QWEN2_5_7B.layers, rel=1e-9)
    slow = Disaggregated(WHOLE, REVIEW, handoff=Streamed(Link("slow", 1e8)))
    late = simulate([Request(0, 8192, 2)], slow)
    seconds = slow.transfer_time(8192)
    computing = late.prefill_end[0] - late.prefill_start[0]
    layers = QWEN2_5_7B.layers
    expected = (seconds - computing) / layers * (layers - 1) + seconds / layers
    assert late.copy_end[0] - late.prefill_end[0] == pytest.approx(expected, rel=1e-9)


def test_a_prefix_aware_route_goes_where_the_prefix_is_and_else_where_there_is_room():
    system, other = ("system", 64), ("other", 64)
    prompts = [
        (system, ("a", 20)),
        (other, ("b", 20)),
        (other, ("c", 20)),
        (system, ("d", 20)),
        (system, ("e", 5)),
    ]
    requests = [Request(0.01 * i, prompt, 9) for i, prompt in enumerate(prompts)]
    deployment = Collocated(replace(OWN, policy=vllm, prefix_caching=True), 2, PrefixAware)
    for _ in range(2):  # nothing is remembered from one simulation to the next
        trace = simulate(requests, deployment)
        assert [spans[0].engine for spans in trace.spans] == [0, 1, 1, 0, 0]
    assert (
        sum(tokens for step in trace.steps() for tokens, _ in step.chunks.values()) == 84 + 84 + 20 + 20 + 5
    )


@pytest.mark.parametrize(
    "handoff", [0.3, PCIE_4, Shared(PCIE_4), Streamed(PCIE_4), Pull(0.3), Pull(PCIE_4), None]
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_parts_of_a_ttft_add_up_to_it_exactly(handoff, asynchronous):
    engine = replace(OWN, policy=vllm, asynchronous=asynchronous)
    deployment = Collocated(engine) if handoff is None else Disaggregated(engine, engine, handoff=handoff)
    trace = simulate(poisson(1.2, 60, 0, prompt=5000, output_tokens=40), deployment)
    parts = trace.ttft_parts
    for row, ttft in enumerate(trace.ttft):
        mine = [column[row] for column in parts.values()]
        assert fsum(mine) == ttft
        assert all(part >= -1e-12 for part in mine)
    assert min(parts["prefill"]) > 0.4
    if handoff is None:
        assert max(parts["transfer"] + parts["notice"] + parts["decode queue"] + parts["first step"]) == 0
    else:
        assert min(parts["first step"]) > 0.02
    if isinstance(handoff, Pull):
        assert max(parts["notice"]) > 0.01


def test_a_first_token_that_never_came_has_infinite_parts():
    trace = simulate([Request(0, 10, 1), Request(0, 10, 1)], Collocated(CLOCKWORK), until=0.2)
    assert [column[1] for column in trace.ttft_parts.values()] == [inf] * 6


def test_one_pool_moves_nothing():
    deployment = Collocated(CLOCKWORK)
    assert deployment.way.seconds(QWEN2_5_7B, 10) == 0
    trace = simulate([Request(0, 10, 2)], deployment)
    assert trace.sent_tokens == trace.fetched_tokens == [0]


def test_of_a_long_workload_only_ten_thousand_requests_wait_in_memory():
    waiting = []

    def noting(arrival, members):
        waiting.append(len(members[0].arrivals))
        return 0

    requests = [Request(i, 1, 1) for i in range(10_002)]
    simulate(requests, Collocated(replace(CLOCKWORK, policy=vllm), 1, noting))
    assert waiting[9_998:] == [9_998, 9_999, 1, 2]


def test_what_is_not_done_in_time_is_infinitely_late():
    requests = [Request(0, 10, 2), Request(0, 9, 100), Request(3, 10, 1)]
    trace = simulate(requests, Collocated(CLOCKWORK), until=1)
    assert trace.completed == 1
    assert trace.finish == [0.25, inf, inf]
    assert trace.worst_gap[1] == trace.tpot[1] == trace.e2e[1] == inf
    assert trace.first_token == [0.125, 0.25, inf]
    assert [len(times) for times in trace.emitted()] == [2, 7, 0]
    assert max(step.end for step in trace.steps()) == 1


def test_pooled_gaps_count_every_gap_once():
    trace = simulate(poisson(1, 40, 0, prompt=3000, output_tokens=30), DEPLOYMENTS["P/D, 20 ms transfer"])
    assert sum(count for _, count in trace.pooled_gaps) == 40 * 29
    every = sorted(gap for gaps in trace.gaps() for gap in gaps)
    folded = [seconds for seconds, count in trace.pooled_gaps for _ in range(count)]
    assert folded == pytest.approx(every, abs=1e-12)


def test_the_share_of_gaps_that_wait_for_a_prompt_is_counted_by_hand():
    requests = [Request(0, 10, 11), Request(0.5, 25, 1)]  # 10 gaps; 9 + 9 + 7 tokens of the second prompt
    trace = simulate(requests, Collocated(CLOCKWORK))
    assert trace.share_with_prefill() == 0.3
    assert trace.share_with_prefill(9) == 0.2
    assert simulate(requests, Disaggregated(CLOCKWORK, CLOCKWORK)).share_with_prefill() == 0


def test_tensor_parallelism_divides_the_work_but_not_the_overhead():
    one, four = (
        simulate([Request(0, 1000, 2)], Collocated(replace(OWN, tensor_parallel=n))).ttft[0] - 0.002
        for n in (1, 4)
    )
    assert one / four == pytest.approx(4, rel=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.one_of(st.floats(0, 100), st.sampled_from([0, 50, 99, 100])),
)
def test_percentiles_are_numpys(values, q):
    assert percentile(values, q) == pytest.approx(float(numpy.percentile(values, q)), rel=1e-13, abs=1e-300)
    pairs = [(value, 3) for value in sorted(values)]
    assert percentile(pairs, q) == pytest.approx(
        float(numpy.percentile(values * 3, q)), rel=1e-13, abs=1e-300
    )


@pytest.mark.parametrize(
    ("values", "q", "message"), [([], 50, "no values"), ([1], 101, "q=101"), ([1], float("nan"), "q=nan")]
)
def test_a_percentile_of_nothing_or_beyond_100_is_refused(values, q, message):
    with pytest.raises(ValueError, match=message):
        percentile(values, q)


# ------------------------------------------------------------------------------------ laws


parts = st.tuples(st.sampled_from(["system", "user", "#7"]), st.integers(1, 30) | st.sampled_from([16, 32]))


@st.composite
def workloads(draw):
    steps = st.sampled_from([0.0, 0.125, 0.25, 1.0]) | st.floats(0, 2)
    rows, now = [], 0.0
    for _ in range(draw(st.integers(1, 12))):
        now += draw(steps)
        prompt = draw(st.integers(1, 60) | st.tuples(parts) | st.tuples(parts, parts))
        rows.append(Request(now, prompt, draw(st.integers(1, 15))))
    return rows


SLOW = Link("slow", 1e8)
COLUMNS = ("ttft", "tpot", "e2e", "worst_gap", "pooled_gaps", "prefill_start", "prefill_end")
COLUMNS += ("copy_start", "copy_end", "decode_queue", "decode_start", "first_token", "finish")


@st.composite
def engines(draw):
    engine = Engine(
        QWEN2_5_7B,
        L40S,
        token_budget=draw(st.integers(1, 40) | st.none()),
        max_num_seqs=draw(st.integers(1, 6)),
        price=draw(st.sampled_from([tenth, step_time])),
        decode_context=draw(st.none() | st.integers(1, 100)),
    )
    if draw(st.booleans()):
        return engine
    return replace(
        engine,
        policy=vllm,
        kv_blocks=draw(st.integers(6, 20)),
        asynchronous=draw(st.booleans()),
        prefix_caching=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 3, 17])),
    )


@st.composite
def deployments(draw):
    engine = draw(engines())
    route = draw(st.sampled_from([alternate, least_loaded]))
    if draw(st.booleans()):
        return Collocated(engine, draw(st.integers(1, 3)), route)
    pulls = [Pull(0.0), Pull(0.3), Pull(0.3, hold=True), Pull(0.1, bidirectional=True, retain=3.0)]
    handoff = draw(st.sampled_from([0.0, 0.125, 0.3, Pull(Shared(SLOW), hold=draw(st.booleans())), *pulls]))
    if engine.policy is not vllm and isinstance(handoff, Pull):
        handoff = PCIE_4
    return Disaggregated(engine, engine, draw(st.integers(1, 2)), draw(st.integers(1, 2)), handoff, route)


@settings(max_examples=150, deadline=None)
@given(workloads(), deployments(), st.just(inf) | st.floats(0, 5))
def test_jumping_over_equal_steps_changes_nothing_to_the_last_bit(requests, deployment, until):
    fast = simulate(requests, deployment, until)
    slow = simulate(requests, deployment, until, jump=False)
    assert list(fast.steps()) == list(slow.steps())
    assert fast.emitted() == slow.emitted()
    for column in COLUMNS:
        assert getattr(fast, column) == getattr(slow, column), column


def unfolded_percentiles_agree(trace):
    gaps = trace.gaps()
    for q in (0, 50, 90, 99, 100):
        if any(gaps):
            assert trace.itl(q) == percentile(trace.pooled_gaps, q)
            assert trace.itl(q) == pytest.approx(
                percentile([gap for mine in gaps for gap in mine], q), abs=1e-12
            )
        tails = [
            inf if end == inf else percentile(mine, q) if mine else 0.0
            for mine, end in zip(gaps, trace.finish, strict=True)
        ]
        limits = sorted({0.03, *[tail + side for tail in tails for side in (-1e-9, 1e-9)]})
        for limit in limits[:: 1 + len(limits) // 8]:
            if 0 <= limit < inf:
                assert trace.itl_within(limit, q) == [tail <= limit for tail in tails]


@settings(max_examples=100, deadline=None)
@given(workloads(), deployments(), st.just(inf) | st.floats(0, 5))
def test_percentiles_of_gaps_left_folded_are_those_of_all_gaps(requests, deployment, until):
    unfolded_percentiles_agree(simulate(requests, deployment, until))


@pytest.mark.parametrize("tokens", [20, 256, 1000])
def test_and_where_runs_are_long_and_many(tokens):
    engine = replace(OWN, policy=vllm, asynchronous=True)
    for rate in (0.3, 1, 3):
        unfolded_percentiles_agree(simulate(poisson(rate, 60, 0, 5000, tokens), Collocated(engine)))


@settings(max_examples=100, deadline=None)
@given(workloads(), deployments())
def test_every_token_is_emitted_once_in_order_and_no_step_beats_the_hardware(requests, deployment):
    trace = simulate(requests, deployment)
    assert trace.completed == len(requests)
    for request, times, first, end in zip(
        requests, trace.emitted(), trace.first_token, trace.finish, strict=True
    ):
        assert len(times) == request.output_tokens
        assert all(a < b for a, b in pairwise([request.arrival, *times]))
        assert (times[0], times[-1]) == (first, end)
    for times, worst in zip(trace.gaps(), trace.worst_gap, strict=True):
        assert worst == pytest.approx(max(times, default=0), abs=1e-12)
    before = {}
    for step in trace.steps():
        assert step.start >= before.get(step.engine, 0)
        before[step.engine] = step.end
        if deployment.pools[0].engine.price is not tenth:
            floor = 0.0
            for tokens, past in step.chunks.values():
                floor += prefill(QWEN2_5_7B, tokens, past).flops / L40S.peak_flops
            if step.decodes:
                read = decode_uneven(QWEN2_5_7B, len(step.decodes), len(step.decodes))
                floor = max(floor, ideal_time(read, L40S))
            assert step.end - step.start >= floor


def hard_case(seed):
    """A workload and an engine where places, blocks and budget are short, and much happens at once."""
    draw = random.Random(seed)
    scale, rows, now = draw.choice([40, 200, 1000]), [], 0.0
    for _ in range(draw.randint(1, draw.choice([5, 15, 40]))):
        now += draw.choice([0, 0, 0.125, 0.25, 0.002, 0.02, 0.025, 0.1, draw.random() / 2])
        prompt = draw.choice([1, 15, 16, 17, 32, draw.randint(1, scale)])
        rows.append(
            Request(now, prompt, draw.choice([1, 2, 16, 17, draw.randint(1, 60), draw.randint(20, 100)]))
        )
    need = max((row.prompt_tokens + row.output_tokens) // 16 + 2 for row in rows)
    engine = Engine(
        QWEN2_5_7B,
        L40S,
        token_budget=draw.choice([1, 2, 3, 5, 16, 17, 32, 64, 100, 512, 2048, None]),
        max_num_seqs=draw.choice([1, 2, 3, 4, 8, 256]),
        kv_blocks=draw.choice([need, need + 1, need + draw.randint(1, 10), 2 * need + 3, 3000]),
        policy=vllm,
        asynchronous=draw.random() < 0.5,
        long_prefill_token_threshold=draw.choice([0, 0, 0, 1, 7, 16, 64]),
        decode_context=draw.choice([None, None, 50]),
        price=draw.choice([tenth, step_time, step_time, in_series]),
    )
    route = draw.choice([alternate, least_loaded])
    if draw.random() < 0.5:
        return rows, Collocated(engine, draw.choice([1, 1, 2, 3]), route)
    handoff = draw.choice([0.0, 0.125, 0.3, Pull(0.0), Pull(0.01), Pull(0.3)])
    return rows, Disaggregated(engine, engine, draw.choice([1, 2]), draw.choice([1, 2]), handoff, route)


@pytest.mark.parametrize("block", range(8))
def test_jumping_is_exact_where_everything_is_short(block):
    preempted = runs = steps = 0
    for seed in range(25 * block, 25 * block + 25):
        requests, deployment = hard_case(seed)
        fast, slow = simulate(requests, deployment), simulate(requests, deployment, jump=False)
        assert list(fast.steps()) == list(slow.steps()), seed
        assert fast.emitted() == slow.emitted()
        for column in COLUMNS:
            assert getattr(fast, column) == getattr(slow, column), (seed, column)
        preempted += sum(len(step.preempted) for step in slow.steps())
        unfolded_percentiles_agree(fast)
        runs += sum(len(log) for log in fast.runs)
        steps += sum(len(log) for log in slow.runs)
    assert preempted > 0
    assert runs < steps


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_goes_on_until_something_changes(asynchronous):
    def runs(requests, **change):
        engine = replace(OWN, policy=vllm, asynchronous=asynchronous, **change)
        return [
            (run.steps, len(run.chunks), run.batch) for run in simulate(requests, Collocated(engine)).runs[0]
        ]

    one = [(2, 1, 0), (1, 1, 0), (99, 0, 1)]  # 2 x 2,048 tokens of the prompt, the rest, the answer's
    assert runs([Request(0, 5000, 100)]) == one
    assert runs([Request(0, 5000, 100)] * 2, max_num_seqs=1) == one * 2
    for price in (step_time, in_series):
        assert runs([Request(0, 4097, 3)], price=price) == [(2, 1, 0), (1, 1, 0), (2, 0, 1)]
    before = 24 + asynchronous  # steps; composed a step ahead, an arrival is seen a step later
    both = [(before, 0, 1), (2, 1, 1), (1, 1, 1), (96 - before, 0, 2), (before + 3, 0, 1)]
    assert runs([Request(0, 5000, 100), Request(1, 5000, 100)]) == one[:2] + both
    tight = [(1, 2, 0), (99, 0, 2), (1, 1, 0), (99, 0, 1)]  # a place in the cache for two, at most
    assert runs([Request(0, 500, 100)] * 3, kv_blocks=84) == tight


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", [textbook, vllm])
def test_no_more_steps_are_priced_than_begin_before_the_next_arrival(monkeypatch, policy, asynchronous):
    if asynchronous and policy is textbook:
        return
    engine = replace(CLOCKWORK, policy=policy, asynchronous=asynchronous, decode_context=8)
    asked = []
    durations = StepCost.durations

    def noting(*given):
        found = list(durations(*given))
        asked.append(len(found))
        return found

    monkeypatch.setattr(StepCost, "durations", noting)
    trace = simulate([Request(0, 5, 99), Request(2.1, 5, 5)], Collocated(engine))
    assert all(run.steps <= priced <= run.steps + 1 for priced, run in zip(asked, trace.runs[0], strict=True))
    assert trace.runs[0][1].steps == 16 + asynchronous


@pytest.mark.parametrize("policy", [textbook, vllm])
def test_the_load_of_an_engine_is_what_it_was_sent_and_has_not_finished(policy):
    loads = []

    def noting(arrival, members):
        loads.append([member.load(arrival.time) for member in members])
        return arrival.turn % 2

    requests = [Request(time, 5, 5) for time in (0, 0.01, 0.02, 0.03, 0.7, 5)]
    simulate(requests, Collocated(replace(CLOCKWORK, policy=policy), 2, noting))
    assert loads == [[0, 0], [1, 0], [1, 1], [2, 1], [1, 1], [0, 0]]


def test_a_gap_is_no_longer_than_its_steps_though_the_first_token_came_in_a_longer_one():
    engine = replace(OWN, policy=vllm, kv_blocks=129)
    trace = simulate([Request(0, 2000, 18), Request(0, 16, 40)], Collocated(engine))
    assert any(step.preempted for step in trace.steps())
    longest = max(trace.gaps()[1])
    assert trace.worst_gap[1] == pytest.approx(longest, abs=1e-12)
    assert trace.first_token[1] > longest


@pytest.mark.parametrize("seed", range(12))
def test_blocks_that_many_share_are_reused_and_evicted_in_the_same_order(seed):
    draw = random.Random(seed)
    rows, now = [], 0.0
    for i in range(60):
        now += draw.choice([0, 0.05, 0.3, 1, 5])
        system = (draw.choice(["a", "b"]), draw.choice([15, 16, 47, 160, 400]))
        own = draw.choice([("own", 40), (f"own {i}", draw.randint(1, 200)), ("#7", 33)])
        rows.append(Request(now, (system, own), draw.choice([1, 20, 60])))
    engine = replace(OWN, policy=vllm, prefix_caching=True, kv_blocks=draw.choice([50, 90, 200]))
    deployment = Collocated(replace(engine, asynchronous=bool(seed % 2)))
    fast, slow = simulate(rows, deployment), simulate(rows, deployment, jump=False)
    assert list(fast.steps()) == list(slow.steps())
    assert fast.computed_tokens == slow.computed_tokens
    assert sum(fast.computed_tokens) < sum(row.prompt_tokens for row in rows)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_and_where_arithmetic_is_what_decodes_wait_for(asynchronous):
    quick = replace(L40S, bandwidth=1000 * L40S.bandwidth)
    engine = Engine(QWEN2_5_7B, quick, policy=vllm, asynchronous=asynchronous)
    requests, deployment = poisson(20, 30, 0, 500, 60), Collocated(engine)
    fast, slow = simulate(requests, deployment), simulate(requests, deployment, jump=False)
    assert list(fast.steps()) == list(slow.steps())


def test_arrivals_at_the_very_ends_of_steps_change_nothing_about_it():
    engine = Engine(QWEN2_5_7B, L40S, policy=vllm)
    for asynchronous in (False, True):
        deployment = Collocated(replace(engine, asynchronous=asynchronous))
        first = simulate([Request(0, 3000, 40)], deployment)
        for step in first.steps():
            requests = [Request(0, 3000, 40), Request(step.end, 500, 5), Request(step.end, 20, 1)]
            fast, slow = simulate(requests, deployment), simulate(requests, deployment, jump=False)
            assert list(fast.steps()) == list(slow.steps())


# ------------------------------------------------------------------------------------ what flows back

REAL = replace(OWN, policy=vllm, asynchronous=True)
CACHED = replace(REAL, prefix_caching=True)


LOOKS = 1e-9  # who keeps blocks looks up that often, and sees what arrives meanwhile no sooner


def test_who_keeps_blocks_sees_an_arrival_when_it_next_looks():
    requests = [Request(0.0, 1, 1), Request(0.125, 1, 1)]
    engine = replace(OWN, policy=vllm)
    one, two = (
        simulate(requests, Disaggregated(engine, engine, handoff=Pull(0.5, 0.25, hold=hold)))
        for hold in (False, True)
    )
    assert one.prefill_start[1] == max(0.125, one.prefill_end[0])
    assert two.prefill_start[1] == max(0.125, two.prefill_end[0] + 0.25)


@settings(max_examples=60, deadline=None)
@given(
    workloads(),
    engines(),
    st.sampled_from([0.0, 0.125, 0.3]),
    st.integers(1, 2),
    st.just(inf) | st.floats(0, 5),
)
def test_blocks_that_are_held_change_nothing_where_they_are_plenty(requests, engine, copy, pools, until):
    engine = replace(engine, policy=vllm, kv_blocks=2000)
    free, held = (
        simulate(
            requests,
            Disaggregated(engine, engine, pools, pools, Pull(copy, LOOKS, hold=hold)),
            until,
        )
        for hold in (False, True)
    )
    assert list(free.steps()) == list(held.steps())
    for column in COLUMNS:
        assert getattr(free, column) == getattr(held, column), column


def test_and_a_shared_link_that_is_never_busy_is_like_one_for_everybody():
    fast = Link("fast", 1e15)
    for pools in (1, 2):
        traces = [
            simulate(poisson(1, 40, 0, 3000, 30), Disaggregated(REAL, REAL, pools, pools, Pull(way)))
            for way in (fast, Shared(fast))
        ]
        assert list(traces[0].steps()) == list(traces[1].steps())
        assert traces[0].ttft == traces[1].ttft


def test_copies_that_decode_pulls_over_a_shared_link_queue():
    requests = [Request(0, 1000, 5)] * 4
    for n_decode in (1, 4):
        trace = simulate(requests, Disaggregated(REAL, REAL, 4, n_decode, Pull(Shared(SLOW))))
        starts, ends = sorted(trace.copy_start), sorted(trace.copy_end)
        assert starts[1:] == ends[:-1]
        seconds = 1000 * QWEN2_5_7B.kv_bytes_per_token / SLOW.bandwidth
        assert [end - start for start, end in zip(starts, ends, strict=True)] == pytest.approx([seconds] * 4)


def test_a_slow_link_holds_prefill_up_once_its_memory_is_full_of_what_nobody_has_pulled_yet():
    tight = replace(REAL, kv_blocks=2 * 64 + 1)  # two prompts of 1,024 tokens
    requests = [Request(0, 1024, 5)] * 6
    waits = {}
    for hold in (False, True):
        deployment = Disaggregated(tight, REAL, handoff=Pull(1.0, hold=hold))
        waits[hold] = simulate(requests, deployment)
    assert max(waits[False].prefill_start) < 1
    starts, ends = waits[True].prefill_start, waits[True].copy_end
    assert starts[1] < 1 < starts[2]
    for earlier, later in ((0, 2), (1, 3), (2, 4), (3, 5)):  # a place is free when a pull has been noticed
        assert ends[earlier] <= starts[later] <= ends[earlier] + 0.3
    assert waits[True].completed == 6


def talk(turns=3, first=2000, answer=300, message=100, pause=30.0, rate=0.1, count=3):
    return sessions(rate, count, turns, 0, first, answer, message, pause)


def split(prefill=REAL, decode=REAL, copy=PCIE_4, **options):
    return Disaggregated(prefill, decode, handoff=Pull(copy, **options))


def test_reuse_in_one_direction_and_in_both_is_counted_by_hand():
    requests = [row for row in talk(count=1)]
    prompts = [2000, 2400, 2800]
    assert [row.prompt_tokens for row in requests] == prompts
    none = simulate(requests, split())
    assert (none.computed_tokens, none.sent_tokens, none.fetched_tokens) == (prompts, prompts, [0, 0, 0])
    prefill = simulate(requests, split(CACHED))
    assert prefill.computed_tokens == [2000, 400, 400]  # whole blocks of 16: 2,000 and 2,400 are
    assert prefill.sent_tokens == prompts
    both = simulate(requests, split(CACHED, CACHED, bidirectional=True))
    assert both.fetched_tokens == [0, 299, 299]  # nothing was computed after an answer's last token
    assert both.computed_tokens == [2000, 101, 101]
    assert both.sent_tokens == [2000, 2400 - 2288, 2800 - 2688]  # 2,299 and 2,699 in whole blocks
    assert percentile(both.ttft[1:], 50) < percentile(prefill.ttft[1:], 50) < percentile(none.ttft[1:], 50)


def test_without_a_cache_of_its_own_prefill_pulls_the_whole_history_back():
    both = simulate(talk(count=1), split(bidirectional=True))
    assert both.fetched_tokens == [0, 2299, 2699]
    assert both.computed_tokens == [2000, 101, 101]
    assert both.sent_tokens == [2000, 2400, 2800]


@pytest.mark.parametrize(
    ("change", "fetched"),
    [
        ({"retain": 1.0}, [0, 0, 0]),  # gone when the next turn comes
        ({"recompute_threshold": 300}, [0, 0, 0]),  # not worth it
        ({"recompute_threshold": 299}, [0, 299, 299]),
    ],
)
def test_a_history_is_pulled_if_it_is_still_there_and_long_enough(change, fetched):
    trace = simulate(talk(count=1), split(CACHED, CACHED, bidirectional=True, **change))
    assert trace.fetched_tokens == fetched
    assert trace.completed == 3


def test_an_edited_history_is_pulled_up_to_the_edit():
    first, second, _ = talk(count=1)
    edited = replace(second, prompt=(second.prompt[0], ("other", 300), second.prompt[2]))
    trace = simulate([first, edited], split(bidirectional=True))
    assert trace.fetched_tokens == [0, 2000]
    assert trace.computed_tokens == [2000, 400]


def test_kept_conversations_fill_decode_until_their_time_is_up():
    tight = replace(REAL, kv_blocks=2 * 150 + 1)
    requests = [Request(float(i), 2000, 300, session=i) for i in range(4)]
    deployment = Disaggregated(REAL, tight, handoff=Pull(0.02, bidirectional=True, retain=60))
    trace = simulate(requests, deployment)
    assert trace.completed == 4
    assert max(trace.copy_start[:2]) < 10
    assert [start - end for start, end in zip(trace.copy_start[2:], trace.finish[:2], strict=True)] == (
        pytest.approx([60, 60], abs=0.1)
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(32, 400),
    st.integers(1, 200),
    st.integers(1, 100),
    st.floats(0.5, 20),
    st.integers(1, 2),
    st.sampled_from([PCIE_4, Shared(PCIE_4), Shared(SLOW), 0.0, 0.05]),
    st.booleans(),
)
def test_laws_of_conversations(first, answer, message, pause, pools, copy, asynchronous):
    requests = sessions(1, 4, 3, 1, first, answer, message, pause)
    cached = replace(CACHED, asynchronous=asynchronous)
    way = Pull(copy, bidirectional=True)
    trace = simulate(requests, Disaggregated(cached, cached, pools, pools, way, route=PrefixAware))
    assert trace.completed == len(requests)
    parts = trace.ttft_parts
    assert max(parts["way back"]) > 0 or max(trace.fetched_tokens) == 0 or copy == 0.0
    for row, request in enumerate(requests):
        assert fsum([column[row] for column in parts.values()]) == trace.ttft[row]
        assert all(column[row] >= -1e-12 for column in parts.values())
        assert len(trace.emitted()[row]) == request.output_tokens
        moved = trace.sent_tokens[row] + trace.fetched_tokens[row]
        assert moved <= request.prompt_tokens
        if trace.fetched_tokens[row]:
            assert trace.prefill_start[row] >= trace.back_end[row] >= trace.back_start[row] >= request.arrival
            tokens = trace.fetched_tokens[row]
            link = copy.link if isinstance(copy, Shared) else copy
            if isinstance(link, Link):
                took = trace.back_end[row] - trace.back_start[row]
                assert took == pytest.approx(link.time(tokens * QWEN2_5_7B.kv_bytes_per_token), abs=1e-9)
    by_steps = Counter()
    for step in trace.steps():
        if trace.roles[step.engine] == "prefill":
            by_steps.update({row: tokens for row, (tokens, _) in step.chunks.items()})
    for row, tokens in enumerate(trace.computed_tokens):
        assert tokens == by_steps[row]
        assert 1 <= tokens <= requests[row].prompt_tokens


def test_prefill_and_decode_that_wait_for_each_others_blocks_get_on_when_those_expire():
    tight = replace(REAL, kv_blocks=150)
    requests = sessions(1, 6, 3, 25, 806, 2, 28, 5)
    for retain in (30, 60):
        way = Pull(Shared(SLOW), bidirectional=True, retain=retain)
        trace = simulate(requests, Disaggregated(tight, tight, 1, 2, way))
        assert trace.completed == len(requests)
        assert max(trace.ttft) > retain - 10
        assert 0 < sum(tokens > 0 for tokens in trace.fetched_tokens) < 12


@pytest.mark.parametrize("seed", range(6))
def test_conversations_are_the_same_to_the_last_bit_step_by_step(seed):
    draw = random.Random(seed)
    pause = draw.choice([1, 5, 20])
    requests = sessions(1, 6, 3, seed, draw.randint(20, 900), draw.randint(1, 90), draw.randint(1, 90), pause)
    engine = replace(CACHED, asynchronous=bool(seed % 2), kv_blocks=draw.choice([100, 150, 400]))
    way = Pull(draw.choice([0.02, PCIE_4, Shared(SLOW)]), bidirectional=True, retain=draw.choice([2, 30]))
    deployment = Disaggregated(engine, engine, draw.choice([1, 2]), draw.choice([1, 2]), way)
    fast, slow = simulate(requests, deployment), simulate(requests, deployment, jump=False)
    assert list(fast.steps()) == list(slow.steps())
    assert fast.fetched_tokens == slow.fetched_tokens
    assert fast.sent_tokens == slow.sent_tokens
    for column in COLUMNS:
        assert getattr(fast, column) == getattr(slow, column), column
    assert fast.completed == len(requests)


def test_pulls_back_over_a_shared_link_queue():
    requests = talk(turns=2, first=200, answer=2, message=10, pause=0.6, rate=100, count=3)
    trace = simulate(requests, split(copy=Shared(SLOW), bidirectional=True))
    moved = sorted((a, b) for a, b in zip(trace.back_start, trace.back_end, strict=True) if a < inf)
    assert len(moved) == 3
    assert moved[0][0] < 1
    assert any(end == start for (_, end), (start, _) in pairwise(moved))
    assert all(end <= start for (_, end), (start, _) in pairwise(moved))


def test_what_flows_back_stops_where_it_is_told_to():
    whole = simulate(talk(), split(CACHED, CACHED, bidirectional=True))
    moment = whole.back_start[-1]
    cut = simulate(talk(), split(CACHED, CACHED, bidirectional=True), until=moment)
    assert cut.back_start[-1] == inf
    assert cut.ttft[0] == whole.ttft[0]


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_budget": 0}, "Engine: token_budget=0"),
        ({"token_budget": 2.5}, "Engine: token_budget=2.5"),
        ({"max_num_seqs": 0}, "Engine: max_num_seqs=0"),
        ({"tensor_parallel": True}, "Engine: tensor_parallel=True"),
        ({"kv_blocks": 0}, "Engine: kv_blocks=0"),
        ({"decode_context": 0}, "Engine: decode_context=0"),
        ({"model": LLAMA_3_1_70B}, "Llama-3.1-70B leaves no room for a KV cache on tensor_parallel=1 x L40S"),
        ({"asynchronous": True}, "asynchronous=True is not in the textbook"),
    ],
)
def test_an_impossible_engine_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(REVIEW, **change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Collocated(REVIEW, 0), "Collocated: replicas=0"),
        (lambda: Disaggregated(REVIEW, REVIEW, n_prefill=0), "n_prefill=0"),
        (lambda: Disaggregated(REVIEW, REVIEW, n_decode=0), "n_decode=0"),
        (lambda: Disaggregated(REVIEW, REVIEW, handoff=-1), "handoff=-1"),
        (lambda: Disaggregated(REVIEW, REVIEW, handoff=inf), "handoff=inf"),
        (lambda: Disaggregated(REVIEW, replace(REVIEW, model=LLAMA_3_1_8B)), "use one model"),
    ],
)
def test_an_impossible_deployment_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_request_that_no_empty_cache_could_hold_is_refused_by_row():
    requests = [Request(0, 100, 10), Request(1, 150, 10)]
    with pytest.raises(ValueError, match=r"row 1: 159 tokens of prompt and answer have to be cached"):
        simulate(requests, Collocated(replace(REVIEW, kv_blocks=10)))


def test_what_just_fits_an_empty_cache_is_played():
    small, large = replace(OWN, kv_blocks=1 + 10), replace(OWN, kv_blocks=1000)  # 160 tokens have room
    for deployment, prompt, answer in (
        (Collocated(small), 100, 61),
        (Disaggregated(small, large), 160, 100),
        (Disaggregated(large, small), 100, 61),
    ):
        assert simulate([Request(0, prompt, answer)], deployment).completed == 1
        with pytest.raises(ValueError, match="161 tokens of prompt and answer have to be cached"):
            simulate([Request(0, prompt + 1, answer)], deployment)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(REVIEW, prefix_caching=True), "prefix_caching=True is not in the textbook"),
        (lambda: replace(REVIEW, long_prefill_token_threshold=5), "threshold=5 is not in the textbook"),
        (
            lambda: replace(OWN, policy=vllm, long_prefill_token_threshold=-1),
            "long_prefill_token_threshold=-1",
        ),
        (lambda: Disaggregated(OWN, OWN, handoff=Pull(0.1)), r"handoff=Pull\(...\) is not in the textbook"),
        (lambda: Pull(-0.1), "Pull: copy=-0.1"),
        (lambda: Pull(0.1, idle_poll=0), "Pull: idle_poll=0"),
        (lambda: Pull(0.1, retain=0), "Pull: retain=0"),
        (lambda: Pull(0.1, recompute_threshold=0), "Pull: recompute_threshold=0"),
        (
            lambda: Disaggregated(OWN, replace(OWN, policy=vllm), handoff=Pull(0.1, hold=True)),
            "holds blocks is not in the textbook; use policy=vllm in prefill",
        ),
    ],
)
def test_what_a_policy_does_not_know_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_empty_workload_is_refused():
    with pytest.raises(ValueError, match="no requests"):
        simulate([], Collocated(REVIEW))


def test_overload_ends():
    small = GPU("slow", peak_flops=1e9, bandwidth=1e9, memory=48e9)
    engine = Engine(QWEN2_5_7B, small, efficiency=Efficiency(), token_budget=1)
    trace = simulate(poisson(100, 20, 0, prompt=20, output_tokens=5), Collocated(engine))
    assert trace.completed == 20
