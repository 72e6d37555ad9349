"""The numerals in the prose of a rendered page, and what supports each of them.

A numeral is supported when an output of its own section shows it at its precision, when its sentence carries a
citation, or when `book/printed/allowed.toml` lists it with a reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

from docutils import nodes

from lib.press.records import ALT, RECORDS, TITLE, cell_text

NUMERAL = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?")
WORD = re.compile(r"[^\s…–—/()\[\]|=×·]+")  # a range, a product or a path is several words
SENTENCE = re.compile(r"(?<=[.!?])[\"”')]*\s+(?=[A-Z\"“(\x02])")
CITED, HELD = "\x01", "\x02"  # stands where a citation stands; where something unresolved stands
EXEMPT = {"guess"}  # choices offered before anything is computed: recorded, and nobody's claim
BLOCKS = (nodes.paragraph, nodes.title, nodes.caption, nodes.term, nodes.line, nodes.rubric)


@dataclass
class Section:
    """A section of a page: its outputs, and the sentences of its prose."""

    title: str
    outputs: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    parts: list[Section] = field(default_factory=list)

    def shown(self) -> Iterator[str]:
        """Yield every line that the outputs of this section and its parts show."""
        for output in self.outputs:
            yield from output.splitlines()
        for part in self.parts:
            yield from part.shown()


def words(text: str) -> list[str]:
    """Return the words of a text that contain a digit, without the punctuation around them."""
    found = (word.strip(".,;:!?\"'“”‘’*`~≈<>+−-") for word in WORD.findall(text))
    return [word for word in found if any(c.isdigit() for c in word)]


def numerals(text: str) -> list[str]:
    """Return the numerals of a text, without those inside names such as L40S or Qwen2.5-7B.

    >>> numerals("Qwen2.5-7B needs 14.1 GB, 16-token blocks and 1,024 tokens (8x).")
    ['14.1', '16', '1,024', '8']
    """
    return [n for word in words(text) if word[0].isdigit() or word[0] in "$€£" for n in NUMERAL.findall(word)]


def supports(shown: str, numeral: str) -> bool:
    """Tell whether a shown numeral, rounded to the precision of one in the prose, is that one.

    >>> supports("332.47", "332.5"), supports("332.47", "333"), supports("8", "8.0"), supports("1.7", "2")
    (True, False, False, False)
    """
    value, wanted = Decimal(shown.replace(",", "")), Decimal(numeral.replace(",", ""))
    if value == wanted:
        return len(shown.partition(".")[2]) >= len(numeral.partition(".")[2])
    step = Decimal(1).scaleb(int(wanted.as_tuple().exponent))
    if int(value.as_tuple().exponent) >= int(wanted.as_tuple().exponent) or len(wanted.as_tuple().digits) < 2:
        return False
    return wanted in (value.quantize(step, ROUND_HALF_UP), value.quantize(step, ROUND_HALF_DOWN))


@cache
def allowed() -> dict[str, dict[str, str]]:
    """Return the allow-list: page (or `everywhere`) -> phrase -> reason."""
    path = RECORDS / "allowed.toml"
    return tomllib.loads(path.read_text("utf8")) if path.exists() else {}


def unsupported(page: str, section: Section) -> Iterator[str]:
    """Yield a complaint for each numeral in the prose of a section that nothing supports."""
    phrases = sorted([*allowed().get("everywhere", {}), *allowed().get(page, {})], key=len, reverse=True)
    shown = [n for line in section.shown() if not line.startswith((ALT, TITLE)) for n in numerals(line)]
    own = [line for output in section.outputs for line in output.splitlines()]
    spoken = [line.removeprefix(ALT).removeprefix(TITLE) for line in own if line.startswith((ALT, TITLE))]
    for sentence in [*section.sentences, *spoken]:
        if CITED in sentence:
            continue
        rest = sentence
        for phrase in phrases:
            rest = re.sub(rf"(?<![\w.,]){re.escape(phrase)}(?![\w]|[.,]\d)", " ", rest)
        for numeral in numerals(rest):
            if not any(supports(candidate, numeral) for candidate in shown):
                yield f"{page}, section “{section.title}”: {numeral} is in no output here: “{sentence.strip()[:120]}”"
    for part in section.parts:
        yield from unsupported(page, part)


class Reader:
    """Reads a page's doctree and its executed notebook into a record and a tree of sections."""

    def __init__(self, doctree: nodes.document, notebook: Any = None):
        self.cells = notebook.cells if notebook is not None else []
        self.record: list[str] = []
        self.pending: list[str] = []
        self.page = Section("")
        self.read(doctree, self.page)
        self.flush()

    def text(self) -> str:
        """Return the page's record."""
        return "".join(self.record)

    def flush(self) -> None:
        """Write the numerals gathered since the last output."""
        if self.pending:
            self.record.append("~ " + " ".join(self.pending) + "\n")
            self.pending = []

    def read(self, node: nodes.Node, section: Section) -> None:
        """Walk on in document order."""
        title = next((child for child in node.children if isinstance(child, nodes.title)), None)
        if isinstance(node, nodes.section) and title is not None:  # an exercise's section has none
            part = Section(flat(title))
            section.parts.append(part)
            self.flush()
            self.record.append(f"## {part.title}\n")
            for child in node.children:
                self.read(child, part)
        elif isinstance(node, nodes.container) and node.get("nb_element") == "cell_code":
            output = cell_text(self.cells[node["cell_index"]])
            self.flush()
            self.record.append(output)
            section.outputs.append(output.partition("\n")[2].replace("\n    ", "\n").removeprefix("    "))
            for caption in node.findall(nodes.caption):
                self.read(caption, section)
        elif isinstance(node, (nodes.literal_block, nodes.math_block, nodes.raw, nodes.comment)):
            self.pending += words(node.astext()) if isinstance(node, nodes.math_block) else []
        elif isinstance(node, BLOCKS):
            self.pending += words(flat(node))
            if not exempt(node):
                section.sentences += SENTENCE.split(flat(node, marks=True))
        elif isinstance(node, nodes.image):
            self.pending += words(node.get("alt", ""))
            section.sentences.append(node.get("alt", ""))
        else:
            for child in node.children:
                self.read(child, section)


def exempt(node: nodes.Node | None) -> bool:
    """Tell whether a node stands in a block whose numerals are nobody's claim."""
    while node is not None:
        if isinstance(node, nodes.Element) and (EXEMPT & set(node.get("classes", ())) or node.tagname == "citation"):
            return True
        node = node.parent
    return False


def flat(node: nodes.Node, marks: bool = False) -> str:
    """Return the text of a block; `marks` puts a sign for each citation and leaves formulas and code out."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, nodes.Element):
        if node.get("refdomain") == "cite" or "citation" in node.tagname or cites(node.get("refuri", "")):
            return CITED if marks else HELD + node.astext()
        if node.tagname == "pending_xref" and not node.get("refexplicit") and node.get("reftype") != "term":
            return HELD  # a title or number that Sphinx fills in later
        if marks and isinstance(node, (nodes.math, nodes.literal)):
            return HELD
        if isinstance(node, nodes.image):
            return " " + node.get("alt", "") + " "
    return "".join(flat(child, marks) for child in node.children)


def cites(address: str) -> bool:
    """Tell whether a link is a citation: it leads to another site."""
    return address.startswith("http")
