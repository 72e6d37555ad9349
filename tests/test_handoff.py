"""Handoffs: the face of the simulator, and that a new kind of handoff or of price is one class."""

import importlib
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.simulator
from lib.hardware import L40S, PCIE_4, Link
from lib.models import QWEN2_5_7B
from lib.roofline import in_series, step_time
from lib.scheduler import vllm
from lib.simulator import Collocated, Disaggregated, Engine, Pull, Shared, Streamed, simulate
from lib.simulator.engine import ByWork
from lib.simulator.handoff import Handoff
from lib.workload import Request, poisson

ENGINE = Engine(QWEN2_5_7B, L40S, policy=vllm, asynchronous=True)
FACE = ["Arrival", "Collocated", "Deployment", "Disaggregated", "Drawn", "Engine", "PrefixAware", "Pull"]
FACE += [
    "Shared",
    "Step",
    "Streamed",
    "Trace",
    "alternate",
    "least_loaded",
    "percentile",
    "replay",
    "simulate",
]


def test_the_simulator_has_one_face():
    assert lib.simulator.__all__ == FACE
    rooms = ["deployment", "engine", "fast_forward", "fleet", "handoff", "instance", "log", "replay", "trace"]
    shown = {name for name in vars(lib.simulator) if not name.startswith("_")}
    assert shown == {*FACE, *rooms}
    assert all(importlib.import_module(f"lib.simulator.{room}").__doc__ for room in rooms)


# ---------------------------------------------------------- a handoff that the simulator does not know


@dataclass(frozen=True)
class Relay(Handoff):
    """A store between the pools: the cache is written in one go, and read in another."""

    write: Link
    read: Link

    def seconds(self, model, tokens):
        size = model.kv_bytes(tokens)
        return self.write.time(size) + self.read.time(size)


@dataclass(frozen=True)
class Fetched(Relay):
    """The same, read and written when decode asks for it, one request after the other."""

    idle_poll: float = 0.001

    pulled = True
    queues = True


@pytest.mark.parametrize("kind", [Relay, Fetched])
@pytest.mark.parametrize("jump", [True, False])
def test_a_new_handoff_is_one_class(kind, jump):
    relay = kind(PCIE_4, Link("slow", 1e9))
    fleet = Disaggregated(ENGINE, ENGINE, 2, 2, handoff=relay)
    trace = simulate(poisson(1, 30, 0, 4000, 20), fleet, jump=jump)
    assert trace.completed == 30
    alone = fleet.transfer_time(4000)
    assert alone == pytest.approx(4000 * QWEN2_5_7B.kv_bytes_per_token * (1 / PCIE_4.bandwidth + 1e-9))
    took = [end - start for start, end in zip(trace.copy_start, trace.copy_end, strict=True)]
    assert took == pytest.approx([alone] * 30)
    moves = sorted(zip(trace.copy_start, trace.copy_end, strict=True))
    if kind is Fetched:
        assert all(end <= start for (_, end), (start, _) in pairwise(moves))
    else:
        assert trace.copy_start == trace.prefill_end
    parts = trace.ttft_parts
    assert parts["transfer"] == took
    assert all(part >= -1e-12 for column in parts.values() for part in column)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(0, 9))
def test_and_jumping_changes_nothing_about_it(n_prefill, n_decode, pulled, seed):
    kind = Fetched if pulled else Relay
    fleet = Disaggregated(ENGINE, ENGINE, n_prefill, n_decode, handoff=kind(PCIE_4, PCIE_4))
    requests = poisson(4, 12, seed, 900, 9)
    fast, slow = simulate(requests, fleet), simulate(requests, fleet, jump=False)
    assert list(fast.steps()) == list(slow.steps())
    assert fast.ttft_parts == slow.ttft_parts


def test_what_waits_for_a_policy_that_pulls_is_refused_in_the_textbook():
    with pytest.raises(ValueError, match="not in the textbook"):
        Disaggregated(replace(ENGINE, policy=lib.simulator.engine.textbook, asynchronous=False), ENGINE,
                      handoff=Pull(0.1, hold=True))  # fmt: skip


@pytest.mark.parametrize("copy", [Streamed(PCIE_4), Pull(0.1)])
def test_what_cannot_be_pulled_is_refused(copy):
    with pytest.raises(ValueError, match=r"Pull: copy=.* cannot be pulled; use seconds or a link"):
        Pull(copy)


@pytest.mark.parametrize(
    "way", [0.25, PCIE_4, Shared(PCIE_4), Streamed(PCIE_4), Pull(PCIE_4), Relay(PCIE_4, PCIE_4)]
)
def test_a_handoff_takes_as_long_as_it_says_when_nothing_else_is_on_the_way(way):
    fleet = Disaggregated(ENGINE, ENGINE, handoff=way)
    trace = simulate([Request(0, 4000, 3)], fleet)
    took = trace.copy_end[0] - trace.copy_start[0]
    alone = fleet.transfer_time(4000)
    assert took == pytest.approx(alone) or (isinstance(way, Streamed) and took < alone)


# ------------------------------------------------------------------ a price that the simulator does not know


@dataclass(frozen=True)
class PerToken:
    """A price from the composition of a step: seconds a token computed, and as many a cached block."""

    token: float

    def seconds_on(self, engine):
        return lambda chunks, batch, context: (
            self.token * (sum(tokens for tokens, _ in chunks) + batch + context / 16 / engine.tensor_parallel)
        )


def test_a_new_price_is_one_class():
    engine = replace(ENGINE, price=PerToken(0.001), asynchronous=False)
    trace = simulate([Request(0, 3000, 3)], Collocated(engine))
    lengths = [step.end - step.start for step in trace.steps()]
    assert lengths == pytest.approx([2.048, 0.952, 0.001 * (1 + 3001 / 16), 0.001 * (1 + 3002 / 16)])
    slow = simulate([Request(0, 3000, 3)], Collocated(engine), jump=False)
    assert trace.emitted() == slow.emitted()
    assert engine.step_seconds(((100, 0),), 2, 160) == pytest.approx(0.112)


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 9000)), max_size=3).map(tuple),
    st.integers(0, 300),
    st.integers(1, 9000),
)
def test_the_short_way_to_the_price_of_a_step_is_the_price(chunks, batch, each):
    if chunks or batch:
        step = chunks, batch, batch * each
        long_way = ByWork(step_time).seconds_on(ENGINE)(*step)
        assert ENGINE.step_seconds(*step) == pytest.approx(long_way, rel=1e-12)
        assert replace(ENGINE, price=in_series).step_seconds(*step) >= long_way * (1 - 1e-12)
