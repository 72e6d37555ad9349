"""Sphinx extension: what is closed until a reader opens it, without a script. One node, four kinds.

A section titled `Solution` or `Sources and checks` (a collapsed heading in JupyterLab); an admonition of
class `dropdown`; and one of class `refresher`, which holds only a link to a page: JupyterLab shows the link,
the site that page's first paragraph, so that each topic has one source. What folds in an output, the data
below a figure, is HTML of `lib.page`: it folds in JupyterLab too.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.locale import admonitionlabels
from sphinx.transforms import SphinxTransform

SOURCES = "Sources and checks"


class Fold(nodes.General, nodes.Element):
    """A closed block; its first child is its summary. `page`: the refresher whose words are still to come."""


class Summary(nodes.General, nodes.TextElement):
    """What is seen of it at first."""


class FoldSolutions(SphinxTransform):
    """Take the solutions out of the outline and close them."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Put a block in the place of each."""
        for section in list(self.document.findall(nodes.section)):
            if isinstance(section[0], nodes.title) and section[0].astext() == "Solution":
                summary, ids = Summary("", "Solution"), section["ids"]
                section.replace_self(Fold("", summary, *section.children[1:], ids=ids, classes=["solution"]))


def fold_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Close what a chapter rests on. It stays in the outline, and a link from there opens it."""
    for section in list(doctree.findall(nodes.section)):
        if isinstance(section[0], nodes.title) and section[0].astext() == SOURCES:
            inside = nodes.container("", *section.children[1:], ids=section["ids"])
            fold = Fold("", Summary("", SOURCES), inside, classes=["sources"])
            section.replace_self(fold)
            fold["ids"] = []  # docutils hands on the section's, which stands on what is inside


def fold_admonitions(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Close admonitions and exercises of class `dropdown`, and drop ids that repeat on a page."""
    for node in list(doctree.findall(nodes.Admonition)):
        for section in [child for child in node.children if isinstance(child, nodes.section)]:
            node.replace(section, section.children)  # sphinx-exercise gives each the same id
        if "dropdown" in node.get("classes", ()):
            title = next((child for child in node.children if isinstance(child, nodes.title)), None)
            text = title.astext() if title is not None else admonitionlabels.get(node.tagname, node.tagname)
            kind = [] if title is not None else [node.tagname]
            body = [child for child in node.children if child is not title]
            classes = ["admonition", *kind, *(c for c in node["classes"] if c != "dropdown")]
            node.replace_self(Fold("", Summary("", text), *body, ids=node["ids"], classes=classes))


def find_refreshers(app: Sphinx, doctree: nodes.document) -> None:
    """Put a block in the place of each such admonition; a chapter is read again when that page is."""
    env = app.env
    for box in [node for node in doctree.findall(nodes.admonition) if "refresher" in node["classes"]]:
        links = list(box.findall(addnodes.pending_xref))
        if len(links) != 1:
            raise SphinxError(f"{env.docname}: a refresher holds one link to its page, not {len(links)}")
        page = links[0]["reftarget"]
        env.note_dependency(env.doc2path(page))
        body = [child for child in box.children if not isinstance(child, nodes.title)]
        box.replace_self(Fold("", *body, page=page, classes=["admonition", "refresher"]))


def fill_refreshers(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Fetch what each block says from the page that it stands for."""
    env = app.env
    for box in [node for node in doctree.findall(Fold) if "page" in node]:
        text = next(env.get_doctree(box["page"]).findall(nodes.paragraph)).astext()
        title = f"Refresher: {env.titles[box['page']].astext()}"
        box[:0] = [Summary("", title), nodes.paragraph("", text)]


def open_tag(tag: str) -> tuple[Any, Any]:
    """Return the two functions that write a node as an element."""

    def visit(self: Any, node: nodes.Element) -> None:
        self.body.append(self.starttag(node, tag, ""))

    def depart(self: Any, node: nodes.Element) -> None:
        self.body.append(f"</{tag}>\n")

    return visit, depart


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.add_node(Fold, html=open_tag("details"))
    app.add_node(Summary, html=open_tag("summary"))
    app.add_transform(FoldSolutions)
    app.connect("doctree-read", find_refreshers, priority=900)  # after the record was taken
    app.connect("doctree-resolved", fill_refreshers)
    app.connect("doctree-resolved", fold_admonitions)
    app.connect("doctree-resolved", fold_sources)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
