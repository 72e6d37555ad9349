"""How long a page is, by one rule: what `**Takes**` says, and the words before its exercises."""

from __future__ import annotations

import math
import re
from pathlib import Path

from lib.press.run import read

PACE = 200  # words a minute, slowly enough to think
CELL = 0.5  # minutes to read a cell and what it shows
LONGEST = 1600  # words before the exercises
ENDS = re.compile(r"^## (?:Try it|Next|Sources and checks)$", re.M)
NOT_PROSE = re.compile(r"^(?:`{3,}.*|:[\w-]+: .*)$|\]\([^)]*\)|\{[\w-]+\}| <[^<>]*>(?=`)", re.M)
WORD = re.compile(r"\w[^\s–—/]*")
MINUTES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LONGER = {15: "a quarter of an hour", 20: "twenty minutes", 25: "twenty-five minutes", 30: "half an hour"}


def length(path: Path) -> tuple[int, int]:
    """Return the words of prose and the code cells of a page that stand before its exercises."""
    words = cells = 0
    for cell in read(path).cells:
        if cell.cell_type == "code":
            cells += 1
            continue
        body, *rest = ENDS.split(cell.source, maxsplit=1)
        words += len(WORD.findall(NOT_PROSE.sub(" ", body)))
        if rest:
            break
    return words, cells


def takes(words: int, cells: int) -> str:
    """Return how long that takes to read: rounded up to a minute, from ten on to five. KeyError: too long.

    >>> takes(1500, 14), takes(350, 9)
    ('a quarter of an hour', 'seven minutes')
    """
    minutes = math.ceil(words / PACE + cells * CELL)
    return f"{MINUTES[minutes - 1]} minutes" if minutes <= 10 else LONGER[5 * math.ceil(minutes / 5)]
