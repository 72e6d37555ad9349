"""Records: what of a cell's output they hold, that any change of a digit is found, and what none can hold."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook, new_output

from lib.page import figures, measured, source, table
from lib.page.published import compare
from lib.press import records


def shown(obj):
    """The output of a cell that ends with an object of the press."""
    data, metadata = obj._repr_mimebundle_() if not isinstance(obj._repr_mimebundle_(), dict) else (obj, {})
    return new_output("execute_result", data, metadata=metadata)


def html(markup):
    return new_output("display_data", {"text/html": markup, "text/plain": "<hidden>"})


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def cell(*outputs, code="f(1)", tags=()):
    return new_code_cell(code, outputs=list(outputs), metadata={"tags": list(tags)} if tags else {})


def body(*outputs, **more):
    lines = records.cell_text(cell(*outputs, **more)).splitlines()
    assert lines[:1] in ([], [">>> f(1)"])
    assert all(line.startswith("    ") for line in lines[1:])
    return [line[4:] for line in lines[1:]]


# ---- cells


def test_a_cell_is_its_first_line_with_its_output_indented():
    assert (
        records.cell_text(cell(printed("a 1\n\n  b 2  \n"), code="\nx = 1\ny"))
        == ">>> x = 1\n    a 1\n      b 2\n"
    )


def test_a_cell_that_shows_nothing_leaves_no_line():
    assert records.cell_text(cell()) == ""
    assert records.cell_text(cell(printed("\n"))) == ""


@pytest.mark.parametrize("tag", ["remove-cell", "remove_cell", "remove-output", "remove_output"])
def test_what_the_page_leaves_out_is_not_recorded(tag):
    assert body(printed("1"), tags=[tag]) == []


@pytest.mark.parametrize("tag", ["hide-input", "hide-output", "hide-cell", "remove-input"])
def test_what_the_page_only_folds_is_recorded(tag):
    assert body(printed("1"), tags=[tag]) == ["1"]


@given(st.lists(st.sampled_from(["7", "24", "\n", " ms", "x"]), max_size=12))
def test_a_stream_reads_the_same_wherever_the_kernel_cut_it(pieces):
    assert body(*map(printed, pieces)) == body(printed("".join(pieces)))


def test_outputs_of_several_kinds_keep_their_order():
    result = new_output("execute_result", {"text/plain": "3"})
    assert body(printed("1\n"), html("<p>2</p>"), result, printed("4")) == ["1", "2", "3", "4"]


def test_stderr_is_not_recorded_because_the_site_leaves_it_out():
    config = (records.BOOK.parent / "_config.yml").read_text("utf8")
    assert re.search(r"^\s+nb_output_stderr: remove\b", config, re.M)
    assert body(printed("5", "stderr")) == []


def test_an_error_is_recorded():
    assert body(new_output("error", ename="ValueError", evalue="no 5", traceback=[])) == ["ValueError: no 5"]


def test_addresses_of_objects_are_masked_and_hashes_are_not():
    assert body(printed("<lib.Model object at 0x7f3a5c001234>\n")) == ["<lib.Model object at 0x…>"]
    assert body(printed("0x9b8c06c7")) == ["0x9b8c06c7"]


def test_html_is_recorded_as_it_looks_before_any_plainer_form():
    assert body(html("<b>12</b> ms")) == ["12 ms"]
    assert body(new_output("display_data", {"text/markdown": "**3**", "text/plain": "4"})) == ["**3**"]


# ---- HTML


@pytest.mark.parametrize(
    ("markup", "lines"),
    [
        ("<table><tr><th>a</th><td>1</td></tr><tr><th>b</th>\n<td>2</td></tr></table>", ["a | 1", "b | 2"]),
        ("<table><caption>4 rows</caption></table>", ["4 rows"]),
        ("<ul><li>5</li><li>6</li></ul><dl><dt>7</dt><dd>8</dd></dl><h3>9</h3>", ["5", "6", "7", "8", "9"]),
        ("1<br>2<br/>3", ["1", "2", "3"]),
        ("<em>1</em>2<code>3</code>", ["123"]),
        ("10<sup>9</sup> B", ["10^9 B"]),
        ("&#53;&nbsp;ms &lt;6&gt;", ["5 ms <6>"]),
        ("<script>1</script><style>2</style><!-- 3 -->4", ["4"]),
        ('<abbr title="about 5 s">TTFT</abbr>', ["alt: about 5 s", "TTFT"]),
        ('<img src="x" alt="rises to 6">', ["alt: rises to 6"]),
        ('<input value="7"><span aria-label="8 ms"></span>', ["alt: 7", "alt: 8 ms"]),
        ('<div role="group" aria-label="Table: a">1</div>', ["1"]),
        ("<details><summary>More 1</summary>2</details>", ["More 1", "2"]),
    ],
)
def test_visible_text_of_html(markup, lines):
    assert records.visible(markup).splitlines() == lines


def test_a_text_in_foreign_svg_is_a_line_and_what_it_defines_is_not_shown():
    note = "<g><text>ridge: <tspan>419</tspan></text><title>at 5</title></g>"
    defined = "<defs><text>6</text></defs>"
    text = records.visible(f'<svg aria-label="up to 7">{defined}{note}<path d="M 1 2"/></svg>')
    assert text.splitlines() == ["alt: up to 7", "ridge: 419", "at 5"]


# ---- objects of lib.page


def test_a_table_is_recorded_by_its_rows():
    assert body(shown(table({"rate": [0.2, 1], "time, ms": [1234, None]}, "Two rates"))) == [
        "Two rates", "rate | time, ms", "0.2 | 1,234", "1 | –"
    ]  # fmt: skip


def test_a_measurement_is_recorded_by_its_bounds_only():
    assert body(shown(measured(3.21, "ms", (1, 10), "render"))) == [
        "render: measured here, plausible from 1 to 10 ms"
    ]


def test_shown_source_is_marked_as_code():
    assert body(shown(source(records.cells_only)))[0] == "> cells_only in lib/press/records.py"


def test_what_a_figure_plots_is_recorded():
    plotted = figures.draw(lambda axes: axes.plot([1, 3], [2, 4]), "T", "A", {"x": [1]})
    assert body(shown(plotted))[-1] == "plotted: line 1 2, 3 4"


# ---- drift


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "BOOK", tmp_path)
    monkeypatch.setattr(records, "RECORDS", tmp_path / "printed")
    return tmp_path / "part" / "page.md"


RECORD = """## A title with 2 words
~ 24.5 ms · p99
>>> f(1)
    total 1,024
    alt: rises to 7
    drawn: 10 · ridge: 419
    a | 0.1
