"""Chapters in JupyterLab, as on Binder: they run, keep their solutions closed, and can be changed."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest

from lib.press import run

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
PAGES = sorted(path for path in BOOK.rglob("*.md") if ".ipynb_checkpoints" not in path.parts)
CHAPTERS = [str(path.relative_to(BOOK).with_suffix("")) for path in PAGES if run.is_chapter(path)]
EDITS = {  # chapter: (what stands there, what a reader puts in its place)
    "catalogue": ("L40S.bandwidth", "H100_SXM.bandwidth"),
    "chunking": ("decode_context=8192 + 128)", "decode_context=1024)"),
    "cut_points": ("side, px = 640, 32", "side, px = 960, 32"),
    "goodput": ("SLO(ttft=2, gap=0.100)", "SLO(ttft=2, gap=0.200)"),
    "kv_dissection": ("tokens = 8192", "tokens = 4096"),
    "measured": ('"pd": counts["pd_write"]', '"pd": counts["collocated_2xtp4"]'),
    "multi_turn": ("4000, 600, 400", "4000, 800, 400"),
    "one_long_prompt": ("engine(2048 + readers)", "engine(1024 + readers)"),
    "one_tokenization": (
        "datetime(2026, 10, 4, 0, 0, 0, 300_000)",
        "datetime(2026, 10, 3, 23, 59, 59, 950_000)",
    ),
    "payload_growth": ("quality=85", "quality=60"),
    "real_tokens": (
        '"Be thorough.", "Q: what is the termination fee?"',
        '"Be concise.", "Q: what is the termination fee?"',
    ),
    "reasoning_trace": ("(8, 6, 6, 4)", "(8, 5, 7, 4)"),
    "roofline": ("prefill(QWEN2_5_7B, 8192)", "prefill(QWEN2_5_7B, 4096)"),
    "third_job": ("prompt, answer = 100_000, 1000", "prompt, answer = 10_000, 1000"),
    "three_claims": ("Weather in Paris?", "Weather in Rome?"),
    "two_pools": ("CONTEXT, TARGET = 4096", "CONTEXT, TARGET = 8192"),
    "vllm_rules": ("decode_context=8192 + 128)", "decode_context=1024)"),
}
SOURCES = "\n## Sources and checks\n"
SITE_ONLY = re.compile(r"\{(?:numref|doc|include|literalinclude|glue\S*|eval|margin|solution\S*)\}")
RAW = re.compile(r"Unknown Directive|\{[a-z][\w:-]*\}|^(?:```|:::|\+\+\+|:[a-z-]+: )|\$\$|\bfig-\w+|%s", re.M)


def source(chapter: str) -> str:
    """Return a chapter as it is written."""
    return (BOOK / f"{chapter}.md").read_text("utf8")


# ---- the form that makes it so: no browser needed


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_use_no_markup_that_only_the_site_understands(path: Path) -> None:
    assert not SITE_ONLY.findall(path.read_text("utf8")), "see CONTRIBUTING.md for what reads well in both"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_code_that_the_site_folds_is_folded_in_jupyterlab(chapter: str) -> None:
    cells = run.read(BOOK / f"{chapter}.md").cells
    folded = [cell for cell in cells if {"hide-input", "hide-cell"} & set(cell.metadata.get("tags", ()))]
    opened = [cell.source for cell in folded if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert not opened, 'add `:jupyter: {"source_hidden": true}` below the tags'


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_solution_is_a_collapsed_heading_and_ends_before_the_next_one(chapter: str) -> None:
    assert source(chapter).count("\n#### Solution\n") == source(chapter).count("{exercise}")
    inside = False
    for cell in run.read(BOOK / f"{chapter}.md").cells:
        headings = re.findall(r"^#{1,6} .*", cell.source, re.M) if cell.cell_type == "markdown" else []
        if any(heading.endswith("# Solution") for heading in headings):
            assert cell.source.strip() == "#### Solution", "the heading stands alone, between two `+++`"
            assert cell.metadata.get("jp-MarkdownHeadingCollapsed"), "the solution stands open in JupyterLab"
            inside = True
        elif headings:
            assert not inside or cell.source.lstrip().startswith("#"), f"no `+++` before {headings[0]}"
            inside = False


@pytest.mark.parametrize("chapter", [name for name in CHAPTERS if SOURCES in source(name)])
def test_sources_and_checks_are_one_collapsed_heading_at_the_end(chapter: str) -> None:
    cells = run.read(BOOK / f"{chapter}.md").cells
    (first,) = [i for i, cell in enumerate(cells) if SOURCES in f"\n{cell.source}\n"]
    assert cells[first].source.strip() == SOURCES.strip(), "the heading stands alone, between two `+++`"
    assert cells[first].metadata.get("jp-MarkdownHeadingCollapsed"), "it stands open in JupyterLab"
    prose = "\n".join(cell.source for cell in cells[first + 1 :] if cell.cell_type == "markdown")
    assert not re.search(r"^#{1,6} |\*\*(Take away|Next)", prose, re.M), "it is the end, without headings"
    before = "\n".join(cell.source for cell in cells[:first])
    assert "published.compare(" not in before, "what was published is compared in that block"
    assert "**Take away.**" in before.partition("\n## Try it\n")[0], "what to keep comes before the exercises"


def test_every_chapter_that_compares_is_changed_by_a_reader() -> None:
    compared = {chapter for chapter in CHAPTERS if "published.compare(" in source(chapter)}
    assert not compared - set(EDITS), "say in EDITS what a reader changes there"


# ---- JupyterLab itself


class Lab:
    """A JupyterLab of this environment, for this machine only, that knows no user and keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.log = folder, folder / "root", folder / "log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG"))},
            **{name: str(folder / name.lower()) for name in ("HOME", "IPYTHONDIR", "XDG_CONFIG_HOME")},
            "MPLCONFIGDIR": matplotlib.get_cachedir(),  # its list of fonts takes seconds to make
            **{f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
            **{f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def prepare(self) -> None:
        """Copy the book, and set JupyterLab up as Binder does."""
        shutil.copytree(BOOK, self.root / "book")
        environment = {**self.environment, "JUPYTERLAB_DIR": str(self.folder / "app")}
        subprocess.run(["bash", ".binder/postBuild"], cwd=ROOT, env=environment, check=True)
        tracker = self.folder / "settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
        tracker.parent.mkdir(parents=True)
        tracker.write_text('{"windowingMode": "none"}')  # a page can be looked at whole, without scrolling

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {
            "IdentityProvider.token": "",
            "LabApp.app_settings_dir": self.folder / "app" / "settings",
            "LabApp.expose_app_in_browser": True,
            "ServerApp.allow_root": True,
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.open_browser": False,
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
        }
        command = [sys.executable, "-m", "jupyterlab"]
        command += [f"--{key}={value}" for key, value in options.items()]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.address}/api/status", timeout=2).close()
                return
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text('utf8', 'replace')[-3000:]}")

    def stop(self) -> None:
        """End it, and its kernels with it."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


# each of these waits for an answer, and says what it saw if none comes
IN_TIME = """const inTime = promise => Promise.race([promise, new Promise((_, fail) => setTimeout(() => {
    const panel = jupyterapp.shell.currentWidget, kernel = panel?.sessionContext?.session?.kernel;
    const counts = panel?.content?.model?.toJSON().cells.map(cell => cell.execution_count);
    const dialogs = [...document.querySelectorAll('.jp-Dialog')].map(dialog => dialog.innerText);
    fail(new Error(JSON.stringify([panel?.id, kernel?.status, kernel?.connectionStatus, counts, dialogs])));
}, 120000))]);"""
OPEN = f"""async ([path, shouldStart]) => {{
    {IN_TIME}
    const kernelPreference = shouldStart ? {{}} : {{shouldStart}};
    const panel = await inTime(jupyterapp.commands.execute('docmanager:open', {{path, kernelPreference}}));
    if (!panel.hasClass('jp-NotebookPanel')) throw new Error(`${{path}} opens as ${{panel.node.className}}`);
    panel.addClass('current');
    jupyterapp.shell.activateById(panel.id);
    await inTime(panel.context.ready);
    if (!shouldStart) return;
    await inTime(panel.sessionContext.ready);
    await inTime(panel.sessionContext.session.kernel.info);
}}"""
RUN = f"""async () => {{
    {IN_TIME}
    await inTime(jupyterapp.commands.execute('notebook:run-all-cells'));
    const {{cells}} = jupyterapp.shell.currentWidget.content.model.toJSON();
    return cells.filter(cell => cell.cell_type === 'code');
}}"""
CHANGE = """([before, after]) => {
    const cells = jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.sharedModel);
    const found = cells.filter(cell => cell.cell_type === 'code' && cell.source.includes(before));
    found.forEach(cell => cell.setSource(cell.source.replaceAll(before, after)));
    return found.length;
}"""
CLOSE = """() => {  // the kernel ends while the next chapter opens
    const panel = jupyterapp.shell.currentWidget;
    panel.removeClass('current');
    panel.context.model.dirty = false;
    panel.sessionContext.shutdown().then(() => panel.dispose());
}"""
ASK = """async panel => {  // of each solution: was it seen before, is it after, how many are closed still
    const closed = () => [...panel.querySelectorAll('.jp-MarkdownHeadingCollapsed')], seen = [];
    for (const heading of closed()) {
        const answer = heading.nextElementSibling, before = answer.checkVisibility(), end = Date.now() + 5000;
        heading.querySelector('.jp-showHiddenCellsButton').click();
        while (!answer.checkVisibility() && Date.now() < end) await new Promise(requestAnimationFrame);
        seen.push([before, answer.checkVisibility(), closed().length]);
    }
    return seen;
}"""
RENDERED = """() => [...document.querySelectorAll('.jp-NotebookPanel.current .jp-MarkdownCell')]
    .filter(cell => cell.checkVisibility())
    .every(cell => cell.querySelector('.myst')?.innerText.trim())"""
TEXT = "cells => cells.filter(cell => cell.checkVisibility()).map(cell => cell.innerText).join('\\n')"
CLOSED = ".jp-MarkdownHeadingCollapsed"
WIDTHS = "all => all.filter(plot => plot.checkVisibility()).map(plot => plot.getBoundingClientRect().width)"


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory) -> Iterator:
    """JupyterLab, open in a page that notes whom it asks."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.prepare()
    lab.start()
    lab.page = browser.new_context(viewport={"width": 1280, "height": 400}).new_page()
    lab.asked = set()
    lab.page.on("request", lambda request: lab.asked.add(request.url))
    lab.page.goto(f"{lab.address}/lab?reset")
    lab.page.wait_for_selector(".jp-Launcher, .jp-LauncherBody", timeout=120_000)
    yield lab
    lab.page.context.close()
    lab.stop()


