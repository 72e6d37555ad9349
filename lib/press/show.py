"""What chapters show besides plots: source code, tables, and values that depend on the machine."""

from __future__ import annotations

import inspect
import math
import os
import platform
import re
import tomllib
from collections.abc import Callable, Sequence
from decimal import Decimal
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INK = {  # pygments colour -> the page's variable, JupyterLab's, and a colour legible on white and on black
    "#000001": "var(--code-keyword, var(--jp-mirror-editor-keyword-color, #8a5cf6))",
    "#000002": "var(--code-string, var(--jp-mirror-editor-string-color, #b7553a))",
    "#000003": "var(--code-number, var(--jp-mirror-editor-number-color, #2d8659))",
    "#000004": "var(--code-comment, var(--jp-mirror-editor-comment-color, #7a7a7a))",
    "#000005": "var(--code-name, var(--jp-mirror-editor-def-color, #3b7dd8))",
}


class Html:
    """Something that shows itself as HTML; `press` tells the record about it."""

    def __init__(self, markup: str, text: str, **press: Any):
        self.markup, self.text, self.press = markup, text, press

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": self.markup, "text/plain": self.text}, {
            "press": self.press
        } if self.press else {}

    def __repr__(self) -> str:
        return self.text


def table(columns: dict[str, Sequence[object]], caption: str = "") -> Html:
    """Return a table: for each column its header (with the unit) and its cells; the first names the rows.

    Numbers are shown as given, integers with thousands separators: round them to what they are worth first.
    """
    lengths = {header: len(cells) for header, cells in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"table: columns have different lengths {lengths}; give each as many cells")
    return Html(table_markup(columns, caption), f"<table: {', '.join(columns)}>")


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


def breakable(text: str) -> str:
    """Return text as HTML in which a line may end after the joints of a name, but not before a unit."""
    return BETWEEN_NAMES.sub(r"\1<wbr>", escape(holding(typeset(text))))


def holding(text: str) -> str:
    """Return text in which no line ends between a number and its unit, or before a dot between two things."""
    return BEFORE_UNIT.sub(NBSP, text).replace(" · ", f"{NBSP}· ")


def typeset(text: str) -> str:
    """Return text with the signs of print in place of a keyboard's: minus, apostrophe, times, at most.

    >>> typeset("the guide's 2 x L40S: -5 ms, TPOT <= 30 ms, 'a-5'")
    "the guide’s 2 × L40S: −5 ms, TPOT ≤ 30 ms, 'a-5'"
    """
    for keyed, sign in SIGNS.items():
        text = re.sub(keyed, sign, text)
    return text


LONG, BRIEF = 14, 21  # characters
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
SCROLLS = "pst-scrollable-table-container"  # the theme's script takes the tab stop away where nothing scrolls
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


def measured(value: float, unit: str, between: tuple[float, float], what: str = "") -> Html:
    """Return a value measured on the machine at hand, with bounds that say what is plausible.

    The record holds the bounds and not the value; a value outside of them fails the build.
    """
    low, high = between
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"measured: between={between} bounds nothing; give finite (low, high), low < high")
    name = f"{what}: " if what else ""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    shown = f"{name}{rounded(value)} {unit}"
    least, most = rounded(low), rounded(high)
    note = f"measured on this machine ({machine}); plausible from {least} to {most} {unit}"
    problem = [] if low <= value <= high else [f"{shown} is not between {least} and {most} {unit}"]
    return Html(
        f'<p class="measured"><strong>{escape(shown)}</strong> <small>{escape(note)}</small></p>',
        f"{shown}, {note}",
        record=f"{name}measured here, plausible from {least} to {most} {unit}",
        problem=problem,
    )


def rounded(value: float) -> str:
    """Return a number with three digits, and with commas in place of an exponent."""
    return f"{Decimal(f'{value:.3g}'):,f}" if math.isfinite(value) else str(value)


def source(*functions: Callable[..., Any] | type) -> Html:
    """Return the highlighted source of functions or classes of `lib`, each with a link to its first line."""
    blocks = []
    for function in functions:
        lines, first = inspect.getsourcelines(function)
        path = Path(inspect.getfile(function)).resolve().relative_to(ROOT).as_posix()
        link = f'<a href="{listing(path)}#L{first}">{path}</a>' if listing(path) else f"{path}, line {first}"
        name = escape(function.__qualname__)
        blocks.append(
            f'<figure class="source"><figcaption><code>{name}</code> in {link}</figcaption>'
            f'<div class="highlight" role="group" aria-label="Source of {name}">'
            f"{in_lines(inspect.cleandoc(chr(10) + ''.join(lines)))}</div></figure>"
        )
    return Html("".join(blocks), "\n".join(inspect.getsource(function) for function in functions), code=True)


def in_lines(code: str) -> str:
    """Return highlighted code, each line in an element that knows where it goes on if it has to break."""
    markup = highlighted(code).removeprefix("<pre>").removesuffix("</pre>").rstrip("\n").split("\n")
    lines = []
    for line, shown in zip(code.split("\n"), markup, strict=True):
        prose = shown.lstrip().startswith(f'<span style="color: {INK["#000002"]}')
        indent = len(line) - len(line.lstrip()) + (0 if prose else 4)
        lines.append(f'<span class="line" style="--indent:{indent}ch">{shown}\n</span>')
    return f"<pre>{''.join(lines)}</pre>"


def listing(path: str) -> str:
    """Return where a module can be read: beside the book, or on its site when only the wheel is here."""
    if (ROOT / "book").is_dir():
        return to_root() + path
    address = tomllib.loads(files("lib.data").joinpath("site.toml").read_text("utf8"))["address"]
    return f"{address}{path.removesuffix('.py')}.html" if address else ""


def to_root() -> str:
    """Return the way up from the page at hand, which lies in `book` or in a folder below."""
    above = Path.cwd().parts[::-1]
    return "../" * (above.index("book") + 1 if "book" in above else 1)


def highlighted(code: str) -> str:
    """Return Python code as HTML whose colours are CSS variables, so that it follows light and dark."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer
    from pygments.style import Style
    from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token

    class Ink(Style):
        styles = {  # noqa: RUF012
            Token: "", Keyword: "#000001", Operator.Word: "#000001", String: "#000002", Number: "#000003",
            Comment: "#000004", Name.Function: "#000005", Name.Class: "#000005",
        }  # fmt: skip

    markup = str(highlight(code, PythonLexer(), HtmlFormatter(nowrap=True, noclasses=True, style=Ink)))
    for colour, variable in INK.items():
        markup = markup.replace(colour, variable)
    return f"<pre>{markup}</pre>"
