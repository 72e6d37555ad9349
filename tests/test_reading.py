"""Each page says how long it takes, and is short enough to be read at one go."""

import pytest

from lib.press import contents, reading, run

BOOK = run.ROOT / "book"
TO_DO = {  # not yet of the form in CONTRIBUTING.md: take a page out when it is
    "chunking",
}
TIMED = [name for name in contents.chapters() if "**Takes** " in (BOOK / f"{name}.md").read_text("utf8")]


def page(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text((BOOK / "roofline.md").read_text("utf8").partition("\n# ")[0] + "\n" + text, "utf8")
    return path


def test_words_of_prose_count_and_addresses_options_and_names_of_roles_do_not(tmp_path):
    text = "# One two\n\nA {term}`step <engine step>` and [a link](https://a.test/b).\n\n"
    figure = "```{code-cell}\n1 + 1\n```\n\n```{admonition} Guess first\n:class: guess\nThree?\n```\n"
    assert reading.length(page(tmp_path, text + figure)) == (2 + 5 + 1, 1)


def test_what_comes_after_the_heading_of_the_exercises_does_not_count(tmp_path):
    short = page(tmp_path, "# One two\n\nThree.\n")
    assert reading.length(short) == (3, 0)
    longer = page(tmp_path, "# One two\n\nThree.\n\n## Try it\n\nFour.\n\n```{code-cell}\n1\n```\n")
    assert reading.length(longer) == (3, 0)


@pytest.mark.parametrize("name", sorted(set(TIMED) - TO_DO))
def test_a_page_says_how_long_it_takes(name):
    text = (BOOK / f"{name}.md").read_text("utf8")
    assert f"**Takes** {reading.takes(*reading.length(BOOK / f'{name}.md'))}." in text


@pytest.mark.parametrize("name", sorted(set(TIMED) - TO_DO))
def test_a_page_is_at_most_1600_words_before_its_exercises(name):
    assert reading.length(BOOK / f"{name}.md")[0] <= reading.LONGEST


def test_the_pages_still_to_do_are_pages():
    assert set(TIMED) >= TO_DO
