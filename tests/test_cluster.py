"""Sweeps on a cluster: a small one, on this machine. Needs the extra `cluster`."""

from os import _exit

import pytest

distributed = pytest.importorskip("distributed", reason="pip install -e '.[cluster]'")

import dask  # noqa: E402

from lib.goodput import SLO, kept  # noqa: E402
from lib.hardware import L40S  # noqa: E402
from lib.models import QWEN2_5_7B  # noqa: E402
from lib.scheduler import vllm  # noqa: E402
from lib.simulator import Collocated, Disaggregated, Engine, Pull  # noqa: E402
from lib.sweep import sweep  # noqa: E402
from lib.workload import poisson  # noqa: E402

ENGINE = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)
TARGETS = SLO(ttft=2, tpot=0.030), SLO(ttft=2, gap=0.100)
FLEETS = [Disaggregated(ENGINE, ENGINE, n, 3, handoff=Pull(0.020)) for n in (2, 3)] + [Collocated(ENGINE, 4)]


def ask(fleet):
    return kept(fleet, poisson(2, 60, 0), TARGETS)


def die(cell):
    if cell == 2:
        _exit(1)
    return cell


@pytest.fixture(scope="module")
def client():
    # the cells that were with a lost worker are not tried again: one of them may have been what killed it
    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_the_results_are_those_of_one_process(client):
    found = sweep(FLEETS, ask, client.get_executor())
    assert found == sweep(FLEETS, ask)
    assert len(set(found.results.values())) > 1
    assert not found.lost


def test_the_cells_of_a_lost_worker_are_named_and_the_others_are_kept(client):
    cells = range(1, 9)
    found = sweep(cells, die, client.get_executor())
    assert "KilledWorker" in found.lost[2]
    assert sorted([*found.results, *found.lost]) == list(cells)
    assert found.results
    assert all(cell == result for cell, result in found.results.items())
