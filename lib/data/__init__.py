"""The book's data files, for whoever computes with them or prints them; what they mean is said in them."""

import json
import tomllib
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read(name: str) -> dict[str, Any]:
    """Return a file of this folder, parsed; decimals at their printed precision."""
    return tomllib.loads(files(__name__).joinpath(name).read_text("utf8"), parse_float=Decimal)


def measurements() -> dict[str, dict[str, Any]]:
    """Return what others measured: id -> entry of `measured.toml`, in the file's order."""
    return {entry["id"]: entry for entry in read("measured.toml")["measurement"]}


def vllm_records() -> dict[str, dict[str, Any]]:
    """Return what vLLM's own scheduler did: name -> record (see `vllm/README.md`), random workloads last."""
    folder = files(__name__).joinpath("vllm")
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".json"))
    texts = {name.removesuffix(".json"): folder.joinpath(name).read_text("utf8") for name in names}
    drawn = folder.joinpath("random.jsonl").read_text("utf8").splitlines()
    texts |= {f"random {number}": line for number, line in enumerate(drawn)}
    return {name: json.loads(text) for name, text in texts.items()}


def vllm_tables() -> dict[str, Any]:
    """Return what vLLM's scheduler made of the review's benchmark: `vllm/tables.toml`, numbers as floats."""
    return tomllib.loads(files(__name__).joinpath("vllm", "tables.toml").read_text("utf8"))