class Notebook:
    """A chapter, opened as its default viewer does; with a kernel where its cells are going to run."""

    def __init__(self, lab: Lab, chapter: str) -> None:
        self.lab, self.chapter = lab, chapter
        lab.page.evaluate(OPEN, [f"book/{chapter}.md", chapter in EDITS])
        self.panel = lab.page.locator(".jp-NotebookPanel.current")
        lab.page.wait_for_function(RENDERED)
        self.closed = self.panel.locator(CLOSED).count()

    def run(self) -> list[dict]:
        """Run all cells; return the code cells."""
        return self.lab.page.evaluate(RUN)

    def close(self) -> None:
        """Close it without saving."""
        self.lab.page.evaluate(CLOSE)


def complaints(cells: list[dict]) -> list[str]:
    """Return what went wrong in which cell."""
    return [
        f"{cell['source'][:60]!r}: {output.get('ename', '')} {output.get('evalue', output.get('text'))}"
        for cell in cells
        for output in cell["outputs"]
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]


@pytest.fixture(scope="module", params=CHAPTERS)
def notebook(request, lab) -> Iterator:
    """Each chapter in turn; where a reader changes something, with that change and all cells run.

    Unchanged the cells of every chapter run under nbmake, in the same kernel.
    """
    notebook = Notebook(lab, request.param)
    if request.param in EDITS:
        assert lab.page.evaluate(CHANGE, list(EDITS[request.param]))
        notebook.cells = notebook.run()
    yield notebook
    notebook.close()


