"""The number contract over the whole book, read from its records: claimed, allowed, and nothing forgotten."""

import ast
import re
from pathlib import Path

import pytest

from lib.page import published
from lib.press import contents, prose, records, run

ROOT, BOOK, RECORDS = run.ROOT, records.BOOK, records.RECORDS
PAGES = sorted(contents.chapters())
SECTIONS = [section for section in published.figures() if section != "meta"]  # meta says who wrote it


def record(page):
    path = RECORDS / f"{page}.txt"
    return path.read_text("utf8") if path.exists() else ""


def leaves(section):
    return {path for path, _ in published.leaves(published.find(section), section)}


CLAIMED = {claim: page for page in PAGES for claim in records.claims(record(page))}


# ---- pages and records


def test_every_page_has_a_record_and_every_record_a_page():
    assert (
        sorted(path.relative_to(RECORDS).with_suffix("").as_posix() for path in RECORDS.rglob("*.txt"))
        == PAGES
    )


def test_every_page_of_the_book_is_in_the_table_of_contents_once():
    written = [path.relative_to(BOOK).with_suffix("") for path in BOOK.rglob("*.md")]
    assert sorted(path.as_posix() for path in written if not path.name.startswith(".")) == PAGES


# ---- the review's figures


@pytest.mark.parametrize("section", SECTIONS)
def test_every_published_figure_is_claimed(section):
    missing = leaves(section) - CLAIMED.keys()
    assert not missing, f"no page compares {', '.join(sorted(missing))}"


def test_claims_name_figures_of_the_review():
    known = {path for section in SECTIONS for path in leaves(section)}
    assert not CLAIMED.keys() - known


@pytest.mark.parametrize("page", [page for page in PAGES if run.is_chapter(BOOK / f"{page}.md")])
def test_no_page_compares_the_review_with_itself(page):
    for cell in run.read(BOOK / f"{page}.md").cells:
        if cell.cell_type != "code" or "compare" not in cell.source:
            continue
        calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
        for call in (call for call in calls if ast.unparse(call.func).endswith("compare")):
            given = " ".join(ast.unparse(keyword.value) for keyword in call.keywords)
            assert "published." not in given, f"{page} hands compare the review's own figure: {given}"


# ---- what is allowed


ALLOWED = [
    (page, phrase, reason) for page, list_ in prose.allowed().items() for phrase, reason in list_.items()
]


@pytest.mark.parametrize(("page", "phrase", "reason"), ALLOWED)
def test_every_allowed_phrase_is_needed_and_says_why(page, phrase, reason):
    assert page == "everywhere" or page in PAGES
    where = PAGES if page == "everywhere" else [page]
    assert any(phrase in records.allowances(record(name)) for name in where), (
        f"no page needs {phrase!r}: take it out"
    )
    assert prose.numerals(phrase) or prose.sizes(phrase), f"{phrase!r} has no numeral and no size"
    assert re.search(r"[^\W\d_]", phrase), f"{phrase!r} is a bare numeral: give the words around it"
    assert len(reason.split()) > 1


def test_every_allowance_in_a_record_is_on_the_list():
    listed = {(page, phrase) for page, phrase, _ in ALLOWED}
    for page in PAGES:
        for phrase in records.allowances(record(page)):
            assert {(page, phrase), ("everywhere", phrase)} & listed, f"{page}: {phrase}"


# ---- what the build relies on


def test_what_pages_say_of_the_machine_is_bounded():
    for page in PAGES:
        for line in record(page).splitlines():
            if "measured here" in line:
                low, high = re.search(r"plausible from (\S+) to (\S+) ", line.replace(",", "")).groups()
                assert float(low) < float(high)


def test_records_hold_no_unexplained_difference():
    for page in PAGES:
        assert " | differs\n" not in record(page)


def test_the_extensions_that_read_a_chapter_are_the_build_s():
    config = Path(ROOT, "_config.yml").read_text("utf8")
    (enabled,) = re.findall(r"myst_enable_extensions: \[(.+)\]", config)
    assert set(enabled.split(", ")) == run.EXTENSIONS
