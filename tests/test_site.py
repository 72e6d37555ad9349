"""The site as a reader meets it: every page, in light, in dark and on a phone, with scripts and without."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from time import sleep
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from docutils import nodes
from docutils.utils import new_document
from PIL import Image
from playwright.sync_api import Error as PlaywrightError

from lib.press import address as address_of
from lib.press import contents, metadata, npm
from lib.press.address import root, website
from lib.press.run import ROOT
from lib.press.site import hold_units, joined

HEAVIEST = 700_000  # bytes of a page, over all its responses, text as gzip
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
ALL = {"runOnly": TAGS, "rules": {"label-content-name-mismatch": {"enabled": True}}}
COLOURS = ["color-contrast", "link-in-text-block"]
RULES = {  # a slow rule runs once for each set of colours, the others once for each layout
    "light": ALL,
    "dark": {"runOnly": COLOURS},
    "phone": ALL | {"rules": ALL["rules"] | {rule: {"enabled": False} for rule in COLOURS}},
}
TEXT = {".html", ".css", ".js", ".svg", ".json", ".txt"}


CHAPTERS = [f"book/{page}" for page in contents.chapters()]
PAGES = [*CHAPTERS, "search", "404", "lib/roofline"]  # the copies of other modules look like that one
every_page = pytest.mark.parametrize("page", PAGES)
every_chapter = pytest.mark.parametrize("page", CHAPTERS)


# ---- what the files say


class Markup(HTMLParser):
    """The parts of a page that the tests below ask for."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[tuple[str, str, str]] = []  # tag, attribute, address
        self.images: list[tuple[bool, str | None]] = []  # in the article?, text alternative
        self.tables: list[int] = []  # header cells
        self.equations = 0
        self.said: dict[str, str] = {}  # what the page says of itself
        self.handlers: list[str] = []  # attributes that hold a script
        self.inside: list[str] = []
        self.text: list[str] = []
        self.feed(path.read_text("utf8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("article", "script", "style", "pre", "math"):
            self.inside.append(tag)
        self.ids.update([given["id"]] if given.get("id") else [])
        canonical = tag == "link" and given.get("rel") == "canonical"
        if canonical:
            self.said["canonical"] = given["href"]
        if tag == "meta" and "content" in given:
            name = given.get("name") or given.get("property") or given.get("http-equiv") or ""
            assert name not in self.said or name == "viewport", name
            self.said[name] = given["content"]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [
            (tag, name, value or "") for name, value in attrs if name in ("href", "src") and not canonical
        ]
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.links.append((tag, "content", given["content"].partition("url=")[2]))
        if tag == "img" or (tag == "svg" and given.get("role") == "img"):
            self.images.append(("article" in self.inside, given.get("alt", given.get("aria-label"))))
        self.tables += [0] if tag == "table" else []
        if tag == "th":
            self.tables[-1] += 1
        self.equations += tag == "math"

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if "article" in self.inside and not {"script", "style", "pre", "math"} & set(self.inside):
            self.text.append(data)


@pytest.fixture(scope="session")
def markup(site: Path) -> dict[str, Markup]:
    """Every HTML file of the site, by its path."""
    return {path.relative_to(site).as_posix(): Markup(path) for path in sorted(site.rglob("*.html"))
            if not path.is_relative_to(site / "_static")}  # fmt: skip


def test_every_internal_link_leads_to_a_page_and_an_anchor_that_exist(site, markup):
    dead = []
    for name, page in markup.items():
        for tag, _, link in page.links:
            there, anchor = urldefrag(urljoin(f"https://book.test{root()}{name}", link))
            if not there.startswith("https://book.test/") or link == "#":
                continue
            path = unquote(there.removeprefix(f"https://book.test{root()}")).partition("?")[0] or "index.html"
            anchor = unquote(anchor)
            if not (site / path).is_file():
                dead.append(f"{name}: {link} ({tag})")
            elif anchor and path in markup and anchor not in markup[path].ids:
                dead.append(f"{name}: {link}: no such anchor")
    assert not dead, "\n".join(sorted(set(dead)))


def test_nothing_is_loaded_from_another_host(markup):
    loading = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
    found = [
        f"{name}: {link}"
        for name, page in markup.items()
        for tag, attribute, link in page.links
        if (tag, attribute) in loading and re.match(r"(?:https?:)?//", link)
    ]
    assert not found


def test_every_page_has_a_title_a_description_a_card_and_an_address(site, markup):
    seen = Counter()
    for name, page in markup.items():
        title = re.search(r"<title>(.+?)</title>", (site / name).read_text("utf8"), re.S)
        assert title, name
        assert 20 <= len(page.said["description"]) <= 201, name
        if name in ("index.html", "404.html"):
            continue
        seen[page.said["description"]] += 1
        assert page.said["canonical"] == page.said["og:url"] == metadata.address(name, name)
        assert page.said["og:description"] == page.said["description"]
        assert page.said["og:title"] in title[1].replace("&#39;", "'")
        assert page.said["twitter:card"] == "summary_large_image"
        card = site / page.said["og:image"].removeprefix(metadata.address("", name))
        with Image.open(card) as picture:
            assert picture.size == (1200, 630)
    assert not [text for text, count in seen.items() if count > 1]


def test_a_description_is_the_promise_of_the_page(markup):
    said = markup["book/roofline.html"].said["description"]
    assert said.startswith("By the end of this page you can say, for any model, GPU and batch,")


def test_the_map_of_the_site_lists_every_page(site, markup):
    listed = re.findall(r"<loc>(.*?)</loc>", (site / "sitemap.xml").read_text("utf8"))
    base = website() or "http://127.0.0.1:8000/"
    assert set(listed) == {base + name for name in markup if name.startswith(("book/", "lib/"))}
    assert f"Sitemap: {base}sitemap.xml" in (site / "robots.txt").read_text("utf8")


def test_every_page_names_its_scripts_and_allows_no_other(site, markup):
    for name, page in markup.items():
        text, said = (site / name).read_text("utf8"), page.said["Content-Security-Policy"]
        scripts = dict(part.split(" ", 1) for part in said.split("; "))["script-src"].split()
        assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "data:", "https:"} & set(scripts), name
        inline = re.findall(r"<script(?![^>]*src=)[^>]*>(.*?)</script>", text, re.S)
        hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in inline]
        assert {f"'sha256-{code}'" for code in hashes} == {s for s in scripts if s.startswith("'sha")}, name
        assert text.index("Content-Security-Policy") < text.find("<script") or "<script" not in text
        assert page.handlers == [], name


