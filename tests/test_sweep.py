from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from os import _exit

import pytest

from lib.hardware import L40S
from lib.models import QWEN2_5_7B
from lib.simulator import Collocated, Engine, percentile, simulate
from lib.sweep import grid, sweep
from lib.workload import poisson


def median_ttft(rate, seed):
    return percentile(simulate(poisson(rate, 20, seed), Collocated(Engine(QWEN2_5_7B, L40S), 2)).ttft, 50)


def root(x):
    if x < 0:
        raise ValueError("no root")
    return x**0.5


def die(x):
    if x == 3:
        _exit(1)
    return x


CELLS = grid(rate=(0.4, 1.0), seed=(0, 1, 2))


def test_a_grid_is_every_combination_in_order():
    assert grid(a=(1, 2), b="xy") == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_the_results_are_the_same_whatever_the_executor():
    here = sweep(CELLS, median_ttft)
    assert list(here.results) == CELLS
    assert not here.lost
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2) as processes:
        for executor in (threads, processes):
            assert sweep(CELLS, median_ttft, executor) == here


def test_progress_counts_every_cell():
    seen = []
    sweep([1, 4, -1], root, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(1)])
def test_a_cell_that_fails_is_named_and_the_others_are_kept(executor):
    found = sweep([4, -1, 9], root, executor)
    assert found.results == {4: 2, 9: 3}
    assert found.lost == {-1: "ValueError: no root"}


def test_the_cells_of_a_lost_worker_are_named():
    with ProcessPoolExecutor(1) as processes:
        found = sweep([1, 2, 3, 4], die, processes)
    assert "BrokenProcessPool" in found.lost[3]
    assert set(found.results) | set(found.lost) == {1, 2, 3, 4}


@pytest.mark.parametrize(("cells", "message"), [([], "cells is empty"), ([1, 2, 1], "cell 1 stands twice")])
def test_a_sweep_without_sense_is_refused(cells, message):
    with pytest.raises(ValueError, match=message):
        sweep(cells, root)
