"""Tables, as HTML with its record: numbers flush right, words with room, every row and column named."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from html import escape
from typing import Any

from lib.page.markup import NBSP, SCROLLS, Html, breakable, recorded, typeset


def table(columns: dict[str, Sequence[object]], caption: str = "") -> Html:
    """Return a table: for each column its header (with the unit) and its cells; the first names the rows.

    Numbers are shown as given, integers with thousands separators: round them to what they are worth first.
    """
    lengths = {header: len(cells) for header, cells in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"table: columns have different lengths {lengths}; give each as many cells")
    return html_of(columns, caption, f"<table: {', '.join(columns)}>")


def html_of(columns: dict[str, Sequence[object]], caption: str, text: str, **press: Any) -> Html:
    """Return a table with its record; text: what stands for it where no HTML is shown."""
    said = recorded(table_lines(columns, caption))
    return Html(table_markup(columns, caption), text, record=said, **press)


def table_markup(columns: dict[str, Sequence[object]], caption: str = "") -> str:
    """Return the HTML of a table with a header row, and with row headers in the first column.

    Columns of numbers after the first are set flush right, and columns of words get room for some of them; a
    table too wide for its page scrolls in its box.
    """
    columns = {header: aligned(cells) for header, cells in columns.items()}
    kinds = [f' class="{kind}"' if kind else "" for kind in kinds_of(columns)]
    head = "".join(
        f'<th scope="col"{kind}>{escape(typeset(header).replace(", %", f",{NBSP}%"))}</th>'
        if header
        else "<td></td>"
        for header, kind in zip(columns, kinds, strict=True)
    )
    body = ""
    for first, *rest in zip(*columns.values(), strict=True):
        cells = "".join(
            f"<td{kind}>{breakable(cell(value))}</td>" for value, kind in zip(rest, kinds[1:], strict=True)
        )
        body += f'<tr><th scope="row"{kinds[0]}>{breakable(cell(first))}</th>{cells}</tr>'
    title = f"<caption>{escape(typeset(caption))}</caption>" if caption else ""
    label = escape(caption or f"Table: {', '.join(filter(None, columns))}")
    return (
        f'<div class="table-box {SCROLLS}" role="group" tabindex="0" aria-label="{label}">'
        f'<table class="table">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def table_lines(columns: dict[str, Sequence[object]], caption: str = "") -> Iterator[str]:
    """Yield what a table says: its caption, its headers, and each row."""
    yield typeset(caption)
    yield " | ".join(map(typeset, columns))
    for row in zip(*map(aligned, columns.values()), strict=True):
        yield " | ".join(typeset(cell(value)) for value in row)


def kinds_of(columns: dict[str, Sequence[object]]) -> list[str]:
    """Return how each column is set: "number", or by its longest cell or header "words", "sentences" or "".

    A column that is mostly dashes is set like the numbers beside it.
    """
    kinds = [kind_of(place, header, cells) for place, (header, cells) in enumerate(columns.items())]
    for place, cells in reversed([*enumerate(columns.values())][1:]):
        if 2 * sum(map(is_dash, cells)) > len(cells) and "number" in kinds[place - 1 : place + 2]:
            kinds[place] = "number"
    return kinds


def kind_of(place: int, header: str, cells: Sequence[object]) -> str:
    """Return how a column is set by itself: one of numbers says mostly numbers, and all of it briefly."""
    counted = [value for value in cells if not (is_dash(value) or isinstance(value, bool))]
    longest = max(map(len, map(cell, cells)), default=0)
    if place and 2 * sum(map(is_number, counted)) > len(counted) and longest <= BRIEF:
        return "number"
    longest = max(len(header), longest)
    return "sentences" if longest > 4 * LONG else "words" if longest > LONG else ""


def aligned(cells: Sequence[object]) -> Sequence[object]:
    """Return a column of floats as text with as many decimals each; any other column as it is."""
    floats = [value for value in cells if isinstance(value, float) and math.isfinite(value)]
    if len(floats) != sum(value is not None for value in cells):
        return cells
    places = max((-int(Decimal(str(float(x))).as_tuple().exponent) for x in floats), default=0)
    return [value if value is None else f"{value:,.{max(0, places)}f}" for value in cells]


LONG, BRIEF = 14, 21  # characters
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
NUMERIC = re.compile(f"{NUMBER}(?: · {NUMBER})*")


def is_dash(value: object) -> bool:
    """Tell whether a cell says nothing."""
    return value is None or (isinstance(value, str) and value == "–")


def is_number(value: object) -> bool:
    """Tell whether a cell belongs into a column of numbers."""
    if isinstance(value, str):
        return is_dash(value) or NUMERIC.fullmatch(value) is not None
    return value is None or (isinstance(value, (int, float, Decimal)) and not isinstance(value, bool))


def cell(value: object) -> str:
    """Return the text of a table's cell."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return f"{value:,}"
    return str(value)