def test_no_text_waits_for_a_font(site):
    fonts = [
        face
        for path in site.rglob("*.css")
        for face in re.findall(r"@font-face\s*\{.*?\}", path.read_text("utf8"), re.S)
    ]
    assert fonts
    assert not [face for face in fonts if "font-display: optional" not in face]


def test_no_id_occurs_twice_on_a_page(markup):
    assert not {
        name: twice
        for name, page in markup.items()
        if (twice := [name for name, count in page.ids.items() if count > 1])
    }


def test_every_image_has_a_text_alternative(markup):
    silent = [
        n for n, page in markup.items() for inside, alt in page.images if alt is None or (inside and not alt)
    ]
    assert not silent
    assert sum(inside for page in markup.values() for inside, _ in page.images), "no figure was found at all"


def test_every_table_has_header_cells(markup):
    assert not [name for name, page in markup.items() if 0 in page.tables]
    assert any(page.tables for page in markup.values()), "no table was found at all"


def test_equations_are_mathml_and_no_tex_is_left(markup):
    assert any(page.equations for page in markup.values()), "no equation was found at all"
    left = {
        name: found
        for name, page in markup.items()
        if (found := re.findall(r"\\\(|\\\[|\$\$|\\(?:frac|sum|cdot|text|begin)\b", " ".join(page.text)))
    }
    assert not left


def test_every_equation_could_be_converted(site):
    """latex2mathml passes through what it does not know, such as the & of an unknown environment."""
    left = []
    for path in site.glob("book/**/*.html"):
        for math in re.findall(r"<math\b.*?</math>", path.read_text("utf8"), flags=re.S):
            left += [
                (path.name, math) for wrong in ("&amp;<", "&#x00026;", "<mi>\\", "<mo>\\") if wrong in math
            ]
    assert not left


