import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.workload import Request, check, from_rows, poisson, read_csv


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
    assert read_csv(path) == (Request(0.5, 100, 10), Request(0.75, 200, 20))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"arrival_s": "nan"}, r"row 1: Request: arrival=nan"),
        ({"arrival_s": "-3"}, r"row 1: Request: arrival=-3.0"),
        ({"arrival_s": "0.1"}, r"row 1: arrival=0.1 lies before row 0's 0.5"),
        ({"arrival_s": "soon"}, r"row 1: could not convert"),
        ({"prompt_tokens": ""}, r"row 1: no prompt_tokens"),
        ({"output_tokens": "2.5"}, r"row 1: invalid literal"),
    ],
)
def test_a_bad_row_is_named(cells, message):
    good = {"arrival_s": "0.5", "prompt_tokens": "100", "output_tokens": "10"}
    with pytest.raises(ValueError, match=message):
        from_rows([good, good | cells])
