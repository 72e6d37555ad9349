import time

import pytest

from lib.timing import seconds


def test_the_least_of_the_timed_runs_is_returned():
    waits = iter([0, 0.05, 0.02, 0.06])  # to warm up, then three
    assert 0.02 <= seconds(lambda: time.sleep(next(waits)), repeats=3) < 0.05


def test_what_comes_before_is_not_timed_and_comes_before_each_run():
    calls = []
    before = lambda: (calls.append("before"), time.sleep(0.02))  # noqa: E731
    assert seconds(lambda: calls.append("work"), repeats=2, before=before) < 0.02
    assert calls == ["before", "work"] * 3


def test_no_run_is_refused():
    with pytest.raises(ValueError, match="repeats=0"):
        seconds(lambda: None, repeats=0)