def test_source_listings_lead_to_the_line_that_they_show(site, markup):
    links = 0
    for name, page in markup.items():
        for _, _, link in page.links:
            if name.startswith("book/") and "/lib/" in link and ".html#L" in link:
                path, line = urldefrag(urljoin(name, link))
                code = (site / path).read_text("utf8")
                text = re.search(rf'id="{line}">(.*)</span>$', code, flags=re.M)
                assert text, link
                assert re.search(r"\b(def|class)\b|@", re.sub(r"<[^>]+>", "", text[1])), (
                    f"{name}: {link}: {text[1]}"
                )
                links += 1
    assert links, "no listing was found at all"


# ---- what a browser shows


@dataclass
class Visit:
    """One page as Chromium saw it: on a desk in light, then in dark, then on a phone."""

    outside: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    weight: int = 0
    shifted: float = 0
    overflow: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)
    faint: dict[str, list[str]] = field(default_factory=dict)
    small: list[str] = field(default_factory=list)
    crowded: dict[str, list[str]] = field(default_factory=dict)
    strokes: dict[str, list[str]] = field(default_factory=dict)


FAINT = """() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => parts(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const papers = new Map(), paper = part => {
    if (!papers.has(part)) {
      const colour = getComputedStyle(part).backgroundColor;
      papers.set(part, parts(colour)[3] === 0 ? paper(part.parentElement) : light(colour));
    }
    return papers.get(part);
  };
  return [...document.querySelectorAll("svg.plot text, pre span")].filter(part => {
    const ink = light(getComputedStyle(part)[part.tagName === "text" ? "fill" : "color"]);
    const under = paper(part);
    return (Math.max(ink, under) + 0.05) / (Math.min(ink, under) + 0.05) < 4.5;
  }).map(part => part.textContent.trim()).filter(Boolean);
}"""
SMALL = """() => [...document.querySelectorAll("svg.plot")].flatMap(svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return scale * parseFloat(getComputedStyle(text).fontSize) < 9 || box.left < 0 || box.right > innerWidth;
  }).map(text => text.textContent.trim());
})"""
CROWDED = """() => [...document.querySelectorAll("svg.plot")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim())
    .map(text => [text.textContent.trim(), text.getBoundingClientRect()]);
  const rules = [...svg.querySelectorAll("path[style*='dasharray']")]
    .map(path => ["a rule", path.getBoundingClientRect()])
    .filter(([, box]) => Math.min(box.width, box.height) < 1);
  const overlap = (box, other, low, high) =>
    Math.min(box[high], other[high]) - Math.max(box[low], other[low]);
  const within = (rule, box) => rule.left > box.left + 1.5 && rule.right < box.right - 1.5
    || rule.top > box.top + 2.5 && rule.bottom < box.bottom - 2.5;
  return texts.flatMap(([text, box], i) => [
    ...texts.slice(i + 1).filter(([, other]) =>
      overlap(box, other, "left", "right") > 1.5 && overlap(box, other, "top", "bottom") > 2.5),
    ...rules.filter(([, rule]) => within(rule, box)
      && overlap(box, rule, "left", "right") > -0.1 && overlap(box, rule, "top", "bottom") > -0.1),
  ].map(([other]) => `${text} | ${other}`));
})"""
STROKES = """() => [...document.querySelectorAll("svg.plot [style*='var(--'], svg.plot text")]
  .map(part => getComputedStyle(part).stroke + getComputedStyle(part).fill)"""
