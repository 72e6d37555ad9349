"""The table of contents, `_toc.yml`: which pages the book has, in which parts; not what is on them."""

from __future__ import annotations

from pathlib import Path

import yaml

from lib.page.checkout import ROOT


def parts(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    """Return the caption and the pages, `book/roofline`, of each part; the first has no caption."""
    found = yaml.safe_load((root / "_toc.yml").read_text("utf8"))
    first = [found["root"], *(page["file"] for page in found.get("chapters", ()))]
    rest = [(part["caption"], [page["file"] for page in part["chapters"]]) for part in found.get("parts", ())]
    return [("", first), *rest]


def chapters(root: Path = ROOT) -> list[str]:
    """Return the pages of the book in their order, as paths below `book` without suffix."""
    return [page.removeprefix("book/") for _, pages in parts(root) for page in pages]
