"""The numerals in the prose of a rendered page, and what supports each of them.

A numeral is supported when an output of its own section shows it at its precision, when its sentence carries
a citation, or when `book/printed/allowed.toml` lists it with a reason. Prose is all text that a page shows or
speaks and that no cell printed: comments in code, code blocks, formulas, hover texts, the description too.
"""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from docutils import nodes

from lib.page.markup import ALT, TITLE, typeset
from lib.press.records import ALLOWED, SILENT, cell_text, conclusions, visible

NUMERAL = re.compile(r"\d+\^-?\d+|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORD = re.compile(r"[^\s–—/()\[\]{}|=×·<>≤≥≈~&@:;\"“”$€£]+")  # a range, a product or a path is several words
EDGE = ".,!?'‘’*`+-"
PREFIX = re.compile(r"(?:[a-z]{2,}-)+(?=\d)")  # top-8 and sub-100 are claims; Llama-3 is a name
UNIT = re.compile(
    r"\s?((?:[kKMGTP]i?)?(?:B|b|FLOPs?|bytes?)(?:/s)?|[mnuμ]?s|min|h|%|×|req/s|tokens?(?:/s)?|times|px)(?![\w/-])"
)
SENTENCE = re.compile(r"(?<=[.!?])[\"”')]*\s+(?![a-z])")
POWER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
CITED, HELD = "\x01", "\x02"  # stands where a citation stands; where something is that is no claim
EXEMPT = {"guess"}  # choices offered before anything is computed: recorded, and nobody's claim
UNSEEN = (nodes.comment, nodes.footnote_reference, nodes.label, nodes.system_message)


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


# ---- numerals


def normal(text: str) -> str:
    """Return a text with powers written as 10^9, one kind of minus, and plain digits.

    >>> normal("10⁹ and −.5"), normal("½ of ca.700")
    ('10^9 and -0.5', '1/2 of ca 700')
    """
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda power: "^" + power[0].translate(POWER), text.replace("…", " "))
    text = unicodedata.normalize("NFKC", text).translate({0x2212: "-", 0x2010: "-", 0x2044: "/"})
    return re.sub(r"(?<![\w.])\.(?=\d)", "0.", re.sub(r"(?<=[^\W\d_])[.,](?=\d)", " ", text))


def words(text: str, units: bool = False) -> list[str]:
    """Return the words of a text that contain a digit, without punctuation around; if asked with their unit.

    >>> words("It takes (about) 24.5 ms, not −3 %, on an L40S.", units=True)
    ['24.5 ms', '-3 %', 'L40S']
    """
    text, found = normal(text), []
    for match in WORD.finditer(text):
        word = re.sub(r"^[+-]+(?=[+-]|\D)", "", match[0].rstrip(EDGE).lstrip(EDGE.replace("-", "")))
        if any(c.isdigit() for c in word):
            unit = UNIT.match(text, match.end()) if units and match[0].endswith(word[-1]) else None
            found.append(f"{word} {unit[1]}" if unit else word)
    return found


def numerals(text: str) -> list[str]:
    """Return the numerals of a text, without those inside names such as L40S or Qwen2.5-7B.

    >>> numerals("Qwen2.5-7B needs 14.1 GB, 16-token blocks and 1,024 tokens (8x), −5 % at top-8.")
    ['14.1', '16', '1,024', '8', '-5', '8']
    """
    found = []
    for word in (PREFIX.sub("", word) for word in words(text)):
        if not word[0].isalpha() and word[0] != "_":
            sign = "-" if word[0] == "-" else ""
            first, *rest = NUMERAL.findall(word) or [""]
            found += [sign + first, *rest] if first else []
    return found


def value(numeral: str) -> Decimal:
    """Return what a numeral says, at its precision."""
    base, _, exponent = numeral.replace(",", "").partition("^")
    return Decimal(base) ** int(exponent) if exponent else Decimal(base)


def supports(shown: str, numeral: str) -> bool:
    """Tell whether a shown numeral, rounded to the precision of one in the prose, is that one.

    A single digit must be shown as it is. Prose may give the size of a negative number, not another sign.

    >>> supports("332.47", "332.5"), supports("332.47", "333"), supports("8", "8.0"), supports("1.7", "2")
    (True, False, False, False)
    """
    found, wanted = value(shown), value(numeral)
    if wanted >= 0 and not numeral.startswith("-"):
        found = abs(found)
    precise, precision = int(found.as_tuple().exponent), int(wanted.as_tuple().exponent)
    if found == wanted:
        return precise <= precision
    if precise >= precision or len(wanted.as_tuple().digits) < 2:
        return False
    step = Decimal(1).scaleb(precision)
    return wanted in (found.quantize(step, ROUND_HALF_UP), found.quantize(step, ROUND_HALF_DOWN))


