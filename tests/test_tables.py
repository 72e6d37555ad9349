"""What chapters show besides figures: tables, source with a link, and what depends on the machine."""

import inspect
import math
import re
from html.parser import HTMLParser

import pytest

from lib.page import Html, measured, source, table, tables
from lib.page.machine import rounded
from lib.page.markup import typeset
from lib.press import records


def press(html):
    return html._repr_mimebundle_()[1].get("press", {})


def said(html):
    return press(html)["record"].splitlines()


class Balanced(HTMLParser):
    """Fails on a tag that is closed in the wrong order or not at all."""

    def __init__(self, markup):
        super().__init__()
        self.open = []
        self.feed(markup)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# ---- tables


def test_a_table_has_headers_with_a_scope_and_numbers_flush_right():
    markup = table({"rate": [0.5, 2], "met": [True, None], "who": ["a", "b"]}, "Two").markup
    Balanced(markup)
    assert "<caption>Two</caption>" in markup
    assert markup.count('<th scope="col">') == 3
    assert markup.count('<th scope="row">') == 2
    assert "<td>yes</td><td>a</td>" in markup
    assert '<th scope="col" class="number">b</th>' in table({"a": ["x"], "b": [1]}).markup
    assert '<td class="number">1,024</td>' in table({"a": ["x", "y"], "b": ["1,024", "–"]}).markup
    assert '<td class="number">' not in table({"a": ["x", "y"], "b": ["1,024", "about 2"]}).markup
    assert "<thead><tr><td></td>" in table({"": ["x"], "b": [1]}).markup, "an empty header names nothing"
    assert 'role="group" tabindex="0" aria-label="Two"' in markup
    assert 'aria-label="Table: a, b"' in table({"a": ["x"], "b": [1]}).markup


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567, "1,234,567"), (1234.5, "1,234.5"), (-3, "-3"), (0.1, "0.1"), (True, "yes"), (False, "no"),
     (None, "–"), ("8 × 2", "8 × 2"), (math.inf, "inf"), (math.nan, "nan")],
)  # fmt: skip
def test_cells_show_values_as_given(value, text):
    assert tables.cell(value) == text


def test_the_floats_of_a_column_have_as_many_decimals_and_its_integers_none():
    shown = table({"load": [0.2, 1.0], "s": [2.92, None], "ms": [1.0, 0.125], "mixed": [7.07, 362]})
    assert said(shown)[1:] == ["0.2 | 2.92 | 1.000 | 7.07", "1.0 | – | 0.125 | 362"]


def test_yes_and_no_may_stand_among_numbers_but_make_no_column_of_them():
    markup = table({"a": ["x", "y", "z"], "b": [2, True, None], "c": [True, False, None]}).markup
    assert markup.count('class="number"') == 4


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"different lengths \{'a': 1, 'b': 2\}"):
        table({"a": [1], "b": [1, 2]})


def test_markup_in_cells_is_escaped():
    shown = table({"<i>": ["<b>"], '"': ["&"]}, "<u>")
    Balanced(shown.markup)
    assert said(shown) == ["<u>", '<i> | "', "<b> | &"]


def test_a_long_name_may_be_broken_where_it_has_joints_and_a_number_may_not():
    markup = table({"figure": ["collocated.ttft_p50_s"], "s": ["0.72"]}).markup
    assert "collocated.<wbr>ttft_<wbr>p50_s" in markup, "and nothing but a unit never stands alone"
    assert ">0.72<" in markup


def test_only_columns_with_long_cells_get_room_for_words():
    why = "all of its gaps are in time"
    markup = table({"row": [1], "says": ["yes"], "because": [why], "at length": [3 * why]}).markup
    assert markup.count('class="words"') == markup.count('class="sentences"') == 2
    assert '<td class="words">all of' in markup


def columns(markup):
    """Return how the columns of a table are set, by its headers."""
    return re.findall(r'<th scope="col"(?: class="(\w+)")?>', markup)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["721", "109", "memory"], "number"),
        (["721", "memory", "memory"], ""),
        (["640 · 640", "32"], "number"),
        ([8, "9, 10 and many more of them"], "words"),
        (["0.72 · 0.75 · 0.75 · 0.76"], "words"),
    ],
)
def test_a_column_of_mostly_numbers_is_flush_right_if_all_of_it_is_brief(cells, kind):
    assert columns(table({"a": ["x"] * len(cells), "b": cells}).markup) == ["", kind]


def test_a_column_of_dashes_is_set_like_the_numbers_beside_it():
    markup = table({"a": "xyz", "b": [None, "–", "weights"], "c": [1, 2, 3], "d": [None] * 3}).markup
    assert columns(markup) == ["", "number", "number", "number"]
    assert columns(table({"a": "x", "b": [None], "c": ["no"]}).markup) == ["", "", ""]


