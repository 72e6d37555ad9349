"""The book's balance: all its conclusions and in how many worlds each stands, the hardest hit first.

They are what the executed chapters found, kept with Sphinx's environment when a page is read. A page lists
them in the place of an admonition of class `balance`, when it is written; nothing is computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from lib.page.tables import table_markup

CLASS = "balance"


def kept(env: Any) -> dict[str, tuple[str, list[dict[str, Any]], bool]]:
    """Return docname -> (title, its conclusions, whether it lists all), pickled with the environment."""
    if not hasattr(env, "book_conclusions"):
        env.book_conclusions = {}
    return env.book_conclusions  # type: ignore[no-any-return]


def keep(env: Any, docname: str, doctree: nodes.document, found: list[dict[str, Any]]) -> None:
    """Keep the conclusions of a page."""
    title = next((node.astext() for node in doctree.findall(nodes.title)), docname)
    kept(env)[docname] = title, found, any(places(doctree))


def forget(env: Any, docname: str) -> None:
    """Drop those of a page that is read again or gone."""
    kept(env).pop(docname, None)


def lists(env: Any) -> list[str]:
    """Return the pages that list all conclusions."""
    return sorted(docname for docname, (_, _, lists_all) in kept(env).items() if lists_all)


def write(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the list where a page wants it."""
    for place in list(places(doctree)):
        place.replace_self(nodes.raw("", markup(kept(app.env)), format="html"))


def places(doctree: nodes.document) -> list[nodes.Element]:
    """Return the admonitions in whose place the list comes."""
    return [node for node in doctree.findall(nodes.Admonition) if CLASS in node.get("classes", ())]


def markup(pages: dict[str, tuple[str, list[dict[str, Any]], bool]]) -> str:
    """Return the list as HTML: how many conclusions, and a row for each, the hardest hit first."""
    rows = [(one, title) for title, found, _ in pages.values() for one in found]
    rows.sort(key=lambda row: (row[0]["stands"] / row[0]["of"], row[0]["sentence"]))
    whole = sum(one["stands"] == one["of"] for one, _ in rows)
    caption = f"Conclusions: {len(rows)}, of which {whole} stand in every world"
    columns: dict[str, Sequence[object]] = {
        "conclusion": [one["sentence"] for one, _ in rows],
        "stands in": [f"{one['stands']} of {one['of']}" for one, _ in rows],
        "not with": [", ".join(one["not_in"]) or "–" for one, _ in rows],
        "page": [title for _, title in rows],
    }
    return table_markup(columns, caption)
