"""What a kernel and Jupyter Book do with a page, in this process: for `tools.mutate` and tests.

The book itself is executed in kernels, by `run`.
"""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lib.press.run import ROOT


class Book:
    """The pages of a book, read as its build reads them; nothing is executed, compared or written.

    Chapters must have been executed before (`run.refresh`). Sphinx keeps its roles and directives in global
    variables, so there can be one of these at a time; close it when done.
    """

    def __init__(self, out: Path, root: Path = ROOT):
        from jupyter_book.config import get_final_config
        from sphinx.application import Sphinx
        from sphinx.util.docutils import docutils_namespace, patch_docutils

        command_line = {"latex_individualpages": False}
        config, _ = get_final_config(user_yaml=root / "_config.yml", sourcedir=root, cli_config=command_line)
        self.warnings, self.stack = io.StringIO(), ExitStack()
        self.stack.enter_context(patch_docutils())
        self.stack.enter_context(docutils_namespace())
        trees, said = out / "doctrees", self.warnings
        self.app = Sphinx(root, None, out, trees, "dummy", config, status=None, warning=said, freshenv=True)
        self.app.env.find_files(self.app.config, self.app.builder)
        self.app.emit(
            "env-get-outdated", self.app.env, set(), set(), set()
        )  # here the table of contents is read

    def close(self) -> None:
        """Give Sphinx's global variables back."""
        self.stack.close()

    def read(self, docname: str) -> tuple[str, list[str]]:
        """Return a page's record, and what is wrong with it: by the contract, and in Sphinx's warnings."""
        self.warnings.seek(0)
        self.warnings.truncate()
        self.app.emit("env-purge-doc", self.app.env, docname)
        self.app.env.clear_doc(docname)
        self.app.builder.read_doc(docname)
        record, problems = self.app.env.book_pages[docname]  # type: ignore[attr-defined]
        return record, [*problems, *filter(None, [self.warnings.getvalue()])]


class Raised(Exception):
    """A cell raised; the message says what."""


def execute(notebook: Any) -> Any:
    """Run the cells of a notebook in this process; return it with the outputs that a kernel would send.

    IPython takes hold of `__main__` and of the display hook: call this in a process that does nothing else.
    """
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from nbformat.v4 import new_output
    from traitlets.config import Config

    outputs: list[Any] = []

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
            outputs.append(new_output("display_data", data, metadata=metadata or {}))

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            outputs.append(new_output("execute_result", format_dict, metadata=md_dict or {}))

        def finish_displayhook(self) -> None:
            pass

    class Stream(io.StringIO):
        def __init__(self, name: str):
            super().__init__()
            self.name = name

        def write(self, text: str) -> int:
            outputs.append(new_output("stream", name=self.name, text=text))
            return len(text)

    class Shell(InteractiveShell):
        displayhook_class = Hook
        display_pub_class = Publisher

    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
    try:
        shell = Shell(config=Config({"HistoryManager": {"enabled": False}}))
        for cell in notebook.cells:
            if cell.cell_type == "code":
                result = shell.run_cell(cell.source)
                cell.outputs, outputs = outputs, []
                if not result.success:
                    raise Raised(repr(result.error_in_exec or result.error_before_exec))
    finally:
        sys.stdout, sys.stderr = before
    return notebook