FLATTEN = """() => {
  document.querySelectorAll("pre").forEach(code => { code.textContent = code.textContent });
  document.querySelectorAll("svg.plot").forEach(plot => plot.parts ||= [...plot.childNodes]);
  document.querySelectorAll("svg.plot").forEach(plot => plot.replaceChildren());
  document.querySelectorAll("tbody > tr:nth-child(n + 5)").forEach(row => row.remove());
}"""
REDRAW = "document.querySelectorAll('svg.plot').forEach(plot => plot.replaceChildren(...plot.parts))"
SHIFTS = """new PerformanceObserver(list => list.getEntries().forEach(shift => {
  window.shifted = (window.shifted || 0) + shift.value;
})).observe({type: "layout-shift", buffered: true})"""
SHIFTED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
  () => setTimeout(() => done(window.shifted || 0)))))"""
SETTLED = """() => [...document.querySelectorAll("pre, .pst-scrollable-table-container")]
  .every(box => box.scrollWidth <= box.clientWidth || box.tabIndex >= 0)"""
WEAR = "theme => { document.documentElement.dataset.theme = theme }"
AXE = """rules => axe.run(document, {
  ...rules, resultTypes: ["violations"], preload: false,
}).then(({violations}) => violations.map(({id, nodes}) => [id, nodes.length, nodes[0].html.slice(0, 200)]))"""


def settle(tab) -> None:
    """Wait until the theme has made what scrolls a stop for the keyboard, a moment after a change."""
    with suppress(PlaywrightError):  # then axe-core says what is missing
        tab.wait_for_function(SETTLED, timeout=3000)


@cache
def axe() -> str:
    """Return the code of axe-core."""
    return (npm.packages() / "axe-core" / "axe.min.js").read_text("utf8")


@pytest.fixture(scope="session")
def visit(browser, address, site) -> Iterator[Callable[[str], Visit]]:
    """A function that visits a page once, and remembers."""

    @cache
    def weight(url: str) -> int:
        path = site / unquote(url.removeprefix(address).removeprefix(root()[1:])).partition("?")[0]
        body = path.read_bytes() if path.is_file() else b""
        return len(gzip.compress(body, 6)) if path.suffix in TEXT else len(body)

    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    context.add_init_script(SHIFTS)
    tab, asked, answers, said = context.new_page(), [], [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("response", lambda response: answers.append((response.status, response.url)))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("console", lambda m: m.type in ("error", "warning") and said.append(m.text))

    def judge(look: str) -> list[str]:
        # words of code and parts of plots are looked at apart; rows of a table are alike
        tab.evaluate(FLATTEN)
        found = tab.evaluate(AXE, RULES[look])
        return [f"{rule}: {count} × {html}" for rule, count, html in found]

    @cache
    def visit(page: str) -> Visit:
        seen = Visit()
        tab.goto("about:blank")
        tab.set_viewport_size(DESK)
        for told in (asked, answers, said):
            told.clear()
        tab.goto(f"{address}{page}.html")
        seen.outside = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
        seen.broken = [f"{status} {url}" for status, url in answers if status >= 400]
        seen.shifted = tab.evaluate(SHIFTED)
        seen.weight = sum(weight(url) for _, url in answers if url.startswith(address))
        tab.evaluate("document.querySelectorAll('details').forEach(block => { block.open = true })")
        for theme in ("light", "dark"):
            tab.evaluate(WEAR, theme)
            seen.faint[theme], seen.strokes[theme] = tab.evaluate(FAINT), tab.evaluate(STROKES)
        seen.crowded["desk"] = tab.evaluate(CROWDED)
        tab.evaluate(axe())
        seen.found["dark"] = judge("dark")
        tab.evaluate(WEAR, "light")
        settle(tab)
        seen.found["light"] = judge("light")
        tab.set_viewport_size(PHONE)
        tab.evaluate(WEAR, "dark")
        tab.evaluate(REDRAW)
        seen.overflow = tab.evaluate("document.documentElement.scrollWidth") - PHONE["width"]
        seen.crowded["phone"], seen.small = tab.evaluate(CROWDED), tab.evaluate(SMALL)
        settle(tab)
        seen.found["phone"] = judge("phone")
        seen.complaints = [*said]
        return seen

    yield visit
    context.close()


@every_page
def test_page_asks_no_other_host(visit, page):
    assert visit(page).outside == []


@every_page
def test_page_finds_all_it_asks_for_and_complains_of_nothing(visit, page):
    assert visit(page).broken == []
    assert visit(page).complaints == []


@every_page
def test_page_is_light(visit, page):
    assert 20_000 < visit(page).weight <= HEAVIEST


@every_page
def test_nothing_jumps_while_the_page_loads(visit, page):
    assert visit(page).shifted == 0


@every_page
def test_page_does_not_scroll_sideways_on_a_phone(visit, page):
    assert visit(page).overflow <= 0


@every_page
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_page_is_accessible(visit, page, look):
    assert not visit(page).found[look], "\n".join(visit(page).found[look])


@every_chapter
def test_text_in_figures_and_code_stands_out_from_the_page(visit, page):
    assert visit(page).faint == {"light": [], "dark": []}


@every_chapter
def test_text_in_figures_is_large_enough_on_a_phone(visit, page):
    assert visit(page).small == []


@every_chapter
def test_text_in_figures_overlaps_neither_text_nor_rules(visit, page):
    assert visit(page).crowded == {"desk": [], "phone": []}


@every_chapter
def test_figures_take_the_colours_of_the_theme(visit, page):
    light, dark = visit(page).strokes["light"], visit(page).strokes["dark"]
    assert not [colour for colour, other in zip(light, dark, strict=True) if colour == other]


# ---- without scripts, and without a mouse


@pytest.fixture(scope="session")
def plain(browser, address):
    """A tab in which no script runs."""
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    yield context.new_page()
    context.close()


UNSEEN = """article => {
  const seen = part => part.checkVisibility({visibilityProperty: true}) && part.getClientRects().length;
  const all = "h1, p:not([class]), dl, math, table, pre, details > :not(summary), svg.plot";
  const inside = "details:not(details details) > :not(summary)", first = article.querySelector(inside);
  const early = [...article.querySelectorAll(inside)].filter(seen);
  first?.parentElement.querySelector("summary").click();
  const late = first && !seen(first) ? [first] : [];
  article.querySelectorAll("details").forEach(block => { block.open = true });
  const never = [...article.querySelectorAll(all)]
    .filter(part => !seen(part) && (part.tagName !== "P" || part.textContent.trim()));
  return [...early, ...late, ...never].map(part => part.outerHTML.slice(0, 100));
}"""


@every_chapter
def test_page_can_be_read_without_scripts(plain, address, page):
    plain.goto(f"{address}{page}.html")
    assert plain.locator("article").evaluate(UNSEEN) == []


def test_a_solution_opens_without_scripts(plain, address):
    plain.goto(f"{address}book/roofline.html")
    solution = plain.locator("details.solution").first
    assert not solution.locator("p").first.is_visible()
    solution.locator("summary").click()
    assert solution.locator("p").first.is_visible()


def test_sources_open_without_scripts_by_click_and_for_a_link_into_them(plain, address):
    for click in (True, False):
        plain.goto("about:blank")
        plain.goto(f"{address}book/roofline.html" + ("" if click else "#sources-and-checks"))
        sources = plain.locator("details.sources")
        assert sources.locator("table").first.is_visible() is not click
        if click:
            sources.locator("summary").first.click()
            assert sources.locator("table").first.is_visible()
    assert plain.locator("nav a[href='#sources-and-checks']").count()


@pytest.fixture
def tab(browser, address):
    """A fresh tab on the roofline chapter."""
    context = browser.new_context(viewport=DESK, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(f"{address}book/roofline.html", wait_until="networkidle")
    yield tab
    context.close()


def focus(tab) -> str:
    """Return the text or label of the element that the keyboard acts on."""
    return tab.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText || ''").strip()


def test_first_stop_of_the_keyboard_skips_to_the_text(tab):
    tab.keyboard.press("Tab")
    assert focus(tab) == "Skip to main content"
    tab.keyboard.press("Enter")
    assert tab.url.endswith("#main-content")


def test_solutions_open_by_keyboard(tab):
    solution = tab.locator("details.solution").first
    solution.locator("summary").focus()
    tab.keyboard.press("Enter")
    assert solution.locator("p").first.is_visible()


def test_colour_mode_changes_by_keyboard_and_is_remembered(tab):
    tab.locator(".theme-switch-button").first.focus()
    before = tab.evaluate("document.documentElement.dataset.mode")
    tab.keyboard.press("Enter")
    after = tab.evaluate("document.documentElement.dataset.mode")
    assert after != before
    tab.reload()
    assert tab.evaluate("document.documentElement.dataset.mode") == after


def test_everything_that_the_keyboard_reaches_shows_that_it_is_there(tab):
    unseen = set()
    for _ in range(80):
        tab.keyboard.press("Tab")
        shown = tab.evaluate(
            """() => { const style = getComputedStyle(document.activeElement);
            return document.activeElement === document.body || style.outlineStyle !== "none"
                || style.boxShadow !== "none" }"""
        )
        if not shown:
            unseen.add(focus(tab))
    assert not unseen


def test_search_opens_by_keyboard_and_finds_a_chapter(tab):
    tab.keyboard.press("Control+k")
    field = tab.locator("#pst-search-dialog input")
    field.wait_for()
    field.press_sequentially("ridge")
    field.press("Enter")
    tab.locator("#search-results a[href*='roofline.html']").first.wait_for()


def test_the_sides_open_on_a_phone_by_keyboard(tab):
    tab.set_viewport_size(PHONE)
    for button, link in ((".primary-toggle", "Glossary"), (".secondary-toggle", "Try it")):
        tab.locator(button).first.focus()
        tab.keyboard.press("Enter")
        assert tab.get_by_role("dialog").get_by_role("link", name=link).is_visible()
        tab.keyboard.press("Escape")
        assert tab.get_by_role("dialog").count() == 0


def test_the_page_of_what_is_not_there_helps_at_any_depth(browser, address):
    context = browser.new_context(viewport=DESK)
    tab, broken = context.new_page(), []
    tab.on("response", lambda r: r.status >= 400 and broken.append(r.url))
    lost = f"{address}{root()[1:]}book/no/such/page.html"
    assert tab.goto(lost).status == 404
    assert broken == [lost]
    assert tab.locator("article a", has_text="The glossary").is_visible()
    tab.locator("form.lost input").fill("ridge")
    tab.keyboard.press("Enter")
    tab.locator("#search-results a[href*='roofline.html']").first.wait_for()
    context.close()


def test_a_page_prints_itself_when_asked(tab):
    tab.evaluate("window.print = () => { window.printed = true }")
    tab.locator("[popovertarget=download-buttons]").click()
    tab.locator("#download-buttons [data-print]").click()
    assert tab.evaluate("window.printed")


def test_a_script_that_is_not_the_books_own_does_not_run(tab):
    tab.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.planted = true";
        document.body.append(script);
        document.body.setAttribute("onclick", "window.planted = true");
        document.body.click();
    }""")
    assert tab.evaluate("window.planted") is None


