"""The whole book in one PDF, and the site in one archive."""

from __future__ import annotations

import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from unicodedata import normalize

import pytest
from pypdf import PdfReader

from lib.press import build, pdf

PAGES = tuple(name for _, names in pdf.parts() for name in names)


@pytest.fixture(scope="module")
def book(browser, site, tmp_path_factory) -> PdfReader:
    """The PDF, printed by a Chromium of its own once that of the tests is known to be there."""
    with ThreadPoolExecutor(1) as pool:  # Playwright's loop runs in this thread already
        return PdfReader(pool.submit(pdf.write, tmp_path_factory.mktemp("pdf") / "book.pdf").result())


@pytest.fixture(scope="module")
def titles(site) -> dict[str, str]:
    return {name: pdf.chapter(name, PAGES)[0] for name in PAGES}


def text(book: PdfReader, first: int, last: int) -> str:
    """Return the letters and digits on some pages, counted from 0, the last included."""
    return squeezed(" ".join(book.pages[number].extract_text() for number in range(first, last + 1)))


def begins(book: PdfReader, name: str) -> int:
    """Return on which page, counted from 0, a chapter begins."""
    return book.get_destination_page_number(book.named_destinations[f"/{pdf.anchor(name)}"])


def squeezed(words: str) -> str:
    return re.sub(r"\W", "", normalize("NFKC", words))  # a font may write fi as one sign


def test_every_chapter_begins_on_the_page_that_the_contents_name(book, titles):
    contents = text(book, 1, 2)
    for name, title in titles.items():
        page = begins(book, name)
        assert text(book, page, page).startswith(f"{page + 1}{squeezed(title)}"), title
        assert f"{squeezed(title)}{page + 1}" in contents, title


def test_the_outline_names_every_chapter_and_section(book, titles):
    tops = [entry.title for entry in book.outline if not isinstance(entry, list)]
    assert [squeezed(title) for title in tops] == [squeezed(title) for title in titles.values()]
    assert sum(isinstance(entry, list) for entry in book.outline) > len(titles) / 2


def test_links_inside_lead_to_places_that_exist_and_no_other_to_this_machine(book):
    inside = outside = 0
    for page in book.pages:
        for note in page.get("/Annots", ()):
            link = note.get_object()
            if "/Dest" in link:
                assert link["/Dest"] in book.named_destinations, link["/Dest"]
                inside += 1
            elif "/A" in link:
                address = link["/A"]["/URI"]
                assert re.match(r"(https?|mailto):", address), address
                assert "127.0.0.1" not in address
                outside += 1
    assert inside > 300
    assert outside > 100


def test_figures_keep_their_colours_and_their_marks(site):
    _, article = pdf.chapter("book/intro", PAGES)
    marks = re.findall(r'xlink:href="#([^"]+)"', article)
    assert marks
    assert all(f'id="{mark}"' in article for mark in marks)
    assert "var(--prefill" in article


def test_nothing_that_is_folded_on_the_site_is_printed_but_solutions(book):
    for name in PAGES:
        _, article = pdf.chapter(name, PAGES)
        assert "figures.draw" not in re.sub(r"<[^>]*>", "", article)
        assert article.count("<details") == article.count(' open=""')
    first = begins(book, "book/roofline")
    assert "Itneverdoes" in text(book, first, first + 12), "a solution of the roofline chapter"


def test_no_id_occurs_twice_in_the_one_document(site):
    ids = re.findall(r' id="([^"]*)"', pdf.document({}))
    assert len(ids) == len(set(ids))


# ---- the archive


@pytest.fixture(scope="module")
def folder(site, tmp_path_factory):
    """The archive, unpacked in a folder with a space in its name."""
    out = tmp_path_factory.mktemp("a folder")
    with zipfile.ZipFile(build.archive()) as sheet:
        sheet.extractall(out)
    (inside,) = out.iterdir()
    assert inside.name == "serving-taken-apart"
    return inside


@pytest.fixture
def tab(browser):
    """A tab that notes what goes wrong."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab, complaints = context.new_page(), []
    tab.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: complaints.append(request.url))
    yield tab
    assert complaints == []
    context.close()


def test_the_archive_reads_from_a_folder(folder, tab):
    tab.goto((folder / "index.html").as_uri())
    tab.wait_for_url("**/book/intro.html")
    assert tab.locator("svg.plot").first.is_visible()
    tab.locator("article a[href='roofline.html']").first.click()
    tab.locator("article math").first.wait_for()
    assert tab.locator("article h1").evaluate("h => getComputedStyle(h).fontWeight") >= "600"
    tab.locator(".theme-switch-button").first.click()
    tab.locator("details.sources > summary").click()
    tab.locator("figure.source a").first.click()
    tab.wait_for_url("**/lib/roofline.html#L*")


def test_a_download_says_in_a_folder_where_its_file_lies(folder, tab):
    tab.goto((folder / "book" / "roofline.html").as_uri())
    said = [re.search(r"_sources/\S+", link.text_content()) for link in tab.locator("a[download]").all()]
    assert len(said) > 1
    assert all(place and (folder / place[0]).is_file() for place in said)


FOUND = [
    ("slanted roof", "roofline.html"),  # in the prose
    ("sharing stalls everybody", "intro.html"),  # the title of a figure
    ("four prefill pieces", "intro.html"),  # what a figure says to those who do not see it
    ("bidirectional transfer", "glossary.html"),
    ("hopscotch", ""),
]


@pytest.mark.parametrize(("word", "page"), FOUND)
def test_search_finds_words_of_prose_figures_and_glossary(address, tab, word, page):
    tab.goto(f"{address}search.html?q={word.replace(' ', '+')}")
    found(tab, page)


def found(tab, page):
    if page:
        tab.locator(f"#search-results a[href*='{page}']").first.wait_for()
    else:
        tab.get_by_text("did not match any documents").wait_for()


@pytest.mark.parametrize(("word", "page"), FOUND)
def test_search_works_from_a_folder(folder, tab, word, page):
    tab.goto((folder / "book" / "roofline.html").as_uri())
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input").fill(word)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?q=*")
    found(tab, page)
