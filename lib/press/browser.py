"""Sphinx extension of the live pages: what a browser needs to run the book's own code, under _static/live/.

`live.js` and `live.css` go to the pages with a form; all else is fetched when a reader first touches a knob.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from lib.press import npm
from lib.press.run import ROOT, outside

SHIPPED = {
    "pyodide": (
        "pyodide.mjs",
        "pyodide.asm.mjs",
        "pyodide.asm.wasm",
        "python_stdlib.zip",
        "pyodide-lock.json",
        "package.json",  # its licence
    ),
    "d3": ("dist/d3.min.js", "LICENSE"),
    "@observablehq/plot": ("dist/plot.umd.min.js", "LICENSE"),
}
FORM = 'class="live"'
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # no two builds differ


def ship(app: Sphinx, error: Exception | None) -> None:
    """Put everything in its place, and its size in bytes beside it."""
    if error is not None or app.builder.format != "html":
        return
    if not any(FORM in path.read_text("utf8") for path in Path(app.outdir).glob("book/**/*.html")):
        return
    here, found = Path(app.outdir) / "_static" / "live", npm.packages()
    for package, names in SHIPPED.items():
        to = here / package.rpartition("/")[2]
        to.mkdir(exist_ok=True)
        for name in names:
            shutil.copyfile(found / package / name, to / Path(name).name)
    with zipfile.ZipFile(here / "lib.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in outside():
            archive.writestr(
                zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), LONG_AGO),
                path.read_bytes(),
                zipfile.ZIP_DEFLATED,
            )
    loaded = [path for path in (here / "pyodide").iterdir() if path.suffix != ".md"] + [here / "lib.zip"]
    (here / "size.json").write_text(json.dumps(sum(path.stat().st_size for path in loaded)), "utf8")


def bring_to_life(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give a page with a form its script and its style."""
    if FORM in context.get("body", ""):
        app.add_css_file("live/live.css")
        app.add_js_file("live/live.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything."""
    app.connect("html-page-context", bring_to_life)
    app.connect("build-finished", ship)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
