"""The refreshers' form: a summary that stands on its own, and who asks for it."""

import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[1] / "book"
REFRESHERS = sorted((BOOK / "refreshers").glob("*.md"))
CHAPTERS = sorted(path for path in BOOK.glob("*.md") if path.stem != "intro")  # which names them as a whole
each = pytest.mark.parametrize("path", REFRESHERS, ids=lambda path: path.stem)


def askers(path: Path, link: str) -> set[str]:
    """Return the chapters in which the pattern, with the refresher's name in it, is found."""
    return {page.stem for page in CHAPTERS if re.search(link.format(path.stem), page.read_text("utf8"))}


@each
def test_the_first_paragraph_sums_up_in_three_sentences_of_plain_text(path: Path) -> None:
    summary = path.read_text("utf8").split("\n# ")[1].split("\n\n")[1]
    text = re.sub(r"\{term\}`([^`<]+?)(?: <[^`]+)?`", r"\1", summary)
    assert len(re.findall(r"[.!?](?= |$)", text)) == 3
    assert not re.search(r"[`*$\[]|\b\d", text), "a chapter shows it far from outputs and sources"


@each
def test_it_says_who_uses_it(path: Path) -> None:
    last = path.read_text("utf8").rstrip().rpartition("\n\n")[2]
    assert last.startswith("**Used in** ")
    assert set(re.findall(r"\(\.\./(\w+)\.md\)", last)) == askers(path, r"\]\(refreshers/{}\.md\)")


@each
def test_a_chapter_shows_it_where_it_is_needed(path: Path) -> None:
    assert askers(path, r":class: refresher\n\[.+\]\(refreshers/{}\.md\)\n```")
