"""Gaps left folded: how finely they are counted, and how that is kept small."""

from array import array

import pytest

from lib.engine import Engine, prices
from lib.gaps import Gaps
from lib.hardware import L40S
from lib.log import Log, Run
from lib.models import QWEN2_5_7B
from lib.trace import _Longest

PRICES = prices(Engine(QWEN2_5_7B, L40S))


def log_of(lengths):
    """A log of runs of one step each, that long."""
    log = Log()
    log.start = log.shortest = log.longest = array("d", lengths)
    log.steps = log.context = array("q", [1]) * len(lengths)
    log.batch = array("i", [1]) * len(lengths)
    log.chunks_end = array("q", [0]) * len(lengths)
    return log


@pytest.mark.parametrize(
    ("runs", "bins"), [(1, 64), (129, 64), (130, 65), (2 * 65535, 65535), (3 * 65536, 65536)]
)
def test_there_is_a_bin_for_every_second_run_within_limits(runs, bins):
    gaps = Gaps([(PRICES, log_of(range(1, runs + 1)))], [])
    assert len(gaps.most) == len(gaps.least) == bins
    assert gaps.count == runs
    assert (gaps._bin(1), gaps._bin(runs)) == (0, bins - 1 if runs > 1 else 0)


def test_without_tokens_there_are_no_gaps():
    gaps = Gaps([(PRICES, Log())], [])
    assert gaps.count == 0
    assert gaps.everything() == {}


def test_gaps_that_are_not_one_step_count_as_much_as_others():
    log = Log()
    log.add(Run(0.0, 1, ((0, 5, 0),), ((5, 0),), 2, 40, 0, (), [0.5]))
    log.add(Run(0.5, 1, ((0, 5, 5),), ((5, 5),), 3, 40, 1, (), [0.25]))
    single = [0.125, 0.125, 0.3, 0.5, 2.0]
    gaps = Gaps([(PRICES, log)], single)
    expected = sorted([0.5, 0.5, 0.25, 0.25, *single])
    assert [gaps.at(rank) for rank in range(gaps.count)] == expected
    assert gaps.everything() == {0.125: 2, 0.25: 2, 0.3: 1, 0.5: 3, 2.0: 1}


@pytest.mark.parametrize("runs", [10, 1000, 3000])
def test_the_longest_are_looked_for_among_three_runs_in_ten(runs):
    longest = _Longest(PRICES, log_of(range(runs)))
    assert len(longest.big) == 3 * runs // 10