# ---- words that state a size

TENS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
SIZES = {  # word -> numerals, of which an output has to show one
    **{word: ("2",) for word in ("twice", "double", "doubles", "doubled", "twofold")},
    **{word: ("3",) for word in ("thrice", "triple", "triples", "tripled")},
    **{f"{word} times": (str(count),) for word, count in TENS.items()},
    **{f"{word}fold": (str(count),) for word, count in TENS.items()},
    **{word: ("0.5", "50") for word in ("half", "halves", "halved")},
    **{f"{a} third": ("0.33", "33") for a in ("a", "one")},
    **{f"{a} quarter": ("0.25", "25") for a in ("a", "one")},
    **{f"{a} fifth": ("0.2", "20") for a in ("a", "one")},
    **{f"{a} tenth": ("0.1", "10") for a in ("a", "one")},
    "two thirds": ("0.67", "67"),
    "three quarters": ("0.75", "75"),
    "an order of magnitude": ("10",),
    "hardly any": (),
}
ONCE = "|".join(sorted(SIZES, key=len, reverse=True))
# "half written", "half a minute" and "a tenth of a second" are no ratios; "a fifth step" comes after four
SIZE = re.compile(
    rf"\b(?:{ONCE})\b(?! an? (?:second|minute|hour|page)| of an? (?:second|minute|hour)|-| written)"
    r"(?:(?<!third)(?<!quarter)(?<!fifth)(?<!tenth)|(?= (?:of|more|less|fewer|as|the)\b|[.,;:!?]|$))",
    re.I,
)
SIZED = {  # pages held to it so far: this may only grow
    "balance", "chunking", "goodput", "intro", "one_long_prompt", "real_tokens", "references",
    "refreshers/kv_caching", "refreshers/latency_metrics", "takeaways",
}  # fmt: skip


def sizes(text: str) -> list[str]:
    """Return the words of a text that state a size.

    >>> sizes("Twice as long, a third of it; a fifth step takes half a second, half of it three times.")
    ['twice', 'a third', 'half', 'three times']
    """
    return [match[0].lower() for match in SIZE.finditer(" ".join(text.split()))]


