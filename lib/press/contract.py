"""Sphinx extension of the book: nothing stale, nothing unrecorded, no equation that needs JavaScript.

How a page looks is not decided here but in `site`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util import logging

from lib.page.markup import SCROLLS
from lib.press import balance, prose, records, run

log = logging.getLogger(__name__)


class Broken(SphinxError):
    """The book does not say what it should."""

    category = "The book"


# ---- execution


def key_the_cache(app: Sphinx, config: Any) -> None:
    """Let a change in `lib` make Sphinx read, and execute where results may change, every chapter again."""
    config.nb_execution_cache_path = str(run.cache_path())
    config.book_code = run.hashed(run.code())


def execute_stale(app: Sphinx, env: Any, docnames: list[str]) -> None:
    """Execute in parallel what Sphinx is about to read."""
    chapters = [path for path in (Path(env.doc2path(name)) for name in docnames) if run.is_chapter(path)]
    try:
        count = run.refresh(chapters)
    except run.ChapterError as error:
        raise Broken(str(error)) from error
    log.info("executed %d chapters, kept the results of %d", count, len(chapters) - count)


# ---- the number contract


def read_page(app: Sphinx, doctree: nodes.document) -> None:
    """Keep a page's record and its complaints with the environment."""
    env, page = app.env, Path(app.env.doc2path(app.env.docname))
    notebook = run.executed(page) if run.is_chapter(page) else None
    env.note_dependency(str(records.ALLOWED))
    found = records.conclusions(notebook) if notebook is not None else []
    balance.keep(env, env.docname, doctree, found)
    text, unsupported = prose.read(env.docname.removeprefix("book/"), doctree, notebook)
    pages(env)[env.docname] = text, [*(records.problems(notebook) if notebook else ()), *unsupported]


def pages(env: Any) -> dict[str, tuple[str, list[str]]]:
    """Return docname -> (record, complaints), pickled with the environment."""
    if not hasattr(env, "book_pages"):
        env.book_pages = {}
    return env.book_pages  # type: ignore[no-any-return]


def forget(app: Sphinx, env: Any, docname: str) -> None:
    """Drop a page that is read again or gone."""
    pages(env).pop(docname, None)
    balance.forget(env, docname)


def compare_all(app: Sphinx, env: Any) -> list[str]:
    """Stop before anything is written when a page says something unsupported or other than its record.

    Return the pages that list all conclusions, which have to be written whenever any page was read.
    """
    found, rewrite = [], bool(os.environ.get("BOOK_RECORD"))
    for docname in sorted(env.found_docs):
        text, problems = pages(env)[docname]
        path = Path(env.doc2path(docname))
        found += problems
        if not rewrite:
            found.append(records.drift(path, text))
        elif not problems:
            records.write(path, text)
    if complaints := "\n".join(filter(None, found)):
        raise Broken(f"numbers that are not what the records say, or unsupported:\n{complaints}")
    return balance.lists(env)


def forget_what_failed(app: Sphinx, exception: Exception | None) -> None:
    """Read all pages again after a warning or a failure: Sphinx warns of a page only when it reads it."""
    if exception or app._warncount:
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)


# ---- equations without JavaScript


def inline_math(self: Any, node: nodes.math) -> None:
    """Write an inline formula as MathML."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block_math(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML, with its number when it has one."""
    label = {"role": "group", "aria-label": "Equation", "tabindex": "0"}
    self.body.append(self.starttag(node, "div", CLASS=f"math-block {SCROLLS}", **label))
    self.body.append(mathml(node.astext(), "block"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({node["number"]})</span>')
    self.body.append("</div>")
    raise nodes.SkipNode


def mathml(tex: str, display: str) -> str:
    """Return TeX as MathML."""
    from latex2mathml.converter import convert

    return str(convert(re.sub(r"(?<=\d),(?=\d{3})", "{,}", tex), display=display))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.add_config_value("book_code", "", "env")
    app.connect("config-inited", key_the_cache)
    app.connect("env-before-read-docs", execute_stale)
    app.connect("env-purge-doc", forget)
    app.connect("doctree-read", read_page)
    app.connect("env-updated", compare_all)
    app.connect("doctree-resolved", balance.write)
    app.connect("build-finished", forget_what_failed)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
