"""A calculator's form: its knobs and its result, as HTML that stands alone and that `live.js` brings to life.

The page shows the result for the default knobs before any script runs. In a browser the same functions write
the same markup: only the plot is drawn by another library, from the same description. The calculators
themselves are in `lib.live`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from math import ceil, log10
from typing import TYPE_CHECKING, Any, Protocol

from lib.page.figures import NAMES, draw_plot, three_digits
from lib.page.markup import ALT, Html, recorded, typeset
from lib.page.tables import table_lines, table_markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

COLOURS = {"ink": "#010203", **{name.removeprefix("--"): colour for colour, name in NAMES.items()}}
MARKERS = {"circle": "o", "square": "s", "triangle": "^"}
LOADING, STOP = "Loading Python", "Stop"
SIZE = (6.4, 3.8)  # inches; live.css keeps the same shape


class Calculator(Protocol):
    """What a form needs to know."""

    title: str

    @property
    def name(self) -> str:
        """An identifier."""

    @property
    def groups(self) -> Sequence[Any]:
        """Knobs below their headings: numbers, choices and texts."""

    @property
    def knobs(self) -> Sequence[Any]:
        """All of them."""

    def __call__(self, **given: object) -> Mapping[str, Any]:
        """The answer: sentences to `say`, a `table`, a `plot`."""


def form(calculator: Calculator, **knobs: object) -> Html:
    """Return a calculator's form with its result; knobs: values other than the defaults."""
    answer, name = calculator(**knobs), calculator.name
    plot = answer["plot"]
    drawing, said, coordinates = draw_plot(lambda axes: paint(axes, plot), plot["alt"], SIZE)
    shown, fields, asked = parts(answer), "", []
    for group in calculator.groups:
        made = [field(name, knob, knobs.get(knob.name, knob.default)) for knob in group.knobs]
        inside, legend = "".join(markup for markup, _ in made), f"<legend>{escape(group.legend)}</legend>"
        fields += f'<fieldset class="live-group">{legend}{inside}</fieldset>' if group.legend else inside
        asked += [group.legend, *(line for _, lines in made for line in lines)]
    elsewhere = "On the site of the book this has knobs; here, change them in the code: "
    call = f'form(calculator("{name}"), {calculator.knobs[0].name}=…)'
    markup = (
        f'<section class="live" data-live="{name}" aria-labelledby="live-{name}">'
        f'<p class="live-title" id="live-{name}">{escape(calculator.title)}</p>'
        f'<p class="live-elsewhere">{elsewhere}<code>{call}</code>.</p>'
        f"<form novalidate><fieldset hidden disabled>{fields}</fieldset></form>"
        f'<div class="live-status"><p role="status"></p>'
        f'<button type="button" hidden>{STOP}</button><progress max="1" aria-label="{LOADING}" hidden>'
        f"</progress></div>"
        f'<div class="live-say" data-part="say" role="status" style="{room(answer["say"])}">'
        f"{shown['say']}</div>"
        f'<div class="figure"><p class="figure-title" data-part="title">{shown["title"]}</p>'
        f'<ul class="live-legend" data-part="legend" style="list-style: none">{shown["legend"]}</ul>'
        f'<div class="live-plot" data-part="plot">{drawing}</div></div>'
        f'<div data-part="table" style="{heading(answer["table"])}">{shown["table"]}</div></section>'
    )
    names = [mark["name"] for mark in plot["marks"]]
    result = [*answer["say"], plot["title"], *names]
    lines = [calculator.title, f"{elsewhere}{call}.", *asked, STOP, ALT + LOADING]
    lines += [*map(typeset, result), *said]
    lines += [line for table in tables(answer) for line in table_lines(table)]
    text = f"<form: {calculator.title}>\n" + "\n".join(answer["say"])
    return Html(markup, text, record=recorded([*lines, *coordinates]))


def field(name: str, knob: Any, value: object) -> tuple[str, list[str]]:
    """Return the label, the control and the hint of a knob, as HTML and as lines of the record."""
    this = f"live-{name}-{knob.name}"
    named, kind = f'id="{this}" name="{knob.name}" aria-describedby="{this}-hint"', ""
    if hasattr(knob, "choices"):
        options = "".join(
            f"<option{' selected' * (one == value)}>{escape(one)}</option>" for one in knob.choices
        )
        control, hint, said = f"<select {named}>{options}</select>", "", [*knob.choices]
    elif hasattr(knob, "example"):
        said = [ALT + knob.example, str(value)]
        say = f'rows="3" placeholder="{escape(knob.example)}" spellcheck="false" autocomplete="off" '
        say += f'data-most="{knob.most}"'
        control, hint, kind = (
            f"<textarea {named} {say}>{escape(str(value))}</textarea>",
            knob.hint,
            " live-text",
        )
    else:
        keys = f'inputmode="{"numeric" if knob.whole else "decimal"}" autocomplete="off"'
        limits = (
            f'data-low="{knob.low}" data-high="{knob.high}" data-step="{knob.step}" '
            f'data-use="{escape(typeset(knob.use))}"{" data-zero" * bool(knob.zero)}'
        )
        control = f'<input type="text" {named} {keys} value="{value}" {limits}>'
        hint, said = knob.hint, [f"{ALT}{value}"]
    return (
        f'<div class="live-knob{kind}"><label for="{this}">{escape(typeset(knob.label))}</label>{control}'
        f'<p class="live-hint" id="{this}-hint">{escape(typeset(hint))}</p></div>'
    ), [typeset(knob.label), *said, typeset(hint)]


