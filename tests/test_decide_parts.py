"""The parts of the decision by themselves: no load is played here, or a short one."""

from dataclasses import replace
from itertools import pairwise

import pytest

from lib.decide import ROWS, command, handoff, layouts, margin, poisson, questions, recorded
from lib.decide.case import Case
from lib.decide.questions import Verdict
from lib.goodput import SLO
from lib.hardware import A100_80GB, H100_SXM, L40S, PCIE_4
from lib.models import LLAMA_3_1_8B, LLAMA_3_1_70B, QWEN2_5_7B
from lib.roofline import PUBLISHED, Efficiency
from lib.simulator import Disaggregated, percentile, simulate
from lib.workload import Request

GIB = 1 << 30
GUIDE = Case(
    model=QWEN2_5_7B, gpu=L40S, load=poisson(0.4), slo=SLO(ttft=2.0, itl=0.1), link=PCIE_4, handoff_s=None,
    cpu_s_per_request=None, history_can_change=False, gpus=2, tensor_parallel=1, new_tokens=None,
    efficiency=PUBLISHED, timed=False, target=0.9, price_per_gpu_hour=None, seeds=(0, 1),
)  # fmt: skip


@pytest.fixture
def promise(monkeypatch):
    """Let a layout keep the targets as told: keeps(case, deployment, rate) -> share; no load is played."""

    def let(keeps):
        def share(case, deployment, slo=None, rate=None):
            return keeps(case, deployment, rate or case.load.rate)

        def passes(case, deployment, rate=None):
            return share(case, deployment, rate=rate) >= case.target

        for module in (layouts, questions, handoff):
            monkeypatch.setattr(module, "share", share, raising=False)
            monkeypatch.setattr(module, "passes", passes)

    return let


# ------------------------------------------------------------------ loads


@pytest.mark.parametrize(
    ("rate", "count", "drawn"), [(0.5, None, 100), (5, None, 150), (1000, None, 1000), (5, 7, 7)]
)
def test_a_load_has_a_hundred_requests_or_thirty_seconds_of_them(rate, count, drawn):
    assert len(poisson(rate, 10, 5, count=count).draw(rate, 0)) == drawn


def test_two_requests_are_a_recording():
    load = recorded([Request(1.0, 10, 2), Request(3.0, 10, 2)])
    assert load.rate == 0.5
    assert [row.arrival for row in load.draw(1.0, 0)] == [0.0, 1.0]


def test_a_handoff_may_be_twice_as_fast_as_the_link_and_no_faster():
    wire = GUIDE.wire
    assert wire == pytest.approx(0.0188, rel=0.01)
    assert replace(GUIDE, handoff_s=0.5 * wire).handoff == 0.5 * wire
    with pytest.raises(ValueError, match="less than half"):
        replace(GUIDE, handoff_s=0.499 * wire)
    assert replace(GUIDE, link=None, handoff_s=0.5).wire == 0


def test_an_answer_of_two_tokens_is_decoded():
    assert replace(GUIDE, load=poisson(1.0, 100, 2)).output == 2


# ------------------------------------------------------------------ layouts


@pytest.mark.parametrize(
    ("gib", "limits"), [(69.9, (2048, 256)), (70, (8192, 1024)), (159.9, (8192, 1024)), (160, (16384, 1024))]
)
def test_limits_go_by_memory(gib, limits):
    assert layouts.default_limits(replace(H100_SXM, memory=gib * GIB)) == limits


def test_a_budget_of_its_own_limits_requests_too():
    assert layouts.engine(GUIDE).token_budget == 2048
    small = layouts.engine(GUIDE, 100)
    assert (small.token_budget, small.max_num_seqs) == (100, 100)
    assert layouts.engine(GUIDE, 1000).max_num_seqs == 256


def test_only_gpus_that_share_a_model_are_linked():
    four = replace(GUIDE, gpu=A100_80GB, gpus=4)
    assert layouts.engine(four).link is None
    assert layouts.engine(replace(four, tensor_parallel=2)).link is not None


