"""`make pdf`: the whole book in one PDF, printed from the pages of the site by the Chromium at hand."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import urldefrag, urljoin

from lib.press.address import commit, website
from lib.press.build import SITE, there
from lib.press.contents import parts
from lib.press.run import ROOT

BOOK = ROOT / "_build" / "serving-taken-apart.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
FOLDED = (  # stays on the site
    "script, .headerlink, .copybtn, .onlyprint, details.hide, details.figure-data, "
    ".live form, .live-status, .live-elsewhere"
)
STYLES = ("pygments.css", "icons.css", "book.css", "live/live.css", "print.css")


def chromium() -> str | None:
    """Return the path of a Chromium: CHROMIUM, or one that is installed; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


# ---- one document


@cache
def chapter(name: str, pages: tuple[str, ...]) -> tuple[str, str]:
    """Return the title of a page, and its article with its ids and links as the one document needs them."""
    from bs4 import BeautifulSoup

    text = (SITE / f"{name}.html").read_text("utf8")
    _, opened, text = text.partition('<article class="bd-article">')
    article = BeautifulSoup(opened + text.partition("</article>")[0], "html.parser").article
    if article is None or article.h1 is None:
        raise ValueError(f"{name}.html holds no article with a title")
    for part in article.select(FOLDED):
        part.decompose()
    for block in article.select("details"):
        block["open"] = ""
    for part in article.select("[id]"):
        part["id"] = anchor(name, str(part["id"]))
    for part in article.select("[src]"):
        part["src"] = urljoin((SITE / f"{name}.html").as_uri(), str(part["src"]))
    for link in article.find_all(True):
        for attribute in ("href", "xlink:href"):  # the latter repeats the marks of a figure
            if attribute in link.attrs:
                link[attribute] = leads(name, str(link[attribute]), pages)
                if not link[attribute]:
                    del link[attribute]
    html = re.sub(r"url\(#([^)]*)\)", lambda match: f"url(#{anchor(name, match[1])})", str(article))
    return article.h1.get_text().strip(), f'<div id="{anchor(name)}" class="chapter">{html}</div>'


def anchor(page: str, name: str = "") -> str:
    """Return the id that a page, or a place on it, has in the one document."""
    return page.replace("/", "-") + (f"--{name}" if name else "")


def leads(page: str, link: str, pages: tuple[str, ...]) -> str:
    """Return where a link leads in the one document; other files are on the site, if anywhere."""
    there, place = urldefrag(urljoin(f"https://book.test/{page}.html", link))
    if not there.startswith("https://book.test/"):
        return link
    path = there.removeprefix("https://book.test/")
    name = path.removesuffix(".html")
    if name in pages:
        return f"#{anchor(name, place)}"
    return f"{website()}{path}" + (f"#{place}" if place else "") if website() else ""


def document(numbers: dict[str, int]) -> str:
    """Return the book as one page of HTML; numbers: on which page of the PDF each chapter begins.

    Without numbers nothing of it is painted: that is quicker, and chapters begin where they will.
    """
    pages = tuple(name for _, names in parts() for name in names)
    titles, articles = {}, []
    for name in pages:
        titles[name], article = chapter(name, pages)
        articles.append(article)
    rows = ""
    for caption, names in parts():
        rows += f'<li class="part">{escape(caption)}</li>' if caption else ""
        for name in names:
            number = numbers.get(anchor(name), "")
            rows += f'<li><a href="#{anchor(name)}">{escape(titles[name])}</a><span>{number}</span></li>'
    book = titles[pages[0]]
    unseen = "" if numbers else "<style>* { visibility: hidden !important }</style>"
    styles = "".join(
        f'<link rel="stylesheet" href="{(SITE / "_static" / name).as_uri()}"/>' for name in STYLES
    )
    origin = " · ".join(filter(None, (website(), commit()[:12] and f"commit {commit()[:12]}")))
    return (
        f'<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"/>'
        f"<title>{escape(book)}</title>{styles}{unseen}</head><body>"
        f'<header class="cover"><p class="book">{escape(book)}</p><p>{escape(origin)}</p>'
        "<p>The code that only draws, and the data of the figures in tables, are on the site.</p></header>"
        f'<nav class="contents"><p class="heading">Contents</p><ul>{rows}</ul></nav>'
        f'<main class="bd-article">{"".join(articles)}</main></body></html>'
    )


# ---- printed


def begins(path: Path) -> dict[str, int]:
    """Return on which page of a PDF, counted from 1, each named place in it lies."""
    from pypdf import PdfReader

    reader = PdfReader(path)
    found = {}
    for name, place in reader.named_destinations.items():
        number = reader.get_destination_page_number(place)
        if number is not None:
            found[name.removeprefix("/")] = number + 1
    return found


def write(out: Path = BOOK) -> Path:
    """Print the book and return the PDF; twice, since the contents need to know where chapters begin."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise FileNotFoundError("no Chromium: `apt-get install chromium`, or set CHROMIUM to the path of one")
    out.parent.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sheet = Path(folder) / "book.html"
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        tab = browser.new_page()
        for _ in range(2):
            sheet.write_text(document(numbers), "utf8")
            tab.goto(sheet.as_uri())
            final = bool(numbers)
            tab.pdf(path=out, prefer_css_page_size=True, print_background=True, outline=final, tagged=final)
            numbers = begins(out)
        browser.close()
    return out


def main() -> None:
    """Print the site that was built last."""
    there()
    try:
        print(f"The book as a PDF: {write()}")
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
