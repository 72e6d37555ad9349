"""Sphinx extension: what a page says of itself to search engines, to who shares it, and to the browser."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from lib.press import social_cards
from lib.press.address import SERVED, root, website
from lib.press.run import ROOT

LONGEST = 200  # characters of a description
WITHOUT_PROMISE = {
    "search": "Find a term in the text, the figures and the glossary of this book.",
    "404": "There is no such page here: search, or start at the beginning.",
}


# ---- what it is about


def promise(doctree: nodes.document) -> str:
    """Return what a page promises: its first paragraph in italics, or else its first paragraph."""
    paragraphs = list(doctree.findall(nodes.paragraph))
    emphasized = [p for p in paragraphs[:3] if len(p) == 1 and isinstance(p[0], nodes.emphasis)]
    return shortened((emphasized or paragraphs)[0].astext())


def shortened(text: str) -> str:
    """Return the sentences that fit into a description; of a first one that does not, the words."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    ends = [match.end(1) for match in re.finditer(r"([.?!])\s", text) if match.end(1) <= LONGEST]
    return text[: ends[-1]] if ends else text[:LONGEST].rpartition(" ")[0] + " …"


def description(pagename: str, doctree: nodes.document | None) -> str:
    """Return the description of a page; a module of `lib` is described by the first line of its docstring."""
    if doctree is not None:
        return promise(doctree)
    code = ROOT / f"{pagename}.py"
    if code.is_file():
        return (ast.get_docstring(ast.parse(code.read_text("utf8"))) or pagename).partition("\n")[0]
    return WITHOUT_PROMISE[pagename]


def describe(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the templates a page's description, its card and its address."""
    book = app.config.html_title or app.config.project
    title = re.sub(r"<[^>]+>", "", context.get("title", "")) or book
    context["page_description"] = description(pagename, doctree)
    context["page_address"] = address(f"{pagename}.html", pagename)
    shown = (title, context["page_description"]) if doctree is not None else (book, "")
    context["page_card"] = address(social_cards.card(Path(app.outdir), book, *shown), pagename)


def address(path: str, page: str) -> str:
    """Return the web address of a file of the site, or the way to it from a page where that is unknown."""
    return website() + path if website() else "../" * page.count("/") + path


# ---- pages that no chapter is


def not_found(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the page that a host shows for an address that does not exist."""
    yield "404", {"title": "Not here"}, "404.html"


def rooted(html: str) -> str:
    """Lead relative links to the root of the host: the page is shown at any depth."""
    html = re.sub(r'(\s(?:href|src|action)=")(?![#/]|\w+:)', rf"\1{root()}", html)
    return re.sub(r'data-content_root="[^"]*"', f'data-content_root="{root()}"', html)


def write_index(out: Path, first: str, book: str, about: str) -> None:
    """Write the page at the root of the site, which leads to the first chapter."""
    (out / "index.html").write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f"<title>{escape(book)}</title>\n"
        f'<meta name="description" content="{escape(about)}" />\n'
        f'<link rel="canonical" href="{website()}{first}" />\n'
        f'<meta http-equiv="Refresh" content="0; url={first}" />\n</head>\n'
        f'<body><p><a href="{first}">{escape(book)}</a></p></body>\n</html>\n',
        "utf8",
    )


def write_map(out: Path) -> None:
    """Write sitemap.xml and robots.txt."""
    base = website() or SERVED
    pages = sorted(
        path.relative_to(out).as_posix() for part in ("book", "lib") for path in (out / part).rglob("*.html")
    )
    rows = "".join(f"  <url><loc>{escape(base + page)}</loc></url>\n" for page in pages)
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    (out / "sitemap.xml").write_text(
        f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{space}">\n{rows}</urlset>\n', "utf8"
    )
    (out / "robots.txt").write_text(f"User-agent: *\nAllow: /\n\nSitemap: {base}sitemap.xml\n", "utf8")


# ---- what the browser may do


POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'wasm-unsafe-eval'",  # compiling WebAssembly, which the live pages do; no eval
    "style-src": "'self' 'unsafe-inline'",  # figures carry the colours of their parts in style attributes
    "img-src": "'self' data:",  # icons are drawn in the style sheet
    "connect-src": "'self'",
    "worker-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
INLINE = re.compile(r"<script\b(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.S)
META = '<meta http-equiv="Content-Security-Policy" content="{}" />'


def guarded(html: str) -> str:
    """Return a page with its Content-Security-Policy; a script in it runs only if its hash is named there."""
    html = re.sub(META.format('[^"]*') + r"\n?\s*", "", html)
    hashes = dict.fromkeys(f"'sha256-{digest(script)}'" for script in INLINE.findall(html))
    policy = POLICY | {"script-src": " ".join([POLICY["script-src"], *hashes])}
    text = "; ".join(f"{name} {value}" for name, value in policy.items())
    head, charset, rest = html.partition('<meta charset="utf-8" />')
    if not charset:
        raise ValueError(f"a page without charset, and so without a place for its policy: {html[:80]!r}")
    return f"{head}{charset}\n    {META.format(text)}{rest}"


def digest(script: str) -> str:
    """Return the SHA-256 of a script, in base 64."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the pages around the chapters, and guard them all."""
    if error is not None or app.builder.format != "html":
        return
    out, first = Path(app.outdir), app.config.root_doc
    write_index(
        out, f"{first}.html", app.config.html_title or app.config.project, promise(app.env.get_doctree(first))
    )
    write_map(out)
    lost = out / "404.html"
    lost.write_text(rooted(lost.read_text("utf8")), "utf8")
    for page in out.rglob("*.html"):
        before = page.read_text("utf8")
        after = guarded(before)
        if after != before:
            page.write_text(after, "utf8")
    social_cards.prune(out)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.add_config_value("book_address", "", "html")  # a new one is written into every page
    app.connect("config-inited", lambda app, config: setattr(config, "book_address", website()))
    app.connect("html-collect-pages", not_found)
    app.connect("html-page-context", describe)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
