"""From the text that a model wrote to the message that an API returns: content, reasoning, tool calls.

`derender` takes the whole text. `Parser` takes it piece by piece, as a stream delivers it, and says what each
piece adds. Both accept any text: what is malformed stays in the content, and no character is lost.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from lib import checks

TAGS = {"<think>": "</think>", "<tool_call>": "</tool_call>"}
OPENING = re.compile("|".join(TAGS))
KIND = {"<think>": "reasoning", "<tool_call>": "tool_call"}


class AnyParser(Protocol):
    """What the two parsers have in common."""

    work: int

    def feed(self, more: str) -> list["Piece"]:
        """Take the next piece of the stream."""


class Piece(NamedTuple):
    """A stretch of the model's text: its kind (content, reasoning or tool_call), the text between its tags.

    `opened` and `closed` are the tags themselves, empty where there are none.
    """

    kind: str
    text: str
    opened: str = ""
    closed: str = ""


@dataclass(frozen=True)
class Reply:
    """What a client gets: content and reasoning (None where there is none), and the tool calls."""

    content: str | None
    reasoning: str | None
    tool_calls: list[dict[str, Any]]


def derender(text: str) -> Reply:
    """Return the message that a whole text holds.

    Reasoning stands between <think> and </think>, a tool call between its tags as JSON with a `name`. A tag
    that is never closed reaches to the end; a tool call that is no such JSON is content, tags and all.
    """
    return reply(pieces(text))


def pieces(text: str) -> list[Piece]:
    """Return the text in pieces that, put together with their tags, are the text again."""
    found, at = [], 0
    while at < len(text):
        opening = OPENING.search(text, at)
        start, inside = opening.span() if opening else (len(text), len(text))
        if start > at:
            found.append(Piece("content", text[at:start]))
        if not opening:
            break
        tag = opening[0]
        end = text.find(TAGS[tag], inside)
        if end == -1:
            found.append(Piece(KIND[tag], text[inside:], tag))
            break
        found.append(Piece(KIND[tag], text[inside:end], tag, TAGS[tag]))
        at = end + len(TAGS[tag])
    return found


def reply(parts: Iterable[Piece]) -> Reply:
    """Return the message that pieces add up to."""
    content, reasoning, calls = "", "", []
    for part in parts:
        call = tool_call(part)
        if call is not None:
            calls.append(call)
        elif part.kind == "reasoning":
            reasoning += part.text
        else:
            content += part.opened + part.text + part.closed
    return Reply(content or None, reasoning or None, calls)


def tool_call(part: Piece) -> dict[str, Any] | None:
    """Return the call that a piece holds: an object with a name, as JSON; or None."""
    if part.kind != "tool_call" or not part.closed:
        return None
    try:
        call = json.loads(part.text)
    except (ValueError, RecursionError):
        return None
    return call if isinstance(call, dict) and isinstance(call.get("name"), str) else None


class Parser:
    """Takes a text piece by piece; `work` counts the characters that it looked at.

    Each character is looked at once: what could still become a tag is held back until that is clear.
    """

    def __init__(self) -> None:
        self.done: list[Piece] = []
        self.kind, self.opened = "content", ""
        self.text: list[str] = []
        self.held = ""
        self.work = 0

    def feed(self, more: str) -> list[Piece]:
        """Take the next piece of the stream. Returns what has become clear with it, oldest first."""
        new: list[Piece] = []
        for character in more:
            self.work += 1
            self.held += character
            tags = [TAGS[self.opened]] if self.opened else list(TAGS)
            while self.held and not any(tag.startswith(self.held) for tag in tags):
                self.text.append(self.held[0])
                new.append(Piece(self.kind, self.held[0]))
                self.held = self.held[1:]
            if self.held in tags:
                self.switch(self.held)
        return merged(new)

    def switch(self, tag: str) -> None:
        """Close what is open at a tag; an opening tag opens something new."""
        text = "".join(self.text)
        if self.opened:
            self.done.append(Piece(self.kind, text, self.opened, tag))
        elif text:
            self.done.append(Piece("content", text))
        self.opened = "" if self.opened else tag
        self.kind = KIND.get(self.opened, "content")
        self.text, self.held = [], ""

    def pieces(self) -> list[Piece]:
        """Return the text so far, in pieces; what is held back counts as text."""
        text = "".join(self.text) + self.held
        last = [Piece(self.kind, text, self.opened)] if text or self.opened else []
        return self.done + last

    def reply(self) -> Reply:
        """Return the message so far."""
        return reply(self.pieces())


def merged(new: list[Piece]) -> list[Piece]:
    """Return pieces with neighbours of one kind joined."""
    return [Piece(kind, "".join(p.text for p in group)) for kind, group in groupby(new, lambda p: p.kind)]


class RescanningParser:
    """A parser that looks at all its text again whenever more of it comes, as many real ones do."""

    def __init__(self) -> None:
        self.text = ""
        self.work = 0

    def feed(self, more: str) -> list[Piece]:
        """Take the next piece of the stream. Returns all pieces of the text so far."""
        self.text += more
        self.work += len(self.text)
        return pieces(self.text)


def streamed(chunks: Sequence[str], parser: Callable[[], AnyParser]) -> int:
    """Return the characters of work of one parser that lives as long as the stream."""
    one = parser()
    for chunk in chunks:
        one.feed(chunk)
    return one.work


def replayed(chunks: Sequence[str], parser: Callable[[], AnyParser]) -> int:
    """Return the characters of work on a stateless server: a new parser reads all history at each chunk."""
    return sum(streamed(chunks[: last + 1], parser) for last in range(len(chunks)))


def replay_work(tokens: int, characters: int = 4, rescan: bool = False) -> int:
    """Return what `replayed` counts for `tokens` chunks of `characters` each, without doing it.

    Chunk c replays chunks 1 to c: n (n + 1) / 2 of them in all. Where the r-th costs r it is the sum of those
    sums, n (n + 1) (n + 2) / 6.
    """
    checks.counts("replay_work", tokens=tokens, characters=characters)
    triangle = tokens * (tokens + 1) // 2
    return characters * (triangle * (tokens + 2) // 3 if rescan else triangle)
