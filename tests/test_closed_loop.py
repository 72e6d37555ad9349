"""A closed loop, a route by lot, prompts in steps of their own: to play what others measured."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.hardware import H100_SXM
from lib.kernels import ByKernels
from lib.models import LLAMA_3_1_8B
from lib.scheduler import separate, vllm
from lib.simulator import Arrival, Collocated, Disaggregated, Drawn, Engine, Pull, simulate
from lib.workload import ClosedLoop, Request, poisson

ONE = Engine(LLAMA_3_1_8B, H100_SXM, token_budget=512, policy=vllm)
BY_KERNELS = replace(ONE, price=ByKernels())
DEPLOYMENTS = {
    "one": Collocated(ONE),
    "kernels": Collocated(BY_KERNELS),
    "asynchronous": Collocated(replace(ONE, asynchronous=True)),
    "three by lot": Collocated(ONE, 3, Drawn(1)),
    "separate": Collocated(replace(ONE, policy=separate)),
    "split": Disaggregated(ONE, ONE, 1, 2, 0.01),
    "pulled": Disaggregated(ONE, ONE, 2, 1, Pull(0.01)),
}
loops = st.builds(
    lambda streams, more, prompt, output, share, seed: ClosedLoop(
        streams, streams + more, prompt, output, share, seed
    ),
    st.integers(1, 6),
    st.integers(0, 12),
    st.integers(1, 1500),
    st.integers(1, 40),
    st.sampled_from([0.3, 0.8, 1.0]),
    st.integers(0, 3),
)


@settings(deadline=None, max_examples=40)
@given(loops, st.sampled_from(sorted(DEPLOYMENTS)))
def test_every_request_is_played_and_never_more_than_the_streams_are_in_progress(loop, name):
    trace = simulate(loop, DEPLOYMENTS[name])
    assert trace.completed == len(trace) == loop.requests
    assert [(one.prompt, one.output_tokens) for one in trace.requests] == list(loop.lengths())
    assert trace.arrival == sorted(trace.arrival)
    changes = [(time, 1) for time in trace.arrival] + [(time, -1) for time in trace.finish]
    inside = 0
    for _, change in sorted(changes):  # who leaves at a moment leaves before who comes
        inside += change
        assert inside <= loop.streams
    assert set(trace.arrival[loop.streams :]) <= set(trace.finish)  # sent at the moment of an answer


@settings(deadline=None, max_examples=20)
@given(loops, st.sampled_from(["one", "kernels", "asynchronous", "separate", "pulled"]))
def test_longer_strides_change_nothing(loop, name):
    fast, slow = (simulate(loop, DEPLOYMENTS[name], jump=jump) for jump in (True, False))
    assert (fast.arrival, fast.first_token, fast.finish) == (slow.arrival, slow.first_token, slow.finish)


def test_one_stream_is_one_request_after_the_other():
    loop = ClosedLoop(1, 4, 700, 30, 0.5, 2)
    trace = simulate(loop, Collocated(BY_KERNELS))
    assert trace.arrival[0] == 0
    assert trace.arrival[1:] == trace.finish[:-1]
    for ttft, e2e, (prompt, output) in zip(trace.ttft, trace.e2e, loop.lengths(), strict=True):
        alone = simulate([Request(0, prompt, output)], Collocated(BY_KERNELS))
        assert (ttft, e2e) == pytest.approx((alone.ttft[0], alone.e2e[0]), rel=1e-9)


def test_as_many_streams_as_requests_are_a_burst():
    loop = ClosedLoop(5, 5, 900, 20)
    together = [Request(0.0, 900, 20)] * 5
    for deployment in DEPLOYMENTS.values():
        assert simulate(loop, deployment).finish == simulate(together, deployment).finish


def test_a_loop_has_no_end_before_its_end():
    with pytest.raises(ValueError, match=r"until=3.0"):
        simulate(ClosedLoop(1, 2), Collocated(ONE), until=3.0)


def test_a_request_of_a_loop_that_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="row 0"):
        simulate(ClosedLoop(1, 2, 1000, 10), Collocated(replace(ONE, kv_blocks=20)))


def test_a_lot_draws_every_instance_about_as_often_and_the_same_way_again():
    drawn = [Drawn(3)(Arrival(turn, 0.0, None), [None] * 4) for turn in range(400)]
    assert drawn == [Drawn(3)(Arrival(turn, 9.0, None), [None] * 4) for turn in range(400)]
    assert drawn != [Drawn(4)(Arrival(turn, 0.0, None), [None] * 4) for turn in range(400)]
    assert all(70 < drawn.count(instance) < 130 for instance in range(4))


def test_prompts_have_steps_of_their_own_and_go_first():
    trace = simulate(poisson(30.0, 30, 1, 900, 40), Collocated(replace(ONE, policy=separate)))
    steps = list(trace.steps())
    assert all(not (step.chunks and step.decodes) for step in steps)
    assert any(step.chunks for step in steps)
    assert trace.completed == 30
    mixed = simulate(poisson(30.0, 30, 1, 900, 40), Collocated(ONE))
    assert max(trace.worst_gap) > max(mixed.worst_gap)  # answers wait for whole prompts


def test_prompts_apart_are_the_same_where_only_one_request_is_there():
    both = [
        simulate([Request(0, 1300, 20)], Collocated(replace(ONE, policy=policy)))
        for policy in (vllm, separate)
    ]
    assert both[0].finish == both[1].finish


def test_an_engine_priced_by_kernels_takes_the_steps_that_the_kernels_say():
    trace = simulate([Request(0, 300, 5)], Collocated(BY_KERNELS))
    steps = ByKernels().seconds_on(BY_KERNELS)
    said = [steps(((300, 0),), 0, 0), *[steps((), 1, 301 + more) for more in range(4)]]
    assert [step.end - step.start for step in trace.steps()] == pytest.approx(said)
    assert all(after.start == before.end for before, after in pairwise(trace.steps()))
