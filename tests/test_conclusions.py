"""Conclusions: asked in every world, said on their page, none falls silently; the list of all."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from docutils import nodes
from nbformat.v4 import new_code_cell, new_notebook, new_output

from lib.page.conclusions import conclusion
from lib.press import balance, prose, records
from lib.worlds import WORLDS


@dataclass(frozen=True)
class Toy:
    """A world in which one number differs."""

    name: str
    size: int


TOYS = [Toy(f"size {size}", size) for size in range(10)]


def stands_from(size):
    return lambda world: world.size >= size


def test_the_count_and_the_worlds_where_it_fails_are_shown_and_recorded():
    shown = conclusion("Large is large", stands_from(1), worlds=TOYS)
    assert "Stands in 9 of 10 worlds; not with: size 0." in shown.text
    assert shown.press["record"].splitlines() == [
        "concluded: Large is large",
        "concluded: Stands in 9 of 10 worlds; not with: size 0.",
    ]
    assert not shown.press["problem"]


def test_a_sentence_that_stands_in_fewer_than_nine_of_ten_is_a_problem():
    (problem,) = conclusion("Large is large", stands_from(2), worlds=TOYS).press["problem"]
    assert "8 of 10" in problem


def test_where_it_stands_must_be_said_and_all_worlds_are_counted_still():
    shown = conclusion("From 5 on, large is large", stands_from(5), "from 5 on", stands_from(5), TOYS)
    assert "5 of the 5 worlds it is said of" in shown.text
    assert "in 5 of 10 worlds in all; not with: size 0, size 1, size 2, size 3, size 4." in shown.text
    assert not shown.press["problem"]
    assert conclusion("From 5 on, no", stands_from(7), "from 5 on", stands_from(5), TOYS).press["problem"]


@pytest.mark.parametrize(
    ("where", "within"),
    [
        ("from 5 on", None),
        ("", stands_from(5)),
        ("from 6 on", stands_from(5)),
        ("from 5 on", stands_from(99)),
    ],
)
def test_a_restriction_that_is_not_said_or_leaves_nothing_is_refused(where, within):
    with pytest.raises(ValueError, match="where="):
        conclusion("From 5 on, large is large", stands_from(5), where, within, TOYS)


def test_an_answer_that_is_no_truth_is_refused():
    with pytest.raises(ValueError, match="size 0"):
        conclusion("Large is large", lambda world: 1, worlds=TOYS)


# ---- on its page


def notebook_of(shown):
    data, metadata = shown._repr_mimebundle_()
    cell = new_code_cell("x", outputs=[new_output("display_data", data, metadata=metadata)])
    return new_notebook(cells=[cell])


def page_saying(text, title="A page"):
    document = nodes.document(None, None)
    document += nodes.section("", nodes.title("", title), nodes.paragraph("", text))
    return document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It is so: the user’s answer is large.", True),
        ("The user's answer\nis large", False),  # another capital is another sentence
        ("The answer is large.", False),
        ("", False),
    ],
)
def test_the_page_has_to_say_the_sentence_word_for_word(text, said):
    found = notebook_of(conclusion("the user's answer is large", lambda world: True, worlds=TOYS))
    complaints = prose.unsaid("page", prose.Reader(page_saying(text)), found)
    assert (not complaints) == said


def test_a_conclusion_supports_no_numeral_in_the_prose():
    shown = conclusion("The answer is 42", lambda world: True, worlds=TOYS)
    assert all(line.startswith(records.SILENT) for line in shown.press["record"].splitlines())


# ---- all of them


def test_the_balance_lists_every_conclusion_the_hardest_hit_first():
    one, two = (conclusion(text, stands_from(size), worlds=TOYS) for text, size in (("One", 0), ("Two", 3)))
    kept = {
        "a": ("A", records.conclusions(notebook_of(one)), False),
        "b": ("B", records.conclusions(notebook_of(two)), False),
    }
    markup = balance.markup(kept)
    assert "Conclusions: 2, of which 1 stand in every world" in markup
    assert markup.index("Two") < markup.index("One")
    assert "size 0, size 1, size 2" in markup
    assert "7 of 10" in markup


def test_a_page_lists_them_in_the_place_of_its_admonition():
    place = nodes.admonition("", nodes.paragraph("", "Here"), classes=["balance"])
    document = nodes.document(None, None)
    document += place
    assert balance.places(document) == [place]


# ---- the worlds


def test_every_world_has_a_name_of_its_own_and_differs_from_the_book_in_one_thing():
    assert len({world.name for world in WORLDS}) == len(WORLDS)
    book, *others = WORLDS
    for other in others:
        differing = {k for k, v in vars(other).items() if v != getattr(book, k)} - {"name"}
        assert len(differing) == 1 or differing == {"price", "efficiency"}, other.name


def test_what_a_page_lists_is_what_the_pages_read_last_found_and_no_more():
    env, app = SimpleNamespace(), SimpleNamespace()
    app.env = env
    found = records.conclusions(notebook_of(conclusion("Large is large", lambda world: True, worlds=TOYS)))
    listing = page_saying("All")
    listing += nodes.admonition("", nodes.paragraph("", "Here"), classes=["balance"])
    balance.keep(env, "book/a", page_saying("Large is large", title="The page"), found)
    balance.keep(env, "book/b", page_saying("Gone"), found)
    balance.keep(env, "book/list", listing, [])
    balance.forget(env, "book/b")
    assert balance.lists(env) == ["book/list"]
    balance.write(app, listing, "book/list")
    (table,) = listing.findall(nodes.raw)
    assert "Large is large" in table.astext()
    assert "The page" in table.astext()
    assert "Conclusions: 1, of which 1" in table.astext()
    assert not balance.places(listing)
