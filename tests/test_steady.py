"""The steady run: what a load comes to does not depend on when one stopped looking."""

from dataclasses import replace
from functools import partial

import pytest

from lib.decide import ROWS, Case, poisson
from lib.decide.layouts import Pool, Split, apart, together
from lib.goodput import SLO
from lib.hardware import A100_80GB, H100_SXM, H200, L40S, PCIE_4, RDMA_400G
from lib.models import GPT_OSS_120B, LLAMA_3_1_8B, LLAMA_3_1_70B, QWEN2_5_7B
from lib.simulator import simulate
from lib.steady import MOST, agree, batch_error, judged, known, settle

ONE = Case(QWEN2_5_7B, L40S, poisson(0.8), SLO(2, itl=0.1), PCIE_4)
CASES = [
    *((row.case, Pool(row.case.gpus, 1)) for row in ROWS),
    *((row.case, Split(row.case.gpus - 1, 1, 1, 1)) for row in ROWS[:2]),
    (ONE, Split(1, 1, 1, 1)),
    (Case(LLAMA_3_1_8B, A100_80GB, poisson(4, 2000, 300, 0.5), SLO(1, tpot=0.05), PCIE_4, 4), Pool(4, 1)),
    (Case(LLAMA_3_1_70B, H100_SXM, poisson(3, 4096, 512), SLO(2, itl=0.06), RDMA_400G, 16),
     Split(3, 4, 1, 4)),
    (Case(GPT_OSS_120B, H200, poisson(10, 3000, 300), SLO(1, itl=0.05), RDMA_400G, 8), Pool(8, 1)),
    (Case(QWEN2_5_7B, L40S, poisson(0.05, 1000, 8000), SLO(2, tpot=0.05), PCIE_4), Pool(2, 1)),
]  # fmt: skip


def deployed(case, layout):
    return together(case, layout) if isinstance(layout, Pool) else apart(case, layout, case.copy)


@pytest.mark.parametrize("price", ["roofline", "kernels"])
@pytest.mark.parametrize(("case", "layout"), CASES, ids=range(len(CASES)))
def test_four_times_the_horizon_changes_no_answer_and_no_share_by_more_than_it_said(case, layout, price):
    case = replace(case, price=price)
    draw = partial(case.load.draw, case.load.rate)
    short = settle(deployed(case, layout), draw, case.slo, case.target, rough=0.1)
    count = 4 * len(short.trace)
    long = settle(deployed(case, layout), draw, case.slo, case.target, count, count)
    assert short.steady or len(short.trace) == MOST  # which says of itself that queues still grow
    assert short.steady or price == "kernels"
    assert (short.share >= case.target) == (long.share >= case.target)
    assert abs(short.share - long.share) <= short.spread + long.spread


def test_what_grows_is_found_out():
    crowd = replace(ONE, load=poisson(2.6))
    found = settle(deployed(crowd, Split(1, 1, 1, 1)), partial(crowd.load.draw, 2.6), SLO(ttft=1e4))
    assert not found.steady
    assert len(found.trace) == MOST


def test_who_fails_while_queues_still_grow_is_not_played_on():
    crowd = replace(ONE, load=poisson(1.9))
    found = settle(deployed(crowd, Split(1, 1, 1, 1)), partial(crowd.load.draw, 1.9), SLO(ttft=2), 0.9)
    assert len(found.trace) < MOST
    assert found.share < 0.9


def test_neither_the_beginning_nor_the_end_is_judged():
    trace = simulate(ONE.load.draw(0.8, 200), deployed(ONE, Pool(2, 1)))
    start, end = judged(trace)
    usual = sorted(trace.e2e)[179]
    assert start >= 50
    assert trace.arrival[-1] - trace.arrival[end - 1] >= usual > trace.arrival[-1] - trace.arrival[end]


def test_a_trend_is_told_from_noise():
    trend = [float(i) for i in range(400)]
    assert not agree(trend, batch_error(trend))
    noise = [float(i * 7919 % 100) for i in range(400)]
    assert agree(noise, batch_error(noise))


def test_a_share_of_few_is_known_badly_even_if_all_agree():
    assert known([1.0] * 10)[1] > known([1.0] * 1000)[1] > 0
