"""What a page shows, as text, and whether that is still what its record in `book/printed/` says.

A record has four kinds of lines: `## a section`, `>>> the first line of a code cell` with the cell's output
indented below it, `~ the numerals` of the prose that follows, and last what had to be `allowed:`. nbmake
compares the cells; Sphinx compares all of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.page.figures import TICK
from lib.page.markup import ALT, CODE, CONCLUDED, PLOTTED, TICKS, TITLE, recorded

BOOK = Path(__file__).parents[2] / "book"
RECORDS = BOOK / "printed"
ALLOWED = RECORDS / "allowed.toml"
HIDDEN = {"remove-cell", "remove_cell", "remove-output", "remove_output"}
MIMES = ("text/html", "text/markdown", "text/plain")  # the first that an output has is what the page shows
BEFORE = ("application/vnd.jupyter.widget-view+json", "application/javascript")  # what a page prefers to HTML
PIXELS = ("image/svg+xml", "image/png", "image/gif", "image/jpeg", "text/latex")  # and to other text
ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]{6,}(?=>)")
SILENT = (ALT, TITLE, TICKS, PLOTTED, CODE, CONCLUDED)  # lines of an output that support no prose
SPOKEN = ("aria-label", "aria-description", "alt", "title", "placeholder", "value")
CLAIM = re.compile(r"    \d+ published figures? in \[(.+)\], \d+ (?:of them )?different here")
CELLS = ["td", "th"]
INLINE = {
    "a", "abbr", "b", "bdi", "cite", "code", "del", "dfn", "em", "i", "ins", "kbd", "mark", "q", "s", "samp",
    "small", "span", "strong", "sub", "sup", "td", "th", "time", "tspan", "u", "var", "wbr",
}  # fmt: skip


def record_of(page: Path) -> Path:
    """Return where the record of a page stands: `printed/<path below book>.txt`."""
    return RECORDS / page.resolve().relative_to(BOOK).with_suffix(".txt")


def visible(markup: str) -> str:
    """Return the text that HTML shows or speaks, a line for each block, row and alternative text.

    What `lib.page` shows brings its own record; this reads all other HTML.
    """
    from bs4 import BeautifulSoup

    page = BeautifulSoup(markup, "html.parser")
    for unseen in page(["script", "style", "defs"]):
        unseen.decompose()
    for tag in page(True):
        if tag.get("role") != "group":  # whose label names a box
            tag.insert_before(*(f"\n{ALT}{tag[name]}\n" for name in SPOKEN if name in tag.attrs))
        if tag.name == "sup":
            tag.insert_before("^")
        elif tag.name in CELLS and tag.find_next_sibling(CELLS):
            if isinstance(tag.next_sibling, str):
                tag.next_sibling.replace_with(" ")
            tag.insert_after(" | ")
        elif tag.name == "text" and tag.find_parent("g", id=TICK):
            tag.insert_before(f"\n{TICKS}")
            tag.insert_after("\n")
        elif tag.name not in INLINE:
            tag.insert_before("\n")
            tag.insert_after("\n")
    return recorded(page.get_text().split("\n"))


def output_text(output: dict[str, Any]) -> str:
    """Return what one output of a cell shows as text; bounds stand for what depends on the machine."""
    if output["output_type"] == "stream":  # the site leaves stderr out
        return _joined(output["text"]) if output["name"] == "stdout" else ""
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    press = output["metadata"].get("press", {})
    if "record" in press:
        return str(press["record"])
    text = next((_joined(output["data"][mime]) for mime in MIMES if mime in output["data"]), "")
    return visible(text) if "text/html" in output["data"] else text


def unreadable(output: dict[str, Any]) -> str:
    """Return a complaint when a page would show an output in a form that no record can hold."""
    data = output.get("data", {})
    shown = next((mime for mime in BEFORE if mime in data), None)
    if shown is None and "text/html" not in data:
        shown = next((mime for mime in PIXELS if mime in data), None)
    return f"an output is {shown}, which no record holds: use lib.page, or text" if shown else ""


def cell_text(cell: Any) -> str:
    """Return a code cell's entry in the record, or nothing where it shows nothing."""
    if cell.cell_type != "code" or HIDDEN & set(cell.metadata.get("tags", ())):
        return ""
    texts = [(output_text(o), "" if o["output_type"] == "stream" else "\n") for o in cell.outputs]
    lines = "".join(f"{end}{text}{end}" for text, end in texts).split("\n")  # a kernel cuts a stream anywhere
    body = "".join(f"    {ADDRESS.sub('0x…', line.rstrip())}\n" for line in lines if line.strip())
    return f">>> {cell.source.strip().partition(chr(10))[0]}\n{body}" if body else ""


def printed(notebook: Any) -> str:
    """Return the record's part that the cells of an executed notebook print."""
    return "".join(map(cell_text, notebook.cells))


def cells_only(record: str) -> str:
    """Return the part of a whole record that `printed` would give."""
    return "".join(line for line in record.splitlines(True) if line.startswith((">>>", "    ")))


def problems(notebook: Any) -> Iterator[str]:
    """Yield what is wrong with a notebook's outputs: what they state, and what cannot be recorded."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield from output.get("metadata", {}).get("press", {}).get("problem", ())
            if complaint := unreadable(output):
                yield complaint


def conclusions(notebook: Any) -> list[dict[str, Any]]:
    """Return what each `conclusion` of a notebook found: its sentence, stands, of, where, not_in."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    found = [output.get("metadata", {}).get("press", {}).get("conclusion") for output in outputs]
    return [one for one in found if one]


def claims(record: str) -> Iterator[str]:
    """Yield the dotted path of each published figure that a record compares with its page's own."""
    section = ""
    for line in record.splitlines():
        if match := CLAIM.fullmatch(line):
            section = match[1]
        elif not section or not line.startswith("    ") or " | " not in line:
            section = ""
        elif (key := line.strip().partition(" | ")[0]) != "figure":
            yield f"{section}.{key}"


def allowances(record: str) -> Iterator[str]:
    """Yield each phrase that a page needed the allow-list for."""
    for line in record.splitlines():
        if line.startswith("allowed: "):
            yield line.removeprefix("allowed: ")


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