def test_the_split_that_holds_out_longest_is_found_as_the_load_rises_by_thirty_percent(promise):
    rates = set()

    def keeps(holds):
        def share(case, deployment, rate):
            assert deployment.handoff.copy == 0
            rates.add(rate)
            return float(rate <= holds[deployment.n_prefill])

        return share

    five = replace(GUIDE, gpus=5, load=poisson(1.0))
    promise(keeps({1: 1.5, 2: 3.0, 3: 4.0, 4: 1.5}))
    assert layouts.best_split(five) == 3
    rates.clear()
    promise(keeps(dict.fromkeys(range(1, 5), 1e9)))
    assert layouts.best_split(five) == 1
    steps = sorted(rates)
    assert max(steps) == pytest.approx(1.3**11)
    assert all(high / low == pytest.approx(1.3) for low, high in pairwise(steps))
    promise(keeps({}))
    assert layouts.best_split(GUIDE) == 1


@pytest.mark.parametrize(
    ("holds", "asked"), [(0.03, 8), (0.3999, 8), (0.4, 7), (0.79, 7), (0.81, 8), (3.0, 8), (25.0, 8)]
)
def test_goodput_is_found_to_five_percent_by_doubling_and_halving(promise, holds, asked):
    rates = []
    promise(lambda case, deployment, rate: rates.append(rate) or float(rate <= holds))
    found = layouts.sustained(GUIDE, layouts.together(GUIDE))
    assert found <= holds < 1.05 * found
    assert len(rates) == asked


def test_goodput_is_looked_for_from_a_64th_to_64_times_the_load(promise):
    promise(lambda case, deployment, rate: 1.0)
    assert layouts.sustained(GUIDE, layouts.together(GUIDE)) == 64 * 0.4
    promise(lambda case, deployment, rate: 0.0)
    assert layouts.sustained(GUIDE, layouts.together(GUIDE)) == 0


def test_an_option_gives_percentiles_over_requests_and_over_gaps(monkeypatch):
    monkeypatch.setattr(layouts, "sustained", lambda case, deployment: 0.5)
    case = replace(GUIDE, load=poisson(1.0, 3000, 30, count=40), price_per_gpu_hour=1.8)
    layout = layouts.together(case)
    found = layouts.option(case, "two", layout, (0, 0))
    played = [simulate(case.load.draw(1.0, seed), layout) for seed in (0, 1)]
    for q, ttft, itl in ((50, found.ttft_p50, found.itl_p50), (99, found.ttft_p99, found.itl_p99)):
        assert ttft == pytest.approx(sum(percentile(trace.ttft, q) for trace in played) / 2)
        assert itl == pytest.approx(sum(trace.itl(q) for trace in played) / 2)
    assert found.cost == pytest.approx(1e6 * 2 * (1.8 / 3600) / (0.5 * 30))
    assert layouts.option(replace(case, price_per_gpu_hour=None), "two", layout, (0, 0)).cost is None


# ------------------------------------------------------------------ the questions


def test_without_a_target_of_a_kind_that_kind_is_never_late(promise):
    promise(lambda case, deployment, rate: 0.5)
    gaps_only = questions.verdict(replace(GUIDE, slo=SLO(None, itl=0.1)), 1)
    assert (gaps_only.first, gaps_only.rest) == (1.0, 0.5)
    first_only = questions.verdict(replace(GUIDE, slo=SLO(ttft=2.0)), 1)
    assert (first_only.first, first_only.rest) == (0.5, 1.0)


def test_efficiencies_are_tried_a_fifth_off_and_by_the_typical_error(monkeypatch):
    tried = []
    calm = Verdict(questions.STAY, 1.0, 1.0, 1.0, 1.0, 1.0)
    monkeypatch.setattr(margin, "verdict", lambda case, n_prefill: tried.append(case) or calm)
    monkeypatch.setattr(margin, "model_error", lambda model, gpu: (1.25, "x"))
    names = [stress.name for stress in margin.stresses(GUIDE, 1)]
    compute = [case.efficiency.compute / PUBLISHED.compute for case in tried]
    assert compute == pytest.approx([0.8, 1.2, 0.8, 1.0])
    assert [case.efficiency.bandwidth / PUBLISHED.bandwidth for case in tried] == pytest.approx(compute)
    assert names[2] == "all steps 1.25 times as long, this book's typical error"
    assert tried[3].handoff_s == GUIDE.wire * margin.wire_factor()
    assert margin.wire_factor() == pytest.approx(1.3 / GUIDE.wire)
    perfect = margin.scaled(replace(GUIDE, efficiency=Efficiency(0.9, 0.5, 0.001)), 1.2).efficiency
    assert (perfect.compute, perfect.bandwidth, perfect.overhead) == (1.0, pytest.approx(0.6), 0.001)


