"""Others' measurements: the form of a file, what is refused, and the facts typed a second time."""

import re
from collections import Counter
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import data
from lib.measurements import (
    ENGINES,
    FIGURE,
    GPU_NAMES,
    LOADS,
    PRECISIONS,
    REQUIRED,
    SETUP,
    Lengths,
    Measurement,
    Pool,
    measurements,
    parse,
    read,
)

SOURCE = """
[source]
id = "s"
title = "A source"
address = "https://example.org/a"
seen = 2026-12-01
"""
ENTRY = {
    "id": '"s-one"',
    "locator": '"table 1"',
    "model": '"Qwen3-8B"',
    "precision": '"bf16"',
    "gpu": '"H200"',
    "engine": '"vLLM"',
    "version": '"0.11.0"',
    "prompt_tokens": "1024",
    "streams": "[4, 8]",
    "ttft_mean_ms": "[10, 12.50]",
}


def written(source=SOURCE, without=(), **changes):
    """Return a file of one measurement, with some of its fields changed, added or left out."""
    fields = {name: value for name, value in (ENTRY | changes).items() if name not in without}
    return source + "[[measurement]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


def one(**changes):
    (found,) = parse(written(**changes), "s.toml")
    return found


def refusal(text):
    with pytest.raises(ValueError, match=r"^s\.toml: ") as error:
        parse(text, "s.toml")
    return str(error.value)


# ---------------------------------------------------------------------------------------- the form


def test_a_series_gives_a_set_up_for_each_of_its_points():
    found = one()
    assert [figure.path for figure in found.figures] == [("ttft_mean_ms", "0"), ("ttft_mean_ms", "1")]
    assert [figure.setups[0].amount for figure in found.figures] == [4, 8]
    assert [str(figure.printed) for figure in found.figures] == ["10", "12.50"]
    assert {figure.unit for figure in found.figures} == {"ms"}
    assert found.figures[0].setups[0].output_tokens == Lengths(1, 1, 1)
    assert found.source.seen == date(2026, 12, 1)


def test_lists_of_a_measurement_go_together():
    found = one(prompt_tokens="[100, 200]", tensor_parallel="[1, 2]")
    assert [(f.setups[0].prompt_tokens.mean, f.setups[0].shared.gpus) for f in found.figures] == [
        (100, 1),
        (200, 2),
    ]


@pytest.mark.parametrize(
    ("told", "lengths"),
    [
        ("8192", Lengths(8192, 8192, 8192)),
        ("{ max = 8192, share = 0.5 }", Lengths(6144, 4096, 8192)),
        ("{ max = 512, share = 1 }", Lengths(512, 512, 512)),
        ("{ mean = 371.9 }", Lengths(371.9, None, None)),
    ],
)
def test_lengths_are_all_the_same_or_a_spread_or_a_mean(told, lengths):
    assert one(prompt_tokens=told).figures[0].setups[0].prompt_tokens == lengths


def test_pools_are_shared_or_apart():
    assert one(instances="2", tensor_parallel="4").figures[0].setups[0].pools == (Pool(2, 4),)
    apart = one(prefill="{ instances = 8 }", decode="{ tensor_parallel = 4 }").figures[0].setups[0]
    assert apart.pools == (Pool(8), Pool(1, 4))
    assert apart.shared is None
    assert (one().figures[0].setups[0].front, apart.front) == (1, 2)


def test_gpus_of_a_pool_are_its_instances_times_the_degrees_that_multiply():
    assert Pool(2, 4).gpus == 8
    assert Pool(1, 8, expert_parallel=8).gpus == 8
    assert Pool(1, 1, expert_parallel=4, data_parallel=4).gpus == 4
    assert Pool(1, 2, pipeline_parallel=2).gpus == 4


def test_what_is_lowest_or_highest_or_grows_is_one_number_over_the_series():
    found = one(ttft_p99_lowest_ms="9", layer_compute_growth="2.1")
    *_, lowest, growth = found.figures
    assert [setup.amount for setup in lowest.setups] == [4, 8]
    assert (lowest.unit, growth.unit, len(growth.setups)) == ("ms", "times", 2)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("e2e_p95_s", "s"),
        ("step_ms", "ms"),
        ("requests_per_s", "req/s"),
        ("requests_per_s_per_gpu", "req/s per GPU"),
        ("output_tokens_per_s_per_gpu", "tokens/s per GPU"),
        ("met_percent", "%"),
    ],
)
def test_a_figure_has_the_unit_of_its_name(name, unit):
    assert one(**{name: "[1, 2]"}).figures[-1].unit == unit


def test_what_is_taken_makes_a_set_up_unknown():
    assert one().known
    assert not one(output_tokens="{ mean = 300 }").known
    found = one(taken='{ gpu = "which is not said" }', chosen_late='["gpu"]')
    assert not found.known
    assert found.chosen_late == ("gpu",)


