"""`make mutate`: how many one-digit slips would the book's own checks catch?

A seeded sample of mutants, equally from data files, constants in `lib`, prose and records; each changes the
last digit of one numeral by one. A mutant is caught when something that can depend on it fails: the cells of a
page print something else than their record, state a problem or raise; a page says something else than its
record or something unsupported; or, for a constant, the tests of its module fail. Only that much is run, in
processes forked from a warm one, each mutant in a copy of the project. Whatever survives is printed.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from lib.press import records, run

KINDS = ("data", "lib", "prose", "records")
DIGITS = re.compile(r"\d[\d,._]*\d|\d")
ENOUGH = 0.95
WARM = (
    "IPython.core.interactiveshell", "PIL.Image", "jinja2", "matplotlib.backends.backend_svg",
    "matplotlib.figure", "myst_nb.sphinx_", "nbformat.v4", "numpy", "pygments.formatters", "pytest",
    "lib.press.figures", "lib.press.plugin", "lib.press.published",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file of the project with one digit changed."""

    kind: str
    path: str
    place: int  # of the digit, in characters
    old: str
    new: str
    line: int
    text: str  # the line as it was
    cells: bool = False  # prose that a cell says: the cells have to be run

    def after(self, whole: str) -> str:
        """Return the file's text with the digit changed."""
        assert whole[self.place] == self.old
        return whole[: self.place] + self.new + whole[self.place + 1 :]


@dataclass
class Verdict:
    """What caught a mutant, or nothing."""

    mutant: Mutant
    by: str = ""
    ran: list[str] = field(default_factory=list)


# ---- where digits stand


def numerals_in_toml(text: str, sections: set[str]) -> Iterator[int]:
    """Yield where the last digit of each value in the given sections of a TOML file stands."""
    start, section = 0, ""
    for line in text.splitlines(True):
        if header := re.match(r'\[+"?([^\].\"]+)', line):
            section = header[1]
        elif section in sections:
            for match in re.finditer(r'#.*|"[^"]*"(\s*=)?|(?<![\w.])\d[\d_.]*', line):
                if match[0].startswith("#"):
                    break
                if not match[1]:
                    yield from (start + match.start() + place for place in last_digits(match[0]))
        start += len(line)


def numerals_in_bibtex(text: str, _: object = None) -> Iterator[int]:
    """Yield where the last digit of each numeral in a field stands."""
    for match in re.finditer(r"^\s+\w+\s*=\s*(.*)$", text, re.M):
        yield from (match.start(1) + place for place in last_digits(match[1]))


def numerals_in_python(text: str) -> Iterator[int]:
    """Yield where the last digit of each number in Python code stands, left of its exponent if it has one."""
    starts, inside = line_starts(text), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        inside += {"FSTRING_START": 1, "FSTRING_END": -1}.get(tokenize.tok_name[token.type], 0)
        mantissa = re.match(r"[\d._]*\d", token.string)
        if token.type == tokenize.NUMBER and not inside and mantissa and token.string[-1] not in "jJ":
            yield starts[token.start[0] - 1] + token.start[1] + mantissa.end() - 1


UNSEEN_IN_PROSE = re.compile(
    r"\]\([^)]*\)|<https?:[^>]*>|\{(?:doc|numref|ref|eq|cite[^}]*)\}`[^`]*`|<!--.*?-->"  # targets, comments
    r"|^%.*|^\([\w-]+\)=|^\s*:(?!alt)[\w-]+:.*|^\[\^\w+\]:|\[\^\w+\]"  # options, labels
    r"|^`{3,}\{(?:figure|image|solution|solution-start|bibliography|button-\w+)\}.*",
    re.M,
)


def numerals_in_prose(text: str) -> Iterator[tuple[int, bool]]:
    """Yield where the last digit of each numeral of a page's prose stands, and whether a cell says it."""
    body = re.compile(r"\A---\n.*?^---\n", re.M | re.S).match(text)
    hidden = [(0, body.end())] if body else []
    for cell in re.finditer(r"^(`{3,})\{code-cell\}.*\n((?:.*\n)*?)\1\s*$", text, re.M):
        hidden.append(cell.span())
        for caption in re.finditer(r"^:\s+caption:(.*)$", cell[2], re.M):
            yield from (
                (cell.start(2) + caption.start(1) + place, False) for place in last_digits(caption[1])
            )
        code = re.sub(r"^:.*$", lambda option: "#" * len(option[0]), cell[2], flags=re.M)
        for start, end in spoken_strings(code):
            yield from ((cell.start(2) + start + place, True) for place in last_digits(code[start:end]))
    hidden += [match.span() for match in UNSEEN_IN_PROSE.finditer(text)]
    for place in last_digits(text):
        if not any(start <= place < end for start, end in hidden):
            yield place, False


