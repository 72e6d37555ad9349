"""The picture that stands beside a link to a page where people share it."""

from __future__ import annotations

import hashlib
import io
import textwrap
from pathlib import Path

from lib.page.figures import DECODE, PREFILL

FOLDER = "_static/cards"
INK, MUTED, PAPER = "#1f2429", "#56606b", "#ffffff"
WIDTH, HEIGHT = 1200, 630  # pixels, what the sites that show cards ask for


def card(out: Path, book: str, title: str, about: str) -> str:
    """Draw the card of a page below `out` unless it is there already; return its path in the site."""
    code = Path(__file__).read_bytes()
    name = hashlib.sha256("\0".join((book, title, about)).encode() + code).hexdigest()[:16]
    path = f"{FOLDER}/{name}.png"
    if not (out / path).exists():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(picture(book, title, about))
    return path


def picture(book: str, title: str, about: str) -> bytes:
    """Return the card as a PNG: the title, what the page is about, and tokens that stutter, then do not."""
    import matplotlib
    from matplotlib.figure import Figure
    from PIL import Image

    with matplotlib.rc_context({"font.family": "sans-serif", "text.parse_math": False}):
        canvas = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor=PAPER)
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.axis("off")
        large = 40 if len(title) <= 48 else 33
        lines = textwrap.wrap(title, 32 if large == 40 else 36)[:3]
        axes.text(80, 70, book if title != book else "An executable book", size=19, color=MUTED, va="top")
        axes.text(80, 130, "\n".join(lines), size=large, color=INK, va="top", weight="bold", linespacing=1.25)
        small = textwrap.wrap(about, 72)[: 5 - len(lines)]
        top = 150 + len(lines) * large * 1.75
        axes.text(80, top, "\n".join(small), size=19, color=MUTED, va="top", linespacing=1.45)
        even = range(80, WIDTH - 80, 24)
        halted = [x for x in even if not 420 <= x < 700]
        for y, marks in ((505, halted), (560, even)):
            axes.vlines(list(marks), y - 15, y + 15, color=DECODE, linewidth=4)
        axes.barh([505], [256], left=[428], height=26, color=PREFILL)
        sheet = io.BytesIO()
        canvas.savefig(sheet, format="png", facecolor=PAPER)
    small_sheet = io.BytesIO()
    Image.open(sheet).convert("RGB").quantize(32).save(small_sheet, "PNG", optimize=True)
    return small_sheet.getvalue()


def prune(out: Path) -> None:
    """Delete the cards that no page shows any more."""
    shown = "\0".join(page.read_text("utf8") for page in out.rglob("*.html"))
    for card in (out / FOLDER).glob("*.png"):
        if card.name not in shown:
            card.unlink()
