"""Where the digits stand that `mutate` may change: in data, in code, in what pages say, in records.

And the words and signs that it may turn round in a conclusion.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

DIGITS = re.compile(r"\d[\d,._]*\d|\d")


def in_toml(text: str, sections: set[str] | None) -> Iterator[int]:
    """Yield where the last digit of each value in the sections of a TOML file stands; None means all."""
    start, section = 0, ""
    for line in text.splitlines(True):
        if header := re.match(r'\[+"?([^\].\"]+)', line):
            section = header[1]
        elif sections is None or section in sections:
            for match in re.finditer(r'#.*|"[^"]*"(\s*=)?|(?<![\w.])\d[\d_.]*', line):
                if match[0].startswith("#"):
                    break
                if not match[1]:
                    yield from (start + match.start() + place for place in last_digits(match[0]))
        start += len(line)


def in_bibtex(text: str) -> Iterator[int]:
    """Yield where the last digit of each numeral in a field stands."""
    for match in re.finditer(r"^\s+\w+\s*=\s*(.*)$", text, re.M):
        yield from (match.start(1) + place for place in last_digits(match[1]))


def in_python(text: str) -> Iterator[int]:
    """Yield where the last digit of each number in Python code stands, left of its exponent if it has one."""
    starts, inside = line_starts(text), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        inside += {"FSTRING_START": 1, "FSTRING_END": -1}.get(tokenize.tok_name[token.type], 0)
        mantissa = re.match(r"[\d._]*\d", token.string)
        if token.type == tokenize.NUMBER and not inside and mantissa and token.string[-1] not in "jJ":
            yield starts[token.start[0] - 1] + token.start[1] + mantissa.end() - 1


UNSEEN_IN_PROSE = re.compile(
    r"\]\([^)]*\)|<https?:[^>]*>|\{(?:doc|numref|ref|eq|cite[^}]*)\}`[^`]*`|<!--.*?-->"  # targets, comments
    r"|^%.*|^\([\w-]+\)=|^\s*:(?!alt)[\w-]+:.*|^\[\^\w+\]:|\[\^\w+\]"  # options and labels
    r"|^\s*\d+\.\s"  # the numbers of a list: a page counts for itself
    r"|^`{3,}\{(?:figure|image|solution|solution-start|bibliography|button-\w+)\}.*",
    re.M,
)


def in_prose(text: str) -> Iterator[tuple[int, bool]]:
    """Yield where the last digit of each numeral of a page's prose stands, and whether a cell says it."""
    body = re.compile(r"\A---\n.*?^---\n", re.M | re.S).match(text)
    hidden = [(0, body.end())] if body else []
    for cell in re.finditer(r"^(`{3,})\{code-cell\}.*\n((?:.*\n)*?)\1\s*$", text, re.M):
        hidden.append(cell.span())
        for caption in re.finditer(r"^:\s+caption:(.*)$", cell[2], re.M):
            yield from (
                (cell.start(2) + caption.start(1) + place, False) for place in last_digits(caption[1])
            )
        code = re.sub(r"^:.*$", lambda option: "#" * len(option[0]), cell[2], flags=re.M)
        for start, end in spoken_strings(code):
            yield from ((cell.start(2) + start + place, True) for place in last_digits(code[start:end]))
    hidden += [match.span() for match in UNSEEN_IN_PROSE.finditer(text)]
    for place in last_digits(text):
        if not any(start <= place < end for start, end in hidden):
            yield place, False


def spoken_strings(code: str) -> Iterator[tuple[int, int]]:
    """Yield where the strings stand that code hands on as a title, a caption or an alternative text."""
    starts = line_starts(code)
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:  # a magic
        return
    for call in calls:
        given = [k.value for k in call.keywords if k.arg in {"alt", "title", "caption"}]
        for value in [*given, *(call.args if ast.unparse(call.func).endswith("draw") else [])]:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines, last = code.splitlines(), value.end_lineno or value.lineno
                column = len(lines[value.lineno - 1].encode()[: value.col_offset].decode())
                end = len(lines[last - 1].encode()[: value.end_col_offset].decode())
                yield starts[value.lineno - 1] + column, starts[last - 1] + end


def last_digits(text: str) -> Iterator[int]:
    """Yield where the last digit of each numeral stands."""
    for match in DIGITS.finditer(text):
        yield match.end() - 1


def line_starts(text: str) -> list[int]:
    """Return where each line starts."""
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))
    return starts


# ---- conclusions, turned round

SAID = (
    ("more", "fewer"), ("at least", "at most"), ("longer", "shorter"), ("longest", "shortest"),
    ("largest", "smallest"), ("best", "worst"), ("wins", "loses"), ("one", "two"), ("pool", "split"),
    ("stalls", "waits"), ("first", "last"), ("L40S", "A100"), ("256", "2048"), ("512", "8192"),
)  # fmt: skip
ASKED = (
    ("<=", ">="), ("<", ">"), ("==", "!="), ("min(", "max("), ("all(", "any("), ("shared(", "apart("),
    ("pool(", "split("), ("world, 256", "world, 2048"), ("world, 512", "world, 8192"),
    ("is L40S", "is not L40S"),
)  # fmt: skip


def either(pairs: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """Return a pattern for each side of the pairs, as a word or sign of its own."""
    sides = sorted({side for pair in pairs for side in pair}, key=len, reverse=True)
    return re.compile("|".join(alone(side) for side in sides))


def alone(side: str) -> str:
    """Return a pattern for one of them: no part of a longer word, and a rival only where it is called."""
    ends = "" if side.endswith("(") else r"(?![\w=<>])"
    called = "(?=world)" if side in ("shared(", "apart(", "pool(", "split(") else ""
    return rf"(?<![\w=<>.]){re.escape(side)}{ends}{called}"


def in_conclusions(text: str) -> Iterator[int]:
    """Yield where a word or sign stands that turns round a conclusion of a page, in the cell that asks it."""
    for cell in re.finditer(r"^(`{3,})\{code-cell\}.*\n((?:.*\n)*?)\1\s*$", text, re.M):
        sentence = re.search(r'\bconclusion\(\s*"([^"]*)"', cell[2])
        if sentence:
            said, code = sentence.span(1), cell[2][: sentence.start()]
            yield from (cell.start(2) + turn.start() for turn in TURNS[0].finditer(cell[2], *said))
            yield from (cell.start(2) + turn.start() for turn in TURNS[1].finditer(code))
            rest = cell[2][said[1] :]
            yield from (cell.start(2) + said[1] + turn.start() for turn in TURNS[1].finditer(rest))


TURNS = either(SAID), either(ASKED)
OTHER = {one: other for pair in (*SAID, *ASKED) for one, other in (pair, pair[::-1])}


def turned(text: str, place: int) -> tuple[str, str]:
    """Return what stands at such a place, and what it is turned into."""
    found = max((side for side in OTHER if text.startswith(side, place)), key=len)
    return found, OTHER[found]
