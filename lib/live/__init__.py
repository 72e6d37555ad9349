"""Calculators: questions of the book's chapters, each with a few knobs that a page can turn.

A calculator is a plain function in a module of its name, `lib/live/<name>.py`, with its knobs declared beside
it. It imports the standard library and `lib` only, so that it runs in a browser as it runs here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any, NotRequired, TypedDict

from lib import parallelism
from lib.hardware import GPUS, LINKS
from lib.models import MODELS, Model

MODEL = {model.name: model for model in MODELS}  # the catalogues, by name: what knobs offer
GPU = {gpu.name: gpu for gpu in GPUS}
LINK = {link.name: link for link in LINKS}
LEAST = 0.001  # MiB, where bars of sizes begin

Name = str
Answered = Callable[..., "Answer"]


class Axis(TypedDict):
    """One axis of a plot: its label with the unit; whether it is logarithmic, or counts; its fixed ends."""

    label: str
    log: NotRequired[bool]
    whole: NotRequired[bool]
    ends: NotRequired[tuple[float, float]]


class Mark(TypedDict):
    """Something drawn: `line`, `points`, `bars` from x to x2, `ticks`, or a `rule` at one x.

    Where the plot has rows, y holds a row's name for each x. `colour` is one of the book's names for them.
    """

    kind: str
    name: str
    colour: str
    x: Sequence[float]
    y: NotRequired[Sequence[float] | Sequence[str]]
    x2: NotRequired[Sequence[float]]
    dash: NotRequired[bool]
    shape: NotRequired[str]


def line(name: str, colour: str, x: Sequence[float], y: Sequence[float], dash: bool = False) -> Mark:
    """Return a line; a dashed one stands for prefill and decode apart."""
    return {"kind": "line", "name": name, "colour": colour, "x": x, "y": y, "dash": dash}


def points(name: str, colour: str, x: Sequence[float], y: Sequence[float], shape: str = "circle") -> Mark:
    """Return points: circles, squares or triangles; those without a name have no entry in the legend."""
    return {"kind": "points", "name": name, "colour": colour, "x": x, "y": y, "shape": shape}


def rule(name: str, x: float, colour: str = "waiting") -> Mark:
    """Return a line from top to bottom, dotted."""
    return {"kind": "rule", "name": name, "colour": colour, "x": [x]}


def bars(name: str, colour: str, spans: Sequence[tuple[str, float, float]]) -> Mark:
    """Return bars: the row of each, its start and its end."""
    x, x2 = [start for _, start, _ in spans], [end for *_, end in spans]
    return {"kind": "bars", "name": name, "colour": colour, "x": x, "x2": x2, "y": [row for row, *_ in spans]}


def ticks(name: str, colour: str, moments: Sequence[tuple[str, float]]) -> Mark:
    """Return ticks: the row of each, and where it stands."""
    rows, x = [row for row, _ in moments], [moment for _, moment in moments]
    return {"kind": "ticks", "name": name, "colour": colour, "x": x, "y": rows}


def sizes(most: float) -> Axis:
    """Return an axis for the sizes of what a request brings, from LEAST to `most` MiB."""
    return {"label": "MiB a request", "log": True, "ends": (LEAST, most)}


class Plot(TypedDict):
    """What two libraries draw in two places: message, text alternative, axes, marks, names of rows."""

    title: str
    alt: str
    x: Axis
    y: Axis
    marks: list[Mark]
    rows: NotRequired[list[str]]


class Answer(TypedDict):
    """What a calculator says: sentences; the columns of a table, and of one more; a plot.

    `link` is what the page's address holds of each text, by its knob's name; of others nothing.
    """

    say: list[str]
    table: dict[str, list[Any]]
    more: NotRequired[dict[str, list[Any]]]
    plot: Plot
    link: NotRequired[dict[Name, str]]


WRITTEN = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def quoted(given: object) -> str:
    """Return what was given as a message repeats it: of something long the head."""
    text = repr(given)
    return text if len(text) <= 40 else f"{text[:30]}…"


@dataclass(frozen=True)
class Number:
    """A knob for a number between two others. `step` is what an arrow key adds.

    `zero` says what 0, or nothing at all, means, where that is more than a small number.
    """

    name: str
    label: str
    unit: str
    default: float
    low: float
    high: float
    step: float = 1
    whole: bool = True
    zero: str = ""

    @property
    def range(self) -> str:
        """What would do, in words."""
        return f"{self.low:,} to {self.high:,}{' ' * bool(self.unit)}{self.unit}"

    @property
    def hint(self) -> str:
        """What would do, what 0 means, and where the knob stands at first."""
        zero = f"0: {self.zero}; " if self.zero else ""
        return f"{zero}{self.range}; at first {self.default:,}"

    @property
    def use(self) -> str:
        """What to put in."""
        return f"use {'a whole number' if self.whole else 'a number'}, {self.range}"

    def read(self, given: object) -> float:
        """Return the number that is given, perhaps as text: 2048, 2,048, 0.8, 2e3; but not 0,8.

        ValueError says what would do.
        """
        text = str(given).strip()
        if self.zero and not text:
            return 0
        try:
            value = float(text.replace(",", "")) if WRITTEN.fullmatch(text) else nan
        except ValueError:  # a point alone, nothing at all
            value = nan
        fits = self.low <= value <= self.high and not (self.whole and value % 1)
        if isinstance(given, bool) or not fits:
            raise ValueError(f"{self.name}={quoted(given)} will not do; {self.use}")
        return int(value) if self.whole else value


@dataclass(frozen=True)
class Text:
    """A knob for text that is pasted, or for none. `hint` says what would do, `example` shows it.

    What stands for it in the page's address is for the calculator to say, in the `link` of its answer.
    """

    name: str
    label: str
    hint: str
    example: str
    default: str = ""
    most: int = 100_000  # characters

    def read(self, given: object) -> str:
        """Return the text that is given. ValueError says what would do."""
        if not isinstance(given, str) or len(given) > self.most:
            raise ValueError(f"{self.name}: will not do; use text of at most {self.most:,} characters")
        return given.strip()


@dataclass(frozen=True)
class Choice:
    """A knob for one of several names."""

    name: str
    label: str
    default: str
    choices: tuple[str, ...]

    def read(self, given: object) -> str:
        """Return the name that is given. ValueError says what would do."""
        if given not in self.choices:
            choices = ", ".join(self.choices)
            raise ValueError(f"{self.name}={quoted(given)} is no choice; use one of {choices}")
        return str(given)


Knob = Number | Choice | Text


@dataclass(frozen=True)
class Group:
    """Knobs that belong together, under a heading; those without one stand by themselves."""

    legend: str
    knobs: tuple[Knob, ...]


class Refused(ValueError):
    """Knobs that will not do: what is wrong with each, by its name."""

    def __init__(self, wrong: Mapping[Name, str]):
        super().__init__("; ".join(wrong.values()))
        self.wrong = dict(wrong)


@dataclass(frozen=True)
class Calculator:
    """A function from the values of knobs to an answer. Called without some, it takes their defaults."""

    function: Answered
    title: str
    groups: tuple[Group, ...]

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs, in order."""
        return tuple(knob for group in self.groups for knob in group.knobs)

    @property
    def name(self) -> Name:
        """What the page, the address bar and the module call it."""
        return self.function.__name__

    def read(self, given: Mapping[Name, object]) -> dict[Name, Any]:
        """Return the value of every knob. Refused names each that will not do."""
        known = {knob.name for knob in self.knobs}
        wrong = {name: f"{name} is no knob; use {', '.join(known)}" for name in given if name not in known}
        values: dict[Name, Any] = {}
        for knob in self.knobs:
            try:
                values[knob.name] = knob.read(given.get(knob.name, knob.default))
            except ValueError as error:
                wrong[knob.name] = str(error)
        if wrong:
            raise Refused(wrong)
        return values

    def __call__(self, **given: object) -> Answer:
        """Return the answer for these values. Refused, a ValueError, says which will not do."""
        return self.function(**self.read(given))