def test_a_figure_that_gave_a_constant_is_marked():
    assert [figure.constant for figure in one(constant='["ttft_mean_ms/0"]').figures] == [True, False]
    assert [figure.constant for figure in one(constant='["ttft_mean_ms"]').figures] == [True, True]


def test_a_file_is_read_from_a_path(tmp_path):
    (tmp_path / "s.toml").write_text(written(), "utf8")
    assert read(tmp_path / "s.toml") == parse(written(), "s.toml")


# ---------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpu": '"H201"'}, "s-one: gpu='H201' will not do; use 'H20"),
        ({"gpu": "80"}, "s-one: gpu=80 will not do; use one of L40S, A10"),
        ({"precision": '"fp7"'}, "s-one: precision='fp7' will not do; use 'fp8'"),
        ({"engine": '"vllm"'}, "s-one: engine='vllm' will not do; use 'vLLM'"),
        ({"tensor_parallel": "0"}, "s-one: tensor_parallel=0 will not do; use a whole number of at least 1"),
        ({"tensor_paralel": "2"}, "s-one: tensor_paralel=2 will not do; is 'tensor_parallel' meant?"),
        ({"prompt_tokens": "1.5"}, "s-one: prompt_tokens=1.5 will not do; use a whole number"),
        (
            {"prompt_tokens": "{ max = 8 }"},
            "s-one: prompt_tokens={'max': 8} will not do; use a whole number, {",
        ),
        (
            {"prompt_tokens": "{ max = 8, share = 2 }"},
            "prompt_tokens.share=2 will not do; use a number above 0",
        ),
        ({"rate": "2"}, "s-one: load='rate and streams' will not do; give exactly one of rate, streams"),
        (
            {"arrivals": '"constant"'},
            "s-one: arrivals='constant' will not do; leave it out: a load by streams",
        ),
        ({"link": '"NVLink"'}, "s-one: link='NVLink' will not do; leave it out: a link joins prefill and"),
        ({"prefill": "{ instances = 1 }"}, "s-one: decode is missing; prefill needs it"),
        (
            {"prefill": "{ gpus = 1 }", "decode": "{ instances = 1 }"},
            "s-one: gpus=1 will not do; it is no field",
        ),
        ({"ttft_mean_ms": "[10]"}, "s-one: series='streams 2, ttft_mean_ms 1' will not do; use lists of one"),
        ({"ttft_mean_ms": "10"}, "s-one: ttft_mean_ms=10 will not do; use a list of 2"),
        ({"ttft_mean_ms": "[10, 0]"}, "s-one: ttft_mean_ms/1=0 will not do; use a finite number above 0"),
        ({"ttft_mean_ms": "[10, nan]"}, "s-one: ttft_mean_ms/1=NaN will not do; use a finite number above 0"),
        ({"ttft_mean_ms": "[10, true]"}, "s-one: ttft_mean_ms/1=True will not do; use a finite number"),
        ({"ttft_mean_ms": '[10, "12"]'}, "s-one: ttft_mean_ms/1='12' will not do; use a finite number"),
        (
            {"streams": "4"},
            "s-one: ttft_mean_ms=[10, Decimal('12.50')] will not do; give a list in the set-up",
        ),
        (
            {"streams": "4", "ttft_mean_ms": "10", "itl_p99_lowest_ms": "3"},
            "itl_p99_lowest_ms=3 will not do; use",
        ),
        (
            {"constant": '["tpot_mean_ms/0"]'},
            "constant='tpot_mean_ms/0' will not do; use some of ttft_mean_ms/0",
        ),
        ({"taken": '{ gpus = "?" }'}, "s-one: gpus='?' will not do; is 'gpu' meant?"),
        (
            {"chosen_late": '["link"]'},
            "s-one: chosen_late='link' will not do; use some of model, precision, ",
        ),
        ({"id": '"t-one"'}, "t-one: id='t-one' will not do; begin it with the source's id, 's'"),
        (
            {"prompt_tokens": "{ max = 8, share = nan }"},
            "prompt_tokens.share=NaN will not do; use a number above",
        ),
        ({"requests": "1" + "0" * 400}, "will not do; use a whole number of at least 1"),
        ({"ttft_mean_ms": "[10, 1e-400]"}, "ttft_mean_ms/1=1E-400 will not do; use a finite number above 0"),
        ({"ttft_mean_ms": "[10, 1e400]"}, "ttft_mean_ms/1=1E+400 will not do; use a finite number above 0"),
        ({"streams": "[4, 100001]"}, "s-one: streams=100001 will not do; use at most 100,000"),
        ({"instances": "100001"}, "s-one: instances=100001 will not do; use at most 100,000"),
        ({"mxfp4": '"cutlass"'}, "s-one: mxfp4='cutlass' will not do; use one of marlin, fp8"),
        ({"mxfp4": '"marlin"'}, "s-one: mxfp4='marlin' will not do; leave it out: precision='bf16'"),
        ({"shared_tokens": "1025"}, "shared_tokens=1025 will not do; use at most a prompt's 1024 tokens"),
        ({"met_percent": "[100, 150]"}, "met_percent=150 will not do; use a percentage of at most 100"),
        ({"ttft_p00_ms": "[1, 2]"}, "ttft_p00_ms=[1, 2] will not do; "),
        (
            {"tpot_mean_ms": "[1, 2]"},
            "tpot_mean_ms=1 will not do; give output_tokens: an answer of one token",
        ),
        ({"prefix_caching": "1"}, "s-one: prefix_caching=1 will not do; use true or false"),
        ({"locator": '" "'}, "s-one: locator=' ' will not do; use a string that is not empty"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_would_do(changes, says):
    message = refusal(written(**changes))
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("name", [*REQUIRED, "id", "locator", "streams", "ttft_mean_ms"])
def test_a_field_that_is_missing_is_named(name):
    says = {"streams": "load|a list", "ttft_mean_ms": "figures", "id": "id"}.get(name, name)
    changes = {"ttft_mean_ms": "10"} if name == "streams" else {}
    assert re.search(rf"({says}).* (is missing|will not do)", refusal(written(without=[name], **changes)))


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("offline = true", "requests is missing; say how many come at once"),
        ("highest_rate = true", "promise is missing; say what the rate has to keep"),
        ("offline = false", "offline=False will not do; use true, or leave it out"),
    ],
)
def test_a_load_needs_what_makes_it_one(load, says):
    name, value = load.split(" = ")
    assert says in refusal(written(without=["streams"], ttft_mean_ms="10", **{name: value}))


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("2026-12-01", '"2026-12-01"', "source.seen='2026-12-01' will not do; use a date such as 2026-12-01"),
        ("https://example.org/a", "example", "source.address='example' will not do; use an address"),
        ('id = "s"', 'id = "S 1"', "source.id='S 1' will not do; use small letters"),
        ('title = "A source"', "", "source.title is missing"),
        ("seen", 'published = "May"\nseen', "source.published='May' will not do; use a date in quotes"),
        ("seen", 'licence = "MIT"\nseen', "licence='MIT' will not do; it is no field"),
        ("[source]", "[origin]", "origin={"),
        (SOURCE, "", "s-one: source is missing; begin the file with a table [source]"),
    ],
)
def test_a_source_says_who_where_and_when(was, now, says):
    assert says in refusal(written(source=SOURCE.replace(was, now)))