def room(sentences: Sequence[str]) -> str:
    """Return how many lines to keep free for sentences like these, on a desk and on a phone, as a style."""
    wide, narrow = (sum(ceil(1.35 * len(one) / width) for one in sentences) for width in (70, 37))
    return f"--wide: {wide}; --narrow: {narrow}"


def heading(table: Mapping[str, Any]) -> str:
    """Return how many lines to keep free for a table's headers on a phone, one for each word, as a style."""
    return f"--lines: {max(len(header.split()) for header in [*table][1:])}"


def parts(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the markup of every part of a result but the plot."""
    plot = answer["plot"]
    return {
        "say": "".join(f"<p>{escape(typeset(sentence))}</p>" for sentence in answer["say"]),
        "title": escape(typeset(plot["title"])),
        "legend": "".join(key(mark) for mark in plot["marks"] if mark["name"]),
        "table": "".join(map(table_markup, tables(answer))),
    }


def tables(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the table or two of an answer, numbers to three digits."""
    found = [table for table in (answer["table"], answer.get("more")) if table]
    return [{header: [*map(three_digits, cells)] for header, cells in table.items()} for table in found]


def respond(calculator: Calculator, knobs: Mapping[str, object]) -> str:
    """Return as JSON what a page shows for these knobs: parts and plot, or what is wrong with which knob."""
    try:
        answer = calculator(**knobs)
    except ValueError as error:
        return json.dumps({"wrong": getattr(error, "wrong", {"": str(error)})})
    return json.dumps({"parts": parts(answer), "plot": answer["plot"], "answer": answer})


# ---- the plot


def key(mark: Mapping[str, Any]) -> str:
    """Return an entry of the legend: a sample of the mark, and its name."""
    hatch = '<path d="M2 12 12 2M8 12 18 2M14 12 24 2" stroke="currentColor"/>' * (
        mark["colour"] == "transfer"
    )
    dash = ' stroke-dasharray="7 4"' * mark.get("dash", False)
    sample = {
        "line": f'<path d="M0 7H26" stroke-width="3"{dash}/>',
        "rule": '<path d="M0 7H26" stroke-width="3" stroke-dasharray="3 4"/>',
        "ticks": '<path d="M13 0V14" stroke-width="3"/>',
        "bars": f'<rect x="1" y="2" width="24" height="10" stroke="currentColor"/>{hatch}',
        "circle": '<circle cx="13" cy="7" r="6" stroke="none"/>',
        "square": '<rect x="7" y="1" width="12" height="12" stroke="none"/>',
        "triangle": '<path d="M6 13H20L13 1Z" stroke="none"/>',
    }[mark.get("shape") or mark["kind"]]
    ink = "currentColor" if mark["colour"] == "ink" else f"var(--{mark['colour']}, {COLOURS[mark['colour']]})"
    return (
        f'<li><svg width="26" height="14" fill="{ink}" stroke="{ink}" aria-hidden="true">{sample}</svg> '
        f"{escape(typeset(mark['name']))}</li>"
    )


def power(value: float) -> str:
    """Return the label of a logarithmic axis: powers of ten from 100,000 on."""
    digits = str(round(log10(value))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:,.10g}" if value < 1e5 else f"10{digits}"


def paint(axes: Axes, plot: Mapping[str, Any]) -> None:
    """Draw the marks of a plot."""
    rows = plot.get("rows")
    at = {row: -place for place, row in enumerate(rows)} if rows else {}
    for mark in plot["marks"]:
        colour, x = COLOURS[mark["colour"]], mark["x"]
        y = [at.get(value, value) for value in mark.get("y", ())]
        if mark["kind"] == "line":
            axes.plot(x, y, "--" if mark.get("dash") else "-", color=colour)
        elif mark["kind"] == "points":
            axes.plot(x, y, MARKERS[mark.get("shape", "circle")], color=colour, markersize=8)
        elif mark["kind"] == "ticks":
            axes.plot(x, y, "|", color=colour, markersize=9, markeredgewidth=1.3)
        elif mark["kind"] == "bars":
            lengths = [end - start for start, end in zip(x, mark["x2"], strict=True)]
            hatch = "////" if mark["colour"] == "transfer" else None
            edge: Any = {"edgecolor": COLOURS["ink"], "linewidth": 0.8}
            axes.barh(y, lengths, left=x, height=0.55, color=colour, hatch=hatch, **edge)
        else:
            axes.axvline(x[0], color=colour, linestyle=":", linewidth=1.4)
    for name in ("x", "y"):
        axis = plot[name]
        scale = {f"{name}scale": "log"} if axis.get("log") else {}
        ends = {f"{name}lim": axis["ends"]} if "ends" in axis else {}
        axes.set(**scale, **{f"{name}label": axis["label"]}, **ends)
        if axis.get("whole"):
            axes.locator_params(axis=name, integer=True)
        if axis.get("log"):
            drawn = axes.xaxis if name == "x" else axes.yaxis
            drawn.set_major_formatter(lambda value, _: power(value))
            drawn.set_minor_formatter(lambda value, _: "")
    axes.tick_params(axis="x", pad=8)  # on a phone, where all text is larger, off the other axis's lowest
    if rows:
        axes.set(yticks=list(at.values()), yticklabels=rows, ylim=(0.6 - len(rows), 0.6))
        axes.grid(visible=False, axis="y")
