import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.workload import ClosedLoop, Request, bursts, check, lengths, poisson, read


def test_poisson_arrivals_are_running_sums_of_the_seeded_generators_gaps():
    gap = random.Random(3).expovariate
    expected = [gap(0.4)]
    for _ in range(4):
        expected.append(expected[-1] + gap(0.4))
    assert [request.arrival for request in poisson(0.4, 5, seed=3)] == expected


@given(st.floats(0.01, 100), st.integers(0, 10))
def test_the_same_seed_at_another_rate_is_the_same_pattern_stretched(rate, seed):
    once, again = poisson(1, 20, seed), poisson(rate, 20, seed)
    assert [b.arrival * rate for b in again] == pytest.approx([a.arrival for a in once], rel=1e-12)


def test_a_prompt_of_labelled_parts_is_as_long_as_its_parts():
    assert Request(0, (("system", 4096), ("user", 200)), 6).prompt_tokens == 4296


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((-1, 10, 1), r"arrival=-1 is no time"),
        ((float("nan"), 10, 1), r"arrival=nan is no time"),
        ((float("inf"), 10, 1), r"arrival=inf is no time"),
        ((True, 10, 1), r"arrival=True is no time"),
        ((0, 0, 1), r"prompt=0 is too short"),
        ((0, 1.5, 1), r"prompt=1.5 is no prompt"),
        ((0, True, 1), r"prompt=True is no prompt"),
        ((0, (), 1), r"prompt=\(\) has an empty part"),
        ((0, (("a", 0),), 1), r"has an empty part"),
        ((0, 10, 0), r"output_tokens=0 is not a count"),
        ((0, 10, 2.0), r"output_tokens=2.0 is not a count"),
    ],
)
def test_an_impossible_request_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Request(*fields)


def test_an_empty_workload_is_refused():
    with pytest.raises(ValueError, match="no requests"):
        check([])


def test_arrivals_that_go_backwards_are_refused_by_row():
    with pytest.raises(ValueError, match=r"row 2: arrival=1 lies before row 1's 2"):
        check([Request(0, 1, 1), Request(2, 1, 1), Request(1, 1, 1)])


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="rate="):
        poisson(rate, 10, 0)


def test_a_workload_is_read_from_a_file(tmp_path):
    path = tmp_path / "workload.csv"
    path.write_text("prompt_tokens,arrival_s,output_tokens\n100,0.5,10\n200,0.75,20\n")
    assert tuple(read(path)) == (Request(0.5, 100, 10), Request(0.75, 200, 20))


# ------------------------------------------------------------------ drawn lengths, bursts, closed loops


@given(st.integers(1, 5000), st.integers(1, 500), st.floats(0.001, 1), st.integers(0, 5))
def test_lengths_lie_between_a_share_and_all(prompt, answer, share, seed):
    drawn = lengths(50, seed, prompt, answer, share)
    for longest, values in ((prompt, [pair[0] for pair in drawn]), (answer, [pair[1] for pair in drawn])):
        assert max(1, int(share * longest)) <= min(values)
        assert max(values) <= longest


def test_any_length_is_as_likely():
    drawn = [pair[0] for pair in lengths(20_000, 0, 10, 10, 0.8)]
    assert sorted(set(drawn)) == [8, 9, 10]
    assert all(drawn.count(value) == pytest.approx(20_000 / 3, rel=0.05) for value in (8, 9, 10))


def test_a_share_of_one_draws_nothing_and_leaves_arrivals_alone():
    assert lengths(3, 0, (("a", 5),), 2) == (((("a", 5),), 2),) * 3
    equal, drawn = poisson(1, 20, 3, 100, 50), poisson(1, 20, 3, 100, 50, share=0.5)
    assert [row.arrival for row in equal] == [row.arrival for row in drawn]
    assert {(row.prompt, row.output_tokens) for row in equal} == {(100, 50)}
    assert tuple((row.prompt, row.output_tokens) for row in drawn) == lengths(20, 3, 100, 50, 0.5)


def test_bursts_come_at_once_and_a_pause_apart():
    rows = bursts(3, 2, 1.5, 100, 10)
    assert [row.arrival for row in rows] == [0, 0, 0, 1.5, 1.5, 1.5]
    assert check(rows) == rows
    drawn = bursts(2, 2, 0, 100, 10, share=0.1, seed=4)
    assert tuple((row.prompt, row.output_tokens) for row in drawn) == lengths(4, 4, 100, 10, 0.1)


def test_a_closed_loop_has_lengths_and_no_arrivals():
    loop = ClosedLoop(streams=4, requests=10, prompt=100, output_tokens=20, share=0.5, seed=2)
    assert loop.lengths() == lengths(10, 2, 100, 20, 0.5)
    assert ClosedLoop(4, 4).lengths() == ((8192, 256),) * 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"streams": 0}, "streams=0"),
        ({"requests": True}, "requests=True"),
        ({"requests": 3}, "requests=3 leave streams idle; use at least 4"),
        ({"share": 0}, "share=0"),
        ({"share": 1.5}, "share=1.5"),
        ({"prompt": 0}, "prompt=0"),
        ({"output_tokens": 0}, "output_tokens=0"),
        ({"prompt": (("a", 9),), "share": 0.5}, "has no length to draw"),
    ],
)
def test_a_loop_that_could_not_run_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        ClosedLoop(**{"streams": 4, "requests": 10} | change)


def test_a_number_too_large_for_a_float_is_no_arrival():
    with pytest.raises(ValueError, match="is no time"):
        Request(10**400, 5, 5)
    with pytest.raises(ValueError, match="rate="):
        poisson(10**400, 5, 0)
    with pytest.raises(ValueError, match="pause="):
        bursts(1, 1, 10**400)