def test_a_model_is_tried_on_up_to_1024_gpus():
    large = replace(GUIDE, model=LLAMA_3_1_70B, load=poisson(1.0, 20, 5))
    assert "tensor_parallel=4 would do" in questions.fit(large).number
    tiny = replace(large, gpu=replace(L40S, memory=LLAMA_3_1_70B.resident_bytes / 700))
    assert "tensor_parallel=1024 would do" in questions.fit(tiny).number
    none = replace(large, gpu=replace(L40S, memory=LLAMA_3_1_70B.resident_bytes / 1100))
    assert "use a smaller model or a larger GPU" in questions.fit(none).number
    assert questions.room(none, 1) == 0


def test_a_request_may_be_as_long_as_the_room_and_no_longer():
    room = questions.room(GUIDE, 1)
    assert room % 16 == 0
    assert questions.fit(replace(GUIDE, load=poisson(1.0, room - 5, 5))).answer
    assert not questions.fit(replace(GUIDE, load=poisson(1.0, room - 4, 5))).answer
    with pytest.raises(ValueError, match=f"has room for {room}"):
        simulate([Request(0, room + 1, 1)], layouts.together(GUIDE))


def test_forks_name_the_rows_of_the_table(monkeypatch):
    monkeypatch.setattr(questions, "prompts_collide", lambda case: questions.Fork("stalls", True, "", ()))
    seen = Verdict(questions.SPLIT, 0.5, 0.95, 0.5, 0.95, 0.95)
    case = replace(GUIDE, new_tokens=400, cpu_s_per_request=2.5)
    found = [fork.rows for fork in questions.forks(case, seen, 0.5)]
    assert found == [(6,), (7,), (5,), (), (1, 2, 6), (3,), (4,)]


@pytest.mark.parametrize(("cores", "shows"), [(0.99, False), (1.0, True)])
def test_a_core_in_use_shows(cores, shows):
    seen = Verdict(questions.STAY, 1.0, 1.0, 1.0, 1.0, 1.0)
    case = replace(GUIDE, cpu_s_per_request=cores / 0.4)
    *_, last = questions.forks(case, seen, None)
    assert last.answer == shows
    assert bool(list(questions.also(case, seen, 1))) == shows


@pytest.mark.parametrize(("share", "stalls"), [(0.0100, False), (0.0101, True)])
def test_prompts_stall_answers_where_more_than_a_hundredth_of_the_gaps_carry_one(monkeypatch, share, stalls):
    monkeypatch.setattr(questions.Trace, "share_with_prefill", lambda trace, tokens: share * (tokens == 2))
    case = replace(GUIDE, load=poisson(1.0, 2048, 20, count=5))
    found = questions.prompts_collide(case)
    assert found.answer == stalls
    assert found.rows == (1, 2)
    alone = simulate([Request(0, 2048, 1)], layouts.together(case)).ttft[0]
    assert f"{questions.lasting(alone)} each, {questions.percent(alone / 2)} of the time" in found.number


def test_the_last_tokens_of_a_prompt_are_computed_in_a_step_of_their_own():
    one = layouts.engine(GUIDE)
    alone = simulate([Request(0, 2048, 1)], layouts.together(GUIDE)).ttft[0]
    assert questions.prefill_seconds(one, 2048, 2048) == alone
    both = simulate([Request(0, 4096, 1)], layouts.together(GUIDE)).ttft[0]
    assert alone + questions.prefill_seconds(one, 2048, 4096) == pytest.approx(both, rel=1e-12)


def test_more_gpus_are_tried_up_to_eight_times(promise):
    asked = []

    def keeps(enough):
        def share(case, deployment, rate):
            asked.append(case.gpus)
            return float(case.gpus >= enough)

        return share

    for enough, words in ((4, "4 GPUs in one pool"), (9, "16 GPUs in one pool"), (17, "16 GPUs would not")):
        promise(keeps(enough))
        assert questions.more_gpus(GUIDE, 1).startswith(words)
    assert asked[-6:] == [4, 4, 8, 8, 16, 16]


def test_a_limit_of_the_handoff_is_found_to_a_hundredth_of_the_first_token_s(promise):
    promise(lambda case, deployment, rate: float(deployment.handoff.copy <= 0.3))
    found = handoff.handoff_limit(GUIDE, 1)
    assert found <= 0.3 < found + 2.0 / 100


