"""What a reader takes along: plain notebooks that need one wheel, and the pages as they are written."""

from __future__ import annotations

import os
import re
import symtable
import zipfile
from pathlib import Path

import nbformat
import pytest

from lib.press import downloads, run
from lib.press.address import website

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
CHAPTERS = [
    path.relative_to(BOOK).with_suffix("").as_posix()
    for path in sorted(BOOK.rglob("*.md"))
    if ".ipynb_checkpoints" not in path.parts and run.is_chapter(path)
]
MYST = re.compile(r"^(?:```|:::)\{|\{[a-z]+\}`|^\+\+\+|^:[a-z-]+: |^\(\S+\)=$|\]\(#", re.M)
QUICK = ("roofline", "vllm_rules")  # the latter reads files of the wheel
every_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


@pytest.fixture(scope="module")
def notebook(site):
    """A function that returns the notebook of a chapter as the site offers it."""
    return lambda chapter: nbformat.read(site / f"_sources/book/{chapter}.ipynb", as_version=4)


def prose(cells) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@every_chapter
def test_a_notebook_says_first_what_to_install(notebook, chapter):
    first = notebook(chapter).cells[0].source
    assert re.search(rf"^    pip install {website()}serving_taken_apart-\S+\.whl$", first, re.M)


@every_chapter
def test_a_notebook_is_valid_hides_nothing_and_needs_no_extension(notebook, chapter):
    cells = notebook(chapter).cells
    nbformat.validate(notebook(chapter))
    assert not any(cell.metadata for cell in cells)
    assert MYST.findall(prose(cells)) == []


@every_chapter
def test_a_notebook_keeps_every_figure_with_its_caption_and_every_reference(notebook, chapter):
    written, cells = (BOOK / f"{chapter}.md").read_text("utf8"), notebook(chapter).cells
    shown = [str(cell.get("outputs", "")) for cell in cells]
    drawn = [
        out
        for out in shown
        if re.search(r'<div class="figure">|image/|<img', out) and 'class="live"' not in out
    ]
    captions = re.findall(r"^\*\*Figure (\d+)\.\*\* \S", prose(cells), re.M)
    assert len(captions) == len(drawn) == len(re.findall(r"^: +name: fig-", written, re.M))
    cited = {key.strip() for keys in re.findall(r"\{cite\}`([^`]+)`", written) for key in keys.split(",")}
    listed = prose(cells).partition("## References\n")[2]
    assert listed.count("\n- ") == len(cited)
    assert all(downloads.reference(key) in listed for key in cited)


@every_chapter
def test_solutions_stand_at_the_end(notebook, chapter):
    written, cells = (BOOK / f"{chapter}.md").read_text("utf8"), notebook(chapter).cells
    count = written.count("\n#### Solution\n")
    body, _, end = prose(cells).partition("## Solutions\n")
    assert end.partition("## References\n")[0].count("\n### ") == count
    assert body.count("*The solution is at the end.*") == count


def names(code: str) -> tuple[set[str], set[str]]:
    """Return the global names that a cell binds, and those that it reads and does not bind."""
    cell = symtable.symtable(code, "cell", "exec")
    bound = {name.get_name() for name in cell.get_symbols() if name.is_assigned() or name.is_imported()}
    read, tables = {name.get_name() for name in cell.get_symbols() if name.is_referenced()}, [cell]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return bound, read - bound


@every_chapter
def test_nothing_before_the_solutions_needs_one(notebook, chapter):
    """They are computed last here, and amid the chapter on the site; the numbers are the same only then."""
    cells = notebook(chapter).cells
    ends = [i for i, cell in enumerate(cells) if cell.source == "## Solutions"]
    if not ends:
        return
    solved = {cell.source for cell in cells[ends[0] :] if cell.cell_type == "code"}
    before: set[str] = set()
    for cell in run.read(BOOK / f"{chapter}.md").cells:
        if cell.cell_type != "code":
            continue
        bound, read = names(cell.source)
        if cell.source in solved:
            before |= bound
        else:
            assert not read & before, f"{read & before} come from a solution: {cell.source[:60]}"
            before -= bound


