"""A client that plays an answer at a steady pace: when it has to wait, and what a buffer hides."""

from itertools import accumulate
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.playout import waits

GAPS = st.lists(st.floats(0, 3), max_size=30)
STALLED = [0.0, 0.1, 0.2, 1.2, 1.3]  # one stall, of 0.9 s more than a step


def times(gaps):
    return list(accumulate(gaps, initial=1.0))


def test_a_client_as_fast_as_the_stream_waits_for_all_of_a_stall():
    assert waits(STALLED, pace=10) == pytest.approx([0, 0, 0, 0.9, 0])


def test_a_buffer_hides_as_much_as_it_is_long():
    assert waits(STALLED, pace=10, buffer=0.5) == pytest.approx([0, 0, 0, 0.4, 0])
    assert waits(STALLED, pace=10, buffer=0.9) == pytest.approx([0] * 5, abs=1e-12)


def test_a_slow_client_has_a_cushion_of_its_own():
    assert waits(STALLED, pace=2.5) == [0] * 5
    assert waits(STALLED, pace=4) == pytest.approx([0, 0, 0, 0.45, 0])


def test_an_answer_of_no_or_one_token_has_no_waits():
    assert waits([], 10) == []
    assert waits([3.0], 10) == [0]


@given(gaps=GAPS, pace=st.floats(0.5, 50), buffer=st.floats(0, 3))
def test_the_last_token_is_played_when_its_pace_its_buffer_and_its_waits_say(gaps, pace, buffer):
    came = times(gaps)
    found = waits(came, pace, buffer)
    played = [came[0] + buffer + i / pace + fsum(found[: i + 1]) for i in range(len(came))]
    assert all(at > time - 1e-9 for at, time in zip(played, came, strict=True))  # nothing before it is there
    waited = [at for at, wait in zip(played, found, strict=True) if wait]
    late = [time for time, wait in zip(came, found, strict=True) if wait]
    assert waited == pytest.approx(late)  # and what is waited for is played when it comes


@given(gaps=GAPS, pace=st.floats(0.5, 50), buffer=st.floats(0, 3))
def test_a_buffer_hides_its_length_of_all_that_is_waited(gaps, pace, buffer):
    without, behind = fsum(waits(times(gaps), pace)), fsum(waits(times(gaps), pace, buffer))
    assert behind == pytest.approx(max(0.0, without - buffer), abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"pace": 0}, "pace=0"),
        ({"pace": 10, "buffer": -1}, "buffer=-1"),
        ({"pace": 10, "times": [1.0, 0.5]}, r"times=\[1.0, 0.5\]"),
    ],
)
def test_what_will_not_do_is_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        waits(**{"times": STALLED, **arguments})
