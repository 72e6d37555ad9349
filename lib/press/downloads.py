"""Sphinx extension: the chapters as plain notebooks, and the wheel of `lib` that they need.

A chapter is written for JupyterLab with its extension for MyST. A reader's own Jupyter may lack that, so
what is downloaded is plain Markdown: nothing hidden, solutions at the end, figures and references kept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from lib.press import run
from lib.press.address import website
from lib.press.run import ROOT

WHEELS = ROOT / "_build" / "wheel"
FENCE = re.compile(
    r"^(?P<mark>`{3,}|:{3,})\{(?P<kind>\w+)\} *(?P<title>[^\n]*)\n(?P<body>.*?)^(?P=mark) *$", re.S | re.M
)
ROLE = re.compile(r"\{(term|cite)\}`([^`]+)`", re.S)
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
SOURCE = re.compile(r'<a href="(?:\.\./)+lib/([\w/]+)\.py#L(\d+)">(.*?)</a>')


# ---- a notebook


class Plain:
    """A chapter on its way to plain Markdown."""

    def __init__(self, path: Path):
        self.path, self.cited = path, dict[str, None]()
        notebook = run.executed(path)
        if notebook is None:
            raise ValueError(f"{path} was not executed; run.refresh([path]) first")
        self.notebook = notebook
        figures = [figure(cell)["name"] for cell in self.notebook.cells if figure(cell)]
        self.figures = {name: number for number, name in enumerate(figures, 1)}

    def markdown(self, text: str) -> str:
        """Return MyST without what only MyST understands."""
        text = FENCE.sub(self.block, text)
        text = ROLE.sub(self.role, text)
        return LINK.sub(self.link, text).strip()

    def block(self, match: re.Match[str]) -> str:
        """Return a directive as a quotation under its title."""
        body = re.sub(r"\A(:[\w-]+:.*\n)+\n*", "", match["body"]).strip()
        title = match["title"] if match["kind"] == "admonition" else match["kind"].capitalize()
        after = "\n\n*The solution is at the end.*" if match["kind"] == "exercise" else ""
        return "\n".join(f"> {line}".rstrip() for line in f"**{title}**\n\n{body}{after}".split("\n"))

    def role(self, match: re.Match[str]) -> str:
        """Return a term as a link to the glossary, and a citation as author and year."""
        kind, text = match[1], " ".join(match[2].split())
        if kind == "cite":
            keys = [key.strip() for key in text.split(",")]
            self.cited.update(dict.fromkeys(keys))
            return f"({'; '.join(label(key) for key in keys)})"
        shown, _, target = text.partition(" <")
        term = re.sub(r"[^a-z0-9]+", "-", (target.rstrip(">") or shown).lower()).strip("-")
        return f"[{shown}]({website()}book/glossary.html#term-{term})" if website() else shown

    def link(self, match: re.Match[str]) -> str:
        """Return a link to the page of the site, or to its notebook where the site's address is unknown."""
        words, name, anchor = match[1], match[2], match[3] or ""
        if not name and anchor[1:] in self.figures:
            return f"{words} (figure {self.figures[anchor[1:]]})"
        if not name.endswith(".md"):
            return match[0]
        page = (self.path.parent / name).resolve()
        if website():
            return f"[{words}]({website()}{page.relative_to(ROOT).with_suffix('.html').as_posix()}{anchor})"
        return f"[{words}]({page.stem}.ipynb)" if run.is_chapter(page) else words

    def convert(self) -> Any:
        """Return the notebook."""
        import nbformat

        body, solutions = self.parts()
        cells = [note(introduction(self.path)), *body]
        if solutions:
            cells += [note("## Solutions"), *solutions]
        if self.cited:
            cells.append(note("## References\n\n" + "\n".join(f"- {reference(key)}" for key in self.cited)))
        codes = 0
        for number, cell in enumerate(cells):
            cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
            if cell.cell_type == "code":
                codes += 1
                cell.execution_count = codes
                cell.outputs = [output(part, codes) for part in cell.outputs]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})

    def parts(self) -> tuple[list[Any], list[Any]]:
        """Return the cells of the chapter, and those of its solutions under the titles of their exercises."""
        body: list[Any] = []
        solutions: list[Any] = []
        title, here = "", body
        for cell in self.notebook.cells:
            if cell.cell_type == "code":
                here.append(cell)
                if shown := figure(cell):
                    caption = f"**Figure {self.figures[shown['name']]}.** {self.markdown(shown['caption'])}"
                    here.append(note(caption))
                continue
            headings = re.findall(r"^#+ +(.*)", cell.source, re.M)
            if headings == ["Solution"]:
                here = solutions
                solutions.append(note(f"### {title}"))
                continue
            if headings:
                title, here = headings[-1], body
            here.append(note(self.markdown(cell.source)))
        return body, solutions


def note(text: str) -> Any:
    """Return a Markdown cell."""
    import nbformat

    return nbformat.v4.new_markdown_cell(text)


def figure(cell: Any) -> Any:
    """Return the name and the caption of a cell's figure, if it has one."""
    return cell.metadata.get("mystnb", {}).get("figure")


