"""Which copy of the project this `lib` belongs to, and whether it is the one at hand."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the repository, or where the wheel was installed


class Strayed(ImportError):
    """Raised in a kernel that runs the wrong `lib`; a notebook shows the sentence and no trace."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def strayed(here: Path | None = None, lib: Path | None = None) -> str:
    """Return a sentence that names both places where `lib` is not the one of the book around a folder.

    here: a folder, the working directory unless given; lib: a folder, the running one unless given. Empty
    where all is well, and where no book is around, as in a browser or beside a downloaded notebook.
    """
    here, lib = (here or Path.cwd()).resolve(), (lib or ROOT / "lib").resolve()
    books = (folder for folder in (here, *here.parents) if (folder / "_toc.yml").exists())
    book = next((folder for folder in books if (folder / "lib").is_dir()), None)
    if book is None or book / "lib" == lib:
        return ""
    return (
        f"Python here runs {lib}, but the book is {book}: "
        f"give that folder a virtual environment of its own (rm -rf .venv, then make book)"
    )
