"""Values that depend on the machine: shown with their bounds, recorded by these alone."""

from __future__ import annotations

import math
import os
import platform
from decimal import Decimal
from html import escape

from lib.page.markup import Html


def measured(value: float, unit: str, between: tuple[float, float], what: str = "") -> Html:
    """Return a value measured on the machine at hand, with bounds that say what is plausible.

    The record holds the bounds and not the value; a value outside of them fails the build.
    """
    low, high = between
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"measured: between={between} bounds nothing; give finite (low, high), low < high")
    name = f"{what}: " if what else ""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    shown = f"{name}{rounded(value)} {unit}"
    least, most = rounded(low), rounded(high)
    note = f"measured on this machine ({machine}); plausible from {least} to {most} {unit}"
    problem = [] if low <= value <= high else [f"{shown} is not between {least} and {most} {unit}"]
    return Html(
        f'<p class="measured"><strong>{escape(shown)}</strong> <small>{escape(note)}</small></p>',
        f"{shown}, {note}",
        record=f"{name}measured here, plausible from {least} to {most} {unit}",
        problem=problem,
    )


def rounded(value: float) -> str:
    """Return a number with three digits, and with commas in place of an exponent."""
    return f"{Decimal(f'{value:.3g}'):,f}" if math.isfinite(value) else str(value)
