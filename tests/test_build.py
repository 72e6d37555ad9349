"""Building the book: what is executed when, and what becomes of a mistake; on a small book of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.press import run

ROOT = Path(__file__).parents[1]
HEADER = (ROOT / "book" / "roofline.md").read_text("utf8").partition("\n\n")[0]
CHAPTER = """{header}

# How much is it?

One multiplication says it.

```{{code-cell}}
import os
with open(os.environ["EXECUTED"], "a") as sheet:
    print("{name}", file=sheet)
```

```{{code-cell}}
{code}
print(f"{{answer}} tokens")
```

So it is {answer} tokens.
"""
TINY = '''"""A model."""

from importlib.resources import files

SIX = 6


def eleven():
    return int(files("lib.data").joinpath("tiny.csv").read_text())
'''
CODE = {
    "one": "from lib.tiny import SIX\nanswer = SIX * 7",
    "two": "from lib.tiny import eleven\nanswer = 4 * eleven()",
}
ANSWERS = {"one": 42, "two": 44}


class Project:
    """A copy of the project with a book of two chapters."""

    def __init__(self, root: Path) -> None:
        self.root, self.executed = root, root / "executed.log"
        for name in ("lib", "book/_assets"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("_config.yml", "pyproject.toml", "README.md", "book/references.bib"):
            shutil.copy(ROOT / name, root / name)
        chapters = "- file: book/one\n- file: book/two\n"
        self.write("_toc.yml", f"format: jb-book\nroot: book/intro\nchapters:\n{chapters}")
        self.write("book/intro.md", "# A small book\n\nIt has chapters.\n")
        self.write("book/printed/allowed.toml", "")
        self.write("lib/tiny.py", TINY)
        self.write("lib/data/tiny.csv", "11\n")
        for name, code in CODE.items():
            text = CHAPTER.format(header=HEADER, name=name, code=code, answer=ANSWERS[name])
            self.write(f"book/{name}.md", text)
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "BOOK_RECORD"},
            "PYTHONPATH": str(root),
            "EXECUTED": str(self.executed),
        }

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf8")

    def change(self, name: str, before: str, after: str) -> None:
        """Put something else in the place of what stands in a file."""
        text = (self.root / name).read_text("utf8")
        assert before in text
        self.write(name, text.replace(before, after))

    def call(self, *command: str) -> subprocess.CompletedProcess:
        """Run a Python command in the project; `ran` are the chapters that it executed."""
        self.executed.write_text("")
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        done.ran = sorted(self.executed.read_text("utf8").split())
        return done

    def make(self, what: str = "book") -> subprocess.CompletedProcess:
        """Do what `make book` or `make record` do."""
        return self.call("-m", "lib.press.build", what)

    def page(self, name: str) -> str:
        """Return a page of the site."""
        return (self.root / f"_build/html/book/{name}.html").read_text("utf8")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Project:
    """The project, recorded and built."""
    project = Project(tmp_path_factory.mktemp("project"))
    done = project.make("record")
    assert done.returncode == 0, done.stderr
    assert done.ran == ["one", "two"]
    return project


@pytest.fixture
def project(built) -> Iterator[Project]:
    """The same; whatever a test changes is put back after it."""
    names = ("_toc.yml", "book/one.md", "book/two.md", "lib/tiny.py", "lib/data/tiny.csv")
    kept = {name: (built.root / name).read_text("utf8") for name in names}
    yield built
    for name, text in kept.items():
        built.write(name, text)


def test_a_second_build_executes_nothing_and_says_where_the_book_is(project) -> None:
    notebook = project.root / "_build/html/_sources/book/one.ipynb"
    written = notebook.stat().st_mtime_ns
    done = project.make()
    assert (done.returncode, done.ran) == (0, [])
    assert notebook.stat().st_mtime_ns == written
    assert str(project.root / "_build/html/index.html") in done.stdout
    assert "make serve" in done.stdout
    assert "42 tokens" in project.page("one")


def test_an_edit_in_a_chapter_executes_that_chapter_alone(project) -> None:
    project.change("book/one.md", "answer = SIX * 7", "answer = 7 * SIX")
    done = project.make()
    assert (done.returncode, done.ran) == (0, ["one"])
    project.change("book/two.md", "One multiplication says it.", "A product says it.")
    done = project.make()
    assert (done.returncode, done.ran) == (0, [])
    assert "A product says it." in project.page("two")
    assert "A product says it." in (project.root / "_build/html/_sources/book/two.ipynb").read_text("utf8")


def test_an_edit_in_lib_executes_every_chapter(project) -> None:
    project.change("lib/tiny.py", "A model.", "The model.")
    done = project.make()
    assert (done.returncode, done.ran) == (0, ["one", "two"])


def test_what_ran_while_lib_was_edited_is_not_kept(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.setattr(run, "fingerprint", lambda: "before the edit")
    with pytest.raises(run.ChapterError, match=r"roofline.md: lib or its data changed while chapters ran"):
        run.keep(ROOT / "book" / "roofline.md", run.read(ROOT / "book" / "roofline.md"), 0)
    assert not list(tmp_path.iterdir())


def test_an_edit_around_the_chapters_executes_none_and_is_seen(project) -> None:
    project.change("lib/press/templates/layout.html", " · {{ docstitle", " | {{ docstitle")
    done = project.make()
    assert (done.returncode, done.ran) == (0, [])
    assert "<title>How much is it? | " in project.page("one")
    project.change("lib/press/templates/layout.html", " | {{ docstitle", " · {{ docstitle")


@pytest.mark.parametrize("jupyter_book", [False, True], ids=["make book", "jupyter-book"])
def test_a_number_that_moved_stops_every_build_until_it_is_reviewed(project, jupyter_book: bool) -> None:
    command = ("-m", "lib.press.build", "book")
    if jupyter_book:
        command = ("-c", "from jupyter_book.cli.main import main; main()", "build", ".")
    project.change("lib/data/tiny.csv", "11", "12")
    for _ in range(2):
        done = project.call(*command)
        assert done.returncode != 0
        assert "-    44 tokens" in done.stdout + done.stderr
        assert "+    48 tokens" in done.stdout + done.stderr
        assert "44 tokens" in project.page("two")


def test_a_numeral_in_the_prose_that_nothing_shows_stops_the_build(project) -> None:
    project.change("book/one.md", "So it is 42", "So it is 43")
    done = project.make()
    assert done.returncode != 0
    assert "43 is in no output here" in done.stderr


def test_a_broken_chapter_is_named_with_its_cell_and_the_last_site_stays(project) -> None:
    project.change("book/two.md", "answer = 4 *", "answer = missing *")
    done = project.make()
    assert done.returncode != 0
    assert "two.md, code cell 2" in done.stderr
    assert "NameError: name 'missing' is not defined" in done.stderr
    assert "Traceback" not in done.stderr
    assert "44 tokens" in project.page("two")


def test_a_warning_stops_every_build(project) -> None:
    project.change("book/one.md", "One multiplication", "As [elsewhere](nowhere.md), one multiplication")
    for _ in range(2):
        done = project.make()
        assert done.returncode != 0
        assert "one.md" in done.stderr
        assert "nowhere.md" in done.stderr
        assert "elsewhere" not in project.page("one")


def test_a_chapter_shows_the_first_paragraph_of_a_refresher_in_a_closed_block(project) -> None:
    box = "```{admonition} Refresher\n:class: refresher\n[How much](two.md)\n```"
    project.change("book/one.md", "One multiplication says it.", f"Look there.\n\n{box}")
    for first in ("A product says it.", "A sum says it."):  # the page that is asked is the only source
        text = (project.root / "book/two.md").read_text("utf8")
        project.write("book/two.md", re.sub(r"(One multiplication|A product) says it\.", first, text))
        done = project.make()
        assert done.returncode == 0, done.stderr
        (block,) = re.findall(r"<details[^>]*refresher.*?</details>", project.page("one"), re.S)
        assert "<summary>Refresher: How much is it?</summary>" in block
        assert f"<p>{first}</p>" in block
        assert 'href="two.html"' in block


def test_a_page_that_leaves_the_book_leaves_the_site(project) -> None:
    project.change("_toc.yml", "- file: book/two\n", "")
    done = project.make()
    assert (done.returncode, done.ran) == (0, [])
    assert not (project.root / "_build/html/book/two.html").exists()


def test_nbmake_compares_too_and_leaves_nothing_to_execute_again(project) -> None:
    project.change("lib/tiny.py", "A model.", "Some model.")
    project.change("lib/data/tiny.csv", "11", "12")
    done = project.call("-m", "pytest", "--nbmake", "book", "-p", "no:cacheprovider")
    assert done.ran == ["one", "two"]
    assert "1 failed, 1 passed" in done.stdout
    assert "+    48 tokens" in done.stdout
    done = project.make()
    assert done.returncode != 0
    assert done.ran == ["two"]  # what failed is not kept


def test_a_kernel_that_dies_at_its_start_is_started_once_more(monkeypatch):
    started = []

    class Dies:
        def __init__(self, notebook, **_):
            started.append(notebook)

        def execute(self):
            if len(started) < 2:
                raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr("nbclient.NotebookClient", Dies)
    notebook, _ = run.execute(run.ROOT / "book" / "roofline.md")
    assert [notebook is one for one in started] == [False, True]
