"""How long the live forms take in Chromium: the first load, then each answer; on the built site.

python benchmarks/live.py        # after `make book`
"""

from __future__ import annotations

import re
import shutil
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from statistics import median
from time import perf_counter

from playwright.sync_api import Page, sync_playwright

from lib.live import NAMES
from lib.press.build import SITE, Handler

ANSWERS = 9
ASK = """async () => {
  const section = document.querySelector(".live");
  delete section.answer;
  const knob = section.querySelector("input");
  knob.value = knob.value === knob.defaultValue ? +knob.value + +knob.step : knob.defaultValue;
  section.querySelector("form").dispatchEvent(new Event("input"));
  const start = performance.now();
  while (!section.answer) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""


class Quiet(Handler):
    """Serves the site in silence."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def timed(tab: Page) -> tuple[float, list[float]]:
    """Return the seconds of the first answer, and the milliseconds of the next ones, drawing included."""
    start = perf_counter()
    tab.evaluate(ASK)
    return perf_counter() - start, [tab.evaluate(ASK) for _ in range(ANSWERS)]


def main() -> None:
    """Print a row for each calculator."""
    pages = {
        name: path.relative_to(SITE).as_posix()
        for path in SITE.glob("book/**/*.html")
        for name in re.findall(r'data-live="(\w+)"', path.read_text("utf8"))
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name in NAMES:
            tab = browser.new_context().new_page()
            tab.goto(f"http://127.0.0.1:{server.server_address[1]}/{pages[name]}")
            first, later = timed(tab)
            print(
                f"{name:16} first {first:5.1f} s, then {median(later):6.0f} ms, at most {max(later):6.0f} ms"
            )
            tab.context.close()
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