def short(value: float) -> str:
    """Return a number to three digits, without an exponent.

    >>> short(13_432.1), short(0.05642)
    ('13,400', '0.0564')
    """
    return f"{float(f'{value:.3g}'):,.10g}"


def unshared(model: Model, gpus: int) -> str:
    """Return which heads `gpus` GPUs cannot share, so that no engine starts on them; "" if they share all.

    Query heads in whole numbers; KV heads too, or each on equally many GPUs. (vLLM refuses other numbers when
    it starts: "Total number of attention heads must be divisible by tensor parallel size", vllm #11797.)
    """
    for group in model.groups:
        for mixer in group.mixers:
            if mixer.heads % gpus:
                return f"{mixer.heads} heads"
            kv_heads = getattr(mixer, "kv_heads", gpus)
            if kv_heads % gpus and gpus % kv_heads:
                return f"{kv_heads} KV heads"
    return ""


def starts(model: str, gpu: str, gpus: str, **tokens: tuple[str, int]) -> None:
    """Refuse what no engine would start: by the names of these knobs, in the words of their labels.

    `tokens`: for each knob that makes a request long, what it is called and the tokens that come together.
    """
    network, chip, count = MODEL[model], GPU[gpu], int(gpus)
    wrong = {}
    if heads := unshared(network, count):
        wrong["gpus"] = f"GPUs to a copy: {count} cannot share the {heads} of {model}; choose another number"
    elif parallelism.free(network, chip, count) <= 0:
        wrong["gpus"] = (
            f"GPUs to a copy: {count} {chip.name} {'has' if count == 1 else 'have'} "
            f"{count * parallelism.USABLE_MEMORY * chip.memory / 1e9:,.0f} GB to use, the weights of {model} "
            f"are {network.resident_bytes / 1e9:,.0f} GB; choose more GPUs, larger ones or a smaller model"
        )
    for name, (label, length) in tokens.items():
        if network.context is not None and length > network.context:
            wrong[name] = f"{label}: {length:,} tokens, but {model} reads {network.context:,} at most"
        elif not wrong and not parallelism.fits(network, chip, count, length):
            wrong[name] = f"{label}: no cache of {length:,} tokens fits beside the weights; choose more GPUs"
    if wrong:
        raise Refused(wrong)


WIDTHS = ("1", "2", "4", "8")  # GPUs to a copy


def calculates(title: str, *knobs: Knob | Group) -> Callable[[Answered], Calculator]:
    """Return a decorator that makes a function a calculator with these knobs."""
    groups = tuple(knob if isinstance(knob, Group) else Group("", (knob,)) for knob in knobs)
    return partial(Calculator, title=title, groups=groups)


def calculator(name: Name) -> Calculator:
    """Return the calculator of this name."""
    if name not in NAMES:
        raise ValueError(f"calculator: name={name!r} is none; use one of {', '.join(NAMES)}")
    found: Calculator = getattr(importlib.import_module(f"lib.live.{name}"), name)
    return found


NAMES = (
    "one_long_prompt",
    "goodput",
    "roofline",
    "chunking",
    "a_step",
    "kv_handoff",
    "cuts",
    "two_pools",
    "first_token",
    "multi_turn",
    "parser_replay",
    "payload",
    "decide",
)