changed = pytest.mark.parametrize("notebook", EDITS, indirect=True)


@changed
def test_a_chapter_opens_as_a_notebook_and_runs(notebook) -> None:
    assert [cell["execution_count"] for cell in notebook.cells] == list(range(1, len(notebook.cells) + 1))
    assert not complaints(notebook.cells)


def test_nobody_else_is_asked(notebook) -> None:
    own = (notebook.lab.address, notebook.lab.address.replace("http", "ws"), "data:", "blob:")
    assert not [url for url in notebook.lab.asked if not url.startswith(own)]


def test_no_markup_is_left_to_be_seen(notebook) -> None:
    text = notebook.panel.locator(".jp-MarkdownCell").evaluate_all(TEXT)
    assert re.search(r"^# (.*)", source(notebook.chapter), re.M)[1] in text
    assert not RAW.findall(text)


def test_links_to_other_pages_lead_there(notebook) -> None:
    links = notebook.panel.locator(".jp-MarkdownCell a").evaluate_all("links => links.map(link => link.href)")
    files = [re.split(r"[?#]", link)[0].partition("/files/")[2] for link in links if "/files/" in link]
    assert not [name for name in files if not (notebook.lab.root / name).is_file()]


@changed
def test_figures_are_seen(notebook) -> None:
    drawn = sum('<svg class="plot"' in str(cell["outputs"]) for cell in notebook.cells)
    widths = notebook.panel.locator(".jp-OutputArea svg.plot").evaluate_all(WIDTHS)
    closed = notebook.panel.locator(".jp-Cell.lm-mod-hidden svg.plot").count()
    assert len(widths) + closed == drawn
    assert all(width > 300 for width in widths)


def test_solutions_and_sources_stay_closed_until_they_are_asked_for(notebook) -> None:
    closed = notebook.panel.locator(CLOSED)
    text = source(notebook.chapter)
    assert notebook.closed == text.count("\n#### Solution\n") + text.count(SOURCES)
    count = notebook.closed - (SOURCES in text and notebook.chapter in EDITS)  # running all ends in the last
    assert closed.count() == count
    if count:  # the first with the mouse, for it is to be reached by one
        answer = closed.first.evaluate_handle("heading => heading.nextElementSibling")
        assert not answer.is_visible()
        closed.first.locator(".jp-showHiddenCellsButton").click()
        answer.wait_for_element_state("visible", timeout=5000)
        assert closed.count() == count - 1
    assert notebook.panel.evaluate(ASK) == [[False, True, left] for left in reversed(range(count - 1))]


@changed
def test_a_reader_who_changes_a_number_is_not_stopped_and_sees_what_moved(notebook) -> None:
    assert not complaints(notebook.cells)
    compared = notebook.panel.locator(".jp-OutputArea table", has_text="published figures")
    verdicts = compared.locator("caption").all_inner_texts()
    assert any(not re.search(r"\b0 of them different", verdict) for verdict in verdicts)
    assert compared.locator("td", has_text="differs").count()
