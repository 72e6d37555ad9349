"""Refreshers: a chapter says where one is needed; the refresher's own page says what stands there.

A chapter writes an admonition of class `refresher` that holds only a link to the page. In JupyterLab it
is a link. On the site it is a closed block with that page's first paragraph: each topic has one source.
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError


class Refresher(nodes.General, nodes.Element):
    """A closed block: the summary of the page `docname`, then the link to it."""


def find(app: Sphinx, doctree: nodes.document) -> None:
    """Put a `Refresher` in the place of each such admonition; a chapter is read again when that page is."""
    env = app.env
    for box in [node for node in doctree.findall(nodes.admonition) if "refresher" in node["classes"]]:
        links = list(box.findall(addnodes.pending_xref))
        if len(links) != 1:
            raise SphinxError(f"{env.docname}: a refresher holds one link to its page, not {len(links)}")
        docname = links[0]["reftarget"]
        env.note_dependency(env.doc2path(docname))
        body = [child for child in box.children if not isinstance(child, nodes.title)]
        box.replace_self(Refresher("", *body, docname=docname))


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Fetch what each block says from the page that it stands for."""
    env = app.env
    for box in doctree.findall(Refresher):
        page = env.get_doctree(box["docname"])
        box["title"] = env.titles[box["docname"]].astext()
        box["summary"] = next(page.findall(nodes.paragraph)).astext()


def open_block(self: Any, node: Refresher) -> None:
    """Begin the closed block with its summary."""
    self.body.append(self.starttag(node, "details", CLASS="admonition refresher"))
    self.body.append(f"<summary>Refresher: {escape(node['title'])}</summary><p>{escape(node['summary'])}</p>")


def close_block(self: Any, node: Refresher) -> None:
    """End it."""
    self.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both halves."""
    app.add_node(Refresher, html=(open_block, close_block))
    app.connect("doctree-read", find, priority=900)  # after the record was taken
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
