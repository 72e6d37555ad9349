"""The review's figures, held against what a page computes. What others measured is in `world`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from lib import data
from lib.page.markup import Html
from lib.page.tables import html_of

QUOTED = ("guide_", "fabric_lib", "image_ms_", "cpu_saved_ms")  # what the review quotes and does not compute


def figures() -> dict[str, Any]:
    """Return the whole of `lib/data/published.toml`, decimals at their printed precision."""
    return data.read("published.toml")


def get(path: str) -> Any:
    """Return one figure or table by its path, like `get("roofline.ridge_flops_per_byte")`, as floats."""
    return plain(find(path))


def find(path: str) -> Any:
    """Return one figure or table of the file as it is."""
    here: Any = figures()
    for key in split(path):
        if not isinstance(here, Mapping) or key not in here:
            raise ValueError(f"published: no {path!r}; at {key!r} there are {', '.join(here)}")
        here = here[key]
    return here


def split(path: str) -> list[str]:
    """Split a dotted path; a key that contains a dot stands in quotes."""
    parts = path.split('"')
    return [key for i, part in enumerate(parts) for key in ([part] if i % 2 else part.split(".")) if key]


def plain(value: Any) -> Any:
    """Return the value with every Decimal made a float."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for every figure or list of figures in a table."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f'{path}."{key}"' if "." in key else f"{path}.{key}")
    else:
        yield path, value


def agrees(computed: Any, printed: Any) -> bool:
    """Tell whether a computed value rounds to the printed one, at its precision; ties may go either way.

    >>> agrees(332.47, Decimal("332.5")), agrees(332.56, Decimal("332.5")), agrees([8, 2.4], [8, 2])
    (True, False, True)
    """
    if isinstance(printed, list):
        return (
            isinstance(computed, (list, tuple))
            and len(computed) == len(printed)
            and all(map(agrees, computed, printed))
        )
    if isinstance(printed, (int, Decimal)) and not isinstance(printed, bool):
        if (
            isinstance(computed, bool)
            or not isinstance(computed, (numbers.Real, Decimal))
            or not math.isfinite(computed)
        ):
            return False
        half = Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent)) / 2
        # a tie of two floats can be off by their own rounding
        return abs(exact(computed) - printed) <= half * (1 + Decimal("1e-9"))
    return type(computed) is type(printed) and bool(computed == printed)


def exact(value: Any) -> Decimal:
    """Return a number as a Decimal, numpy's and fractions too."""
    if isinstance(value, numbers.Rational):
        return Decimal(int(value.numerator)) / int(value.denominator)
    return value if isinstance(value, Decimal) else Decimal(float(value))


def shown(value: Any, like: Any) -> str:
    """Return a value as text, at the precision of the printed one; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(like, list) and isinstance(value, (list, tuple)):
        padded = [*like, *[like[-1] if like else ""] * (len(value) - len(like))]
        return " · ".join(map(shown, value, padded))
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, Decimal)) or not math.isfinite(value):
        return str(value).replace("\n", "\\n")  # a record has a line for each row
    exponent = int(Decimal(like).as_tuple().exponent) if isinstance(like, (int, Decimal)) else -3
    if exponent > 0:
        return f"{exact(value):.{len(Decimal(like).as_tuple().digits) - 1}e}"
    return f"{exact(value):,.{-exponent}f}"


def compare(
    section: str, differs: Mapping[str, str] | None = None, quoted: tuple[str, ...] = (), **values: Any
) -> Html:
    """Return a table of the review's figures beside this page's, and claim them for the page.

    section: a dotted path in published.toml; values: key -> what the page computed, of the same shape.
    quoted: keys that the review itself quotes. differs: key -> why this page's figure is another one.
    In a notebook a difference only shows; the build fails on one that `differs` does not explain.
    """
    differs = dict(differs or {})
    if not values and not quoted:
        raise ValueError("compare: no values; give at least one key=value or quoted=(key,)")
    for key in quoted:
        if not key.startswith(QUOTED) and not section.startswith("measured"):
            raise ValueError(
                f"compare: quoted={key!r} is a figure that the review computes; give its value instead"
            )
    for key, reason in differs.items():
        if len(reason.split()) < 2:
            raise ValueError(f"compare: differs[{key!r}]={reason!r} explains nothing; say why they differ")
    if unknown := set(differs) - set(values):
        raise ValueError(f"compare: differs names {sorted(unknown)}, which are not compared; drop them")
    rows: list[tuple[str, str, str, str]] = []
    problems = []
    for key in [*values, *quoted]:
        path = f'{section}."{key}"' if "." in key else f"{section}.{key}"
        theirs = dict(leaves(find(path), path))
        ours = dict(leaves(values[key], path)) if key in values else {}
        same = {leaf: agrees(ours.get(leaf), theirs.get(leaf)) for leaf in (*theirs, *ours)}
        for leaf, agreed in same.items():
            name = leaf.removeprefix(section).removeprefix(".")
            review, page = (shown(side.get(leaf), theirs.get(leaf)) for side in (theirs, ours))
            if key not in values:
                rows.append((name, review, page, "quoted"))
            elif agreed:
                rows.append((name, review, page, "agrees"))
            else:
                rows.append((name, review, page, differs.get(key, "differs")))
                if key not in differs:
                    problems.append(f"published: {leaf} is {review}, not {page}")
        if key in differs and all(same.values()):
            problems.append(f"published: {path} agrees, so nothing in differs is to be explained")
    columns: dict[str, Any] = dict(
        zip(("figure", "review", "this page", "verdict"), zip(*rows, strict=True), strict=True)
    )
    moved = sum(verdict not in ("agrees", "quoted") for *_, verdict in rows)
    verdict = f"{len(rows)} published figures in [{section}], {moved} of them different here"
    if len(rows) == 1:
        verdict = f"1 published figure in [{section}], {moved} different here"
    return html_of(columns, verdict, verdict, problem=problems)
