"""Efficiencies: what the kernel database gives, and how near its idea of ideal is to the book's."""

import re
from dataclasses import replace

import pytest

from lib import data
from lib.calibration import (
    COVERED,
    DATABASE,
    DECODES,
    PREFILL,
    STAND_INS,
    efficiency,
    seconds,
    shares,
    stand_in,
)
from lib.hardware import GPUS, H200, L40S, MI300X
from lib.models import QWEN2_5_7B
from lib.roofline import bound, decode, ideal_time, prefill, step_time

covered = pytest.mark.parametrize("gpu", COVERED, ids=lambda gpu: gpu.name)


@covered
def test_the_books_roofline_is_within_15_percent_of_the_databases_speed_of_light(gpu):
    assert shares(gpu, "speed_of_light") == pytest.approx([1, 1, 1, 1], abs=0.15)


@covered
def test_nothing_was_measured_faster_than_either_ideal(gpu):
    works = (PREFILL, *DECODES)
    for work, measured, light in zip(works, seconds(gpu), seconds(gpu, "speed_of_light"), strict=True):
        assert ideal_time(work, gpu) < measured
        assert light < measured


def test_the_works_are_those_that_the_database_says_it_timed():
    setup = data.measurements()[DATABASE]["setup"]
    prompt = int(re.search(r"prefill of (\d+) tokens", setup)[1])
    batches = [int(batch) for batch in re.search(r"batch ([\d, ]+)", setup)[1].split(",") if batch.strip()]
    assert prefill(QWEN2_5_7B, prompt) == PREFILL
    assert tuple(decode(QWEN2_5_7B, batch, prompt) for batch in batches) == DECODES


@covered
def test_prefill_calibrates_arithmetic_and_decode_bandwidth(gpu):
    assert bound(PREFILL, gpu) == "compute"
    assert [bound(work, gpu) for work in DECODES] == ["memory"] * 3
    reached = efficiency(gpu)
    assert step_time(PREFILL, gpu, reached) == pytest.approx(seconds(gpu)[0])
    for work, measured in zip(DECODES, seconds(gpu)[1:], strict=True):
        assert step_time(work, gpu, reached) == pytest.approx(measured, rel=0.15)


def test_every_gpu_of_the_catalogue_has_an_efficiency_and_some_are_borrowed():
    assert set(COVERED) | set(STAND_INS) == set(GPUS)
    assert not set(COVERED) & set(STAND_INS)
    assert set(STAND_INS.values()) <= set(COVERED)
    for gpu in GPUS:
        assert 0.4 < efficiency(gpu).compute < 0.9
        assert 0.5 < efficiency(gpu).bandwidth < 0.9
        assert efficiency(gpu).overhead == 0
        assert efficiency(gpu) == efficiency(stand_in(gpu))
    assert stand_in(MI300X) == H200


def test_another_gpu_has_none_published():
    with pytest.raises(ValueError, match="none published for mine; use the efficiency of one of L40S, "):
        efficiency(replace(L40S, name="mine"))