def oversized(page: str, section: Section, phrases: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield (complaint, False) for a size that no output of its section shows, (phrase, True) like `check`.

    What supports a numeral supports a word: an output, a citation, an allowed phrase.
    """

    def lacks(sentence: str) -> list[str]:
        wanted = [(word, SIZES[word]) for word in sizes(sentence)]
        return [word for word, as_ in wanted if not any(supports(one, n) for one in shown for n in as_)]

    lines = [line for line in section.shown() if not line.startswith(SILENT)]
    shown = {numeral for line in lines for numeral in numerals(line)}
    for sentence in section.sentences:
        if CITED in sentence:
            continue
        rest = " ".join(sentence.split())
        for phrase in phrases:
            if phrase in rest and len(lacks(rest.replace(phrase, " "))) < len(lacks(rest)):
                rest = rest.replace(phrase, " ")
                yield phrase, True
        for word in lacks(rest):
            where = f"{page}, section “{section.title}”"
            yield f"{where}: no output here shows “{word}” as a numeral: “{rest.strip()[:120]}”", False
    for part in section.parts:
        yield from oversized(page, part, phrases)


# ---- what supports them


def allowed() -> dict[str, dict[str, str]]:
    """Return the allow-list: page (or `everywhere`) -> phrase -> reason."""
    return tomllib.loads(ALLOWED.read_text("utf8")) if ALLOWED.exists() else {}


def check(page: str, section: Section, phrases: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield (complaint, False) for a numeral that nothing supports, (phrase, True) where one was needed."""
    lines = [line for line in section.shown() if not line.startswith(SILENT)]
    shown = {numeral for line in lines for numeral in numerals(line)}
    own = [line for output in section.outputs for line in output.splitlines()]
    spoken = [line.removeprefix(ALT).removeprefix(TITLE) for line in own if line.startswith((ALT, TITLE))]
    for sentence in [*section.sentences, *spoken]:
        if CITED in sentence:
            continue
        rest, missing = sentence, lacking(sentence, shown)
        for phrase in phrases:
            shorter = (
                re.sub(rf"(?<![\w.,]){re.escape(phrase)}(?![\w]|[.,]\d)", " ", rest) if missing else rest
            )
            if len(fewer := lacking(shorter, shown)) < len(missing):
                rest, missing = shorter, fewer
                yield phrase, True
        for numeral in missing:
            where = f"{page}, section “{section.title}”"
            yield f"{where}: {numeral} is in no output here: “{sentence.strip()[:120]}”", False
    for part in section.parts:
        yield from check(page, part, phrases)


def lacking(sentence: str, shown: set[str]) -> list[str]:
    """Return the numerals of a sentence that none of the shown ones supports."""
    return [n for n in numerals(sentence) if n not in shown and not any(supports(one, n) for one in shown)]


# ---- reading a page


def read(page: str, doctree: nodes.document, notebook: Any = None) -> tuple[str, list[str]]:
    """Return a page's record, and a complaint for each of its numerals that nothing supports.

    page: its path below book, without suffix. The record ends with the phrases that had to be allowed.
    """
    reader, lists = Reader(doctree, notebook), allowed()
    phrases = sorted(
        {*lists.get("everywhere", {}), *lists.get(page, {})}, key=lambda phrase: (-len(phrase), phrase)
    )
    found = list(check(page, reader.page, phrases))
    found += oversized(page, reader.page, phrases) if page in SIZED else []
    needed = sorted({phrase for phrase, fine in found if fine})
    complaints = [c for c, fine in found if not fine] + unsaid(page, reader, notebook)
    return reader.text() + "".join(f"allowed: {phrase}\n" for phrase in needed), complaints


def unsaid(page: str, reader: Reader, notebook: Any) -> list[str]:
    """Return a complaint for each conclusion whose sentence a page does not say, word for word."""
    sentences = [one["sentence"] for one in conclusions(notebook)] if notebook is not None else []
    said = [spelt(text) for text in reader.said]
    return [
        f"{page}: no title and no sentence here says the conclusion “{sentence}”"
        for sentence in sentences
        if not any(spelt(sentence).rstrip(".") in text for text in said)
    ]


def spelt(text: str) -> str:
    """Return a text with one kind of spaces, apostrophes and quotation marks."""
    return " ".join(re.sub("[“”]", '"', typeset(text)).split())


class Reader:
    """Reads a page's doctree and its executed notebook into a record and a tree of sections."""

    def __init__(self, doctree: nodes.document, notebook: Any = None):
        self.cells = notebook.cells if notebook is not None else []
        self.record: list[str] = []
        self.pending: list[str] = []
        self.said: list[str] = []  # prose and the titles of figures, as conclusions have to say it
        self.page = Section("")
        self.read(doctree, self.page)
        self.flush()

    def text(self) -> str:
        """Return the page's record."""
        return "".join(self.record)

    def flush(self) -> None:
        """Write the numerals gathered since the last output."""
        if self.pending:
            self.record.append("~ " + " · ".join(self.pending) + "\n")
            self.pending = []

    def read(self, node: nodes.Node, section: Section) -> None:
        """Walk on in document order."""
        title = next((child for child in node.children if isinstance(child, nodes.title)), None)
        if isinstance(node, UNSEEN):
            return
        if isinstance(node, nodes.section) and title is not None:  # an exercise's section has none
            part = Section(flat(title))
            section.parts.append(part)
            self.flush()
            self.record.append(f"## {part.title}\n")
            for child in node.children:
                self.read(child, part)
        elif isinstance(node, nodes.container) and node.get("nb_element") == "cell_code":
            self.cell(node, self.cells[node["cell_index"]], section)
        elif isinstance(node, (nodes.Text, nodes.TextElement, nodes.image)):
            self.say(flat(node), flat(node, marks=True), section, exempt(node))
        else:
            for unseen in HIDDEN_TEXT.get(node.tagname, lambda node: [])(node):
                self.say(unseen, unseen, section, exempt=node.tagname == "bibliography")
            for child in node.children:
                self.read(child, section)

    def say(self, text: str, marked: str, section: Section, exempt: bool = False) -> None:
        """Take a block of prose into the record, and its sentences into the section."""
        self.pending += words(text.replace(CITED, "").replace(HELD, ""), units=True)
        if not exempt:
            section.sentences += SENTENCE.split(marked)
            self.said.append(text)

    def cell(self, node: nodes.container, cell: Any, section: Section) -> None:
        """Take a code cell: its output, then its caption and the comments in its code."""
        output = cell_text(cell)
        self.flush()
        self.record.append(output)
        section.outputs.append(output.partition("\n")[2].replace("\n    ", "\n").removeprefix("    "))
        lines = section.outputs[-1].splitlines()
        self.said += [line.removeprefix(TITLE) for line in lines if line.startswith(TITLE)]
        for caption in node.findall(nodes.caption):
            self.read(caption, section)
        if not {"remove-input", "remove-cell"} & set(cell.metadata.get("tags", ())):
            for comment in comments(cell.source):
                self.say(comment, comment, section)


def toc_text(node: nodes.Element) -> list[str]:
    """Return what a table of contents says itself."""
    return [node.get("caption") or "", *(title for title, _ in node["entries"] if title)]


def bibliography(node: nodes.Element) -> list[str]:
    """Return the text of the reference list, which Sphinx fills in later."""
    env = node.document.settings.env
    paths = [Path(env.srcdir) / name for name in env.config.bibtex_bibfiles]
    for path in paths:
        env.note_dependency(str(path))
    return [path.read_text("utf8") for path in paths]


HIDDEN_TEXT = {
    "meta": lambda node: [node.get("content", "")],
    "enumerated_list": lambda node: [str(node["start"])] if "start" in node else [],
    "toctree": toc_text,
    "bibliography": bibliography,
}


def comments(code: str) -> Iterator[str]:
    """Yield the comments of Python code, as far as it can be read as such."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("#! ")
    except (tokenize.TokenError, SyntaxError):
        return


def exempt(node: nodes.Node | None) -> bool:
    """Tell whether a node stands in a block whose numerals are nobody's claim."""
    while node is not None:
        if isinstance(node, nodes.Element) and (
            EXEMPT & set(node.get("classes", ())) or node.tagname == "citation"
        ):
            return True
        node = node.parent
    return False


def flat(node: nodes.Node, marks: bool = False) -> str:
    """Return the text of a block; `marks` puts a sign for each citation and leaves out what is no claim."""
    if isinstance(node, nodes.Text):
        return str(node.astext())
    if isinstance(node, UNSEEN) or not isinstance(node, nodes.Element):
        return ""
    if node.get("refdomain") == "cite" or "citation" in node.tagname or cites(node.get("refuri", "")):
        return CITED if marks else node.astext() + titles(node)
    if node.tagname == "pending_xref" and not node.get("refexplicit") and node.get("reftype") != "term":
        return HELD  # a title or number that Sphinx fills in later
    if isinstance(node, (nodes.math, nodes.math_block)):
        return formula(node.astext(), claims=marks)
    if isinstance(node, nodes.raw):
        return visible(node.astext()) if "html" in node.get("format", "") else ""
    if marks and isinstance(node, nodes.literal) and not node.astext()[:1].isdigit():
        return HELD
    if (
        marks
        and isinstance(node, nodes.literal_block)
        and node.get("language") not in {None, "default", "none", "text"}
    ):
        return HELD  # code: recorded, and no claim
    start = "^" if isinstance(node, nodes.superscript) else ""
    return start + "".join(flat(child, marks) for child in node.children) + titles(node)


def titles(node: nodes.Element) -> str:
    """Return what an element speaks or shows on hovering."""
    found = [node.get(key, "") for key in ("alt", "title", "reftitle", "explanation")]
    return "".join(f" ({text}) " for text in found if text and not isinstance(node, nodes.section))


def formula(tex: str, claims: bool = False) -> str:
    """Return the numerals of a formula; as claims without single digits and powers, which are its form.

    >>> formula(r"2P \\cdot 10^{9} = 14{,}100"), formula(r"2P \\cdot 10^{9} = 14{,}100", claims=True)
    ('2P 10^9 14,100', '14,100')
    """
    text = tex.replace("{,}", ",").replace(r"\%", "%")
    text = re.sub(r"\^\s*\{?\s*(-?\d+)\s*\}?", r"^\1 ", text)
    found = words(re.sub(r"\\[a-zA-Z]+|\\.|[_+]", " ", text))
    return " ".join(n for n in found if not claims or (len(re.findall(r"\d", n)) > 1 and "^" not in n))


def cites(address: str) -> bool:
    """Tell whether a link is a citation: it leads to another site."""
    return address.startswith("http")
