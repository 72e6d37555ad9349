"""A value becomes a number, or one sentence that says where it stands and what would do."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MOST_TOKENS = 10**9  # of a prompt or an answer
LATEST = 10**20  # of an arrival, in whatever unit
DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9})\d*)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def shown(value: object) -> str:
    """Return a value as a message shows it: on one line, and not without end."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python writes
        return "a number with thousands of digits"
    return text if len(text) <= 60 else f"{text[:50]}… ({len(text):,} characters)"


def number(value: object, comma: bool = False) -> int | float | None:
    """Return a finite number, or the one that a text holds; None where it is none.

    `comma`: a comma is the point of decimals, as in many spreadsheets.
    """
    if isinstance(value, str):
        text = value.strip()
        text = text.replace(",", ".") if comma else text
        if len(text) > 40 or not NUMBER.fullmatch(text):
            return None
        value = int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= LATEST and isfinite(value) else None


def tokens(value: object, where: str, column: str, comma: bool = False) -> int:
    """Return a number of tokens, which may be written 100.0. ValueError where it is none."""
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdigit():
        return int(value)
    found = number(value, comma)
    if found is None or found != int(found) or not 0 <= found <= MOST_TOKENS:
        raise ValueError(
            f"{where}, {column}={shown(value)} is no number of tokens; use a whole number of at least 0"
        )
    return int(found)


def instant(value: object, where: str, column: str, comma: bool = False) -> int | float:
    """Return an arrival that is a number. ValueError where it is none."""
    found = number(value, comma)
    if found is None:
        raise ValueError(
            f"{where}, {column}={shown(value)} is no time; use a finite number, or a date and time"
        )
    if found < 0:
        raise ValueError(f"{where}, {column}={shown(value)} lies before the beginning; use at least 0")
    return found


def date(value: object) -> int | None:
    """Return the nanoseconds from 1970 to a date and time, of Greenwich unless it says more; else None."""
    match = DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    whole = since_1970(day, clock, "+00:00" if zone in (None, "Z", "UTC") else zone)
    return None if whole is None else whole * 10**9 + int((fraction or "0").ljust(9, "0"))


@lru_cache(maxsize=16)
def since_1970(day: str, clock: str, zone: str) -> int | None:
    """Return the seconds from 1970 to a date and time; None where it is none."""
    try:
        then = datetime.fromisoformat(f"{day}T{clock}{zone}")
    except ValueError:  # February 30
        return None
    return (then - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