def test_a_file_that_is_no_toml_or_has_no_measurement_is_refused():
    assert "use valid TOML" in refusal("[source")
    assert "measurement is missing; use at least one table [[measurement]]" in refusal(SOURCE)


def test_an_id_is_used_once():
    assert "s-one: id='s-one' will not do; use an id that is not yet taken" in refusal(
        written() + written(source="")
    )


def test_what_cannot_be_read_is_collected_where_one_asks_for_it(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(written() + written(source="", id='"s-two"', gpu='"H1"'), "utf8")
    refused = []
    assert [found.id for found in read(path, refused)] == ["s-one"]
    assert len(refused) == 1
    assert refused[0].startswith("s.toml: s-two: gpu='H1' will not do; ")


PLAIN = [
    f"{10**400}",
    "0",
    "1",
    "-2",
    "64",
    "1.5",
    "1e400",
    "nan",
    "-inf",
    "1e-400",
    "true",
    "2026-12-01",
    '""',
    '"H200"',
]
PARTS = ["mean", "max", "share", "instances", "p50", "ttft_s", "gpu", '"a\\nb"']
VALUES = st.one_of(
    st.sampled_from(PLAIN),
    st.lists(st.sampled_from([*PLAIN, "{ mean = 3 }"]), max_size=3).map(
        lambda items: f"[{', '.join(items)}]"
    ),
    st.builds("{{ {} = {} }}".format, st.sampled_from(PARTS), st.sampled_from([*PLAIN, "[1, 2]", "{}"])),
)
NAMES = st.sampled_from(
    [*SETUP, *ENTRY, "taken", "constant", "itl_p99_lowest_ms", "setup", "source", "in_8_tp1"]
)


@given(
    changes=st.dictionaries(NAMES, VALUES, max_size=4), without=st.sets(st.sampled_from([*ENTRY]), max_size=2)
)
@settings(max_examples=100, deadline=None)
def test_whatever_stands_in_a_file_it_is_read_or_refused_in_one_line(changes, without):
    try:
        found = parse(written(without=without, **changes), "s.toml")
    except ValueError as error:
        found, message = [], str(error)
        assert re.fullmatch(r"s\.toml: .+", message)
    assert all(isinstance(item, Measurement) and item.figures for item in found)
    assert all(0 < figure.measured < float("inf") for item in found for figure in item.figures)


# ---------------------------------------------------------------------------------------- set-ups in prose

LOOSE = r'''
[[measurement]]
id = "m"
source = "somebody"
setup = """gpt-oss-120b MXFP4, vllm 0.18.0/nan, h200_sxm, outputs 1024; closed loop: so many streams; \
prompts and answers of random length up to those given; prefix caching off"""
state = "open"
in_1024_tp2 = { streams = [4, 8], ttft_mean_ms = [63.82, 67.92], tpot_mean_ms = [4.796, 5.954] }
in_8192_tp1 = { streams = [4, 8], ttft_mean_ms = [407.6, 514.2] }
'''


def loosely(setup, figures="in_1024_tp2 = { streams = [4, 8], ttft_mean_ms = [1, 2] }"):
    return f'[[measurement]]\nid = "m"\nsource = "somebody"\nsetup = "{setup}"\n{figures}\n'


def setup(prose, figures="in_1024_tp2 = { streams = [4, 8], ttft_mean_ms = [1, 2] }"):
    return parse(loosely(prose, figures), "s.toml")[0].figures[0].setups[0]


def test_keys_give_lengths_and_degrees_and_prose_the_rest():
    first, second = parse(LOOSE, "s.toml")
    told = first.figures[0].setups[0]
    assert (first.id, second.id) == ("m-in_1024_tp2", "m-in_8192_tp1")
    assert (told.model, told.precision, told.gpu, told.engine) == ("gpt-oss-120b", "mxfp4", "H200", "vLLM")
    assert (told.version, told.shared, told.load, told.amount) == ("0.18.0", Pool(1, 2), "streams", 4)
    assert (told.prompt_tokens.high, told.output_tokens.high) == (1024, 1024)
    assert set(first.taken) == {"prompt_tokens", "output_tokens"}
    assert [str(figure.printed) for figure in first.figures] == ["63.82", "67.92", "4.796", "5.954"]
    assert second.figures[1].setups[0].prompt_tokens.high == 8192


@pytest.mark.parametrize(
    ("prose", "told"),
    [
        ("Llama-3.1-70B FP8, sglang 0.5.6, h100_sxm", ("Llama-3.1-70B", "fp8", "H100 SXM", "SGLang")),
        ("Qwen/Qwen3-235B-A22B-FP8 on 8 MI300X, vLLM", ("Qwen3-235B-A22B", "fp8", "MI300X", "vLLM")),
        ("OPT-13B fp16, one A100 80 GB, TensorRT-LLM", ("OPT-13B", "fp16", "A100 80 GB SXM", "TensorRT-LLM")),
        ("Qwen2.5-7B-Instruct-GPTQ-Int4, two servers of 4 x A10", ("Qwen2.5-7B", "int4", "A10", "unknown")),
        ("Llama-2-70B bf16, L40S, vllm 0.6.3", ("Llama-2-70B", "bf16", "L40S", "vLLM")),
        ("DeepSeek-R1 fp4, b200_sxm, trtllm 1.2.0", ("DeepSeek-R1", "nvfp4", "B200", "TensorRT-LLM")),
    ],
)
def test_model_precision_gpu_and_engine_are_found_in_prose(prose, told):
    found = setup(prose)
    assert (found.model, found.precision, found.gpu, found.engine) == told


def test_pools_and_load_are_found_in_prose():
    found = setup(
        "gpt-oss-120b, 8 x TP1 prefill + 2 x TP4 decode on 16 H200, 5,400 prompts of 5,000, outputs 250, "
        "45 req/s for 120 s, vLLM 0.27.1",
        "pd = { ttft_mean_ms = 518 }",
    )
    assert found.pools == (Pool(8, 1), Pool(2, 4))
    assert (found.load, found.amount, found.requests, found.duration_s) == ("rate", 45, 5400, 120)
    assert (found.prompt_tokens.mean, found.output_tokens.mean) == (5000, 250)
    one_each = setup("Qwen3-8B, H800, TP8, 1P1D, vLLM, one request at a time, prompts 512", "ttft_ms = 60")
    assert one_each.pools == (Pool(1, 8), Pool(1, 8))
    assert (one_each.load, one_each.amount) == ("streams", 1)


@pytest.mark.parametrize(
    ("prose", "load", "amount"),
    [
        ("one request at a time, prompts 512", "streams", 1),
        ("16 streams, prompts 512", "streams", 16),
        ("concurrency 64, inputs of 512", "streams", 64),
        ("batch size 8, prompts 512", "batch", 8),
        ("prompts 512, 2.5 req/s", "rate", 2.5),
        ("offline, 1,000 requests, prompts 512", "offline", 0),
    ],
)
def test_the_load_is_found_in_prose(prose, load, amount):
    found = setup(f"Qwen3-8B, H200, vLLM, {prose}", "e2e_mean_s = 1")
    assert (found.load, found.amount, found.prompt_tokens.mean) == (load, amount, 512)


def test_a_load_beside_the_figures_takes_the_place_of_that_in_prose():
    found = setup("Qwen3-8B, H200, vLLM, 4 req/s, batch 2", "in_8_tp1 = { streams = [3], ttft_ms = [1] }")
    assert (found.load, found.amount) == ("streams", 3)
    found = setup("Qwen3-8B, H200, vLLM, 4 req/s", "rate = [1, 2]\nin_8_tp1 = { ttft_ms = [1, 2] }")
    assert (found.load, found.amount) == ("rate", 1)


def test_degrees_are_found_in_prose_and_in_keys():
    experts = "Qwen3-235B FP8, MI300X, vLLM, prompts 2000, 8 req/s, expert parallelism"
    assert setup(experts, "tp8 = { ttft_mean_ms = 1 }").pools == (Pool(1, 8, expert_parallel=8),)
    assert setup(experts, "two_tp4 = { ttft_mean_ms = 1 }").pools == (Pool(2, 4, expert_parallel=4),)
    assert (
        setup("Qwen3-8B, H200, TP=4, 2 streams", "in_8_out_16 = { ttft_mean_ms = 1 }").output_tokens.mean
        == 16
    )
    assert setup("Qwen3-8B, H200, TP=4, 2 streams", "in_8 = { ttft_mean_ms = 1 }").pools == (Pool(1, 4),)
    several = "Llama-2-70B fp16, H100, batch 1, tensor parallelism 2, 4 and 8"
    assert setup(several, "in_8_tp8 = { token_ms = 1 }").pools == (Pool(1, 8),)
    assert setup("Qwen3-8B, H200, 1P2D, TP2, 1 streams, prompts 8", "ttft_ms = 1").pools == (
        Pool(1, 2),
        Pool(2, 2),
    )


def test_a_spread_that_prose_tells_is_taken():
    prose = "Qwen3-8B, H200, outputs 100; random length (0.8 to 1 in the public scripts)"
    found = setup(prose, "in_1000_tp1 = { concurrency = [4], ttft_ms = [1] }")
    assert (found.prompt_tokens, found.output_tokens) == (Lengths(900, 800, 1000), Lengths(90, 80, 100))


def test_figures_by_themselves_take_the_series_beside_them():
    found = parse(
        loosely(
            "Llama-2-70B fp16, batch 1, H100, TP8",
            "prompt_tokens = [128, 512]\nprefill_ms = [58.2, 53.9]\nh100_tp2 = { token_ms = [37.2, 37.1] }",
        ),
        "s.toml",
    )
    assert [(item.id, item.figures[0].path[0]) for item in found] == [
        ("m", "prefill_ms"),
        ("m-h100_tp2", "step_ms"),
    ]
    assert [figure.setups[0].prompt_tokens.mean for figure in found[1].figures] == [128, 512]
    assert {figure.setups[0].front for item in found for figure in item.figures} == {0}


def test_statistics_in_a_table_are_figures():
    found = parse(
        loosely("Qwen3-8B, H200, vLLM, prompts 2000, 8 req/s", "tp8_ttft_ms = { p50 = 350, max = 700 }"),
        "s.toml",
    )
    assert [figure.path[0] for figure in found[0].figures] == ["ttft_p50_ms", "ttft_max_ms"]
    assert found[0].figures[0].setups[0].shared == Pool(1, 8)


WORDS = [
    "gpt-oss-120b",
    "MXFP4",
    "vllm 0.18",
    "H200",
    "TP8",
    "1P2D",
    "prompts 8",
    "9 req/s",
    "offline",
    "batch 3",
]
KEYS = [
    "in_8_tp1",
    "tp2",
    "a100_tp2",
    "pd",
    "",
    "streams",
    "ttft_ms",
    "tp4_itl_ms",
    "prefill_ms",
    "prompt_tokens",
    "x",
]
TABLES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3).map(
    lambda inner: "{ " + ", ".join(f'"{name}" = {value}' for name, value in inner.items()) + " }"
)


