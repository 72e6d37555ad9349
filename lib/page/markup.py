"""HTML that shows itself, what the record says of it, and the signs of print; nothing is laid out here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

# How lines of a record begin that are no results of a cell, in the order in which a figure has them.
TITLE, ALT, TICKS, DRAWN, PLOTTED, CODE = "title: ", "alt: ", "ticks: ", "drawn: ", "plotted: ", "> "
CONCLUDED = "concluded: "  # a sentence of the page, and in how many worlds it stands
SCROLLS = "pst-scrollable-table-container"  # the theme's script takes the tab stop away where nothing scrolls
NBSP = "\N{NO-BREAK SPACE}"
SIGNS = {
    r"(?<![\w.)\]])-(?=\.?\d)": "−",
    r"(?<=\w)'(?=\w)|(?<=s)'(?= \w)": "’",
    r"(?<=\d)(\s)x(?=\s\w)": r"\1×",
    "<=": "≤",
    ">=": "≥",
}
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµ]?s|[kKMGT]i?[Bb]|TFLOP|req|px)(?!\w))")
BETWEEN_NAMES = re.compile(r"([._])(?=[A-Za-z]\w\w)")


class Html:
    """Something that shows itself as HTML; `press` tells the press of it: its `record`, a `problem`."""

    def __init__(self, markup: str, text: str, **press: Any):
        self.markup, self.text, self.press = markup, text, press

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": self.markup, "text/plain": self.text}, {
            "press": self.press
        } if self.press else {}

    def __repr__(self) -> str:
        return self.text


def recorded(lines: Iterable[str]) -> str:
    """Return lines as a record holds them: a single space between words, and no line empty."""
    text = "\n".join(lines)
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))


def typeset(text: str) -> str:
    """Return text with the signs of print in place of a keyboard's: minus, apostrophe, times, at most.

    >>> typeset("the guide's 2 x L40S: -5 ms, TPOT <= 30 ms, 'a-5'")
    "the guide’s 2 × L40S: −5 ms, TPOT ≤ 30 ms, 'a-5'"
    """
    for keyed, sign in SIGNS.items():
        text = re.sub(keyed, sign, text)
    return text


def breakable(text: str) -> str:
    """Return text as HTML in which a line may end after the joints of a name, but not before a unit."""
    return BETWEEN_NAMES.sub(r"\1<wbr>", escape(holding(typeset(text))))


def holding(text: str) -> str:
    """Return text in which no line ends between a number and its unit, or before a dot between two things."""
    return BEFORE_UNIT.sub(NBSP, text).replace(" · ", f"{NBSP}· ")
