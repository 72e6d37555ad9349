"""The review's figures: how they are found, and when a computed value agrees with a printed one."""

import re
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.page import published
from lib.page.published import agrees, compare, get
from lib.press import records


@pytest.fixture
def review(monkeypatch):
    """A small review in place of the real one."""
    figures = {
        "a": {
            "whole": 419,
            "one_decimal": Decimal("332.5"),
            "zeros": Decimal("1.00"),
            "large": Decimal("362e12"),
            "list": [1, Decimal("2.5")],
            "names": ["x", "y"],
            "flag": True,
            "nested": {"p.q": {"deep": 7}, "r": 8},
            "guide_ms": 700,
        },
        "measured": {"other": {"percent": 59}},
    }
    monkeypatch.setattr(published, "figures", lambda: figures)
    return figures


def press(html):
    return html._repr_mimebundle_()[1]["press"]


def rows(html):
    return [line.split(" | ") for line in html.press["record"].splitlines()[2:]]


def test_one_figure_is_counted_as_one(review):
    assert compare("a", whole=419).text == "1 published figure in [a], 0 different here"
    shown = compare("a", whole=420, differs={"whole": "it was rounded"}).press["record"]
    assert shown.startswith("1 published figure in [a], 1 different here")
    assert list(records.claims("".join(f"    {line}\n" for line in shown.splitlines()))) == ["a.whole"]


def test_a_text_of_several_lines_is_shown_in_one(review):
    review["a"]["lines"] = "x\ny"
    assert rows(compare("a", lines="x\ny")) == [["lines", r"x\ny", r"x\ny", "agrees"]]


# ---- finding


def test_figures_are_found_by_their_path(review):
    assert get("a.whole") == 419
    assert get('a.nested."p.q".deep') == 7
    assert get("a.nested") == {"p.q": {"deep": 7}, "r": 8}
    assert get("a.list") == [1, 2.5]
    assert isinstance(get("a.one_decimal"), float)


def test_a_wrong_path_names_what_there_is(review):
    with pytest.raises(ValueError, match=r"no 'a\.hole'; at 'hole' there are whole, one_decimal"):
        get("a.hole")


def test_decimals_keep_their_printed_precision():
    text = files("lib.data").joinpath("published.toml").read_text("utf8")
    printed = re.search(r"ideal_ms = \[(.+)\]", text)[1].split(", ")
    assert [str(value) for value in published.find("roofline.ideal_ms")] == printed


# ---- agreement


@pytest.mark.parametrize(
    ("computed", "printed", "right"),
    [
        (418.5, "419", True),
        (418.49, "419", False),
        (419.5, "419", True),
        (419.51, "419", False),
        (332.45, "332.5", True),
        (332.449, "332.5", False),
        (332.55, "332.5", True),
        (1.0, "1.00", True),
        (1.006, "1.00", False),
        (-10.4, "-10", True),
        (-10.6, "-10", False),
        (10, "-10", False),
        (361.6e12, "362e12", True),
        (361.4e12, "362e12", False),
        (0.0, "0.0", True),
        (0.06, "0.0", False),
        (np.float64(418.6), "419", True),
        (np.int64(419), "419", True),
        (Fraction(837, 2), "419", True),
        (Fraction(836, 2), "419", False),
        (Decimal("418.6"), "419", True),
    ],
)
def test_agreement_is_rounding_to_the_printed_precision_with_ties_either_way(computed, printed, right):
    assert agrees(computed, Decimal(printed)) is right
    if Decimal(printed).as_tuple().exponent == 0:
        assert agrees(computed, int(printed)) is right


@given(st.integers(-(10**6), 10**6), st.integers(0, 3), st.floats(-0.499, 0.499))
def test_what_is_less_than_half_a_step_away_agrees_and_two_steps_away_does_not(digits, places, part):
    printed, step = Decimal(digits).scaleb(-places), 10.0**-places
    assert agrees(float(printed) + part * step, printed)
    assert not agrees(float(printed) + (2 + part) * step, printed)
    assert not agrees(float(printed) - (2 + part) * step, printed)


@pytest.mark.parametrize("computed", [None, "419", True, float("nan"), float("inf"), [419], {"x": 419}])
def test_what_is_no_finite_number_agrees_with_none(computed):
    assert not agrees(computed, 419)


@pytest.mark.parametrize(
    ("computed", "printed", "right"),
    [
        ([8, 2.4], [8, 2], True),
        ((8, 2.4), [8, 2], True),
        ([8], [8, 2], False),
        ([8, 2, 0], [8, 2], False),
        ([], [], True),
        (8, [8], False),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]], True),
        ([[1, 2], [3, 5]], [[1, 2], [3, 4]], False),
        ("memory", "memory", True),
        ("Memory", "memory", False),
        (["a", "b"], ["a", "c"], False),
        (True, True, True),
        (1, True, False),
        (True, 1, False),
        (1, "1", False),
    ],
)
def test_lists_and_words_agree_in_every_part(computed, printed, right):
    assert agrees(computed, printed) is right