@pytest.mark.parametrize(
    ("keyed", "printed"),
    [
        ("-3", "−3"), ("-10 · -.5 %", "−10 · −.5 %"), ("up to -5, (-6)", "up to −5, (−6)"),
        ("1-2, 1e-5, GPTQ-4, a -> b, f(x)-1", "1-2, 1e-5, GPTQ-4, a -> b, f(x)-1"),
        ("the guide's", "the guide’s"), ("prompts' steps", "prompts’ steps"), ("{'s': 't'}", "{'s': 't'}"),
        ("2 x 3 x A10", "2 × 3 × A10"), ("PCIe 4.0 x16, x 3", "PCIe 4.0 x16, x 3"),
        ("1\u00a0x\u00a08", "1\u00a0×\u00a08"), ("TTFT <= 2, >= 1", "TTFT ≤ 2, ≥ 1"),
    ],
)  # fmt: skip
def test_tables_have_the_signs_of_print_for_those_of_a_keyboard(keyed, printed):
    assert typeset(keyed) == printed
    assert (
        " ".join(said(table({keyed: [keyed], "b": [keyed]}, keyed))).split()
        == f"{printed} {printed} | b {printed} | {printed}".split()
    )


def test_a_number_is_not_torn_from_its_unit_nor_a_dot_from_what_it_follows():
    markup = table({"late, %": ["0.4 req/s"], "b": ["20 ms at 5 %, 5 mice"], "c": ["1 · 2"]}).markup
    for whole in ("late,\u00a0%", "0.4\u00a0req/s", "20\u00a0ms at 5\u00a0%, 5 mice", "1\u00a0· 2"):
        assert f">{whole}<" in markup


# ---- what depends on the machine


@pytest.mark.parametrize(
    ("value", "text"),
    [(15_123, "15,100"), (0.000123, "0.000123"), (10, "10"), (0, "0"), (2_500_000, "2,500,000")],
)
def test_a_measurement_is_written_without_an_exponent(value, text):
    assert rounded(value) == text


def test_a_measurement_shows_its_value_and_records_its_bounds():
    shown = measured(3.14159, "ms", (1, 10), "render")
    assert "render: 3.14 ms" in shown.markup
    assert "plausible from 1 to 10 ms" in shown.markup
    assert press(shown) == {"record": "render: measured here, plausible from 1 to 10 ms", "problem": []}
    assert "3.14" in repr(shown)


@pytest.mark.parametrize("value", [1, 10, 5])
def test_the_bounds_themselves_are_plausible(value):
    assert press(measured(value, "ms", (1, 10)))["problem"] == []


@pytest.mark.parametrize("value", [0.99, 10.01, -5, math.inf, math.nan])
def test_a_value_out_of_bounds_is_a_problem(value):
    (problem,) = press(measured(value, "ms", (1, 10)))["problem"]
    assert problem.endswith("is not between 1 and 10 ms")


@pytest.mark.parametrize(
    "between", [(10, 1), (1, 1), (0, math.inf), (-math.inf, 1), (math.nan, 1), (1, math.nan)]
)
def test_bounds_that_cannot_fail_are_refused(between):
    with pytest.raises(ValueError, match="between="):
        measured(5, "ms", between)


# ---- source


def test_source_shows_what_runs_with_a_link_to_its_first_line():
    shown = source(records.cells_only, Html)
    Balanced(shown.markup)
    for thing in (records.cells_only, Html):
        line = thing.__code__.co_firstlineno if hasattr(thing, "__code__") else None
        assert f">{thing.__qualname__}</code>" in shown.markup
        if line:
            assert f'href="../lib/press/records.py#L{line}"' in shown.markup
    assert "def cells_only(record: str) -> str:" in shown.text
    assert said(shown)[0] == "> cells_only in lib/press/records.py"


@pytest.mark.parametrize(("page", "up"), [("book", "../"), ("book/refreshers", "../../")])
def test_the_link_to_source_leads_out_of_the_folder_of_the_page(page, up, tmp_path, monkeypatch):
    (tmp_path / page).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / page)
    assert f'href="{up}lib/page/tables.py#L' in source(tables.is_number).markup


def test_source_reads_back_as_the_code():
    lines = said(source(tables.is_number))
    assert lines[0] == "> is_number in lib/page/tables.py"
    assert lines[1:] == [f"> {' '.join(line.split())}" for line in source(tables.is_number).text.splitlines()]


def test_each_line_of_source_knows_where_it_goes_on():
    markup = source(tables.is_number).markup
    Balanced(markup)
    body = inspect.getsource(tables.is_number).splitlines()
    assert markup.count('class="line"') == len(body)
    deep = [len(line) - len(line.lstrip()) + (0 if '"""' in line else 4) for line in body]
    assert re.findall(r"--indent:(\d+)ch", markup) == list(map(str, deep))


def test_colours_of_source_are_variables_with_a_fallback():
    markup = source(measured).markup
    assert "#00000" not in markup
    assert "var(--code-keyword, var(--jp-mirror-editor-keyword-color, #" in markup


def test_what_has_nothing_to_tell_the_record_tells_nothing():
    assert Html("<p>1</p>", "1")._repr_mimebundle_() == ({"text/html": "<p>1</p>", "text/plain": "1"}, {})