def spoken_strings(code: str) -> Iterator[tuple[int, int]]:
    """Yield where the strings stand that code hands on as a title, a caption or an alternative text."""
    starts = line_starts(code)
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:  # a magic
        return
    for call in calls:
        given = [k.value for k in call.keywords if k.arg in {"alt", "title", "caption"}]
        for value in [*given, *(call.args if ast.unparse(call.func).endswith("draw") else [])]:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines, last = code.splitlines(), value.end_lineno or value.lineno
                column = len(lines[value.lineno - 1].encode()[: value.col_offset].decode())
                end = len(lines[last - 1].encode()[: value.end_col_offset].decode())
                yield starts[value.lineno - 1] + column, starts[last - 1] + end


def last_digits(text: str) -> Iterator[int]:
    """Yield where the last digit of each numeral stands."""
    for match in DIGITS.finditer(text):
        yield match.end() - 1


def line_starts(text: str) -> list[int]:
    """Return where each line starts."""
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))
    return starts


# ---- the sample


def candidates(root: Path, kind: str) -> Iterator[tuple[str, int, bool]]:
    """Yield (path, place, cells) for each digit that a mutant of the kind can change."""
    if kind == "data":
        data = root / "lib" / "data"
        claimed = {c.partition(".")[0] for p in printed(root) for c in records.claims(p.read_text("utf8"))}
        claimed -= tomllib.loads((data / "unclaimed.toml").read_text("utf8")).keys()
        for path in sorted([*data.glob("*.toml"), *(root / "book").glob("*.bib")]):
            if path.name != "unclaimed.toml":
                text = path.read_text("utf8")
                read = numerals_in_bibtex if path.suffix == ".bib" else numerals_in_toml
                yield from (
                    (path.relative_to(root).as_posix(), place, False) for place in read(text, claimed)
                )
    elif kind == "lib":
        for path in sorted((root / "lib").glob("*.py")):
            for place in numerals_in_python(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, False
    elif kind == "prose":
        for path in (root / "book" / f"{name}.md" for name in pages(root)):
            for place, cells in numerals_in_prose(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, cells
    else:
        for path in printed(root):
            for place in last_digits(path.read_text("utf8")):
                yield path.relative_to(root).as_posix(), place, False


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, equally of each kind as far as there are."""
    found = []
    for number, kind in enumerate(KINDS):
        dice, all_ = random.Random(f"{seed} {kind}"), sorted(set(candidates(root, kind)))
        for path, place, cells in dice.sample(all_, min(len(all_), (count + number) // len(KINDS))):
            found.append(mutant(root, kind, path, place, dice.choice((-1, 1)), cells))
    return found


def mutant(root: Path, kind: str, path: str, place: int, step: int, cells: bool = False) -> Mutant:
    """Return the mutant that moves one digit by a step of 1 or -1, the other way at 9 and at 0."""
    text = (root / path).read_text("utf8")
    old = int(text[place])
    new = old + step if 0 <= old + step <= 9 else old - step
    line = text.count("\n", 0, place) + 1
    return Mutant(kind, path, place, str(old), str(new), line, text.splitlines()[line - 1].strip(), cells)


def pages(root: Path) -> list[str]:
    """Return the pages of the table of contents, as paths below book without suffix."""
    toc = (root / "_toc.yml").read_text("utf8")
    return re.findall(r"^\s*(?:-\s+)?(?:root|file):\s*book/(\S+)", toc, re.M)


def printed(root: Path) -> list[Path]:
    """Return the records."""
    return sorted((root / "book" / "printed").rglob("*.txt"))


# ---- what can depend on a mutant


@dataclass
class Baseline:
    """What running the unchanged book showed: seconds for each step, and what each page's cells touched."""

    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[str, set[tuple[str, int]]] = field(default_factory=dict)  # page -> (path, first line)
    modules: dict[str, set[str]] = field(default_factory=dict)
    sections: dict[str, set[str]] = field(default_factory=dict)


def steps(root: Path, one: Mutant, known: Baseline) -> list[str]:
    """Return what to run for a mutant, the cheapest first: "cells page", "page page" or "test file"."""
    if one.kind == "records":
        return [f"page {Path(one.path).relative_to('book/printed').with_suffix('').as_posix()}"]
    if one.kind == "prose":
        page = Path(one.path).relative_to("book").with_suffix("").as_posix()
        return [f"{'cells' if one.cells else 'page'} {page}"]
    if one.path.endswith(".bib"):
        return [
            f"page {page}"
            for page in pages(root)
            if "{bibliography}" in (root / f"book/{page}.md").read_text()
        ]
    if one.kind == "data":
        section = next(
            s for s in reversed((root / one.path).read_text("utf8").splitlines()[: one.line]) if s[:1] == "["
        )
        name = section.strip('["]').partition(".")[0].strip('"]')
        found = [page for page, sections in known.sections.items() if name in sections]
    else:
        found = [page for page in known.modules if touches(root, page, one, known)]
    test = f"tests/test_{Path(one.path).stem}.py"
    runs = [*(f"cells {page}" for page in found), *([f"test {test}"] if (root / test).exists() else [])]
    return sorted(runs, key=lambda run_: known.seconds.get(run_, 0.0))


def touches(root: Path, page: str, one: Mutant, known: Baseline) -> bool:
    """Tell whether a page's cells call, import or show the code around a constant."""
    text = (root / one.path).read_text("utf8")
    inner = None
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            body = node.body[0] if isinstance(node, ast.FunctionDef) else node.body
            if body.lineno <= one.line <= (node.end_lineno or 0) and isinstance(node, ast.FunctionDef):
                inner = node if inner is None or node.lineno > inner.lineno else inner
    shown = f"in {one.path}\n" in (root / "book" / "printed" / f"{page}.txt").read_text("utf8")
    if shown or inner is None:
        return shown or Path(one.path).stem in known.modules[page]
    first = {inner.lineno, *(decorator.lineno for decorator in inner.decorator_list)}
    return any((one.path, line) in known.functions[page] for line in first)


# ---- a worker: one warm process in a copy of the project


def work() -> None:
    """Answer requests, one line of JSON each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warm_up()
    from lib.press import warm

    book = warm.Book(run.ROOT / "_build" / "mutate")
    for line in sys.stdin:
        request = json.loads(line)
        if "mutant" in request:
            answer = judge(Mutant(**request["mutant"]), request["steps"], request["seconds"], book)
        else:
            answer = forked(lambda: step(request["step"], book, traced=True), 600)  # noqa: B023
        print(json.dumps(answer), file=answers, flush=True)


def warm_up() -> None:
    """Import what every forked process needs and no mutant changes."""
    import hypothesis

    for name in WARM:
        import_module(name)
    sys.dont_write_bytecode = True
    found = (
        hypothesis.Phase.explicit,
        hypothesis.Phase.reuse,
        hypothesis.Phase.generate,
    )  # a failure is not shrunk
    hypothesis.settings.register_profile("mutate", phases=found, database=None, derandomize=True)
    hypothesis.settings.load_profile("mutate")


def judge(one: Mutant, todo: list[str], seconds: dict[str, float], book: Any) -> dict[str, Any]:
    """Change the file, run what depends on it until something catches the mutant, and put the file back."""
    path = run.ROOT / one.path
    before, status, ran = path.read_text("utf8"), path.stat(), []
    path.write_text(one.after(before), "utf8")
    os.utime(
        path, (status.st_atime, status.st_mtime + 10)
    )  # so that no bytecode of the original is taken for it
    try:
        for name in todo:
            ran.append(name)
            limit = 15 + 5 * seconds.get(name, 0.0)
            if complaint := forked(lambda: step(name, book), limit)["complaint"]:  # noqa: B023
                return {"by": name, "ran": ran, "complaint": complaint}
    finally:
        path.write_text(before, "utf8")
        os.utime(path, (status.st_atime, status.st_mtime))
    return {"by": "", "ran": ran}


def forked(call: Callable[[], dict[str, Any]], limit: float) -> dict[str, Any]:
    """Return what a call returns in a forked process; an exception and a time-out are complaints."""
    import select
    import signal

    reader, writer = os.pipe()
    start = perf_counter()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(1, 2)
        try:
            answer = call()
        except BaseException as error:
            answer = {"complaint": repr(error)[:2000]}
        with os.fdopen(writer, "w") as sheet:
            json.dump(answer, sheet)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as sheet:
        late = not select.select([sheet], [], [], limit)[0]
        if late:
            os.kill(child, signal.SIGKILL)
        text = sheet.read()
    os.waitpid(child, 0)
    answer = (
        json.loads(text)
        if text
        else {"complaint": f"took over {limit:.0f} s" if late else "the process died"}
    )
    return {**answer, "seconds": perf_counter() - start}


def step(name: str, book: Any, traced: bool = False) -> dict[str, Any]:
    """Run one step; return its complaint, and when traced what it touched."""
    what, _, target = name.partition(" ")
    if what == "test":
        import pytest

        arguments = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", str(run.ROOT / target)]
        return {"complaint": "" if pytest.main(arguments) in (0, 5) else "a test failed"}
    path = run.ROOT / "book" / f"{target}.md"
    if what == "page":
        text, problems = book.read(f"book/{target}")
        return {"complaint": "\n".join(filter(None, [*problems, records.drift(path, text)]))}
    from lib.press import published, warm

    functions: set[tuple[str, int]] = set()
    sections: set[str] = set()
    find, notebook = published.find, run.read(path)
    if traced:

        def finding(key: str) -> Any:
            sections.add(published.split(key)[0])
            return find(key)

        published.find = finding  # type: ignore[assignment]
        sys.settrace(lambda frame, *_: functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno)))
    start = perf_counter()
    warm.execute(notebook)
    sys.settrace(None)
    complaints = [*records.problems(notebook), records.drift(path, records.printed(notebook), part=True)]
    if not traced:
        return {"complaint": "\n".join(filter(None, complaints))}
    run.keep(path, notebook, perf_counter() - start)
    home = f"{run.ROOT / 'lib'}{os.sep}"
    return {
        "complaint": "\n".join(filter(None, complaints)),
        "functions": [
            (os.path.relpath(file, run.ROOT), line) for file, line in functions if file.startswith(home)
        ],
        "modules": [name.partition(".")[2] for name in sys.modules if re.fullmatch(r"lib\.\w+", name)],
        "sections": sorted(sections),
    }


# ---- the whole run


class Workers:
    """Warm processes, each in its own copy of a project, that answer requests."""

    def __init__(self, root: Path, jobs: int):
        self.folder = tempfile.TemporaryDirectory(prefix="mutate-")
        self.free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self.processes = [self.start(root, Path(self.folder.name, f"copy{i}")) for i in range(jobs)]
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
        command = [sys.executable, "-c", "from lib.press.mutate import work; work()"]
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

    def close(self) -> None:
        """End the workers and remove their copies."""
        self.pool.shutdown()
        for process in self.processes:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
        self.folder.cleanup()


def baseline(root: Path, mutants: Iterable[Mutant], workers: Workers) -> tuple[Baseline, list[str]]:
    """Run the unchanged book once; return what that showed, and each complaint: there should be none."""
    known, false = Baseline(), []

    def learn(names: list[str]) -> None:
        for name, answer in zip(
            names, workers.pool.map(lambda n: workers.ask({"step": n}), names), strict=True
        ):
            known.seconds[name] = answer["seconds"]
            false.extend([f"{name}: {answer['complaint']}"] if answer["complaint"] else [])
            if "functions" in answer:
                page = name.partition(" ")[2]
                known.functions[page] = {(path, line) for path, line in answer["functions"]}
                known.modules[page], known.sections[page] = set(answer["modules"]), set(answer["sections"])

    learn([f"cells {page}" for page in pages(root) if run.is_chapter(root / "book" / f"{page}.md")])
    tests = {f"tests/test_{Path(one.path).stem}.py" for one in mutants if one.kind in {"data", "lib"}}
    learn(
        [f"page {page}" for page in pages(root)] + [f"test {t}" for t in sorted(tests) if (root / t).exists()]
    )
    return known, false


def verdicts(root: Path, mutants: list[Mutant], jobs: int = 2) -> Iterator[Verdict]:
    """Yield what catches each mutant; ValueError when the unchanged book already fails."""
    workers = Workers(root, jobs)
    try:
        known, false = baseline(root, mutants, workers)
        if false:
            raise ValueError("mutate: the book fails without any mutant; mend it first\n" + "\n".join(false))

        def verdict(one: Mutant) -> Verdict:
            todo = steps(root, one, known)
            answer = workers.ask({"mutant": asdict(one), "steps": todo, "seconds": known.seconds})
            return Verdict(one, answer["by"], answer["ran"])

        yield from workers.pool.map(verdict, mutants)
    finally:
        workers.close()


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
            f"{name:8} {hits:4} of {of:4} caught: {share:6.1%}, 95 % interval {low:.1%} to {high:.1%}"
        )
    for one, ran in ((v.mutant, v.ran) for v in found if not v.by):
        lines.append(f"survived: {one.path}:{one.line}: {one.text[:150]}")
        tried = ", ".join(ran) or "nothing, as nothing depends on it"
        lines.append(f"          {one.old} -> {one.new}; ran {tried}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line; the status says whether enough was caught."""
    parser = argparse.ArgumentParser(prog="python -m lib.press.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes (2)")
    given, start = parser.parse_args(), perf_counter()
    mutants, found = sample(run.ROOT, given.count, given.seed), []
    try:
        for verdict in verdicts(run.ROOT, mutants, given.jobs):
            found.append(verdict)
            print("." if verdict.by else "S", end="", file=sys.stderr, flush=True)
    except ValueError as error:
        sys.exit(str(error))
    print(f"\n{report(found)}\n{perf_counter() - start:.0f} s")
    sys.exit(0 if sum(bool(v.by) for v in found) >= ENOUGH * len(found) else 1)


if __name__ == "__main__":
    main()