# ---- comparing


def test_a_comparison_shows_both_at_the_printed_precision(review):
    shown = compare(
        "a", whole=418.6, one_decimal=332.5, zeros=1, list=[1.2, 2.5], names=["x", "y"], large=362.3e12
    )
    assert rows(shown) == [
        ["whole", "419", "419", "agrees"],
        ["one_decimal", "332.5", "332.5", "agrees"],
        ["zeros", "1.00", "1.00", "agrees"],
        ["list", "1 · 2.5", "1 · 2.5", "agrees"],
        ["names", "x · y", "x · y", "agrees"],
        ["large", "3.62e+14", "3.62e+14", "agrees"],
    ]
    assert press(shown)["problem"] == []
    assert "6 published figures in [a], 0 of them different here" in shown.text


def test_tables_in_tables_are_compared_leaf_by_leaf(review):
    shown = compare("a", nested={"p.q": {"deep": 7.2}, "r": 9})
    assert rows(shown) == [['nested."p.q".deep', "7", "7", "agrees"], ["nested.r", "8", "9", "differs"]]
    assert rows(compare("a.nested", **{"p.q": {"deep": 7}}))[0][0] == '"p.q".deep'


def test_an_unexplained_difference_shows_and_is_a_problem_that_blocks_recording(review):
    shown = compare("a", whole=420, list=[1, 2.6])
    assert [row[-1] for row in rows(shown)] == ["differs", "differs"]
    assert press(shown)["problem"] == [
        "published: a.whole is 419, not 420",
        "published: a.list is 1 · 2.5, not 1 · 2.6",
    ]
    assert "2 of them different here" in shown.text


def test_an_explained_difference_shows_its_reason_and_is_none(review):
    shown = compare("a", differs={"whole": "it counts the head once"}, whole=420)
    assert rows(shown) == [["whole", "419", "420", "it counts the head once"]]
    assert press(shown)["problem"] == []


def test_an_explanation_of_nothing_is_a_problem(review):
    assert press(compare("a", differs={"whole": "some reason"}, whole=419))["problem"] == [
        "published: a.whole agrees, so nothing in differs is to be explained"
    ]
    with pytest.raises(ValueError, match=r"differs names \['zeros'\]"):
        compare("a", differs={"zeros": "some reason"}, whole=419)


@pytest.mark.parametrize("reason", ["", "  ", "agrees", "quoted"])
def test_an_explanation_says_something(review, reason):
    with pytest.raises(ValueError, match="differs"):
        compare("a", differs={"whole": reason}, whole=420)


def test_values_that_are_no_numbers_show_as_they_are(review):
    shown = compare("a", whole=None, list=[1], names="x", flag=1, one_decimal=float("nan"))
    assert [row[2] for row in rows(shown)] == ["–", "1", "x", "1", "nan"]
    assert len(press(shown)["problem"]) == 5


def test_a_key_that_the_review_does_not_have_is_refused(review):
    with pytest.raises(ValueError, match=r"no 'a\.hole'"):
        compare("a", hole=1)
    with pytest.raises(ValueError, match="no values"):
        compare("a")


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ({"nested": {"r": 8}}, ['nested."p.q".deep', "7", "–", "differs"]),
        ({"nested": {"p.q": {"deep": 7, "more": 1}, "r": 8}}, ['nested."p.q".more', "–", "1.000", "differs"]),
        ({"whole": {"r": 8}}, ["whole", "419", "–", "differs"]),
    ],
)
def test_a_reader_whose_keys_are_others_is_not_stopped_and_the_build_is(review, values, row):
    shown = compare("a", **values)
    assert row in rows(shown)
    assert press(shown)["problem"]


def test_only_what_the_review_quotes_can_be_quoted(review):
    assert rows(compare("a", quoted=("guide_ms",))) == [["guide_ms", "700", "–", "quoted"]]
    assert rows(compare("measured.other", quoted=("percent",))) == [["percent", "59", "–", "quoted"]]
    with pytest.raises(ValueError, match="quoted='whole' is a figure that the review computes"):
        compare("a", quoted=("whole",))


@pytest.mark.parametrize("section", ["roofline", "measured.epd", "payload", "goodput"])
def test_the_review_agrees_with_itself(section):
    values = {key: published.plain(value) for key, value in published.find(section).items()}
    shown = compare(section, **values)
    assert press(shown)["problem"] == []
    leaves = [path for path, _ in published.leaves(published.find(section), section)]
    assert (
        list(records.claims("\n".join("    " + line for line in press(shown)["record"].splitlines())))
        == leaves
    )
