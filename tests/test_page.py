"""The face of `lib.page`, the wall between it and the press, and that a record says what is shown."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from lib import live, page
from lib.page import figures, form, published, source, table, world
from lib.page.checkout import strayed
from lib.page.markup import PLOTTED
from lib.press import records, run

ROOT = run.ROOT


def imported(code):
    """The modules that code imports, with what it takes from each."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# ---- the face and the wall


def test_the_face_is_what_chapters_call():
    assert page.__all__ == [
        "Html", "conclusion", "figures", "form", "measured", "published", "source", "table", "world",
    ]  # fmt: skip
    assert all(hasattr(page, name) for name in page.__all__)


@pytest.mark.parametrize("path", sorted((ROOT / "book").rglob("*.md")), ids=lambda path: path.stem)
def test_a_chapter_takes_of_the_page_its_face_and_of_the_press_nothing(path):
    if not run.is_chapter(path):
        return
    for cell in run.read(path).cells:
        code = re.sub(r"^[%!].*", "", cell.source, flags=re.M)
        for name in imported(code) if cell.cell_type == "code" else ():
            assert not re.match(r"lib\.press|tools", name)
            assert not name.startswith("lib.page") or name.removeprefix("lib.page.") in page.__all__, name


@pytest.mark.parametrize("path", [p for p in run.outside() if p.suffix == ".py"], ids=lambda path: path.stem)
def test_what_travels_imports_nothing_from_behind_the_wall(path):
    names = [*imported(path.read_text("utf8"))]
    assert not [name for name in names if re.match(r"lib\.press|tools|docutils|sphinx", name)]


def test_a_page_loads_nothing_of_the_press():
    code = "import lib.page, sys; print(*sorted(name for name in sys.modules if name.startswith('lib.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "lib.page.figures" in done.stdout
    assert "lib.press" not in done.stdout


# ---- the record of what is shown


def plot(axes):
    axes.plot([1, 10], [2, 3], label="the guide's a < b")
    axes.set(xlabel="x, ms", xscale="log", ylabel="$10^{2}$ tokens")
    axes.legend()


pair = SimpleNamespace(name="ITL", unit="ms", printed=Decimal("10.30"), predicted=5.404, why="")
SHOWN = {
    "table": lambda: table({"": ["a.b_long", "-3"], "<= 2": [0.5, None], "c": [True, '"<&>"']}, "2 x 3"),
    "figure": lambda: figures.draw(plot, "a < b", 'says "5" & <b>', {"x, ms": [1, 2.34567]}),
    "source": lambda: source(records.cells_only, page.Html),
    "comparison": lambda: published.compare("roofline", quoted=("guide_median_ttft_ms",)),
    "pairs": lambda: world.beside([pair], "Ours"),
    "set-up": lambda: world.setup("llm-d-h200", "the guide's engine"),
    **{f"form {name}": lambda name=name: form(live.calculator(name)) for name in live.NAMES},
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_record_says_what_is_shown(name):
    shown = SHOWN[name]()
    lines = [line for line in shown.press["record"].splitlines() if not line.startswith(PLOTTED)]
    said = [re.sub(r"^(title|alt|ticks|drawn): |^> ", "", line) for line in lines]
    seen = [re.sub("^(alt|ticks): ", "", line) for line in records.visible(shown.markup).splitlines()]

    def words(lines):
        return Counter(word for word in " ".join(lines).split() if word not in "|·")

    assert words(said) == words(seen)
    assert len(words(seen)) > 5


# ---- which copy of lib runs


def test_a_book_around_that_has_another_lib_is_named_with_it(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "book").mkdir()
    assert not strayed(tmp_path / "book"), "no table of contents: no book"
    (tmp_path / "_toc.yml").write_text("")
    for here in (tmp_path, tmp_path / "book"):
        complaint = strayed(here)
        assert str(ROOT / "lib") in complaint
        assert f"the book is {tmp_path.resolve()}" in complaint
        assert "\n" not in complaint
        assert not strayed(here, tmp_path / "lib")
    assert not strayed(ROOT / "book")


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Another checkout of the project, whose environment imports the `lib` of this one."""
    hidden = shutil.ignore_patterns("__pycache__")
    files = ("_toc.yml", "_config.yml", "pyproject.toml", "book/roofline.md", "tests/test_timing.py")
    for name in ("lib", *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        there = tmp_path / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, there, ignore=hidden)
        else:
            shutil.copy(ROOT / name, there)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def stops(copy, *command):
    """Run a command in the copy; return what it says on its way out, which has to name both places."""
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout + done.stderr
    assert done.returncode
    assert f"runs {ROOT / 'lib'}, but the book is {copy.resolve()}" in said
    assert "Traceback" not in said
    assert not list(copy.rglob("_build/cache/*"))
    return said


@pytest.mark.parametrize("what", ["book", "record", "check"])
def test_a_build_whose_kernels_would_run_another_lib_stops(copy, what):
    assert len(stops(copy, "-m", "lib.press.build", what).splitlines()) == 1


@pytest.mark.parametrize("what", [("tests/test_timing.py",), ("--nbmake", "book")], ids=["tests", "book"])
def test_pytest_stops_where_kernels_would_run_another_lib(copy, what):
    assert len(stops(copy, "-m", "pytest", *what).splitlines()) < 4


def test_pytest_stops_where_it_runs_another_lib_itself(copy):
    code = "import pytest, sys; sys.path.pop(0); sys.exit(pytest.main([]))"
    assert len(stops(copy, "-c", code).splitlines()) < 4


def test_a_kernel_stops_wherever_it_was_started(copy):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from lib.page import table")])
    client = NotebookClient(notebook, resources={"metadata": {"path": str(copy / "book")}})
    with pytest.raises(CellExecutionError):
        client.execute()
    (shown,) = notebook.cells[0].outputs
    assert f"runs {ROOT / 'lib'}, but the book is {copy}" in shown.evalue
    assert shown.traceback == [f"Strayed: {shown.evalue}"]


# ---- what a result depends on


def test_every_package_that_the_project_needs_is_part_of_the_fingerprint(monkeypatch):
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    needed = {re.match(r"[\w-]+", one)[0] for one in about["dependencies"]}
    assert {*run.packages()} == needed | {"pygments", "ipykernel"}
    before = run.state()
    for name in run.packages():
        monkeypatch.setattr(run, "version", lambda one, name=name: "0" if one == name else "1")
        assert run.state() != before


def test_every_file_that_a_chapter_reads_is_part_of_the_fingerprint():
    names = {path.relative_to(ROOT).as_posix() for path in run.outside()}
    assert {"lib/data/vllm/random.jsonl", "lib/data/vllm/tables.toml", "lib/page/forms.py"} <= names
    assert not any(name.startswith("lib/press/") for name in names)