@pytest.fixture(scope="module")
def installed(site, tmp_path_factory) -> Path:
    """A folder into which the wheel that the site offers is unpacked."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(site / downloads.wheel_name()) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_wheel_holds_what_is_outside_of_the_press_and_where_the_site_is(installed):
    inside = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    there = {path.relative_to(ROOT).as_posix() for path in run.outside()}
    assert {name for name in inside if not name.startswith("serving_taken_apart-")} == {
        *there, "lib/data/site.toml",
    }  # fmt: skip
    about = next(installed.glob("*.dist-info/METADATA")).read_text("utf8")
    needs = set(re.findall(r"^Requires-Dist: ([\w-]+)", about, re.M))
    assert needs >= {"numpy", "matplotlib"}
    assert "Requires-Python: >=3.11" in about


def text(cell) -> str:
    """Return what a cell prints, without where its source is and what this machine took."""
    shown = "".join(str(part.get("text", "") or part["data"]) for part in cell.outputs)
    return re.sub(r"figure\d+-|<figcaption>.*?</figcaption>|<p class=.measured.>.*", "", shown, flags=re.S)


@every_chapter
def test_a_notebook_computes_the_same_numbers_with_nothing_but_the_wheel(
    notebook, installed, tmp_path, monkeypatch, chapter
):
    if chapter not in QUICK and os.environ.get("CI") != "true":
        pytest.skip("all of them compute for minutes: set CI=true")
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(installed))
    given, mine = notebook(chapter), notebook(chapter)
    mine.cells.append(nbformat.v4.new_code_cell("import lib; print(lib.__file__)"))
    NotebookClient(mine, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert mine.cells[-1].outputs[0].text.startswith(str(installed))
    for cell, other in zip(given.cells, mine.cells, strict=False):
        if cell.cell_type == "code":
            assert text(cell) == text(other), cell.source
    for link in re.findall(r"<figcaption>.*?</figcaption>", str(mine.cells)):
        assert "../lib" not in link
        assert (f'href="{website()}lib/' in link) == bool(website())


@pytest.mark.parametrize("kind", ["ipynb", "md"])
def test_buttons_download_and_open_nothing(browser, site, address, kind):
    context = browser.new_context(accept_downloads=True)
    tab = context.new_page()
    tab.goto(f"{address}book/roofline.html")
    tab.locator("[popovertarget=download-buttons]").click()
    with tab.expect_download(timeout=5000) as download:
        tab.locator(f"#download-buttons a[href$='.{kind}']").click()
    assert download.value.suggested_filename == f"roofline.{kind}"
    taken = Path(download.value.path()).read_bytes()
    assert taken == (site / f"_sources/book/roofline.{kind}").read_bytes()
    context.close()


def test_where_the_site_is_known_links_lead_there(monkeypatch, site):
    monkeypatch.setenv("BOOK_URL", "https://example.org/book")
    cells = downloads.Plain(BOOK / "roofline.md").convert().cells
    assert "pip install https://example.org/book/serving_taken_apart-" in cells[0].source
    assert "(https://example.org/book/book/chunking.html)" in prose(cells)
    assert "[token](https://example.org/book/book/glossary.html#term-token)" in prose(cells)
    assert 'href="https://example.org/book/lib/roofline.html#L' in str(cells)


def test_markup_becomes_plain(site):
    plain = downloads.Plain(BOOK / "roofline.md")
    assert plain.markdown("```{admonition} Guess\n:class: guess\nOne,\nor two?\n```") == (
        "> **Guess**\n>\n> One,\n> or two?"
    )
    assert plain.markdown("```{exercise}\n:label: a\nDo.\n```") == (
        "> **Exercise**\n>\n> Do.\n>\n> *The solution is at the end.*"
    )
    assert plain.markdown("See {cite}`hickey2026,zhong2024`.") == "See (Hickey, 2026; Zhong et al., 2024)."
    assert plain.markdown("[the roofline](#fig-roofline)") == "the roofline (figure 1)"
    assert plain.markdown("[vLLM](https://vllm.ai/#a)") == "[vLLM](https://vllm.ai/#a)"
