"""From the text that a model wrote to the message that an API returns: content, reasoning, tool calls.

`derender` takes the whole text. `Parser` takes it piece by piece, as a stream delivers it, and says what each
piece adds. Both accept any text: what is malformed stays in the content, and no character is lost. Where the
chat template itself has opened the thought, the text begins inside it: say `thinking=True`.
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
JSON = re.compile(r"\s*\{")
STRING_OR_END = re.compile(r'"(?:\\.|[^"\\\n])*+["\n]?|</tool_call>')


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


def derender(text: str, thinking: bool = False) -> Reply:
    """Return the message that a whole text holds; `thinking`: the template has opened a thought before it.

    Reasoning stands between <think> and </think>, a tool call between its tags as JSON with a `name`. A tag
    that is never closed reaches to the end; a tool call that is no such JSON is content, tags and all.
    """
    return reply(pieces(text, thinking))


def pieces(text: str, thinking: bool = False) -> list[Piece]:
    """Return the text in pieces that, put together with their tags, are the text again."""
    found, at = [], 0
    if thinking and text:
        thought, closed, _ = text.partition("</think>")
        found, at = [Piece("reasoning", thought, "", closed)], len(thought) + len(closed)
    while at < len(text):
        opening = OPENING.search(text, at)
        start, inside = opening.span() if opening else (len(text), len(text))
        if start > at:
            found.append(Piece("content", text[at:start]))
        if not opening:
            break
        tag = opening[0]
        end = closing(text, tag, inside)
        if end == -1:
            found.append(Piece(KIND[tag], text[inside:], tag))
            break
        found.append(Piece(KIND[tag], text[inside:end], tag, TAGS[tag]))
        at = end + len(TAGS[tag])
    return found


def closing(text: str, tag: str, at: int) -> int:
    """Return where the tag is closed that was opened before `at`, or -1.

    A call that begins as JSON ends where its JSON does: a closing tag inside one of its strings is part of
    the string. (JSON's strings hold no line break, so none is open beyond its line.)
    """
    if tag == "<tool_call>" and JSON.match(text, at):
        ends = (found.start() for found in STRING_OR_END.finditer(text, at) if found[0][0] == "<")
        return next(ends, -1)
    return text.find(TAGS[tag], at)


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

    Each character is looked at once: what could still become a tag is held back until that is clear, and a
    tool call until it is closed, for until then nobody knows whether it is one.
    """

    def __init__(self, thinking: bool = False) -> None:
        self.done: list[Piece] = []
        self.kind, self.opened = "content", ""
        self.end_tag = ""  # the tag that closes what is open
        if thinking:
            self.kind, self.end_tag = "reasoning", "</think>"
        self.text: list[str] = []
        self.held = ""
        self.quote = ""  # a call's JSON: "" outside its strings, the quote inside one, a backslash after one
        self.json: bool | None = None  # whether what is open is a call that begins as JSON; None: not known
        self.work = 0

    def feed(self, more: str) -> list[Piece]:
        """Take the next piece of the stream. Returns what has become clear with it, oldest first.

        All that was ever returned, and `end()`, add up to what `reply` says.
        """
        new: list[Piece] = []
        for character in more:
            self.work += 1
            self.held += character
            tags = [] if self.quote else [self.end_tag] if self.end_tag else list(TAGS)
            while self.held and not any(tag.startswith(self.held) for tag in tags):
                self.take(self.held[0])
                if self.kind != "tool_call":
                    new.append(Piece(self.kind, self.held[0]))
                self.held = self.held[1:]
            if self.held in tags:
                self.switch(self.held)
                if self.done and self.done[-1].kind == "tool_call" and not self.end_tag:
                    new.append(said(self.done[-1]))
        return merged(new)

    def end(self) -> list[Piece]:
        """Return what was held back to the end of the stream: all of it is text."""
        if self.kind == "tool_call":
            return [said(self.pieces()[-1])]
        return [Piece(self.kind, self.held)] if self.held else []

    def take(self, character: str) -> None:
        """Add a character to the text of what is open, and follow a call's JSON in and out of its strings."""
        self.text.append(character)
        if self.json is None and self.kind == "tool_call" and not character.isspace():
            self.json = character == "{"
        if not self.json:
            return
        if self.quote == "\\" and character != "\n":
            self.quote = '"'
        elif self.quote:
            self.quote = {'"': "", "\n": "", "\\": "\\"}.get(character, '"')
        elif character == '"':
            self.quote = '"'

    def switch(self, tag: str) -> None:
        """Close what is open at a tag; an opening tag opens something new."""
        text = "".join(self.text)
        if self.end_tag:
            self.done.append(Piece(self.kind, text, self.opened, tag))
        elif text:
            self.done.append(Piece("content", text))
        self.opened = "" if self.end_tag else tag
        self.kind, self.end_tag = KIND.get(self.opened, "content"), TAGS.get(self.opened, "")
        self.text, self.held, self.quote, self.json = [], "", "", None

    def pieces(self) -> list[Piece]:
        """Return the text so far, in pieces; what is held back counts as text."""
        text = "".join(self.text) + self.held
        last = [Piece(self.kind, text, self.opened)] if text or self.opened else []
        return self.done + last

    def reply(self) -> Reply:
        """Return the message so far."""
        return reply(self.pieces())


def said(part: Piece) -> Piece:
    """Return a call's piece as a client gets it: as it is, or as content where it is no call."""
    if tool_call(part) is not None:
        return part
    return Piece("content", part.opened + part.text + part.closed)


def merged(new: list[Piece]) -> list[Piece]:
    """Return pieces with neighbours of one kind joined, calls apart."""
    joined: list[Piece] = []
    for kind, group in groupby(new, lambda part: part.kind):
        parts = list(group)
        joined += parts if kind == "tool_call" else [Piece(kind, "".join(part.text for part in parts))]
    return joined


class RescanningParser:
    """A parser that looks at all its text again whenever more of it comes, as many real ones do."""

    def __init__(self, thinking: bool = False) -> None:
        self.text, self.thinking = "", thinking
        self.work = 0

    def feed(self, more: str) -> list[Piece]:
        """Take the next piece of the stream. Returns all pieces of the text so far."""
        self.text += more
        self.work += len(self.text)
        return pieces(self.text, self.thinking)


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
