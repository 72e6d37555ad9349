"""The catalogue of GPUs and links: the review's figures, physical bounds, refusals."""

from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.hardware import (
    A10,
    A100_40GB,
    A100_80GB,
    B200,
    B300,
    GPU,
    GPUS,
    H20,
    H100_NVL,
    H100_PCIE,
    H100_SXM,
    H200,
    H800,
    L4,
    L40,
    L40S,
    LINKS,
    MI300X,
    MI325X,
    MI355X,
    NVLINK,
    PCIE_4,
    PCIE_5,
    RDMA_100G,
    RDMA_200G,
    RDMA_400G,
    RTX_PRO_6000,
    Link,
    gbps,
    in_fp8,
)
from lib.page.published import get

every_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
every_link = pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)


@pytest.mark.parametrize("gpu", [L40S, H100_SXM], ids=lambda gpu: gpu.name)
def test_gpus_of_the_review_have_its_figures(gpu):
    published = get("gpus")[gpu.name]
    assert gpu.peak_flops == published["peak_flops"]
    assert gpu.bandwidth == published["bandwidth"]
    assert gpu.memory == published["memory_gb"] * 1e9
    assert gpu.fabric == published.get("nvlink_bytes_per_s")


def test_links_of_the_review_have_its_bandwidths():
    labels = list(get("kv_calculator.qwen_8192_ms"))
    assert ["25 GB/s" in labels[0], "400 Gb/s" in labels[1], "400 GB/s" in labels[2]] == [True] * 3
    assert [PCIE_4.bandwidth, gbps(RDMA_400G.bandwidth), NVLINK.bandwidth] == [25e9, 400, 400e9]


@every_gpu
def test_every_gpu_is_within_physical_bounds(gpu):
    assert 30 < gpu.peak_flops / gpu.bandwidth < 1000  # ridge, FLOP/byte
    assert 100e12 < gpu.peak_flops < 5e15
    assert 0.25e12 < gpu.bandwidth < 10e12
    assert 0.01 < gpu.memory / gpu.bandwidth < 0.1  # all of memory is read in tens of milliseconds
    assert gpu.fabric is None or PCIE_5.bandwidth < gpu.fabric < gpu.bandwidth


def test_a_newer_gpu_of_a_line_is_no_worse_than_the_one_before():
    line = [A100_80GB, H100_SXM, H200, B200]
    for older, newer in pairwise(line):
        for figure in ("peak_flops", "bandwidth", "memory", "fabric"):
            assert getattr(older, figure) <= getattr(newer, figure)


def test_fabrics_are_half_of_what_is_advertised_for_both_directions():
    advertised = {
        A100_80GB: 600e9, H100_SXM: 900e9, H800: 400e9, H200: 900e9, B200: 1.8e12, MI300X: 896e9,
        A100_40GB: 600e9, H100_PCIE: 600e9, H100_NVL: 600e9, H20: 900e9, B300: 1.8e12,
        MI325X: 896e9, MI355X: 1075.2e9,
    }  # fmt: skip
    assert {gpu: 2 * gpu.fabric for gpu in GPUS if gpu.fabric} == advertised


def test_links_to_single_neighbours_carry_only_their_part_of_the_fabric():
    assert [MI300X.fabric_in(degree) for degree in (2, 4, 8)] == [64e9, 192e9, 448e9]
    assert [H100_SXM.fabric_in(degree) for degree in (2, 4, 8)] == [450e9] * 3
    assert [H100_NVL.fabric_in(degree) for degree in (2, 4)] == [300e9, None]


def test_products_are_computed_at_the_peak_of_their_arithmetic_or_of_the_next_wider():
    assert [B200.peak(kind) for kind in ("bf16", "fp8", "fp4")] == [2250e12, 4500e12, 9000e12]
    assert [H100_SXM.peak(kind) for kind in ("bf16", "fp8", "fp4")] == [989e12, 1979e12, 1979e12]
    assert [A10.peak(kind) for kind in ("bf16", "fp8", "fp4")] == [125e12] * 3
    with pytest.raises(ValueError, match="arithmetic='int3'"):
        A10.peak("int3")