def test_what_is_left_for_copies_is_what_nine_in_ten_do_not_use():
    case = replace(GUIDE, load=poisson(0.4, 2000, 20, count=10), slo=SLO(ttft=2.0))
    played = layouts.traces(case, layouts.apart(case, 1, 0.0))
    used = sorted(ttft for trace in played for ttft in trace.ttft)
    left, margin = handoff.left_for_copies(case, 1)
    assert left == pytest.approx(2.0 - used[17])  # 18 of 20 have as much
    assert margin == pytest.approx(0.08 + sum(trace.itl(50) for trace in played))  # 4 %, and two mean steps


def test_a_split_is_judged_with_its_copies_and_without(promise):
    copies = []

    def keeps(case, deployment, rate):
        if isinstance(deployment, Disaggregated):
            copies.append(deployment.handoff.copy)
            return 0.1 * len(copies)
        return 0.9

    promise(keeps)
    seen = questions.verdict(replace(GUIDE, handoff_s=0.7), 1)
    assert copies == [0.7, 0.0]
    assert (seen.apart, seen.free) == (0.1, 0.2)


# ------------------------------------------------------------------ words and arguments


def test_times_are_said_in_seconds_from_one_on():
    assert [questions.lasting(s) for s in (0.9, 1.0, 1.5)] == ["900 ms", "1 s", "1.5 s"]


def test_a_link_may_be_a_number_of_gigabits():
    assert command.read_link("400").bandwidth == 50e9


BASE = ["--model", "qwen2.5-7b", "--gpu", "L40S"]


def test_what_the_command_line_takes_for_granted():
    got = vars(command.parser().parse_args(BASE))
    numbers = {name: value for name, value in got.items() if type(value) in (int, float)}
    assert numbers == {
        "gpus": 2, "tensor_parallel": 1, "prompt": 8192, "output": 256, "spread": 0.0, "target": 0.9,
    }  # fmt: skip


def test_milliseconds_of_the_command_line_are_seconds_to_decide(monkeypatch):
    asked = {}
    monkeypatch.setattr(command, "decide", lambda *given, **more: asked.update(more, slo=given[3]))
    times = ["--tpot-ms", "30", "--itl-ms", "100", "--gap-ms", "200", "--cpu-ms-per-request", "250"]
    measured = ["--prefill-ms", "700", "--decode-ms", "22.5"]
    command.advise(command.parser().parse_args([*BASE, "--rate", "1", "--ttft-s", "2", *times, *measured]))
    assert asked["slo"] == SLO(2.0, tpot=0.03, itl=0.1, gap=0.2)
    assert asked["cpu_s_per_request"] == 0.25
    assert asked["efficiency"] == margin.reached(QWEN2_5_7B, L40S, 8192, 0.7, 0.0225)


def test_a_time_is_reached_by_one_prompt_and_by_one_stream():
    one = margin.reached(LLAMA_3_1_8B, L40S, 4096, 1.0, 0.05)
    two = margin.reached(LLAMA_3_1_8B, L40S, 4096, 0.5, 0.05, tensor_parallel=2)
    assert two.compute == pytest.approx(one.compute, rel=1e-3)
    assert two.bandwidth == pytest.approx(one.bandwidth / 2, rel=1e-3)
    with pytest.raises(ValueError, match=r"prefill_s=0\.001"):
        margin.reached(LLAMA_3_1_8B, L40S, 4096, 0.001, 0.05)


# ------------------------------------------------------------------ the guide's table

CASES = {  # requests/s, tokens of prompt and answer, seconds to the first token and of a gap, of the handoff
    1: (0.4, 8192, 256, 2.0, 0.1, 0.02),
    2: (0.8, 16384, 256, 5.0, 0.1, 0.04),
    3: (0.4, 8000, 600, 2.0, 0.1, 0.02),
    4: (4.0, 1024, 128, 2.0, 0.3, None),
    5: (0.6, 8192, 256, 0.65, 0.3, 0.02),
    6: (0.4, 8192, 256, 2.0, 0.1, 1.3),
    7: (0.05, 8192, 256, 10.0, 0.1, 0.02),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_the_case_of_a_row_is_this(row):
    load, slo = row.case["workload"], row.case["slo"]
    request = load.draw(load.rate, 0)[0]
    numbers = (load.rate, request.prompt_tokens, request.output_tokens, slo.ttft, slo.itl or slo.tpot)
    assert (*numbers, row.case.get("handoff_s")) == CASES[row.number]