@given(
    prose=st.lists(st.sampled_from(WORDS), max_size=8).map(", ".join) | st.text(max_size=20),
    figures=st.dictionaries(st.sampled_from(KEYS), TABLES | VALUES, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_whatever_prose_says_it_is_read_or_refused_in_one_line(prose, figures):
    lines = "\n".join(f'"{name}" = {value}' for name, value in figures.items())
    try:
        found = parse(loosely(re.sub(r'["\\\x00-\x1f\x7f]', " ", prose), lines), "s.toml")
    except ValueError as error:
        found, message = [], str(error)
        assert re.fullmatch(r"s\.toml: .+", message)
    assert all(isinstance(item, Measurement) and item.figures for item in found)


@pytest.mark.parametrize(
    ("prose", "figures", "says"),
    [
        (
            "vllm, h200_sxm",
            "in_8_tp1 = { streams = [1], ttft_mean_ms = [1] }",
            "s.toml: m: in_8_tp1: the set-up lacks model (say which, such as",
        ),
        (
            "Qwen3-8B, vllm",
            "tp1 = { ttft_mean_ms = [1] }",
            "lacks gpu (say which, such as H200); prompt_tokens (say prompts N",
        ),
        (
            "Qwen3-8B, H200, prompts 8",
            "tp1 = { ttft_mean_ms = 1 }",
            "lacks load (say N req/s, one request at a time",
        ),
        (
            "Qwen3-8B, H200",
            "in_8_dp2 = { streams = [1], ttft_mean_ms = [1] }",
            "'dp2' in the key cannot be read; use in_N, tpN",
        ),
        ("Qwen3-8B, H200", "in_8_tp1 = { streams = [1], ttft = [1] }", "m-in_8_tp1: ttft=[1] will not do; "),
        ("Qwen3-8B, H200", "in_8_tp1 = { streams = [1, 2], ttft_mean_ms = [1] }", "use lists of one length"),
        ("Qwen3-8B, H200", "", "m: no figures; use a table such as in_1024_tp1"),
    ],
)
def test_what_prose_leaves_out_is_named(prose, figures, says):
    assert says in refusal(loosely(prose, figures))


def test_one_unreadable_table_does_not_hide_the_others(tmp_path):
    (tmp_path / "s.toml").write_text(LOOSE + "zz9 = { ttft_mean_ms = 1 }\n", "utf8")
    refused = []
    assert len(read(tmp_path / "s.toml", refused)) == 2
    assert len(refused) == 1


# ---------------------------------------------------------------------------------------- the book's own

EVERY = measurements()
FIGURES = [(found, figure) for found in EVERY.values() for figure in found.figures]


def test_there_are_figures_enough_of_sources_enough():
    tests = [found.source.id for found, figure in FIGURES if not figure.constant]
    assert len(tests) >= 400
    assert len(set(tests)) >= 20


def test_ids_are_used_once_in_all_files():
    folder = data.files("lib.data").joinpath("measurements")
    apart = [found.id for file in folder.iterdir() for found in parse(file.read_text("utf8"), file.name)]
    assert sorted(apart) == sorted(EVERY)


def test_each_source_has_an_address_and_a_day_and_a_file_of_its_name():
    sources = {found.source for found in EVERY.values()}
    assert (
        len({source.address for source in sources}) == len({source.id for source in sources}) == len(sources)
    )
    assert {source.seen for source in sources} == {date(2026, 12, 1)}
    folder = data.files("lib.data").joinpath("measurements")
    assert {file.name for file in folder.iterdir()} == {f"{source.id}.toml" for source in sources}
    assert not [source for source in sources if source.published > source.seen.isoformat()]


def test_no_figure_stands_twice():
    points = Counter(
        (found.source.id, *figure.setups, figure.path[0], figure.printed) for found, figure in FIGURES
    )
    assert [point for point, times in points.items() if times > 1] == []
    names = Counter((*figure.setups, figure.path[0]) for _, figure in FIGURES)
    assert [name for name, times in names.items() if times > 1] == []


def test_what_was_chosen_late_and_what_gave_a_constant_is_what_the_notes_say():
    late = {(found.source.id, name) for found in EVERY.values() for name in found.chosen_late}
    assert late == {
        ("mooncake-sglang", "prompt_tokens"),
        ("mooncake-sglang", "output_tokens"),
        ("mooncake-sglang", "route"),
        ("llm-d-h200", "burst"),
        ("llm-d-h200", "route"),
        ("llm-d-multi-tier", "burst"),
        ("silicon-sample", "mxfp4"),
    }
    gave = [(found.id, "/".join(figure.path)) for found, figure in FIGURES if figure.constant]
    assert sorted(gave) == sorted(
        [(f"silicon-sample-gpt-oss-120b-h200-tp{n}-1024", "ttft_mean_ms/0") for n in (1, 2, 4, 8)]
        + [(f"silicon-sample-llama-3.1-70b-h100-tp{n}-1024", "ttft_mean_ms/0") for n in (2, 4, 8)]
        + [("vllm-0.6-light-load", "step_ms")]
    )


def test_first_tokens_and_tails_keep_their_order():
    for found in EVERY.values():
        by_point = {}
        for figure in found.figures:
            kind = FIGURE.fullmatch(figure.path[0])
            if (
                kind["what"]
                and (order := re.search(r"^(\w+)_(min|p\d\d|max)$", kind["what"]))
                and not kind["over"]
            ):
                rank = {"min": 0, "max": 100}.get(order[2]) or int(order[2].strip("minpax") or 0)
                by_point.setdefault((*figure.setups, order[1], kind["unit"]), []).append(
                    (rank, figure.printed)
                )
        for ranked in by_point.values():
            values = [value for _, value in sorted(ranked)]
            assert all(low <= high for low, high in pairwise(values)), found.id


# Typed a second time, from the sources: source and locator -> figures in the order of the table.
SECOND_COPY = {
    "mooncake-vllm-h800/kv_transfer_ms": "0.54 0.61 0.92 1.50 2.51 4.75 8.84 16.43 31.65",
    "mooncake-sglang-h20/ttft_mean_ms": "129.21 125.76 133.91 125.84 172.05 304.02 591.14 1305.15 3260.14",
    "nim-llama-70b-5000/itl_mean_ms": "18.58 21.83 38.75 59.73 92.91 92.86 93.06 93.2",
    "nim-llama-70b-5000/output_tokens_per_s": "51.67 218.48 623.4 814.37 917.26 920.9 920.54 920.12",
    "vultr-nemotron-nano/tpot_mean_ms": "2.91 3.96 4.32 7.86 6.74 8.91 11.77 15.46 15.46",
    "vultr-nemotron-nano/output_tokens_per_s": "277 1881 3455 3798 8120 11556 15552 18746 18829",
    "trtllm-overview-llama-70b-h100/output_tokens_per_s": "6378 6651 4199 5222 4205 4146 762 3082 898 437",
    "trtllm-overview-llama-70b-b200/output_tokens_per_s": "11147 9922 6831 7762 7007 6271 1339 4783 1459 665",
    "trtllm-overview-gpt-oss-h100/output_tokens_per_s_per_gpu": "4715 1177 1169 333",
    "trtllm-0.6-llama2-70b-h100/output_tokens_per_s_per_gpu": "2657 1486 306 547",
    "trtllm-0.6-first-llama2-70b-a100/prefill_ms": "47 377",
    "oracle-405b-latency/batch_s": "3.530 3.583 3.734 3.974 4.375 5.130 6.919 10.340 17.750",
    "qwen2.5-speed-7b-bf16/output_tokens_per_s": "84.28 80.70 77.69 70.33",
    "qwen2.5-speed-14b-int4/output_tokens_per_s": "98.02 86.10 76.85 60.91",
    "inferencex-870-h200/tpot_mean_ms": "12.8 25.6 34.6",
    "inferencex-1061-mi300x/tpot_p50_ms": "31.4 36.6 41.3 58.3",
    "dstack-405b-h100-2048/batch_s": "73.04 78.6 84.22 144.1 262.7 474.9 879.7",
    "dstack-pd-3p1d-2048-2048/ttft_mean_ms": "136.9 795.2",
    "dstack-pd-1p3d-128-2048/tpot_mean_ms": "7.933 10.70",
    "silybench-qwen3-8b-2048/itl_p50_ms": "4.796 5.319 7.217",
    "tenstorrent-gpu-qwen2.5-72b/tpot_mean_ms": "30.9 30.9 31.0 31.0 31.1 31.1 31.3",
    "splitwise-a100-tp4/prefill_ms": "63.7 127.0 227.1 403.3 965.2 2278.5",
    "splitwise-h100-tp8/step_ms": "29.9 30.6 29.7 31.0 30.6 31.4",
    "distserve-profile-vllm-decode/step_ms": "23.9 29.6 48.0",
    "llm-d-p2p-prefill/pull_ms": "49.0 120.1 196.2 376.3 550.5",
    "silicon-sample-llama-3.1-70b-h100-tp2-8192/ttft_mean_ms": "737.5 962.9 1284 6518 59180",
    "silicon-sample-gpt-oss-120b-h200-tp1-8192/tpot_mean_ms": "7.081 10.46 15.75 24.80 41.83",
    "silicon-sample-minimax-m2.5-h200-tp8-8192/ttft_mean_ms": "197.9 268.6 349.5 518.7 759.5",
}


@pytest.mark.parametrize("where", SECOND_COPY)
def test_figures_are_those_of_the_source(where):
    named, figure = where.split("/")
    printed = [item.printed for item in EVERY[named].figures if item.path[0] == figure]
    assert printed == [Decimal(number) for number in SECOND_COPY[where].split()]


SINGLE = {
    "llm-d-h200-split": {
        "ttft_mean_ms": "1157",
        "ttft_p50_ms": "1108",
        "e2e_p99_s": "3.701",
        "tpot_p90_ms": "7.84",
    },
    "llm-d-h200-shared": {"ttft_p95_ms": "1574", "e2e_mean_s": "6.7"},
    "llm-d-multi-tier-nixl": {"ttft_mean_ms": "518", "e2e_p99_s": "3.719", "requests_per_s": "44.27"},
    "mooncake-sglang-a10-tp2-shared": {"itl_p99_ms": "294.89", "ttft_mean_ms": "310.01"},
    "mori-mi300x-write": {"met_percent": "73", "tail_p50_ms": "38", "ttft_max_ms": "1551"},
    "mori-mi300x-tp8": {"met_percent": "26", "tail_p90_ms": "182"},
    "gpustack-qwen3-8b-vllm": {"ttft_mean_ms": "64.00", "itl_p99_ms": "40.98"},
    "gpustack-gpt-oss-tp2": {"output_tokens_per_s": "7648.67", "tpot_mean_ms": "86.54"},
    "vllm-20469-one": {"ttft_mean_ms": "3345.37", "tpot_mean_ms": "20.63"},
    "vllm-8125-sharegpt": {"requests_per_s": "42.91", "tpot_p99_ms": "95.57"},
    "vllm-7117-main": {"total_tokens_per_s": "12434.40"},
    "guide-l40s-split": {"itl_p99_lowest_ms": "25", "itl_p99_highest_ms": "52"},
}


@pytest.mark.parametrize("named", SINGLE)
def test_single_figures_are_those_of_the_source(named):
    printed = {figure.path[0]: figure.printed for figure in EVERY[named].figures}
    assert {name: printed[name] for name in SINGLE[named]} == {
        name: Decimal(number) for name, number in SINGLE[named].items()
    }


FORMER = {  # an entry of measured.toml -> the source that holds its figures here
    "guide-l40s": "guide-l40s",
    "mooncake-a10-tp4": "mooncake-sglang",
    "mooncake-a10-tp2": "mooncake-sglang",
    "mooncake-h800-transfer": "mooncake-vllm",
    "llm-d-h200": "llm-d-h200",
    "mori-io-mi300x": "mori-mi300x",
    "distserve-a100": "distserve-blog",
    "splitwise-llama2-70b": "splitwise",
}


def numbers(value):
    if isinstance(value, dict):
        return [item for inner in value.values() for item in numbers(inner)]
    return [item for inner in value for item in numbers(inner)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("entry", FORMER)
def test_what_was_in_the_book_before_is_here(entry):
    told = data.measurements()[entry]
    kept = [
        numbers(value) for key, value in told.items() if key not in ("id", "source", "setup", "prompt_tokens")
    ]
    here = [figure.printed for found, figure in FIGURES if found.source.id == FORMER[entry]]
    for number in (item for inner in kept for item in inner):
        exponent = Decimal(number).as_tuple().exponent
        assert any(abs(Decimal(one) - number) <= Decimal(10) ** exponent for one in here), number


# ---------------------------------------------------------------------------------------- corrections

CORRECTIONS = {entry["id"]: entry for entry in data.read("corrections.toml")["correction"]}


def arithmetic(name):
    entry = CORRECTIONS[name]
    for named in entry.get("measurements", []):
        assert named in EVERY
    return entry["numbers"], entry["arithmetic"]


def test_the_all_reduce_was_of_twice_the_bytes():
    told, follows = arithmetic("all-reduce-elements")
    ring = Fraction(2 * (told["gpus"] - 1), told["gpus"])

    def rate(elements, ms):
        return float(ring * elements * told["bytes_each"] / Fraction(ms) / 10**6)

    assert told["elements_of_64_mib"] * told["bytes_each"] == 64 * 2**20
    assert round(rate(told["elements"], told["ms"])) == follows["bus_gb_per_s"]
    small = rate(told["elements_of_64_mib"], told["ms_of_64_mib"])
    assert round(small) == follows["bus_gb_per_s_of_64_mib"]
    assert round(100 * small / told["nvlink_gb_per_s"]) == follows["percent_of_64_mib"]


def test_the_a10_lengths_follow_from_the_tables_own_totals():
    told, follows = arithmetic("a10-lengths")
    columns = zip(*(told[name] for name in told), strict=True)
    for (e2e, ttft, itl, output, total), gaps, prompt in zip(
        columns, follows["gaps"], follows["prompt_tokens"], strict=True
    ):
        assert round((e2e - ttft) / itl, 1) == gaps
        assert abs((total - output) / output * follows["output_tokens"] - prompt) < 5


def test_the_other_corrections_follow_from_figures_that_are_here():
    told, follows = arithmetic("llm-d-twice")
    here = [EVERY[name].figures for name in CORRECTIONS["llm-d-twice"]["measurements"]]
    assert [next(f.printed for f in found if f.path == ("ttft_mean_ms",)) for found in here] == told[
        "ttft_mean_ms"
    ]
    assert round(told["ttft_mean_ms"][0] / told["ttft_mean_ms"][1], 1) == float(follows["factor"])

    told, follows = arithmetic("distserve-prefill")
    assert round(1000 / told["prefill_ms"], 1) == follows["most_req_per_s"]
    assert round(told["req_per_s"] * told["prefill_ms"] / 10) == follows["busy_percent"]

    told, follows = arithmetic("mi300x-experts")
    degrees = [
        EVERY[name].figures[0].setups[0].pools[0].expert_parallel
        for name in CORRECTIONS["mi300x-experts"]["measurements"]
    ]
    assert degrees == told["gpus"]
    assert [told["experts"] // degree for degree in degrees] == follows["experts_per_gpu"]


def test_names_of_the_form_are_documented():
    from lib import measurements as module

    for name in (*SETUP, *LOADS, "taken", "chosen_late", "constant", "locator", "note"):
        assert re.search(rf"\b{name}\b", module.__doc__), name
    assert not set(ENGINES) & set(GPU_NAMES) - {"unknown"}
    assert len(set(PRECISIONS)) == len(PRECISIONS)


def test_a_step_is_of_a_batch_or_of_streams():
    says = "step_ms=10 will not do; give a batch or streams: a step is of so many sequences"
    assert says in refusal(written(without=["streams", "ttft_mean_ms"], rate="2.0", step_ms="10"))


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("\ufeff" + written(), "utf8")
    assert [found.id for found in read(path)] == ["s-one"]
