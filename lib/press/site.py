"""Sphinx extension of the site as a reader meets it: its own pages, links and nothing heavy.

Templates that replace some of the theme's stand in `templates/`; style and icons in `book/_assets/`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from lib.page.listing import highlighted
from lib.page.markup import BEFORE_UNIT, holding
from lib.press.address import commit, repository
from lib.press.run import ROOT, hashed

TEMPLATES = Path(__file__).with_name("templates")
ASSETS = ROOT / "book" / "_assets"
PATH = re.compile(r'(?<=<span class="pre">)[^<]*\w/\w[^<]*(?=</span>)')


# ---- the theme's settings


def configure(app: Sphinx, config: Any) -> None:
    """Set up templates, and the launch, repository, edit and issue buttons where the address is known."""
    config.book_assets = hashed(sorted(path for path in ASSETS.rglob("*") if path.is_file()))
    config.templates_path.insert(0, str(TEMPLATES))
    config.html_sidebars = {"**": ["contents.html"]}
    known = repository()
    config.html_theme_options = {
        **config.html_theme_options,
        "primary_sidebar_end": [],
        "use_fullscreen_button": False,
        "repository_url": known,
        "repository_branch": os.environ.get("GITHUB_REF_NAME", "main"),
        "path_to_docs": "",
        "use_repository_button": bool(known),
        "use_edit_page_button": bool(known),
        "use_issues_button": bool(known),
        "launch_buttons": {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org" if known else "",
        },
    }


# ---- a copy of every module, where `source` leads


def modules() -> list[Path]:
    """Return the modules of `lib`, relative to the repository."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / "lib").rglob("*.py") if path.stat().st_size)


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each module, with an anchor at each line."""
    known, version = repository(), commit()
    for path in modules():
        there = f"{known}/blob/{version}/{path.as_posix()}" if known else ""
        context = {
            "title": path.as_posix(),
            "code": numbered((ROOT / path).read_text("utf8")),
            "there": there,
        }
        yield path.with_suffix("").as_posix(), context, "source.html"


def numbered(code: str) -> str:
    """Return highlighted code, each line in an element of its own that can be linked to."""
    lines = highlighted(code).removeprefix("<pre>").removesuffix("</pre>").rstrip("\n").split("\n")
    return "\n".join(
        f'<span class="line" id="L{number}">{line}</span>' for number, line in enumerate(lines, 1)
    )


def link_source(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Lead the links that `source` wrote for JupyterLab, ../lib/module.py#L1, to the copies."""
    if "body" in context:
        target = context["pathto"]("lib/", 1)
        context["body"] = re.sub(
            r'href="(?:\.\./)+lib/([\w/]+)\.py#L', rf'href="{target}\1.html#L', context["body"]
        )


# ---- what others write


def hold_units(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let no line end between a number and its unit."""
    for element in doctree.findall(nodes.TextElement):
        if not isinstance(element, (nodes.FixedTextElement, nodes.literal, nodes.math)):
            for place, child in enumerate(element):
                if isinstance(child, nodes.Text) and BEFORE_UNIT.search(child):
                    element[place] = nodes.Text(holding(child))


MENDED = {
    '<summary aria-label="Toggle hidden content">': "<summary>",  # called by the words that it shows
    ' role="doc-biblioentry"': ' role="listitem"',  # deprecated, and not allowed in a list
}


def mend(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend what others' extensions write in ways that screen readers stumble over, and long paths."""
    if "body" in context:
        for wrong, right in MENDED.items():
            context["body"] = context["body"].replace(wrong, right)
        context["body"] = joined(context["body"])


def joined(body: str) -> str:
    """Return a page in which a line may end after a slash of a path, and need not before its comma."""
    return PATH.sub(lambda path: re.sub(r"(?<=\w)/(?=\w)", "/<wbr>", path[0]), body)


# ---- weight


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Drop pages that are no more, and scripts and fonts that none asks for: `icons.css` draws the icons."""
    if error is not None or app.builder.format != "html":
        return
    there = {
        "index",
        "search",
        "404",
        *app.env.found_docs,
        *(path.with_suffix("").as_posix() for path in modules()),
    }
    for path in Path(app.outdir).rglob("*.html"):
        name = path.relative_to(app.outdir).with_suffix("").as_posix()
        if name not in there and not name.startswith("_static/"):
            path.unlink()
    static = Path(app.outdir) / "_static"
    shutil.rmtree(static / "vendor", ignore_errors=True)
    for page in static.glob("*.html"):  # the theme's macros
        page.unlink()
    unused = [path for name in ("fontawesome", "bootstrap") for path in static.glob(f"scripts/{name}.js*")]
    for path in {*unused, *static.rglob("*.map")}:
        path.unlink()
    style = static / "styles" / "pydata-sphinx-theme.css"
    text = style.read_text("utf8")
    text = re.sub(r"@font-face\{[^}]*Font Awesome[^}]*\}", "", text)
    text = re.sub(r'(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}', "", text)
    style.write_text(text, "utf8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.add_config_value("book_assets", "", "html")  # otherwise a new style sheet is never copied
    app.connect("config-inited", configure)
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", link_source)
    app.connect("html-page-context", mend)
    app.connect("doctree-resolved", hold_units)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
