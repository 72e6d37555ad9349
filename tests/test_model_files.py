"""Real config.json files: their parameters, caches and bytes; and any bytes whatever."""

import csv
import io
import json
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib import parallelism
from lib.hardware import H100_SXM, H200
from lib.models import DEEPSEEK_V3, GPT_OSS_120B, MODELS, needed, parse, read, read_file
from lib.models.__main__ import described, main, show
from lib.models.families import FAMILIES

FOLDER = Path(__file__).parent / "configs"
TRUTH = {row["model"]: row for row in csv.DictReader((FOLDER / "truth.csv").open())}
SURE = [name for name, row in TRUTH.items() if row["sure"] == "yes"]
ODD = {  # how the table counts otherwise, within its own files
    "Qwen--Qwen3-VL-235B-A22B-Instruct": "active parameters with the input embedding",
    "redpajama_3b_v1": "active parameters with the input embedding",
}


def model(name, **changes):
    """Return the model of a file, with some of its fields changed; None: left out."""
    config = parse((FOLDER / f"{name}.json").read_bytes())
    changed = {key: value for key, value in {**config, **changes}.items() if value is not None}
    return read(changed, name)


@pytest.mark.parametrize("name", SURE)
def test_a_real_file_gives_its_parameters_and_its_cache(name):
    row, found = TRUTH[name], read_file(FOLDER / f"{name}.json")
    if row["params"]:
        assert found.params == pytest.approx(int(row["params"]), rel=1e-4)
    if row["active"] and name not in ODD:
        assert found.active_params == pytest.approx(int(row["active"]), rel=1e-4)
    in_16_bits = 2 / found.cache_bytes
    if row["kv_per_token_growing"]:
        assert found.growing_bytes_per_token * in_16_bits == int(row["kv_per_token_growing"])
        windowed = found.windowed_bytes_per_token * in_16_bits + found.index_bytes_per_token
        assert windowed == int(row["kv_per_token_in_windows"])
    if row["window"]:
        assert found.window == int(row["window"])


def test_what_the_table_counts_otherwise_differs_by_that():
    for name in ODD:
        found = model(name)
        assert int(TRUTH[name]["active"]) - found.active_params == found.head_params


def test_the_rest_is_refused_with_one_sentence():
    refused = []
    for name in set(TRUTH) - set(SURE):
        try:
            read_file(FOLDER / f"{name}.json")
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) >= 6
    assert all("not covered" in said and len(said) < 250 and "\n" not in said for said in refused)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("nvidia--Llama-3.1-70B-Instruct-FP8", 72.7),
        ("nvidia--DeepSeek-V3.1-NVFP4", 386.4),
        ("Qwen--Qwen3-32B-FP8", 34.3),
        ("tinyllama_1b_chat_v0.4", 2.20),
        ("nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", 18.9),
    ],
)
def test_weights_take_the_bytes_that_the_file_says(name, gigabytes):
    assert read_file(FOLDER / f"{name}.json").resident_bytes / 1e9 == pytest.approx(gigabytes, rel=0.002)


def test_a_cache_in_fp8_is_half_as_large():
    found = read_file(FOLDER / "nvidia--Llama-3.1-70B-Instruct-FP8.json")
    assert (found.growing_bytes_per_token, found.arithmetic) == (163_840, "fp8")


def test_a_file_beside_config_json_is_read(tmp_path):
    name = "nvidia--Llama-3.1-70B-Instruct-FP8"
    (tmp_path / "config.json").write_bytes((FOLDER / f"{name}.json").read_bytes())
    assert read_file(tmp_path / "config.json").resident_bytes > 141e9
    beside = (FOLDER / f"{name}.hf_quant_config.json").read_bytes()
    (tmp_path / "hf_quant_config.json").write_bytes(b"\xef\xbb\xbf" + beside)
    assert read_file(tmp_path / "config.json").resident_bytes < 73e9


