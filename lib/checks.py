"""Refusals: one ValueError that names the thing, the argument, its value and what would do."""

from math import isfinite
from numbers import Integral, Real
from sys import float_info
from typing import TypeGuard

LARGEST = int(float_info.max)


def counts(owner: str, **values: object) -> None:
    """Refuse any of the values that is not a whole number of at least 1 (True is no number here)."""
    _whole(owner, 1, values)


def counts_or_zero(owner: str, **values: object) -> None:
    """Refuse any of the values that is not a whole number of at least 0."""
    _whole(owner, 0, values)


def positive(owner: str, **values: object) -> None:
    """Refuse any of the values that is not a finite number above 0."""
    for name, value in values.items():
        if not finite(value) or value <= 0:
            raise ValueError(f"{owner}: {name}={value!r} will not do; use a finite number above 0")


def not_negative(owner: str, **values: object) -> None:
    """Refuse any of the values that is not a finite number of at least 0."""
    for name, value in values.items():
        if not finite(value) or value < 0:
            raise ValueError(f"{owner}: {name}={value!r} will not do; use a finite number of at least 0")


def shares(owner: str, **values: object) -> None:
    """Refuse any of the values that is not above 0 and at most 1."""
    for name, value in values.items():
        if not finite(value) or not 0 < value <= 1:
            raise ValueError(f"{owner}: {name}={value!r} is no share; use a number above 0 and at most 1")


def named(owner: str, **values: object) -> None:
    """Refuse any of the values that is not a string with something in it."""
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{owner}: {name}={value!r} says nothing; use a string that is not empty")


def _whole(owner: str, least: int, values: dict[str, object]) -> None:
    for name, value in values.items():
        if type(value) is int and value >= least:  # as a rule; the next line takes four times as long
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"{owner}: {name}={value!r} will not do; use a whole number of at least {least}")


def finite(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number (True is none here)."""
    if type(value) is float:  # as a rule
        return isfinite(value)
    if isinstance(value, int) and abs(value) > LARGEST:
        return False  # as a float it would be infinite
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
