"""Numbers that a caller gets without asking: part of the interface, so a change of one has to be meant."""

from inspect import signature

import pytest

from lib import (
    cut_points,
    decide,
    goodput,
    hardware,
    images,
    kv_cache,
    models,
    parsers,
    prefix_cache,
    roofline,
    scheduler,
    simulator,
    timing,
    transformer,
    workload,
)

DEFAULTS = {
    cut_points.tensor_bytes: {"bytes_per_value": 4},
    cut_points.patch_bytes: {"patch": 14, "frames": 2, "bytes_per_value": 4},
    cut_points.image_hops: {"side": 640},
    cut_points.state_bytes: {"bytes_per_state": 4, "bytes_per_value": 2},
    cut_points.Cut: {"fixed": 0},
    cut_points.cuts: {"prompt_tokens": 8192, "output_tokens": 256, "images": 4, "side": 640},
    decide.poisson: {"prompt": 8192, "output": 256, "spread": 0.0, "hit_rate": 0.0},
    decide.Timed: {"tensor_parallel": 1},
    decide.Case: {"gpus": 2, "target": 0.9},
    decide.table.box: {"prompt": 8192, "output": 256},
    simulator.Collocated: {"replicas": 1},
    simulator.Pull: {"idle_poll": 0.0005, "retain": 480.0, "recompute_threshold": 64},
    simulator.Disaggregated: {"n_prefill": 1, "n_decode": 1, "handoff": 0.0},
    simulator.Engine: {
        "tensor_parallel": 1,
        "token_budget": 2048,
        "max_num_seqs": 256,
        "long_prefill_token_threshold": 0,
    },
    goodput.goodput: {"target": 0.9, "precision": 0.01, "highest": 64.0},
    hardware.Link: {"latency": 0.0},
    images.photo: {"width": 1920, "height": 1080, "seed": 0},
    images.noise: {"width": 1920, "height": 1080, "seed": 0},
    images.jpeg: {"quality": 85},
    images.prepare: {"width": 640, "height": 640},
    images.patchify: {"patch": 14, "merge": 2, "frames": 2},
    images.unpatchify: {"patch": 14, "merge": 2, "frames": 2},
    images.preparation_seconds: {"width": 640, "height": 640, "repeats": 5},
    kv_cache.blocks: {"block_tokens": 16},
    kv_cache.block_bytes: {"block_tokens": 16},
    models.Experts: {"d_shared": 0, "expert_vectors": 0, "vectors": 0},
    models.Model: {
        "block": 1,
        "embedding_bytes": 2,
        "head_bytes": 2,
        "cache_bytes": 2,
        "bytes_per_value": 2,
        "vectors": 0,
        "lookups": 0,
    },
    models.Model.held: {"degree": 1},
    models.Model.kv_bytes: {"streams": 1},
    parsers.replay_work: {"characters": 4},
    prefix_cache.vllm_request: {"block_tokens": 16, "recompute_below": 64},
    roofline.prefill: {"past": 0},
    roofline.Efficiency: {"compute": 1.0, "bandwidth": 1.0, "overhead": 0.0},
    roofline.InSeries: {"rereads": 1.0, "slowdown": 1.0, "per_request": 0.0},
    scheduler.Job: {
        "num_external_tokens": 0,
        "num_computed_tokens": 0,
        "emitted": 0,
        "in_flight": 0,
        "recompute_threshold": 1,
        "hashed": 0,
    },
    scheduler.Plan: {"steps": 1},
    scheduler.Limits: {"long_prefill_token_threshold": 0},
    timing.seconds: {"repeats": 5},
    simulator.Trace.share_with_prefill: {"tokens": 1},
    transformer.Transformer: {"seed": 0, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "d_ff": 128},
    workload.poisson: {"prompt": 8192, "output_tokens": 256, "share": 1.0},
}


@pytest.mark.parametrize("function", DEFAULTS, ids=lambda function: function.__qualname__)
def test_what_is_not_asked_for_is(function):
    defaults = {name: parameter.default for name, parameter in signature(function).parameters.items()}
    numbers = {name: value for name, value in defaults.items() if type(value) in (int, float)}
    assert numbers == DEFAULTS[function]
