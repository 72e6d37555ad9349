"""Figures as inline SVG: one style, text that stays text, colours that follow the page's light or dark.

What is drawn is up to the chapter; here it gets its dress, its words for the record, and its data in a table.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.page.markup import ALT, DRAWN, PLOTTED, TICKS, TITLE, Html, recorded, typeset
from lib.page.tables import table_lines, table_markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One colour, one meaning, on every page (Okabe and Ito's palette).
PREFILL, DECODE, TRANSFER, CPU, WAITING = "#D55E00", "#0072B2", "#CC79A7", "#009E73", "#808080"
OTHER, EXTRA = "#E69F00", "#56B4E9"
INK, FAINT = "#010203", "#040506"  # the page's text colour, and a faint line
NAMES = {
    PREFILL: "--prefill", DECODE: "--decode", TRANSFER: "--transfer", CPU: "--cpu", WAITING: "--waiting",
    OTHER: "--other", EXTRA: "--extra",
}  # fmt: skip
STYLE: dict[Any, object] = {
    "svg.fonttype": "none", "svg.hashsalt": "book", "font.family": "sans-serif", "font.size": 11,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "hatch.color": INK,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "legend.frameon": False, "legend.fontsize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": FAINT, "grid.linewidth": 0.6, "axes.axisbelow": True,
    "lines.linewidth": 2, "lines.markersize": 6, "hatch.linewidth": 0.6,
}  # fmt: skip
FILLED = re.compile(r'<pattern id="([\w-]+)"(?:(?!</pattern>|fill="none").)*</pattern>', re.S)  # a hatch
TICK = re.compile(r"[xy]tick_\d+$")  # what Matplotlib calls the group of a tick
_numbers = count(1)


def draw(
    plot: Callable[[Axes], object],
    title: str,
    alt: str,
    data: dict[str, Sequence[object]],
    size: tuple[float, float] = (6.4, 3.8),
) -> Html:
    """Return a figure: `plot` draws into Matplotlib axes; the title is the message; `data` stands in a table.

    alt says what a reader who cannot see it needs to know. Numbers in `data` are shown to 3 digits.
    size: in inches, of the drawing; keep the width at 6.4 so that text stays legible at 390 px.
    """
    if not title or not alt or not data:
        raise ValueError(
            "draw: title, alt and data are needed; say the message, describe the figure, give its data"
        )
    drawing, said, coordinates = draw_plot(plot, alt, size)
    rounded: dict[str, Sequence[object]] = {
        header: [three_digits(value) for value in column] for header, column in data.items()
    }
    return Html(
        f'<div class="figure"><p class="figure-title">{escape(typeset(title))}</p>{drawing}'
        f'<details class="figure-data"><summary>The data</summary>{table_markup(rounded)}</details></div>',
        f"<figure: {title}>",
        record=recorded([TITLE + typeset(title), *said, "The data", *table_lines(rounded), *coordinates]),
    )


def draw_plot(
    plot: Callable[[Axes], object], alt: str, size: tuple[float, float]
) -> tuple[str, list[str], list[str]]:
    """Return a plot as SVG, and lines of the record: what it says and shows in words, and the data in it."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import FuncFormatter

    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=size, layout="constrained")
        axes = canvas.subplots()
        plot(axes)
        for axis, scale in (axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale()):
            own = isinstance(axis.get_major_formatter(), FuncFormatter)
            if scale == "log" and not own:  # 1,000 reads better than 10 to the 3, on the page and aloud
                axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
                axis.set_minor_formatter(lambda value, _: "")
        coordinates = [PLOTTED + line for part in canvas.axes for line in plotted(part)]
        sheet = io.StringIO()
        canvas.savefig(
            sheet, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    drawing = clean(sheet.getvalue(), alt)
    return drawing, [ALT + alt, *written(drawing)], coordinates


def written(svg: str) -> list[str]:
    """Return a line with the labels of a drawing's ticks, and one with all other text in it."""
    from xml.etree import ElementTree

    ticks: list[str] = []
    others: list[str] = []

    def walk(element: ElementTree.Element, into: list[str]) -> None:
        for part in element:
            if part.tag.endswith("}text"):
                into.append("".join(part.itertext()))
            else:
                walk(part, ticks if TICK.search(part.get("id", "")) else into)

    walk(ElementTree.fromstring(svg), others)
    return [mark + " · ".join(texts) for mark, texts in ((TICKS, ticks), (DRAWN, others)) if texts]


class Row(NamedTuple):
    """A row of a timeline: marks where a token comes, and bars of (start, end, colour)."""

    label: str
    marks: Sequence[float] = ()
    bars: Sequence[tuple[float, float, str]] = ()


def timeline(axes: Axes, groups: dict[str, list[Row]]) -> None:
    """Draw groups of rows from top to bottom, each group under its name; time runs to the right, in seconds.

    A bar in the colour of transfer is hatched too, so that it is told from prefill without colour.
    """
    y, ticks, labels = 0.0, [], []
    for name, rows in groups.items():
        axes.text(
            0.01, y, name, transform=axes.get_yaxis_transform(), color=INK, fontweight="bold", va="center"
        )
        for row in rows:
            y -= 1
            axes.plot(row.marks, [y] * len(row.marks), "|", color=DECODE, markersize=9, markeredgewidth=1.3)
            for start, end, colour in row.bars:
                hatch = "////" if colour == TRANSFER else None
                axes.barh(
                    y,
                    end - start,
                    left=start,
                    height=0.55,
                    color=colour,
                    hatch=hatch,
                    edgecolor=INK,
                    linewidth=0.8,
                )
            ticks.append(y)
            labels.append(row.label)
        y -= 1.2
    axes.set(yticks=ticks, yticklabels=labels, ylim=(y + 0.7, 0.7), xlabel="seconds")
    axes.grid(False)


def plotted(axes: Axes) -> list[str]:
    """Return the data that the axes draw, to 3 digits: a text for each line, bar or cloud, thinned."""
    import numpy as np
    from matplotlib.collections import Collection, PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    found: list[tuple[str, Any]] = []
    bars = [
        a.get_bbox().extents for a in axes.get_children() if isinstance(a, Rectangle) and a is not axes.patch
    ]
    for artist in axes.get_children():
        if isinstance(artist, Line2D):
            found.append(("line", thinned(artist.get_xydata())))
        elif isinstance(artist, PathCollection):
            found.append(("points", thinned(artist.get_offsets())))
        elif isinstance(artist, Collection):
            corners = {tuple(point) for path in artist.get_paths() for point in np.array(path.vertices)}
            found.append(("area", thinned(sorted(corners))))
    return [
        f"{kind} {', '.join(' '.join(map(brief, point)) for point in points)}"
        for kind, points in [*found, ("bars", bars)]
        if len(points)
    ]


def thinned(points: Any, most: int = 9) -> Any:
    """Return at most so many of the points, evenly spread, the first and the last among them."""
    last = len(points) - 1
    return points if last < most else [points[round(i * last / (most - 1))] for i in range(most)]


def brief(value: float) -> str:
    """Return a coordinate to 3 significant digits, without the noise around zero."""
    return "0" if abs(value) < 1e-12 else f"{value:.3g}"


def three_digits(value: object) -> object:
    """Return a float to 3 significant digits, as text; anything else as it is."""
    if isinstance(value, (bool, int)) or not isinstance(value, float):
        return value
    if value == 0 or not abs(value) < float("inf"):
        return str(value)
    rounded = float(f"{value:.3g}")
    if 1e-4 <= abs(rounded) < 1e7:
        decimals = max(0, 2 - int(f"{rounded:e}".partition("e")[2]))
        return f"{rounded:,.{decimals}f}"
    return f"{rounded:.2e}"


def clean(svg: str, alt: str) -> str:
    """Return Matplotlib's SVG ready for a page: no metadata, unique ids, the page's colours, a label."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    prefix = f"figure{next(_numbers)}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\1{prefix}", svg)
    svg = re.sub("(?<=>)[^<>]+(?=</text>)", lambda text: typeset(text[0]), svg)
    svg = re.sub(f"{INK}", "currentColor", svg, flags=re.I)
    svg = re.sub(f"{FAINT}", "var(--faint, #88888855)", svg, flags=re.I)
    for colour, name in NAMES.items():
        svg = re.sub(colour, f"var({name}, {colour})", svg, flags=re.I)
    pale = set(re.findall(r'url\(#([\w-]+)\); [^"]*opacity', svg))
    for hatch in FILLED.finditer(svg):  # over a full colour a light page and a dark one ask for the same ink
        if hatch[1] not in pale:
            svg = svg.replace(hatch[0], hatch[0].replace("currentColor", "var(--hatch, currentColor)"))
    width, _ = re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups()  # type: ignore[union-attr]
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    label = escape(alt, quote=True)
    style = f"max-width:{float(width) * 4 / 3:.0f}px"
    return svg.replace(
        "<svg ",
        f'<svg class="plot" stroke-linejoin="round" role="img" aria-label="{label}" style="{style}" ',
        1,
    )
