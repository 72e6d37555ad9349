"""Pytest plugin: nbmake runs the chapters, MyST notebooks, and each must print what its record says."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import nbformat
import pytest
from nbmake.nb_run import NotebookRun
from nbmake.pytest_items import NotebookFailedException, NotebookItem

from lib.page.checkout import strayed
from lib.press import records, run


def pytest_configure(config: Any) -> None:
    """Stop where this process, or the kernels that it starts, run the `lib` of another checkout."""
    astray = strayed(config.rootpath) or ("" if hasattr(config, "workerinput") else run.kernels_stray())
    if astray:
        raise pytest.UsageError(astray)


def pytest_collect_file(file_path: Path, parent: Any) -> Any:
    """Collect a MyST notebook when --nbmake is given."""
    if parent.config.option.nbmake and run.is_chapter(file_path):
        return Chapter.from_parent(parent, path=file_path)
    return None


class Chapter(pytest.File):
    """A chapter: one test."""

    def collect(self) -> Any:
        """Yield that test."""
        yield ChapterItem.from_parent(self, filename=str(self.path))


class Drift(Exception):
    """A chapter prints something else than its record, or states a problem."""


class ChapterItem(NotebookItem):
    """Executes a chapter through nbmake, compares it, and keeps it for the build of the site."""

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Show a drift as the difference it is."""
        drift = isinstance(excinfo.value, Drift)
        return str(excinfo.value) if drift else super().repr_failure(excinfo, style)

    def runtest(self) -> None:
        """Run the test."""
        run.fingerprint()  # as it is before anything runs
        start = perf_counter()
        twin = self.path.with_name(f".{self.path.stem}.nbmake.json")  # nbmake's own collector wants *.ipynb
        try:
            nbformat.write(run.read(self.path), twin)
            result = run.started(lambda: self.execute(twin))
        finally:
            twin.unlink(missing_ok=True)
        if result.error is not None:
            raise NotebookFailedException(result)
        found = [*records.problems(result.nb)]
        found.append(records.drift(self.path, records.printed(result.nb), part=True))
        if any(found):
            raise Drift("\n".join([f"{self.path.name} does not print what is recorded", *found]))
        run.keep(self.path, result.nb, perf_counter() - start)

    def execute(self, twin: Path) -> Any:
        """Return nbmake's result for the notebook."""
        option = self.config.option
        return NotebookRun(
            twin,
            option.nbmake_timeout,
            kernel=option.nbmake_kernel,
            find_import_errors=option.nbmake_find_import_errors,
        ).execute()
