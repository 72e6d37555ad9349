"""What tests share: the Chromium of the machine, and the built site on localhost."""

import fcntl
import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.press import build, pdf

LONGEST = ("test_site", "test_lab", "test_build", "test_live", "test_pdf")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


def chromium() -> str:
    """Return the path of the browser; without one skip the test, or fail it where CI=true."""
    found = pdf.chromium()
    if found:
        return found
    hint = "no Chromium here: `apt-get install chromium`, or set CHROMIUM to the path of one"
    if os.environ.get("CI") == "true":
        pytest.fail(hint, pytrace=False)
    pytest.skip(hint)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """A headless Chromium, one for all tests; open contexts of your own in it."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(pdf.QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site, built anew where anything has changed; tests in two processes build in turn."""
    lock = build.SITE.with_name("lock")
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        assert build.build(quiet=True) == 0, "the book does not build: see _build/build.log"
    return build.SITE


class Handler(build.Handler):
    """Serves files in silence, and lets the browser keep none, so that each page's weight is its own."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The address, with its last slash, at which the site is served."""
    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