KEPT = {  # by the reader's own browser, and sent to nobody
    "localStorage": {
        "mode",
        "theme",
        "sphinx_highlight_terms",
    },  # colours; words to mark in the page searched for
    "sessionStorage": {"sidebar-scroll-top"},  # how far the list of chapters was scrolled
}


def test_no_cookie_is_set_and_what_a_browser_keeps_is_named(tab):
    tab.locator(".theme-switch-button").first.click()
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input").fill("ridge")
    tab.keyboard.press("Enter")
    tab.locator("#search-results a").first.wait_for()
    assert tab.context.cookies() == []
    for store, names in KEPT.items():
        assert set(tab.evaluate(f"Object.keys({store})")) <= names


def test_nothing_jumps_when_the_font_of_the_equations_comes_late(browser, address):
    context = browser.new_context(viewport=PHONE)
    context.add_init_script(SHIFTS)
    tab = context.new_page()

    def late(route) -> None:
        sleep(0.7)
        route.continue_()

    tab.route("**/math.woff2", late)
    tab.goto(f"{address}book/roofline.html", wait_until="networkidle")
    assert tab.evaluate(SHIFTED) == 0
    context.close()


# ---- what leads to the repository

CONF = """
extensions = ["myst_nb", "sphinx_book_theme", "lib.press.site"]
html_theme = "sphinx_book_theme"
nb_execution_mode = "off"
suppress_warnings = ["config.cache", "html"]
"""
HEAD = (ROOT / "book" / "roofline.md").read_text("utf8").split("---\n")[1]
NOTEBOOK = f"---\n{HEAD}---\n# A page\n\n```{{code-cell}}\n1\n```\n"


