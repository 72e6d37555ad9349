"""How long the live forms take in Chromium: the first load, then five settings, dear ones; on the built site.

python benchmarks/live.py        # after `make book`
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from random import Random
from statistics import median
from time import perf_counter

from playwright.sync_api import Page, sync_playwright

from lib.live import NAMES, Choice, Number, calculator
from lib.press.build import SITE, Handler

COUNT = 5  # settings
ASK = """async knobs => {
  const section = document.querySelector(".live"), form = section.querySelector("form");
  delete section.answer;
  form.reset();
  for (const name in knobs) form.elements[name].value = knobs[name];
  form.dispatchEvent(new Event("input"));
  const start = performance.now();
  while (!section.answer) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
DEAR = {  # what takes the whole form of the decision longest
    "decide": (
        {"rate": 0.3},
        {"rate": 0.05, "output": 1024},
        {"gpus": 8, "handoff": 0, "rate": 4, "spread": 1, "output": 1024, "prompt": 2000},
        {"gpus": 8, "rate": 0.01, "output": 1024},
        {"gpus": 8, "degree": 2, "gpu": "H100 SXM", "model": "Llama-3.1-70B", "handoff": 0, "rate": 2},
    )
}


def settings(name: str) -> Iterator[dict[str, object]]:
    """Yield knobs: the dear ones, or some drawn by chance, always the same, of which none is refused."""
    yield from DEAR.get(name, ())
    chance, left = Random(name), COUNT - len(DEAR.get(name, ()))
    while left:
        drawn: dict[str, object] = {}
        for knob in calculator(name).knobs:
            if isinstance(knob, Choice):
                drawn[knob.name] = chance.choice(knob.choices)
            elif isinstance(knob, Number):
                value = chance.uniform(knob.low, knob.high)
                drawn[knob.name] = round(value) if knob.whole else round(value, 2)
        try:
            calculator(name)(**drawn)
        except ValueError:
            continue
        left -= 1
        yield drawn


class Quiet(Handler):
    """Serves the site in silence."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def timed(tab: Page, name: str) -> tuple[float, list[float]]:
    """Return the seconds of the first answer, and the milliseconds of the next ones, drawing included."""
    start = perf_counter()
    tab.evaluate(ASK, {})
    return perf_counter() - start, [tab.evaluate(ASK, knobs) for knobs in settings(name)]


def main() -> None:
    """Print a row for each calculator, below how busy the machine is."""
    print("load: {:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg()))
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
            first, later = timed(tab, name)
            print(
                f"{name:16} first {first:5.1f} s, then {median(later):6.0f} ms, at most {max(later):6.0f} ms"
            )
            tab.context.close()
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
