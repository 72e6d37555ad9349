"""What a command line says: its numbers, a recording in place of some of them, and words for any terminal."""

import argparse
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from lib import traffic, workload
from lib.decide.case import Load, poisson, recorded
from lib.traffic import Traffic

MOST_REQUESTS = 20_000  # of a recording, that are looked at; of these `steady.MOST` are played at most
OWN = {"rate": "rate", "prompt": "prompts", "output": "answers", "spread": "lengths"}  # of a recording
LARGEST = 1e12
IN_ASCII = str.maketrans({
    "\xa0": " ", "\u202f": " ", "\u2009": " ", "−": "-", "–": "-", "—": "-", "×": "x", "’": "'", "‘": "'",
    "“": '"', "”": '"', "…": "...", "µ": "u", "→": "->", "≤": "<=", "≥": ">=",
})  # fmt: skip


def printable(text: str, encoding: str | None) -> str:
    """Return a text as an output of that encoding can say it: plain signs for those that it cannot."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(IN_ASCII).encode(encoding, "replace").decode(encoding)
    return text


class Parser(argparse.ArgumentParser):
    """A parser that refuses in one line, takes no abbreviations, and no option twice.

    `given` of what it returns names the options that were there.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)
        self.register("action", None, Once)
        self.register("action", "store", Once)

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and one sentence."""
        self.exit(2, printable(f"{self.prog}: {one_line(message)}\n", "ascii"))


class Once(argparse.Action):
    """Store a value, and refuse a second one."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        """Store it, or refuse."""
        given = vars(namespace).setdefault("given", set())
        if self.dest in given:
            parser.error(f"{option} is given twice; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def one_line(message: str) -> str:
    """Return a message on one line, without control characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in message).split())


def number(text: str) -> float:
    """Return the number in a text that is finite and of this world. Argparse's error where there is none."""
    return _number(text, float, "a finite number")


def whole(text: str) -> int:
    """Return the whole number in a text. Argparse's error where there is none."""
    return _number(text, int, "a whole number")


Number = TypeVar("Number", int, float)


def _number(text: str, kind: Callable[[str], Number], what: str) -> Number:
    shown = repr(text if len(text) <= 40 else f"{text[:30]}… ({len(text):,} characters)")
    value: Number | None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not (isinstance(value, int) or isfinite(value)):
        raise argparse.ArgumentTypeError(f"{shown} is not {what}; use one")
    if abs(value) > LARGEST:
        raise argparse.ArgumentTypeError(f"{shown} is out of this world; use {what} up to {LARGEST:.0e}")
    return value


def read_traffic(arguments: argparse.Namespace) -> Traffic | None:
    """Return the recording that the arguments name, or as much as is looked at; None where they name none.

    ValueError where it cannot be read, and where an option contradicts it.
    """
    if arguments.trace is None:
        for option in ("trace_time", "calibrate"):
            if getattr(arguments, option):
                raise ValueError(f"{flag(option)}: there is no recording; give --trace FILE as well")
        return None
    for option, own in OWN.items():
        if option in arguments.given:
            raise ValueError(f"{flag(option)} and --trace: a recording has its own {own}; use one of the two")
    return traffic.window(workload.read(Path(arguments.trace), arguments.trace_time), MOST_REQUESTS)


def flag(option: str) -> str:
    """Return an option as it is written."""
    return "--" + option.replace("_", "-")


def read_load(arguments: argparse.Namespace, found: Traffic | None) -> Load:
    """Return the load that the arguments describe: a recording, or a rate and lengths."""
    if found is not None:
        return recorded(found)
    if arguments.rate is None:
        raise ValueError("--rate: missing; give requests per second, or --trace FILE")
    return poisson(arguments.rate, arguments.prompt, arguments.output, arguments.spread, arguments.hit_rate)


def read_times(arguments: argparse.Namespace, found: Traffic | None) -> tuple[int, float, float] | None:
    """Return what was timed: tokens of a prompt, its seconds alone, those of a step; None where nothing was.

    By hand (of a prompt as long as --prompt, or as the recording's are on average), or in the recording.
    """
    times = (arguments.prefill_ms, arguments.decode_ms)
    if arguments.calibrate:
        if times != (None, None):
            raise ValueError("--calibrate and --prefill-ms or --decode-ms: both time a step; use one of them")
        if found is not None:
            prompt, first, step = traffic.alone(found)
            return round(prompt), first, step
    if times == (None, None):
        return None
    if None in times:
        raise ValueError("--prefill-ms and --decode-ms: only one is given; measure both")
    prompt = arguments.prompt if found is None else found.prompt
    return round(prompt), times[0] / 1e3, times[1] / 1e3