def output(part: Any, number: int) -> Any:
    """Return an output of a cell as any Jupyter shows it; source is linked where it can be read."""
    if "metadata" in part:
        part.metadata = {}
    if "execution_count" in part:
        part.execution_count = number
    if html := part.get("data", {}).get("text/html"):
        link = rf'<a href="{website()}lib/\1.html#L\2">\3</a>' if website() else r"\3, line \2"
        part.data["text/html"] = SOURCE.sub(link, html)
    return part


def introduction(path: Path) -> str:
    """Return how to run a notebook."""
    page = path.relative_to(ROOT).with_suffix(".html").as_posix()
    where = f"{website()}{wheel_name()}"
    beside = "" if website() else " (the file lies beside `index.html` in the folder of the site)"
    origin = f"[the page]({website()}{page})" if website() else f"the page `{page}`"
    return (
        f"To run this notebook, install the book's models once, with Python 3.11 or newer{beside}:\n\n"
        f"    pip install {where}\n\nIt is {origin} of the book *Serving, Taken Apart*. "
        "What it shows was computed when the book was built."
    )


# ---- references


@cache
def library() -> Any:
    """Return the entries of references.bib."""
    from pybtex.database import parse_file

    return parse_file(str(ROOT / "book" / "references.bib")).entries


def bare(text: str) -> str:
    """Return BibTeX's text without its braces and accents."""
    from pybtex.richtext import Text

    return str(Text.from_latex(text))


def authors(key: str) -> list[str]:
    """Return the last names of the authors of a reference; its key in the list where it has none."""
    entry = library()[key]
    people = [bare(" ".join(person.last_names)) for person in entry.persons.get("author", ())]
    return people or [entry.fields["key"]]


def label(key: str) -> str:
    """Return author and year."""
    names = authors(key)
    many = len(names) > 2 or "others" in names
    return f"{names[0] + ' et al.' if many else ' and '.join(names)}, {library()[key].fields['year']}"


def reference(key: str) -> str:
    """Return a reference: authors, year, title, where it appeared, and a link."""
    fields = library()[key].fields
    names = authors(key)
    many = len(names) > 4 or "others" in names
    shown = f"{names[0]} et al." if many else ", ".join(names)
    places = ("journal", "booktitle", "howpublished", "note")
    where = next((f", {bare(fields[name])}" for name in places if name in fields), "")
    link = f". <{fields['url']}>" if "url" in fields else "."
    return f"{shown} ({fields['year']}). *{bare(fields['title'])}*{where}{link}"


# ---- the wheel


def project() -> dict[str, Any]:
    """Return what pyproject.toml says of the package."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"])


def wheel_name() -> str:
    """Return the file name of the wheel."""
    about = project()
    return f"{about['name'].replace('-', '_')}-{about['version']}-py3-none-any.whl"


def wheel() -> Path:
    """Return the wheel of `lib`, built where there is none of the code as it is; the network is not asked."""
    about = [path for path in map(ROOT.joinpath, ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text"))]
    about = [path for path in about if path.exists()]
    built = WHEELS / run.hashed([*run.outside(), *about], website()) / wheel_name()
    if not built.exists():
        shutil.rmtree(WHEELS, ignore_errors=True)
        built.parent.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as folder:
            build_wheel(Path(folder), about, built.parent)
    return built


def build_wheel(folder: Path, about: Iterable[Path], out: Path) -> None:
    """Copy the package into a folder, with the address of the site in it, and build its wheel from there."""
    for path in about:
        shutil.copy(path, folder)
    shutil.copytree(ROOT / "lib", folder / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "lib" / "data" / "site.toml").write_text(f'address = "{website()}"\n', "utf8")
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    early = {
        **os.environ,
        "SOURCE_DATE_EPOCH": "315532800",
    }  # the first day that a zip can name: always the same bytes
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, cwd=folder, env=early, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the wheel does not build:\n{done.stdout}{done.stderr}")


# ---- the site


def offer(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the theme offer the notebook of a chapter."""
    if doctree is not None and run.is_chapter(Path(app.env.doc2path(pagename))):
        context["ipynb_source"] = f"{pagename}.ipynb"


def write_downloads(app: Sphinx, error: Exception | None) -> None:
    """Write the wheel into the site, and the notebooks where anything that they are made of has changed."""
    import nbformat

    if error is not None or app.builder.format != "html":
        return
    out, made = Path(app.outdir), Path(app.doctreedir) / "notebooks"
    shutil.copy(wheel(), out)
    pages = [Path(app.env.doc2path(name)) for name in app.env.found_docs]
    notebooks = {path: out / "_sources" / path.relative_to(ROOT).with_suffix(".ipynb")
                 for path in pages if run.is_chapter(path)}  # fmt: skip
    about = [*run.code(), *sorted(pages), ROOT / "book" / "references.bib", ROOT / "pyproject.toml"]
    state = run.hashed(about, website())
    if made.exists() and made.read_text("utf8") == state and all(p.exists() for p in notebooks.values()):
        return
    for path, notebook in notebooks.items():
        nbformat.write(Plain(path).convert(), notebook)
    made.write_text(state, "utf8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.connect("html-page-context", offer, priority=100)
    app.connect("build-finished", write_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
