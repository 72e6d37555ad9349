"""What others measured, quoted from `lib/data/measured.toml` and set beside what a page predicts.

What the review states is in `published`; the predictions themselves are in `lib.measured`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import Any, Protocol

from lib import data
from lib.page.markup import Html, recorded, typeset
from lib.page.published import plain, split
from lib.page.tables import html_of


class Pair(Protocol):
    """A row of `beside`: a measured number as printed; a prediction, a reason why there is none, or both."""

    name: str
    unit: str
    printed: Decimal | int
    predicted: float | None
    why: str


def get(path: str) -> Any:
    """Return a measured figure or table by its dotted path, floats as floats.

    For example `get("llm-d-h200.pd.itl_mean_ms")`.
    """
    here: Any = data.measurements()
    for key in split(path):
        if not isinstance(here, dict) or key not in here:
            raise ValueError(f"world: no {path!r}; at {key!r} there are {', '.join(here)}")
        here = here[key]
    return plain(here)


def setup(entry: str, modelled: str = "") -> Html:
    """Return on what an entry was measured and where that is published; and how the page models it."""
    found = get(entry)
    lines = {"Measured on": found["setup"], "Published in": found["source"], "Modelled with": modelled}
    lines = {term: text for term, text in lines.items() if text}
    body = "<br>".join(f"<strong>{term}:</strong> {escape(typeset(text))}" for term, text in lines.items())
    text = "\n".join(f"{term}: {text}" for term, text in lines.items())
    return Html(f'<p class="setup">{body}</p>', text, record=recorded([typeset(text)]))


def beside(rows: Sequence[Any], caption: str = "") -> Html:
    """Return a table of measured figures (`Pair`s) with the predictions at the same precision, and the ratio.

    Where nothing is predicted, or what is predicted is no prediction, the reason stands instead of the ratio.
    """
    lines = [line(row) for row in rows]
    headers = ("figure", "measured", "predicted", "ratio")
    columns: dict[str, Sequence[object]] = dict(zip(headers, zip(*lines, strict=True), strict=True))
    return html_of(columns, caption, f"{len(rows)} figures, measured and predicted")


def line(row: Pair) -> tuple[object, ...]:
    """Return the cells of a row: its name with the unit, measured, predicted, and how they compare."""
    name = f"{row.name},\N{NO-BREAK SPACE}{row.unit}"
    if row.predicted is None:
        return name, row.printed, None, row.why
    places = Decimal(1).scaleb(int(Decimal(row.printed).as_tuple().exponent))
    ratio = Decimal(row.predicted / float(row.printed)).quantize(Decimal("0.01"))
    return name, row.printed, Decimal(row.predicted).quantize(places), row.why or ratio
