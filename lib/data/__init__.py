"""The book's data files, for whoever computes with them or prints them."""

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
