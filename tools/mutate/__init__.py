"""`make mutate`: how many one-digit slips would the book's own checks catch?

A seeded sample of mutants, equally from data files, constants in `lib`, prose and records; each changes
the last digit of one numeral by one. And of conclusions, of which each turns one round: more and fewer, at
least and at most, which rival, which GPU, in the sentence or in what is asked of a world.

A mutant is caught when something that can depend on it fails: the cells of a page print something else
than their record, state a problem or raise; a page says something else than its record or something
unsupported; or, for a constant, tests that call it fail. Only that much is run, the quickest first, in
processes forked from a warm one, each mutant in a copy of the project.

A mutant that is not caught by what runs in `BUDGET` seconds counts as a survivor, though something slower
might have caught it: the share can only come out too low. Every survivor is printed.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import fcntl
import functools
import gc
import json
import math
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, process_time
from typing import Any

import pytest

from lib.page import published
from lib.press import contents, inprocess, records, run
from tools.mutate import numerals

KINDS = ("data", "lib", "prose", "records", "conclusions")
ENOUGH, ENOUGH_TURNED = 0.98, 0.95  # of all, and of the conclusions
BUDGET = 25.0  # seconds of computing, as measured on the unchanged project
WARM = (
    "IPython.core.interactiveshell", "PIL.Image", "anyio.pytest_plugin", "jinja2",
    "matplotlib.backends.backend_svg", "matplotlib.figure", "myst_nb.sphinx_", "nbformat.v4", "numpy",
    "pygments.formatters", "lib.page.figures", "lib.press.plugin",
)  # fmt: skip

HOME = f"{run.ROOT / 'lib'}{os.sep}"
KEPT: list[tuple[Path, Any]] = []  # the chapters that this process has run


@dataclass(frozen=True)
class Mutant:
    """A file of the project with one digit changed, or one word or sign of a conclusion."""

    kind: str
    path: str
    place: int  # where it stands, in characters
    old: str
    new: str
    line: int
    text: str  # the line as it was
    cells: bool = False  # prose that a cell says: the cells have to be run

    def after(self, whole: str) -> str:
        """Return the file's text with that changed."""
        end = self.place + len(self.old)
        assert whole[self.place : end] == self.old
        return whole[: self.place] + self.new + whole[end:]


@dataclass
class Verdict:
    """What caught a mutant, or nothing."""

    mutant: Mutant
    by: str = ""
    ran: dict[str, float] = field(default_factory=dict)  # step -> seconds of computing
    left: list[str] = field(default_factory=list)  # what there was no time for


# ---- the sample


