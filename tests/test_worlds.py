"""Worlds: what each changes reaches requests and engines; the best rival is the best of its budgets."""

from dataclasses import replace

import pytest

from lib import worlds
from lib.goodput import SLO
from lib.hardware import A100_80GB, MI300X
from lib.models import LLAMA_3_1_8B, LLAMA_3_1_70B
from lib.roofline import in_series
from lib.simulator import Disaggregated
from lib.worlds import WORLDS, best_goodput, best_pool, one_pool

BOOK = WORLDS[0]
NAMED = {world.name: world for world in WORLDS}
B = SLO(ttft=2, gap=0.1)
SMALL = 12, 512, 32  # requests, tokens of prompt and of answer


def test_the_list_has_every_price_ten_seeds_alone_and_a_change_of_each_other_kind():
    assert {(w.price, w.efficiency) for w in WORLDS} >= {(p, e) for _, p, e in worlds.PRICES}
    assert {w.seeds for w in WORLDS} >= {(seed,) for seed in range(10)}
    assert sorted({w.load for w in WORLDS}) == [0.8, 1.0, 1.2]
    assert {w.horizon for w in WORLDS} == {1, 4}
    assert {w.model for w in WORLDS} == {BOOK.model, LLAMA_3_1_8B}
    assert {w.gpu for w in WORLDS} == {BOOK.gpu, A100_80GB}


def test_a_load_compresses_the_arrivals_and_a_horizon_adds_some():
    plain = BOOK.traffic(1.0, 10)
    busy = replace(BOOK, load=2.0).traffic(1.0, 10)
    long = replace(BOOK, horizon=4).traffic(1.0, 10)
    assert [2 * r.arrival for r in busy] == pytest.approx([r.arrival for r in plain])
    assert len(long) == 40
    assert long[:10] == plain


def test_an_engine_has_the_world_s_price_model_and_gpu_and_what_it_is_told():
    engine = NAMED["kernels in series"].engine(token_budget=256)
    assert (engine.price, engine.token_budget) == (in_series, 256)
    assert NAMED["Llama-3.1-8B"].engine().model == LLAMA_3_1_8B
    assert NAMED[f"an {A100_80GB.name}"].engine().gpu == A100_80GB
    slow, plain = (w.step_seconds(((2048, 0),)) for w in (NAMED["efficiencies down 20 %"], BOOK))
    assert slow == pytest.approx(plain / 0.8, rel=0.01)


def test_another_model_has_its_neighbour_only_where_the_world_has_another():
    assert BOOK.model_like(LLAMA_3_1_70B) == LLAMA_3_1_70B
    assert NAMED["Llama-3.1-8B"].model_like(LLAMA_3_1_70B) == worlds.MODELS[LLAMA_3_1_70B]
    assert BOOK.gpu_like(MI300X) == MI300X
    with pytest.raises(ValueError, match="MI300X"):
        NAMED[f"an {A100_80GB.name}"].gpu_like(MI300X)


def test_what_is_asked_of_several_seeds_is_their_mean():
    pool = one_pool(BOOK, 256)
    alone = [replace(BOOK, seeds=(s,)).attained(pool, 30.0, B, *SMALL) for s in BOOK.seeds]
    assert BOOK.attained(pool, 30.0, B, *SMALL) == pytest.approx(sum(alone) / len(alone))


def test_the_best_pool_is_the_best_of_its_budgets():
    shares = [BOOK.attained(one_pool(BOOK, budget), 4.0, B, 12) for budget in worlds.BUDGETS]
    assert best_pool(BOOK, 4.0, B, 12) == max(shares) > min(shares)
    found = [BOOK.goodput(one_pool(BOOK, b), B, 12, step=0.5) for b in worlds.BUDGETS]
    assert best_goodput(BOOK, B, 12, step=0.5) == max(found) > min(found)


def test_goodput_is_the_highest_rate_of_its_steps_at_which_nine_in_ten_are_served():
    whole = BOOK.engine(token_budget=None)
    apart = Disaggregated(whole, whole, handoff=0.02)
    rate = BOOK.goodput(apart, B, 20, step=0.25)
    assert BOOK.attained(apart, rate, B, 20) >= 0.9 > BOOK.attained(apart, rate + 0.25, B, 20)
