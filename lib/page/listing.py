"""Source code on a page: what is shown is what runs, highlighted, with a link to its line."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from lib.page.checkout import ROOT
from lib.page.markup import CODE, Html, recorded

INK = {  # pygments colour -> the page's variable, JupyterLab's, and a colour legible on white and on black
    "#000001": "var(--code-keyword, var(--jp-mirror-editor-keyword-color, #8a5cf6))",
    "#000002": "var(--code-string, var(--jp-mirror-editor-string-color, #b7553a))",
    "#000003": "var(--code-number, var(--jp-mirror-editor-number-color, #2d8659))",
    "#000004": "var(--code-comment, var(--jp-mirror-editor-comment-color, #7a7a7a))",
    "#000005": "var(--code-name, var(--jp-mirror-editor-def-color, #3b7dd8))",
}


def source(*functions: Callable[..., Any] | type) -> Html:
    """Return the highlighted source of functions or classes of `lib`, each with a link to its first line."""
    blocks, said = [], []
    for function in functions:
        lines, first = inspect.getsourcelines(function)
        path = Path(inspect.getfile(function)).resolve().relative_to(ROOT).as_posix()
        link = f'<a href="{listing(path)}#L{first}">{path}</a>' if listing(path) else f"{path}, line {first}"
        name, label = function.__qualname__, escape(function.__qualname__)
        code = inspect.cleandoc("\n" + "".join(lines))
        blocks.append(
            f'<figure class="source"><figcaption><code>{label}</code> in {link}</figcaption>'
            f'<div class="highlight" role="group" aria-label="Source of {label}">'
            f"{in_lines(code)}</div></figure>"
        )
        said += [f"{name} in {path}", *filter(str.strip, code.split("\n"))]
    text = "\n".join(inspect.getsource(function) for function in functions)
    return Html("".join(blocks), text, record=recorded(CODE + line for line in said))


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