def test_dense_flops_are_half_of_those_with_sparsity():
    advertised = {
        L40S: 733e12,
        A10: 250e12,
        A100_80GB: 624e12,
        H100_SXM: 1979e12,
        H800: 1979e12,
        H200: 1979e12,
        B200: 4500e12,
        MI300X: 2614.9e12,
        L4: 242e12,
        L40: 362.1e12,
        A100_40GB: 624e12,
        H100_PCIE: 1513e12,
        H100_NVL: 1671e12,
        H20: 296e12,
        B300: 4500e12,
        RTX_PRO_6000: 1000e12,
        MI325X: 2614.9e12,
        MI355X: 5033.2e12,
    }
    assert {gpu: 2 * gpu.peak_flops for gpu in GPUS} == pytest.approx(advertised, rel=0.013)


@every_gpu
def test_fp8_runs_at_twice_the_rate_where_it_runs(gpu):
    if gpu.fp8_flops:
        assert gpu.fp8_flops == pytest.approx(2 * gpu.peak_flops, rel=0.013)
        assert in_fp8(gpu) == replace(gpu, peak_flops=gpu.fp8_flops)
    else:
        assert gpu in (A10, A100_40GB, A100_80GB)  # Ampere has none
        with pytest.raises(ValueError, match=f"in_fp8: {gpu.name} has no fp8_flops"):
            in_fp8(gpu)


def test_usable_pcie_is_below_the_wire_and_rdma_at_line_rate():
    for link, transfers_per_second in ((PCIE_4, 16e9), (PCIE_5, 32e9)):
        wire = transfers_per_second * 16 * 128 / 130 / 8
        assert 0.75 < link.bandwidth / wire < 0.9
    assert [gbps(link.bandwidth) for link in (RDMA_100G, RDMA_200G, RDMA_400G)] == [100, 200, 400]
    assert NVLINK.bandwidth < H100_SXM.fabric


@pytest.mark.parametrize("catalogue", [GPUS, LINKS])
def test_names_are_unique_and_every_entry_has_a_source_of_its_own(catalogue):
    assert len({entry.name for entry in catalogue}) == len(catalogue)
    for entry in catalogue:
        assert len(entry.source) > 8
        assert entry.source != "given by the reader"


@every_link
@given(nbytes=st.integers(0, 10**13))
def test_a_link_takes_its_latency_and_then_the_bytes(link, nbytes):
    slow_start = replace(link, latency=3e-6)
    assert link.time(nbytes) == nbytes / link.bandwidth
    assert slow_start.time(nbytes) == pytest.approx(3e-6 + link.time(nbytes))
    assert link.time(nbytes + 1) >= link.time(nbytes)


@pytest.mark.parametrize("figure", ["peak_flops", "bandwidth", "memory", "fabric", "fp8_flops"])
@pytest.mark.parametrize("value", [0, -1.0, nan, inf, True, "3e12"])
def test_a_gpu_refuses_what_is_no_positive_number(figure, value):
    with pytest.raises(ValueError, match=f"GPU: {figure}=.*use a finite number above 0"):
        replace(L40S, **{figure: value})


@pytest.mark.parametrize(
    ("figure", "value"), [("bandwidth", 0), ("bandwidth", nan), ("latency", -1e-6), ("latency", inf)]
)
def test_a_link_refuses_impossible_figures(figure, value):
    with pytest.raises(ValueError, match=f"Link: {figure}="):
        replace(PCIE_4, **{figure: value})


@pytest.mark.parametrize("make", [lambda name: GPU(name, 1e14, 1e12, 1e10), lambda name: Link(name, 1e9)])
def test_a_name_is_needed(make):
    assert make("x").name == "x"
    with pytest.raises(ValueError, match="name=' ' says nothing"):
        make(" ")


def test_a_transfer_of_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="nbytes=-1"):
        PCIE_4.time(-1)