@pytest.mark.parametrize("known", ["", "someone/some-book"])
def test_buttons_lead_to_the_repository_where_its_address_is_known(tmp_path, known):
    (tmp_path / "book").mkdir()
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.md").write_text("# Book\n\n```{toctree}\nbook/page\n```\n")
    (tmp_path / "book" / "page.md").write_text(NOTEBOOK)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    environment |= {"GIT_DIR": "/nowhere"} | ({"GITHUB_REPOSITORY": known} if known else {})
    call = "import lib.press.import_patch, sphinx.cmd.build as s, sys; sys.exit(s.main(sys.argv[1:]))"
    command = [sys.executable, "-c", call, "-q", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    links = [link for _, _, link in Markup(tmp_path / "out" / "book" / "page.html").links if "://" in link]
    here = f"https://github.com/{known}"
    assert not links if not known else set(links) >= {
        here,
        f"{here}/edit/main/book/page.md",
        f"https://mybinder.org/v2/gh/{known}/main?urlpath=lab/tree/book/page.md",
    }  # fmt: skip
    assert any(link.startswith(f"{here}/issues/new") for link in links) == bool(known)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@github.com:someone/some-book.git", "https://github.com/someone/some-book"),
        ("https://github.com/someone/some-book", "https://github.com/someone/some-book"),
        ("ssh://git@gitlab.com/group/part/book.git", "https://gitlab.com/group/part/book"),
        ("/srv/git/book.git", ""),
        ("", ""),
    ],
)
def test_repository_is_read_from_the_remote(monkeypatch, remote, address):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.setattr(address_of, "git", lambda *_: remote)
    assert address_of.repository() == address