LLAMA = parse((FOLDER / "meta-llama--Meta-Llama-3.1-70B.json").read_bytes())
INT4 = {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float"}
NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}


def groups(weights, inputs=None, **more):
    """Return a config of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    } | more


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
@pytest.mark.parametrize(
    ("said", "bits", "arithmetic"),
    [
        ({"quant_method": "fp8"}, 8, "fp8"),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, 8, "fp8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, "bf16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, "fp4"),
        (groups(INT4), 4 + 16 / 128, "bf16"),
        (groups(FP8, FP8), 8, "fp8"),
        (groups(FP8), 8, "bf16"),
        (groups(NVFP4, NVFP4), 4.5, "fp4"),
        (groups({"num_bits": 4, "type": "float", "group_size": 32}), 4.25, "bf16"),
    ],
)
def test_every_quantization_shrinks_the_layers_and_leaves_the_ends(key, said, bits, arithmetic):
    whole, found = read(LLAMA), read({**LLAMA, key: said})
    saved = whole.layer_params * (2 - bits / 8)
    assert whole.resident_bytes - found.resident_bytes == pytest.approx(saved)
    assert found.arithmetic == arithmetic
    assert (found.params, found.head_bytes, found.embedding_bytes) == (whole.params, 2, 2)


def test_modules_that_are_left_out_stay_whole():
    kept = read({**LLAMA, "quantization_config": groups(FP8, FP8, ignore=["re:.*self_attn.*", "lm_head"])})
    assert {(group.bytes.mixer, group.bytes.ffn) for group in kept.groups} == {(2, 1)}
    some = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["model.layers.0", "model.layers.79.mlp.down_proj"],
    }
    first, *_, last = read({**LLAMA, "quantization_config": some}).groups
    assert (first.count, first.bytes.ffn, last.count) == (1, 2, 1)
    assert last.bytes.ffn == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"quant_method": "aqlm"}, "quant_method='aqlm' is not covered"),
        ({"quant_method": "gptq", "bits": 4}, "group_size of the quantization is missing"),
        ({"quant_method": "gptq", "bits": "4", "group_size": 128}, "bits='4'"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo='FP3'"),
        (groups(INT4, ignore="lm_head"), "ignore='lm_head'"),
        (groups(INT4, ignore=["re:("]), "no regular expression"),
        ("fp8", "quantization_config='fp8'"),
    ],
)
def test_a_quantization_that_is_not_covered_is_named(said, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read({**LLAMA, "quantization_config": said})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llamma"}, "did|model_type='llamma' is not covered"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 10**8}, "too many"),
        ({"hidden_size": 10**400}, "hidden_size is over"),
        ({"torch_dtype": "int3"}, "dtype='int3'"),
        ({"num_mystery_experts": 8}, "num_mystery_experts"),
        ({"tie_word_embeddings": "maybe"}, "tie_word_embeddings='maybe'"),
        ({"num_key_value_heads": 7}, "kv_heads=7"),
    ],
)
def test_a_field_that_will_not_do_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        model("meta-llama--Meta-Llama-3.1-70B", **changes)


def test_defaults_are_those_of_transformers():
    llama = model("llama2_7b", num_key_value_heads=None)
    assert llama.kv_heads == llama.heads == 32
    nemotron = model("nvidia--Nemotron-H-56B-Base-8K", hidden_size=3072, num_attention_heads=32)
    assert nemotron.growing_bytes_per_token == 40_960
    assert model("tinyllama_1b_chat_v0.4").growing_bytes_per_token == 22_528  # float32, served in 16 bits


def test_the_context_is_what_vllm_derives():
    lengths = {
        "mistral_7b": 32_768,
        "deepseek-ai--DeepSeek-R1": 163_840,
        "openai--gpt-oss-20b": 131_072,
        "meta-llama--Meta-Llama-3.1-405B": 131_072,
        "Devstral-Small-2-24B-Instruct": 393_216,
        "phi-3_5": 131_072,
    }
    assert {name: model(name).context for name in lengths} == lengths


def test_what_requests_hold_is_what_fits():
    nemotron = read_file(FOLDER / "nvidia--Nemotron-H-56B-Base-8K.json")
    assert nemotron.state_bytes == pytest.approx(912.6e6, rel=1e-4)
    assert parallelism.fits(nemotron, H100_SXM, 4, 1500) == 180
    assert parallelism.room(GPT_OSS_120B, H100_SXM, 1) == pytest.approx(183_000, rel=0.001)
    assert parallelism.fits(GPT_OSS_120B, H100_SXM, 1, 8448) == 21
    assert parallelism.fits(DEEPSEEK_V3, H200, 8, 4096) == 148


def test_fields_that_were_read_are_enough():
    for name in ("Qwen--Qwen3-0.6B", "nvidia--Nemotron-H-56B-Base-8K", "GLM-4.5", "llama2_7b"):
        config = parse((FOLDER / f"{name}.json").read_bytes())
        assert read(needed(config), name) == read(config, name)
        assert len(needed(config)) < len(config)


# ------------------------------------------------------------------ the command


KEYS = (
    "params active_params kv_bytes_per_token_growing kv_bytes_per_token_windowed window state_bytes "
    "weight_bytes context"
)


def test_the_command_says_it_as_json_and_in_words(capsys):
    path = str(FOLDER / "openai--gpt-oss-20b.json")
    assert main([path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(KEYS.split()) <= set(said)
    assert [said[key] for key in KEYS.split()[2:5]] == [24_576, 24_576, 128]
    assert main([path]) == 0
    assert "131,072 tokens" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["ascii", "cp932", "gbk", "utf-8"])
def test_any_terminal_gets_an_answer(encoding, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    show("caf\u00e9 \u2013 \u6c34\U0001f600")
    sys.stdout.flush()
    assert b"caf" in raw.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"\x80", b"[]", b"null", b"{", b'"x"', b"NaN", b'{"a":' * 100_000,
     b'{"model_type": 1}',
     b'{"model_type": "llama", "hidden_size": NaN}', b'{"text_config": {"text_config": []}}'],
)  # fmt: skip
def test_no_bytes_end_in_a_traceback(content, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_missing_file_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "none.json")]) == 2
    assert main([str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FILES = {
    path.stem: parse(path.read_bytes())
    for path in sorted(FOLDER.glob("*.json"))
    if "hf_quant" not in path.name
}


def places(config, path=()):
    """Return the way to every field of a config."""
    found = []
    for key, value in config.items():
        found.append((*path, key))
        if isinstance(value, dict) and len(path) < 3:
            found += places(value, (*path, key))
    return found


@settings(deadline=None)
@given(data=st.data())
def test_a_field_of_any_kind_is_read_or_refused(data):
    config = deepcopy(FILES[data.draw(st.sampled_from(sorted(FILES)))])
    for _ in range(data.draw(st.integers(1, 3))):
        ways = places(config)
        *path, key = data.draw(st.sampled_from(ways[:200]))
        inner = config
        for step in path:
            inner = inner[step] if isinstance(inner.get(step), dict) else inner
        inner[key] = data.draw(JUNK)
    try:
        found = read(config)
        json.dumps(described(found))
    except ValueError:
        return
    assert found.params > 0


@settings(deadline=None)
@example(kind="nemotron_h", config={})
@given(kind=st.sampled_from(sorted(FAMILIES)), config=st.dictionaries(st.text(max_size=20), JUNK, max_size=4))
def test_any_object_is_read_or_refused(kind, config):
    try:
        found = read({**config, "model_type": kind})
    except ValueError:
        return
    assert kind == "gemma3_text"  # of which transformers knows a whole one by default
    assert found.params > 0


@given(beside=JUNK)
def test_any_file_beside_is_read_or_refused(beside):
    try:
        read(LLAMA, beside={"quantization": beside})
    except ValueError:
        return


def test_the_catalogue_has_a_context_each():
    assert all(found.context for found in MODELS)
