"""What a page shows, as text, and whether that is still what its record in `book/printed/` says.

A record has three kinds of lines: `## a section`, `>>> the first line of a code cell` with the cell's output indented
below it, and `~ the numerals` of the prose that follows. nbmake compares the cells; Sphinx compares all of it.
"""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOOK = Path(__file__).parents[2] / "book"
RECORDS = BOOK / "printed"
HIDDEN = {"remove-cell", "remove_cell", "remove-output", "remove_output"}
MIMES = ("text/html", "text/markdown", "text/plain")  # the first that an output has is what the page shows
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
ALT, TITLE, DRAWN = "alt: ", "title: ", "drawn: "
SVG = re.compile(r"(<svg\b[^>]*>)(.*?)</svg>", re.S)
TEXT = re.compile(r"<text\b[^>]*>\s*(.*?)\s*</text>", re.S)
SPOKEN = re.compile(r'<(?:svg|img)\b[^>]*?\b(?:aria-label|alt)="([^"]*)"[^>]*>')


def record_of(page: Path) -> Path:
    """Return where the record of a page stands: `printed/<path below book>.txt`."""
    return RECORDS / page.resolve().relative_to(BOOK).with_suffix(".txt")


def visible(markup: str) -> str:
    """Return the text that HTML or SVG shows or speaks, a line for each row, title and alternative text."""
    text = re.sub(r"<(script|style|defs)\b.*?</\1>|<!--.*?-->", " ", markup, flags=re.S)
    text = SVG.sub(lambda match: f"{match[1]}\n{DRAWN}{' · '.join(TEXT.findall(match[2]))}\n", text)
    text = SPOKEN.sub(lambda match: f"\n{ALT}{match[1]}\n", text)
    text = re.sub(r'<p class="figure-title">', f"\n{TITLE}", text)
    text = re.sub(r"</(?:td|th)>\s*<t[dh]\b[^>]*>", " | ", text)
    text = re.sub(r"</?(?:tr|p|summary|figcaption|caption|table|pre|div|br)\b[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))


def output_text(output: dict[str, Any]) -> str:
    """Return what one output of a cell shows as text; what depends on the machine is replaced by its bounds."""
    if output["output_type"] == "stream":
        return _joined(output["text"]) if output["name"] == "stdout" else ""
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    press = output["metadata"].get("press", {})
    if "record" in press:
        return str(press["record"])
    for mime in MIMES:
        if mime in output["data"]:
            text = _joined(output["data"][mime])
            return visible(text) if mime == "text/html" else text
    return ""


def cell_text(cell: Any) -> str:
    """Return a code cell's entry in the record, or nothing where it shows nothing."""
    if cell.cell_type != "code" or HIDDEN & set(cell.metadata.get("tags", ())):
        return ""
    lines = [line.rstrip() for output in cell.outputs for line in output_text(output).split("\n")]
    body = "".join(f"    {ADDRESS.sub('0x…', line)}\n" for line in lines if line)
    return f">>> {cell.source.strip().partition(chr(10))[0]}\n{body}" if body else ""


def printed(notebook: Any) -> str:
    """Return the record's part that the cells of an executed notebook print."""
    return "".join(map(cell_text, notebook.cells))


def cells_only(record: str) -> str:
    """Return the part of a whole record that `printed` would give."""
    return "".join(line for line in record.splitlines(True) if line.startswith((">>>", "    ")))


def stated(notebook: Any, key: str) -> Iterator[Any]:
    """Yield what the outputs of a notebook state about themselves: their `problem`s, or the keys they `claim`."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield from output.get("metadata", {}).get("press", {}).get(key, ())


def drift(page: Path, now: str, part: bool = False) -> str:
    """Return the difference between a page's record and what it shows now: empty when there is none."""
    record = record_of(page)
    then = record.read_text("utf8") if record.exists() else ""
    if part:
        then = cells_only(then)
    lines = difflib.unified_diff(
        then.splitlines(True), now.splitlines(True), f"recorded: {record.name}", f"now: {page.name}", n=1
    )
    return "".join(lines)


def write(page: Path, text: str) -> None:
    """Write the record of a page."""
    path = record_of(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf8")


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