def candidates(root: Path, kind: str, read: set[str]) -> Iterator[tuple[str, int, bool]]:
    """Yield (path, place, cells) for each place that a mutant of the kind can change.

    read: the data files that pages read; of `published.toml` only sections that they claim are taken.
    """
    if kind == "data":
        claimed = {c.partition(".")[0] for p in printed(root) for c in records.claims(p.read_text("utf8"))}
        for path in sorted([*(root / "lib" / "data").glob("*.toml"), *(root / "book").glob("*.bib")]):
            name, text = path.relative_to(root).as_posix(), path.read_text("utf8")
            places = numerals.in_bibtex(text) if path.suffix == ".bib" else iter(())
            if name in read:
                places = numerals.in_toml(text, claimed if path.name == "published.toml" else None)
            yield from ((name, place, False) for place in places)
    elif kind == "lib":
        for path in models(root):
            for place in numerals.in_python(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, False
    elif kind == "prose":
        for path in (root / "book" / f"{name}.md" for name in contents.chapters(root)):
            for place, cells in numerals.in_prose(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, cells
    elif kind == "conclusions":
        for path in (root / "book" / f"{name}.md" for name in contents.chapters(root)):
            for place in numerals.in_conclusions(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, True
    else:
        for path in printed(root):
            for place in numerals.last_digits(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, False


def sample(root: Path, count: int, seed: int, read: set[str]) -> list[Mutant]:
    """Return so many mutants, equally of each kind as far as there are."""
    found = []
    for number, kind in enumerate(KINDS):
        dice, all_ = random.Random(f"{seed} {kind}"), sorted(set(candidates(root, kind, read)))
        for path, place, cells in dice.sample(all_, min(len(all_), (count + number) // len(KINDS))):
            found.append(mutant(root, kind, path, place, dice.choice((-1, 1)), cells))
    return found


def mutant(root: Path, kind: str, path: str, place: int, step: int, cells: bool = False) -> Mutant:
    """Return the mutant that moves one digit by a step of 1 or -1, the other way at 9 and at 0.

    Of a conclusion it turns what stands there round, whatever the step.
    """
    text = (root / path).read_text("utf8")
    if kind == "conclusions":
        old, new = numerals.turned(text, place)
    else:
        digit = int(text[place])
        old, new = str(digit), str(digit + step if 0 <= digit + step <= 9 else digit - step)
    line = text.count("\n", 0, place) + 1
    return Mutant(kind, path, place, old, new, line, text.splitlines()[line - 1].strip(), cells)


def models(root: Path) -> list[Path]:
    """Return the modules that compute: all of `lib` but what shows, checks and builds pages."""
    around = {root / "lib" / "page", root / "lib" / "press"}
    return sorted(path for path in (root / "lib").rglob("*.py") if not around & {*path.parents})


def printed(root: Path) -> list[Path]:
    """Return the records."""
    return sorted((root / "book" / "printed").rglob("*.txt"))


# ---- what can depend on a mutant


@dataclass(frozen=True)
class Seen:
    """What one step touched when it ran on the unchanged project, and for how long it ran."""

    seconds: float
    functions: frozenset[tuple[str, int]] = frozenset()  # path and line of each function called
    files: frozenset[str] = frozenset()  # modules of lib imported, and data files read
    sections: frozenset[str] = frozenset()  # of published.toml
    start: float = 0.0  # seconds before a test: to import its file, and for what tests of it share


def steps(root: Path, one: Mutant, seen: dict[str, Seen]) -> tuple[dict[str, float], list[str]]:
    """Return what to run for a mutant, the quickest first, with its seconds; and what `BUDGET` leaves out.

    A step is "cells PAGE", "page PAGE" or "test FILE::TEST FILE::TEST ...". Where single tests of a file call
    the function, the rest of that file comes last: what one test called may be kept for another.
    """
    found = depend(root, one, seen)
    tests = {name: name.partition("::")[0] for name in seen if "::" in name}  # test -> its file
    names = {*found, *(test for test, file in tests.items() if file in found)} - {*tests.values()}
    some = {tests[name] for name in found if name in tests}
    rest = {name for name, file in tests.items() if file in some} - {*found}
    chosen: dict[tuple[bool, str], dict[str, float]] = {}
    left, total = [], 0.0
    alone = {name: seen[name].start + seen[name].seconds for name in names}
    for name in sorted(names, key=lambda name: (name in rest, alone[name], name)):
        group = (name in rest, tests.get(name, name))
        seconds = seen[name].seconds if group in chosen else alone[name]
        if total and total + seconds > BUDGET:
            left.append(name)
        else:
            total += seconds
            chosen.setdefault(group, {})[name] = seconds
    cost = {group: math.fsum(parts.values()) for group, parts in chosen.items()}
    order = sorted(chosen, key=lambda group: (group[0], cost[group]))
    return {re.sub(" test ", " ", " ".join(chosen[group])): cost[group] for group in order}, left


def depend(root: Path, one: Mutant, seen: dict[str, Seen]) -> list[str]:
    """Return what can depend on a mutant: pages, files of tests, and single tests."""
    if one.kind == "records":
        return [f"page {Path(one.path).relative_to('book/printed').with_suffix('').as_posix()}"]
    if one.kind in ("prose", "conclusions"):
        page = Path(one.path).relative_to("book").with_suffix("").as_posix()
        return [f"{'cells' if one.cells else 'page'} {page}"]
    text = (root / one.path).read_text("utf8")
    if one.path.endswith(".bib"):
        return [name for name in seen if name[:4] == "page" and "{bibliography}" in source_of(root, name)]
    if one.path.endswith("published.toml"):
        section = re.findall(r'^\[+"?([^\].\"]+)', "".join(text.splitlines(True)[: one.line]), re.M)[-1]
        return [name for name in seen if section in seen[name].sections]
    if one.kind == "data":
        return [name for name in seen if one.path in seen[name].files]
    line = around(text, one.line)
    return [name for name in seen if touches(root, name, one.path, line, seen[name])]


def source_of(root: Path, step: str) -> str:
    """Return the text of a step's page."""
    return (root / "book" / f"{step.partition(' ')[2]}.md").read_text("utf8")


def touches(root: Path, step: str, path: str, line: int, seen: Seen) -> bool:
    """Tell whether a step shows a file, calls the function on the line or, without one, imports it."""
    what, _, target = step.partition(" ")
    record = root / "book" / "printed" / f"{target}.txt"
    shown = what == "cells" and f"in {path}\n" in record.read_text("utf8")
    return shown or ((path, line) in seen.functions if line else path in seen.files)


def around(text: str, line: int) -> int:
    """Return the line of the innermost function around a line, or 0 if the line runs on import."""
    inner = 0
    for node in ast.walk(ast.parse(text)):  # outer functions come first
        if not isinstance(node, ast.FunctionDef):
            continue
        first, last = node.body[0].lineno, node.end_lineno or 0
        if node.lineno < first <= line <= last:
            inner = node.lineno
    return inner


# ---- a worker: one warm process in a copy of the project


def work() -> None:
    """Answer requests, one line of JSON each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warm_up()

    book = inprocess.Book(run.ROOT / "_build" / "mutate")
    gc.freeze()  # what is warm is not looked through for garbage again and again
    for line in sys.stdin:
        request = json.loads(line)
        if "mutant" in request:
            answer = judge(Mutant(**request["mutant"]), request["steps"], book)
        else:
            answer = forked(lambda: watched(request["step"], book), 600)  # noqa: B023
        print(json.dumps(answer), file=answers, flush=True)


def warm_up() -> None:
    """Import what every forked process needs and no mutant changes."""
    import hypothesis

    for name in WARM:
        import_module(name)
    found = (
        hypothesis.Phase.explicit,
        hypothesis.Phase.reuse,
        hypothesis.Phase.generate,
    )  # a failure is not shrunk
    hypothesis.settings.register_profile(
        "mutate", phases=found, database=None, derandomize=True, deadline=None
    )
    hypothesis.settings.load_profile("mutate")


def judge(one: Mutant, todo: dict[str, float], book: Any) -> dict[str, Any]:
    """Change the file, run what depends on it until something catches the mutant, and put the file back."""
    path = run.ROOT / one.path
    before, status, ran = path.read_text("utf8"), path.stat(), {}
    path.write_text(one.after(before), "utf8")
    later = status.st_mtime + 10  # so that no bytecode of the original is taken for it, and none written
    os.utime(path, (later, later))
    sys.dont_write_bytecode = True
    try:
        for name, seconds in todo.items():
            answer = forked(lambda: {"complaint": step(name, book)}, 5 + round(4 * seconds))  # noqa: B023
            ran[name] = answer["seconds"]
            if answer["complaint"]:
                return {"by": name, "ran": ran, "complaint": answer["complaint"]}
    finally:
        path.write_text(before, "utf8")
        os.utime(path, (status.st_atime, status.st_mtime))
    return {"by": "", "ran": ran}


def forked(call: Callable[[], dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return what a call returns in a forked process, with the seconds of computing that it took.

    An exception is a complaint, and so is to compute for longer than the limit, in seconds.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        try:
            answer = call()
        except BaseException as error:
            answer = {"complaint": repr(error)[:2000]}
        with os.fdopen(writer, "w") as sheet:
            json.dump(answer, sheet)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as sheet:
        text = sheet.read()
    used = os.wait4(child, 0)[2]
    seconds = used.ru_utime + used.ru_stime
    ended = "computed for too long" if seconds > 0.9 * limit else "the process died"
    return {**(json.loads(text) if text else {"complaint": ended}), "seconds": seconds}


def step(name: str, book: Any, *plugins: object) -> str:
    """Run one step and return its complaint."""
    what, _, target = name.partition(" ")
    if what == "test":
        arguments = ["-x", "-q", "-p", "no:cacheprovider", *(str(run.ROOT / test) for test in target.split())]
        return "" if pytest.main(arguments, plugins) in (0, 5) else "a test failed"
    path = run.ROOT / "book" / f"{target}.md"
    if what == "page":
        text, problems = book.read(f"book/{target}")
        return "\n".join(filter(None, [*problems, records.drift(path, text)]))

    notebook = inprocess.execute(run.read(path))
    KEPT.append((path, notebook))
    complaints = [*records.problems(notebook), records.drift(path, records.printed(notebook), part=True)]
    return "\n".join(filter(None, complaints))


def marked(path: str) -> Any:
    """Return the code of a module whose functions say that they are called: a trace is ten times as slow."""
    tree = ast.parse(Path(path).read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            says = ast.parse(f"called_here(({path!r}, {node.lineno}))").body
            docstring = ast.get_docstring(node, clean=False) is not None
            node.body[docstring:docstring] = says
    return compile(tree, path, "exec")


class Watch:
    """Sees what a step touches, and which test of a file calls what."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.sections: set[str] = set()
        self.called: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        """Begin to watch this process."""
        find = published.find

        def finding(path: str) -> Any:
            self.sections.add(published.split(path)[0])
            return find(path)

        published.find = finding
        sys.addaudithook(lambda event, given: self.files.add(str(given[0])) if event == "open" else None)
        self.within("")
        usual = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> Any:
            path = loader.get_filename(name)
            return marked(path) if path.startswith(HOME) else usual(loader, name)

        SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]

    def within(self, test: str) -> None:
        """Note from now on what is called by this test, or by none in particular."""
        vars(builtins)["called_here"] = self.called.setdefault(test, set()).add

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Set apart what a test itself calls; what its fixtures call counts for its whole file."""
        name, start = item.nodeid.partition("[")[0], process_time()
        self.within(name)
        try:
            yield
        finally:
            self.within("")
            self.seconds[name] = self.seconds.get(name, 0.0) + process_time() - start

    def report(self) -> dict[str, Any]:
        """Return what was touched, of this project alone."""
        files = self.files | {str(getattr(module, "__file__", "")) for module in [*sys.modules.values()]}

        def calls(of: set[tuple[str, int]]) -> list[tuple[str, int]]:
            return [(os.path.relpath(path, run.ROOT), line) for path, line in of]

        return {
            "functions": calls(set().union(*self.called.values())),
            "files": [os.path.relpath(path, run.ROOT) for path in files if path.startswith(HOME)],
            "sections": sorted(self.sections),
            "tests": {name: (seconds, calls(self.called[name])) for name, seconds in self.seconds.items()},
        }


def watched(name: str, book: Any) -> dict[str, Any]:
    """Run one step on the unchanged project; return its complaint and what it touched."""
    if name.startswith("page "):
        return {"complaint": step(name, book)}
    watch = Watch()
    watch.start()
    complaint = step(name, book, watch)
    answer = {"complaint": complaint, **watch.report()}
    with (run.CACHE / "lock").open("w") as lock:  # jupyter-cache itself has none
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path, notebook in KEPT:
            run.keep(path, notebook, 0.0)
    return answer


# ---- the whole run


class Workers:
    """Warm processes, each in its own copy of a project, that answer requests."""

    def __init__(self, root: Path, jobs: int):
        self.folder = tempfile.TemporaryDirectory(prefix="mutate-")
        self.free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self.copies = [Path(self.folder.name, f"copy{i}") for i in range(jobs)]
        self.processes = [self.start(root, copy) for copy in self.copies]
        self.pool = ThreadPoolExecutor(jobs)
        for process in self.processes:
            self.free.put(process)

    def start(self, root: Path, copy: Path) -> subprocess.Popen[str]:
        """Copy the project and start a process in it; executed chapters are kept in common."""
        hidden = shutil.ignore_patterns(".*", "_build", "build", "node_modules", "*.egg-info")
        shutil.copytree(root, copy, ignore=hidden)
        (common := copy.parent / "cache").mkdir(exist_ok=True)
        (copy / "_build").mkdir()
        (copy / "_build" / "cache").symlink_to(common)
        environment = {
            **os.environ,
            "PYTHONPATH": str(copy),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", "from tools.mutate import work; work()"]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=copy, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=nowhere
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a free worker's answer."""
        process = self.free.get()
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            answer = process.stdout.readline()  # type: ignore[union-attr]
        finally:
            self.free.put(process)
        if not answer:
            raise RuntimeError(f"a worker of mutate ended while it did {request}")
        return json.loads(answer)  # type: ignore[no-any-return]

    def map(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the answers to requests, in their order."""
        return self.pool.map(self.ask, requests)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        for process in self.processes:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
        self.folder.cleanup()


def baseline(root: Path, workers: Workers) -> tuple[dict[str, Seen], list[str]]:
    """Run the unchanged book once; return what each step touched, and complaints: there should be none."""
    seen, false = {}, []
    chapters = [page for page in contents.chapters(root) if run.is_chapter(root / "book" / f"{page}.md")]
    tests = [path for path in sorted((root / "tests").glob("test_*.py")) if of_models(path)]
    cells = [f"cells {page}" for page in chapters]  # before the pages, which need what these print
    rest = [f"page {page}" for page in contents.chapters(root)] + [f"test tests/{p.name}" for p in tests]
    for names in (cells, rest):
        for name, got in zip(names, workers.map({"step": name} for name in names), strict=True):
            calls = frozenset((path, line) for path, line in got.get("functions", ()))
            files, sections = (frozenset(got.get(key, ())) for key in ("files", "sections"))
            seen[name] = Seen(got["seconds"], calls, files, sections)
            tests_of = got.get("tests", {})
            start = max(0.0, got["seconds"] - math.fsum(seconds for seconds, _ in tests_of.values()))
            for test, (seconds, called) in tests_of.items():
                calls = frozenset((path, line) for path, line in called)
                seen[f"test {test}"] = Seen(seconds, calls, start=start)
            false += [f"{name}: {got['complaint']}"] if got["complaint"] else []
    return seen, false


def of_models(path: Path) -> bool:
    """Tell whether a file of tests imports a module of `lib` that computes, and builds no site."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    if any(isinstance(node, ast.arg) and node.arg in ("site", "browser") for node in nodes):
        return False
    names = [
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return any(re.match(r"lib\.(?!page\b|press\b|data\b)", name) for name in names)


def verdicts(root: Path, choose: Callable[[set[str]], list[Mutant]], workers: Workers) -> Iterator[Verdict]:
    """Yield what catches each mutant; ValueError when the unchanged book already fails.

    choose: a function from the data files that pages read to the mutants.
    """
    seen, false = baseline(root, workers)
    if false:
        raise ValueError("mutate: the book fails without any mutant; mend it first\n" + "\n".join(false))
    mutants = choose({path for name, it in seen.items() if name.startswith("cells ") for path in it.files})
    todo = [steps(root, one, seen) for one in mutants]
    requests = ({"mutant": asdict(one), "steps": do} for one, (do, _) in zip(mutants, todo, strict=True))
    for one, (_, left), answer in zip(mutants, todo, workers.map(requests), strict=True):
        yield Verdict(one, answer["by"], answer["ran"], left)


def wilson(caught: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson's score."""
    if not of:
        return 0.0, 1.0
    z, share = 1.959964, caught / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def report(found: list[Verdict]) -> str:
    """Return the share caught of each kind and of all, with its interval, and every survivor."""
    total, caught = Counter(v.mutant.kind for v in found), Counter(v.mutant.kind for v in found if v.by)
    rows = [*((kind, caught[kind], total[kind]) for kind in KINDS), ("all", caught.total(), total.total())]
    lines = []
    for name, hits, of in rows:
        low, high = wilson(hits, of)
        share = hits / of if of else 0.0
        lines.append(
            f"{name:11} {hits:4} of {of:4} caught: {share:6.1%}, 95 % interval {low:.1%} to {high:.1%}"
        )
    for one, verdict in ((v.mutant, v) for v in found if not v.by):
        lines.append(f"survived: {one.path}:{one.line}: {one.text[:150]}")
        tried = files(verdict.ran) or "nothing, as nothing depends on it"
        late = f"; had no time for {files(verdict.left)}" if verdict.left else ""
        lines.append(f"          {one.old} -> {one.new}; ran {tried}{late}")
    return "\n".join(lines)


def enough(found: list[Verdict]) -> bool:
    """Tell whether enough was caught, of all and of the conclusions."""
    turned = [v for v in found if v.mutant.kind == "conclusions"]
    return all(
        sum(bool(v.by) for v in some) >= share * len(some)
        for some, share in ((found, ENOUGH), (turned, ENOUGH_TURNED))
    )


def files(names: Iterable[str]) -> str:
    """Return the pages and files of tests among steps."""
    return ", ".join(dict.fromkeys(name.partition("::")[0] for name in names))


def main() -> None:
    """Run the command line; the status says whether enough was caught."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes (2)")
    given, start = parser.parse_args(), perf_counter()
    found = []
    choose = functools.partial(sample, run.ROOT, given.count, given.seed)
    with Workers(run.ROOT, given.jobs) as workers:
        try:
            for verdict in verdicts(run.ROOT, choose, workers):
                found.append(verdict)
                print("." if verdict.by else "S", end="", file=sys.stderr, flush=True)
        except ValueError as error:
            sys.exit(str(error))
    print(f"\n{report(found)}\n{perf_counter() - start:.0f} s")
    sys.exit(0 if enough(found) else 1)