allowed: 16 bits
"""


def test_a_record_stands_under_printed_at_the_place_of_its_page(page):
    records.write(page, RECORD)
    assert (page.parents[1] / "printed" / "part" / "page.txt").read_text("utf8") == RECORD
    assert records.drift(page, RECORD) == ""


@pytest.mark.parametrize("place", [m.start() for m in re.finditer(r"\d", RECORD)])
@pytest.mark.parametrize("step", [1, 9])
def test_any_digit_that_changes_is_a_drift(page, place, step):
    records.write(page, RECORD)
    other = RECORD[:place] + str((int(RECORD[place]) + step) % 10) + RECORD[place + 1 :]
    line = other[: place + 1].count("\n")
    found = records.drift(page, other)
    assert f"-{RECORD.splitlines()[line]}\n" in found
    assert f"+{other.splitlines()[line]}\n" in found


@pytest.mark.parametrize("line", range(len(RECORD.splitlines())))
def test_a_line_that_goes_or_comes_is_a_drift(page, line):
    records.write(page, RECORD)
    lines = RECORD.splitlines(True)
    assert records.drift(page, "".join(lines[:line] + lines[line + 1 :]))
    assert records.drift(page, "".join([*lines[: line + 1], *lines[line:]]))


def test_a_page_without_a_record_drifts(page):
    assert records.drift(page, RECORD)


def test_pytest_compares_the_cells_alone(page):
    records.write(page, RECORD)
    note = new_notebook(
        cells=[cell(printed("total 1,024\nalt: rises to 7\ndrawn: 10 · ridge: 419\na | 0.1"))]
    )
    assert records.drift(page, records.printed(note), part=True) == ""
    note.cells[0].outputs[0].text = note.cells[0].outputs[0].text.replace("419", "418")
    assert "ridge: 418" in records.drift(page, records.printed(note), part=True)


# ---- problems


def test_stated_problems_are_found_in_hidden_cells_too():
    late = cell(shown(measured(11, "ms", (1, 10))), tags=["remove-cell"])
    assert list(records.problems(new_notebook(cells=[cell(printed("1")), late]))) == [
        "11 ms is not between 1 and 10 ms"
    ]


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        ({"image/png": "", "text/plain": "<Figure>"}, "image/png"),
        ({"image/svg+xml": "<svg/>", "text/plain": ""}, "image/svg+xml"),
        ({"text/latex": "$5$", "text/plain": "5"}, "text/latex"),
        ({"application/javascript": "x", "text/html": "5"}, "application/javascript"),
    ],
)
def test_an_output_that_no_record_can_hold_is_a_problem(data, mime):
    (found,) = records.problems(new_notebook(cells=[cell(new_output("display_data", data))]))
    assert mime in found


def test_html_text_and_markdown_are_no_problem():
    fine = [html("<p>1</p>"), printed("2"), new_output("display_data", {"text/markdown": "3"})]
    fine.append(new_output("display_data", {"text/html": "4", "image/png": ""}))  # the page shows the first
    assert list(records.problems(new_notebook(cells=[cell(*fine)]))) == []


# ---- claims


def test_claims_are_read_from_the_tables_of_a_record():
    nested = {"short_prompts_req_per_s": {"one_image": [23, 24], "four_images": [6, 12]}}
    tables = shown(compare("measured.epd", **nested)), shown(compare("roofline", ridge_flops_per_byte=418.9))
    record = "## x\n" + records.cell_text(cell(*tables)) + "~ 1\n>>> g()\n    other | 5\n"
    assert list(records.claims(record)) == [
        "measured.epd.short_prompts_req_per_s.one_image",
        "measured.epd.short_prompts_req_per_s.four_images",
        "roofline.ridge_flops_per_byte",
    ]


def test_allowances_are_read_from_a_record():
    assert list(records.allowances(RECORD)) == ["16 bits"]


def test_the_folder_of_the_records_is_the_project_s():
    assert records.record_of(records.BOOK / "roofline.md") == Path(records.RECORDS, "roofline.txt")
