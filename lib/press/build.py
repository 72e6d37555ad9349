"""`make book`: build the site aside, and put it in place only when everything in it is right."""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from lib.press.address import root
from lib.press.run import ROOT, kernels_stray

SITE = ROOT / "_build" / "html"
ARCHIVE = ROOT / "_build" / "serving-taken-apart.zip"
STAGE = ROOT / "_build" / "stage"
JUPYTER_BOOK = "import lib.press.import_patch; from jupyter_book.cli.main import main; main()"


def build(record: bool = False, quiet: bool = False) -> int:
    """Build the book with Jupyter Book, warnings as errors; return its exit status.

    A failure leaves the last site alone. record: rewrite `book/printed/` from what the pages show now.
    """
    check_kernels()
    start_afresh_where_pages_moved()
    log = ROOT / "_build" / "build.log"
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", str(ROOT)]
    command += ["--path-output", str(STAGE), "-W", "--keep-going"]
    environment = {**os.environ, **({"BOOK_RECORD": "1"} if record else {})}
    with log.open("w", encoding="utf8") as sheet:
        done = subprocess.run(command, stdout=sheet, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode:
        print(complaint(log.read_text("utf8")), f"\n\nThe whole log: {log}", file=sys.stderr)
        print(f"The last good site stays: {SITE}" if SITE.exists() else "There is no site.", file=sys.stderr)
        return done.returncode
    publish()
    if not quiet:
        print(f"The book: {SITE / 'index.html'}\nOpen that file in a browser, or run `make serve`.")
    return 0


def start_afresh_where_pages_moved() -> None:
    """Drop the stage, which would keep a page that left the table of contents; executed chapters are kept."""
    toc, seen = (ROOT / "_toc.yml").read_text("utf8"), STAGE / "_toc.yml"
    if not seen.exists() or seen.read_text("utf8") != toc:
        shutil.rmtree(STAGE, ignore_errors=True)
        STAGE.mkdir(parents=True)
        seen.write_text(toc, "utf8")


def publish() -> None:
    """Put a copy of the stage in the place of the last site."""
    new, old = SITE.with_name("html.new"), SITE.with_name("html.old")
    for path in (new, old):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(STAGE / "_build" / "html", new)
    if SITE.exists():
        SITE.rename(old)
    new.rename(SITE)
    shutil.rmtree(old, ignore_errors=True)


def archive() -> Path:
    """Put the site into a zip archive, in a folder of its own, and return it."""
    pages = sorted(path for path in SITE.rglob("*") if path.is_file())
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as sheet:
        for path in pages:
            sheet.write(path, Path(ARCHIVE.stem) / path.relative_to(SITE))
    return ARCHIVE


def complaint(log: str) -> str:
    """Return the part of Jupyter Book's log that says what is wrong, without its traces."""
    progress = ("writing output", "reading sources")
    lines = [line for line in log.splitlines() if not any(step in line for step in progress)]
    wrong = [line for line in lines if "WARNING" in line or "ERROR" in line]
    for i, line in enumerate(lines):
        if "The book:" in line:
            end = next((j for j in range(i, len(lines)) if lines[j].startswith("Traceback")), len(lines))
            wrong += lines[i + 1 : end]
            break
    return "\n".join(wrong) or "\n".join(lines[-40:])


@functools.cache
def base() -> str:
    """Return the path at which the site lies on its host."""
    return root()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, under the path that it has on its host too, and its own page where there is none."""

    def translate_path(self, path: str) -> str:
        """Return the file that an address stands for."""
        return super().translate_path("/" + path.removeprefix(base()))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with the site's page for what is not there."""
        page = Path(self.directory, "404.html")
        if code != http.HTTPStatus.NOT_FOUND or not page.exists():
            return super().send_error(code, message, explain)
        body = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def check_kernels() -> None:
    """Stop where a kernel would run another checkout's `lib`."""
    if complaint := kernels_stray():
        sys.exit(complaint)


def there() -> None:
    """Stop where there is no site yet."""
    if not SITE.exists():
        sys.exit("There is no site yet: run `make book` first.")


def serve(port: int = 8000) -> None:
    """Serve the site on localhost until interrupted."""
    there()
    handler = functools.partial(Handler, directory=str(SITE))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with server:
        print(f"The book is at http://127.0.0.1:{server.server_address[1]}/ (Ctrl+C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> None:
    """Run the command line: build, record, serve, or pack what was built, check what kernels run."""
    parser = argparse.ArgumentParser(prog="python -m lib.press.build", description=__doc__)
    tasks = ("book", "record", "serve", "zip", "check")
    parser.add_argument("what", choices=tasks, nargs="?", default="book")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if given.what == "serve":
        serve(given.port)
    elif given.what == "check":
        check_kernels()
    elif given.what == "zip":
        there()
        print(f"The site: {archive()}\nUnpack it and open index.html in a browser.")
    else:
        sys.exit(build(record=given.what == "record"))


if __name__ == "__main__":
    main()
