"""Conclusions: sentences that compare, rank, forbid or promise, each asked in every world of `lib.worlds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Protocol

from lib.page.markup import CONCLUDED, Html, recorded, typeset

ENOUGH = 0.9  # of the worlds, for a sentence that does not say where it stands


class Named(Protocol):
    """A world, as far as a page has to know it."""

    @property
    def name(self) -> str:
        """What it is called on a page."""


def conclusion(
    sentence: str,
    holds: Callable[[Any], bool],
    where: str = "",
    within: Callable[[Any], bool] | None = None,
    worlds: Sequence[Named] | None = None,
) -> Html:
    """Return in how many worlds a sentence stands, and in which it does not; the record holds both.

    sentence: as the page says it, word for word: in its title, a heading, a figure's title or its text.
    holds: tells of a world whether it is true there. where, within: words of the sentence that say where it
    stands, and which worlds those are; it is asked in all of them, and the page says what came of the others.
    The build fails on a sentence that its page does not say, and on one that stands in fewer than nine of
    ten worlds, those of `within` if there is one. ValueError for `where` without `within`, words that are
    not in the sentence, no world left, or an answer that is neither True nor False.
    """
    asked = {world.name: (world, answer(sentence, holds, world)) for world in worlds or all_worlds()}
    if bool(where) != (within is not None):
        raise ValueError(f"conclusion: where={where!r} and within go together; give both or neither")
    if where.casefold() not in sentence.casefold():
        raise ValueError(f"conclusion: where={where!r} is not said in “{sentence}”; say it there")
    inside = {name: stands for name, (world, stands) in asked.items() if within is None or within(world)}
    if not inside:
        raise ValueError(f"conclusion: where={where!r} leaves no world; let within keep at least one")
    everywhere = {name: stands for name, (_, stands) in asked.items()}
    said = typeset(verdict(inside, everywhere, where))
    few = sum(inside.values()) < ENOUGH * len(inside)
    advice = "say in it where it stands (where=, within=), or say what is true"
    return Html(
        f'<p class="conclusion"><strong>{escape(typeset(sentence))}</strong> '
        f"<small>{escape(said)}</small></p>",
        f"{sentence} {said}",
        record=recorded([CONCLUDED + typeset(sentence), CONCLUDED + said]),
        problem=[f"conclusion: “{sentence}” {said} {advice[0].upper()}{advice[1:]}"] if few else [],
        conclusion={
            "sentence": sentence,
            "stands": sum(everywhere.values()),
            "of": len(everywhere),
            "where": where,
            "not_in": [name for name, stands in everywhere.items() if not stands],
        },
    )


def answer(sentence: str, holds: Callable[[Any], bool], world: Named) -> bool:
    """Return what `holds` says of a world; ValueError where it is neither True nor False."""
    stands = holds(world)
    if not isinstance(stands, bool):
        raise ValueError(f"conclusion: “{sentence}” is {stands!r} in {world.name}; let holds return a bool")
    return stands


def verdict(inside: dict[str, bool], everywhere: dict[str, bool], where: str = "") -> str:
    """Return in how many worlds a sentence stands, and the names of those where it does not.

    >>> verdict({"a": True, "b": False}, {"a": True, "b": False})
    'Stands in 1 of 2 worlds; not with: b.'
    """
    names = ", ".join(name for name, stands in everywhere.items() if not stands)
    but = f"; not with: {names}." if names else "."
    count = f"{sum(everywhere.values())} of {len(everywhere)} worlds"
    if not where:
        return f"Stands in {count}{but}"
    own = f"{sum(inside.values())} of the {len(inside)} worlds it is said of (“{where}”)"
    return f"Stands in {own}, and in {count} in all{but}"


def all_worlds() -> Sequence[Named]:
    """Return the book's worlds."""
    from lib.worlds import WORLDS  # with the simulator, which a page without conclusions does not need

    return WORLDS
