"""Executing chapters, and keeping what they printed for as long as nothing that it depends on changes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import requires, version
from pathlib import Path
from time import perf_counter
from typing import Any

from packaging.requirements import Requirement

from lib.page import checkout

ROOT = checkout.ROOT
CACHE = ROOT / "_build" / "cache"
PROJECT = "serving-taken-apart"
EXTENSIONS = {"amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"}


class ChapterError(Exception):
    """A cell of a chapter raised; the message names chapter, cell and error."""


@cache
def fingerprint() -> str:
    """Return `state()` as it was when this process first asked."""
    return state()


def state() -> str:
    """Return a hash of everything besides a chapter's own cells that decides what it prints."""
    return hashed(outside(), sys.version, *(f"{name}=={version(name)}" for name in packages()))


def packages() -> list[str]:
    """Return the packages that a chapter's result can depend on: what the project needs, and what runs it."""
    needs = map(Requirement, requires(PROJECT) or ())
    needed = {one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})}
    return sorted({*needed, "pygments", "ipykernel"})


def code() -> list[Path]:
    """Return the files of `lib`."""
    return sorted(p for p in (ROOT / "lib").rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def outside() -> list[Path]:
    """Return the files of `lib` outside of the press: what chapters see, and what wheel and browser get."""
    return [path for path in code() if ROOT / "lib" / "press" not in path.parents]


def hashed(files: Iterable[Path], *texts: str) -> str:
    """Return a hash of files, their names included, and of texts."""
    digest = hashlib.sha256("\0".join(texts).encode())
    for path in files:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_path() -> Path:
    """Return the folder of the executed chapters that are still true."""
    return CACHE / fingerprint()


@cache
def kernels_stray() -> str:
    """Return a sentence where a kernel would run the `lib` of another checkout, or none; else nothing.

    What a kernel imports is up to its environment: an editable install, a copied `.venv`, PYTHONPATH.
    """
    from jupyter_client.manager import KernelManager

    find = "from importlib.util import find_spec; print(find_spec('lib').submodule_search_locations[0])"
    command = [KernelManager(kernel_name="python3").format_kernel_cmd()[0], "-c", find]
    done = subprocess.run(command, cwd=ROOT / "book", capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{command[0]} finds no lib to run the chapters of {ROOT} with: run make book there"
    return checkout.strayed(ROOT, Path(done.stdout.strip()))


def is_chapter(path: Path) -> bool:
    """Tell whether a page is a MyST notebook, and so has cells to execute."""
    from myst_nb.core.read import is_myst_markdown_notebook

    return path.suffix == ".md" and bool(is_myst_markdown_notebook(path.read_text("utf8")))


def read(path: Path) -> Any:
    """Return a chapter as a notebook, cells not executed."""
    from myst_nb.core.read import read_myst_markdown_notebook
    from myst_parser.config.main import MdParserConfig

    config = MdParserConfig(enable_extensions=EXTENSIONS)
    return read_myst_markdown_notebook(path.read_text("utf8"), config, add_source_map=True, path=path)


def executed(path: Path) -> Any | None:
    """Return a chapter with the outputs that are kept for it, or None where there are none."""
    from jupyter_cache import get_cache

    try:
        return get_cache(cache_path()).merge_match_into_notebook(read(path))[1]
    except KeyError:
        return None


def keep(path: Path, notebook: Any, seconds: float) -> None:
    """Keep an executed chapter for the next build, without the times at which its cells ran.

    ChapterError where `lib` is not what it was when this process began: nobody knows which one ran.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    if state() != fingerprint():
        raise ChapterError(f"{path.name}: lib or its data changed while chapters ran; run this once more")
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": seconds})
    get_cache(cache_path()).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def execute(path: Path, timeout: float = 120) -> tuple[Any, float]:
    """Execute a chapter in a kernel of its own; return the notebook and the seconds that it took."""
    start = perf_counter()
    return started(lambda: run_cells(path, timeout)), perf_counter() - start


def run_cells(path: Path, timeout: float) -> Any:
    """Return a chapter as a notebook, its cells run in a new kernel. ChapterError says which would not."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook, resources = read(path), {"metadata": {"path": str(path.parent)}}
    try:
        NotebookClient(notebook, timeout=timeout, resources=resources).execute()
    except (CellExecutionError, CellTimeoutError) as error:
        raise ChapterError(complaint(path, notebook, error)) from error
    return notebook


def started(work: Callable[[], Any]) -> Any:
    """Return what work in a kernel returns; once more if the kernel dies, as when two take the same port."""
    try:
        return work()
    except RuntimeError:
        return work()


def complaint(path: Path, notebook: Any, error: Exception) -> str:
    """Return which cell of which chapter failed, and how."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    number = next((i for i, c in enumerate(codes, 1) if any(o.output_type == "error" for o in c.outputs)), 0)
    what = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    cell = f"code cell {number}:\n\n{codes[number - 1].source}\n" if number else "a cell"
    return f"{path.name}, {cell}\nraised {what[0]}: {what[1]}"


def refresh(paths: Iterable[Path]) -> int:
    """Execute those chapters that nothing is kept for, two at a time; return how many that were."""
    stale = [path for path in paths if executed(path) is None]
    if stale and (astray := kernels_stray()):
        raise ChapterError(astray)
    with ThreadPoolExecutor(2) as pool:
        futures = [(path, pool.submit(execute, path)) for path in stale]
        errors = []
        for path, future in futures:
            try:
                keep(path, *future.result())
            except ChapterError as error:
                errors.append(str(error))
    if errors:
        raise ChapterError("\n\n".join(errors))
    return len(stale)
