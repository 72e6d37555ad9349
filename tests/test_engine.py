"""What an engine's steps cost, and how many blocks its cache has."""

from dataclasses import replace

import pytest

from lib.hardware import A100_80GB, H100_SXM, L40S
from lib.models import LLAMA_3_1_8B, QWEN2_5_7B
from lib.roofline import InSeries, in_series
from lib.simulator import Engine
from lib.simulator.engine import ByWork, step_cost

SLOW_MEMORY = replace(L40S, bandwidth=L40S.bandwidth / 100)
FAST_MEMORY = replace(L40S, bandwidth=L40S.bandwidth * 1000)
DEAR = InSeries(attention=0.25, rereads=3, slowdown=1.15, per_request=0.001)
ENGINES = [
    Engine(QWEN2_5_7B, gpu, **more)
    for gpu in (L40S, A100_80GB, H100_SXM, SLOW_MEMORY, FAST_MEMORY)
    for more in ({}, {"decode_context": 50}, {"price": in_series}, {"price": DEAR}, {"tensor_parallel": 2})
] + [Engine(LLAMA_3_1_8B, L40S)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chunks", [(), ((300, 20),)])
def test_steps_in_a_row_cost_what_each_costs_alone(engine, chunks):
    paid = step_cost(engine)
    for batch in (1, 2, 150, *range(280, 430, 3), 800, 1000):
        context = paid.context(batch, batch * 100)
        alone = [paid.seconds(*paid.later(chunks, batch, context, step)) for step in range(3)]
        assert list(paid.durations(chunks, batch, context, 3)) == alone


@pytest.mark.parametrize("price", [in_series, DEAR])
@pytest.mark.parametrize("chunks", [(), ((300, 20),), ((7, 0), (2000, 9000))])
@pytest.mark.parametrize("batch", [0, 1, 150, 1000])
def test_kernels_in_series_cost_what_their_work_does_though_found_from_coefficients(price, chunks, batch):
    if chunks or batch:
        engine = Engine(QWEN2_5_7B, L40S, price=price)
        slowly = ByWork(price).seconds_on(engine)(chunks, batch, batch * 100)
        assert engine.step_seconds(chunks, batch, batch * 100) == pytest.approx(slowly, rel=1e-12)


def test_one_block_of_cache_has_to_fit_beside_the_weights():
    block = 16 * QWEN2_5_7B.kv_bytes_per_token
    full = (QWEN2_5_7B.resident_bytes + block) / 0.9
    assert Engine(QWEN2_5_7B, replace(L40S, memory=full + block / 2)).blocks == 1
    with pytest.raises(ValueError, match="leaves no room for a KV cache"):
        Engine(QWEN2_5_7B, replace(L40S, memory=full - block / 2))