def test_repository_on_github_comes_first(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/some-book")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    assert address_of.repository() == "https://github.com/someone/some-book"


@pytest.mark.parametrize(
    ("given", "name", "address"),
    [
        ("", "Someone/some-book", "https://someone.github.io/some-book/"),
        ("", "Someone/someone.github.io", "https://someone.github.io/"),
        ("https://example.org/book", "Someone/some-book", "https://example.org/book/"),
        ("http://example.org", "", "http://example.org/"),
        ("", "", ""),
    ],
)
def test_the_address_of_the_site_is_the_given_one_or_that_of_its_pages(monkeypatch, given, name, address):
    monkeypatch.setenv("BOOK_URL", given)
    monkeypatch.setenv("GITHUB_REPOSITORY", name)
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    monkeypatch.setattr(address_of, "git", lambda *_: "")
    assert website() == address
    assert root() == "/" + address.partition("//")[2].partition("/")[2]
    assert metadata.address("book/a.html", "book/refreshers/b") == (address or "../../") + "book/a.html"


@pytest.mark.parametrize("wrong", ["example.org", "ftp://example.org/", "https://", "https://example.org/?a"])
def test_an_address_that_is_none_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("BOOK_URL", wrong)
    with pytest.raises(ValueError, match="BOOK_URL="):
        website()


def test_links_of_the_page_of_what_is_not_there_start_at_the_root(monkeypatch):
    monkeypatch.setenv("BOOK_URL", "https://example.org/book/")
    links = '<a href="#b"><a href="https://c/"><a href="/d">'
    page = f'<html data-content_root="./"><a href="a.html">{links}'
    assert metadata.rooted(page) == f'<html data-content_root="/book/"><a href="/book/a.html">{links}'


def test_a_line_may_end_in_a_path() -> None:
    code = '<code class="literal"><span class="pre">{}</span></code>'
    assert joined(code.format("/a/b.py:5") + "c/d") == code.format("/a/<wbr>b.py:5") + "c/d"


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    document = new_document("page")
    text = nodes.paragraph("", "87 % of 20 ms, 3 streams, 8 Gb/s and 5 sets; ")
    code = nodes.literal("", "1 ms")
    document += text
    text += code
    hold_units(None, document, "page")  # type: ignore[arg-type]
    assert (
        text[0].astext()
        == "87\N{NO-BREAK SPACE}% of 20\N{NO-BREAK SPACE}ms, 3 streams, 8\N{NO-BREAK SPACE}Gb/s and 5 sets; "
    )
    assert code.astext() == "1 ms"
