"""Figures: the same bytes from the same calls, ids and colours that suit a page, nothing drawn unrecorded."""

import itertools
import os
import re
import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from lib.page import figures

BOOK_OF_TWO = """
from lib.page import figures

def plot(axes):
    axes.plot([1, 10, 100], [0.5, 2.0, 1.5], "s-", color=figures.PREFILL, label="prefill")
    axes.scatter([1, 2], [3, 4], color=figures.DECODE)
    axes.bar([1, 2], [1, 2], hatch="//")
    axes.fill_between([1, 100], [1, 2], color=figures.WAITING, alpha=0.2)
    axes.annotate("note 7", (1, 1), color=figures.INK)
    axes.set(xlabel="x, ms", xscale="log")
    axes.legend()

for title in ("One", "Two"):
    print(figures.draw(plot, title, f"Alt of {title} < 3", {"x": [1, 2.34567]}))
"""


@pytest.fixture(autouse=True)
def from_one(monkeypatch):
    """Number the figures from one, as on a fresh page."""
    monkeypatch.setattr(figures, "_numbers", itertools.count(1))


def two_figures():
    names = {}
    exec(BOOK_OF_TWO.replace("print(", "made.append("), names | {"made": (made := [])})
    return made


def markups():
    return [figure.markup for figure in two_figures()]


def a_plot(axes):
    axes.plot([1, 2], [3, 4])


def said(figure):
    return figure._repr_mimebundle_()[1]["press"]["record"].splitlines()


def test_the_same_calls_give_the_same_bytes_in_any_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", BOOK_OF_TWO.replace("}))", "}).markup)")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("1", "2")
    ]
    here = "\n".join(markups()) + "\n"
    assert runs[0].stdout == runs[1].stdout == here


def test_ids_are_unique_on_a_page_and_every_reference_finds_its_own():
    page = "".join(markups())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 20
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_colours_are_the_page_s_own():
    for markup in markups():
        left = re.sub(r"var\(--[\w-]+, #\w+\)", "", markup)
        assert not re.search("|".join([*figures.NAMES, figures.INK, figures.FAINT]), left, re.I)
        assert "currentColor" in markup
        assert f"var(--prefill, {figures.PREFILL})" in markup
        assert "var(--faint, #88888855)" in markup


def test_nothing_else_leaks_into_the_page():
    for markup in markups():
        assert not re.search(r"<style|<metadata|<\?xml|<!DOCTYPE|<!--|<script|\d{4}-\d\d-\d\d", markup)
        assert "<text" in markup  # text stays text
        assert not re.search(r'<svg[^>]* (?:width|height)="', markup)


def test_a_figure_speaks_its_title_its_alternative_text_and_its_data():
    first = two_figures()[0]
    lines = said(first)
    assert lines[:2] == ["title: One", "alt: Alt of One < 3"]
    assert lines[2].startswith("ticks: ")
    assert lines[3] == "drawn: x, ms · note 7 · prefill"
    assert lines[4:8] == ["The data", "x", "1", "2.35"]
    assert 'role="img"' in first.markup


def test_what_is_plotted_is_told_to_the_record():
    def plot(axes):
        axes.plot([1, 2, 3], [0.001, 2.34567, 1e-17])
        axes.scatter([1, 2], [3, 4])
        axes.bar([1, 2], [5, 6.789])
        axes.fill_between([0, 1], [1, 2])
        axes.axvline(419.4)
        axes.twinx().plot([7, 8], [9, 10])

    assert said(figures.draw(plot, "t", "a", {"x": [1]}))[-6:] == [
        "plotted: line 1 0.001, 2 2.35, 3 0",
        "plotted: points 1 3, 2 4",
        "plotted: area 0 0, 0 1, 1 0, 1 2",
        "plotted: line 419 0, 419 1",
        "plotted: bars 0.6 0 1.4 5, 1.6 0 2.4 6.79",
        "plotted: line 7 9, 8 10",
    ]


def test_a_point_that_moves_changes_what_is_plotted():
    axes = Figure().subplots()
    (line,) = axes.plot(range(9), range(9))
    before = figures.plotted(axes)
    for i in range(9):
        line.set_ydata([y + (i == y) for y in range(9)])
        assert figures.plotted(axes) != before


@pytest.mark.parametrize("count", [0, 1, 8, 9, 10, 1000])
def test_long_lines_are_thinned_evenly_with_both_ends(count):
    kept = figures.thinned(list(range(count)))
    assert len(kept) == min(count, 9)
    assert kept[:1] == list(range(count))[:1]
    assert kept[-1:] == list(range(count))[-1:]
    assert kept == sorted(set(kept))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,230"), (332.47, "332"), (33.247, "33.2"), (3.3247, "3.32"), (0.033247, "0.0332"),
        (9.996, "10.0"), (0.0, "0.0"), (-1.2345, "-1.23"), (1.5e8, "1.50e+08"),
        (2e-5, "2.00e-05"), (float("nan"), "nan"),
        (5, 5), (True, True), ("7.123456", "7.123456"), (None, None),
    ],
)  # fmt: skip
def test_data_are_shown_to_three_digits(value, text):
    assert figures.three_digits(value) == text


def test_log_axes_are_labelled_with_plain_numbers():
    def plot(axes):
        axes.loglog([1, 1e4], [1, 1e4])

    ticks = said(figures.draw(plot, "t", "a", {"x": [1]}))[2]
    assert ticks.startswith("ticks: 1 · 10 · 100 · 1,000 · 10,000 · 1")


@pytest.mark.parametrize(
    ("title", "alt", "data"), [("", "a", {"x": [1]}), ("t", "", {"x": [1]}), ("t", "a", {})]
)
def test_a_figure_without_message_alternative_or_data_is_refused(title, alt, data):
    with pytest.raises(ValueError, match="title, alt and data are needed"):
        figures.draw(a_plot, title, alt, data)


def test_markup_in_texts_is_escaped():
    shown = figures.draw(a_plot, "a < b", 'says "5" & <b>', {"<i>": ["<u>"]})
    assert not re.search("<b>|<i>|<u>", shown.markup)
    assert said(shown)[:2] == ["title: a < b", 'alt: says "5" & <b>']


def hatch(**how):
    def plot(axes):
        axes.bar([1], [1], hatch="//", **how)

    shown = figures.draw(plot, title="T", alt="A", data={"x": [1]})
    return re.search(r"<pattern.*?</pattern>", shown.markup, re.S)[0]


def test_a_hatch_over_a_full_colour_has_its_own_ink_and_any_other_that_of_text():
    assert "var(--hatch, currentColor)" in hatch(color=figures.DECODE)
    assert "var(--hatch" not in hatch(facecolor="none", edgecolor=figures.INK)
    assert "var(--hatch" not in hatch(color=figures.DECODE, alpha=0.3)
