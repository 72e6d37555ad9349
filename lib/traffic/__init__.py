"""Recorded traffic, in the formats in which it is published, read as it is.

`read` looks at a file to see what it is, and returns its requests with what it understood. In the order of
reading: `source` (bytes become text), `cells` (a value becomes a number, or a refusal), `formats` (who calls
what by which name, and in which unit), `prefixes` (what prompts share), here (the answer).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import fsum
from pathlib import Path
from statistics import fmean, median
from typing import overload

from lib import checks
from lib.traffic.cells import PER_SECOND
from lib.traffic.formats import Recording, Row, recording
from lib.traffic.prefixes import Prefixes
from lib.traffic.source import opened
from lib.workload import Request

__all__ = ["Measured", "Traffic", "read", "window"]

SINCE_1970 = 1e8  # seconds; an arrival later than that is a date, and is counted from the first request
SLOW, FAST = 0.1, 1000.0  # requests a second; beyond these, times may be in another unit than they say


@dataclass(frozen=True)
class Measured:
    """What a benchmark measured, a value for each request.

    `ttft`: seconds to the first token; `tpot`: mean seconds between the tokens after it (0 where there are
    none); `gaps`: all of them, or empty where the tool does not keep them.
    """

    ttft: tuple[float, ...]
    tpot: tuple[float, ...]
    gaps: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Traffic(Sequence[Request]):
    """Requests in order of arrival, and how they were understood; it can be used as their sequence.

    `source`: the file; `format`: what it is; `unit`: how it gives times; `columns`: where arrivals, prompts
    and answers stand. `rows`: requests in it; `left_out`: how many were not taken, by reason. `notes`: what
    else there is to know. `measured`: what a benchmark saw of these requests.
    """

    requests: tuple[Request, ...]
    source: str
    format: str
    unit: str
    columns: tuple[str, str, str]
    rows: int
    left_out: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    measured: Measured | None = None

    @overload
    def __getitem__(self, place: int) -> Request: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Request, ...]: ...

    def __getitem__(self, place: int | slice) -> Request | tuple[Request, ...]:
        return self.requests[place]

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.requests[-1].arrival - self.requests[0].arrival

    @property
    def rate(self) -> float | None:
        """Requests a second, by the gaps between arrivals; None where all arrive at once."""
        return (len(self) - 1) / self.span if self.span else None

    @property
    def prompt(self) -> float:
        """Mean prompt, tokens."""
        return fmean(request.prompt_tokens for request in self)

    @property
    def output(self) -> float:
        """Mean answer, tokens."""
        return fmean(request.output_tokens for request in self)

    def __str__(self) -> str:
        """What was understood, in sentences."""
        rate = "all at once" if self.rate is None else f"over {lasting(self.span)}, {self.rate:.3g} req/s"
        arrivals, prompts, answers = self.columns
        said = [
            f"{self.source}: {self.format}; arrivals from {arrivals} ({self.unit}), prompts from {prompts}, "
            f"answers from {answers}.",
            f"{len(self):,} request{'s' * (len(self) > 1)} {rate}; {self.prompt:,.0f} tokens a prompt and "
            f"{self.output:,.0f} an answer, on average.",
        ]
        if self.left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out)
            said.append(f"Left out of {self.rows:,}: {reasons}.")
        return " ".join([*said, *self.notes])


def lasting(seconds: float) -> str:
    """Return a span in the unit that suits it: "40 s", "3.5 h"."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def read(source: str | Path | bytes, unit: str | None = None) -> Traffic:
    """Return the traffic that is recorded in a file: a path, or its content as text or bytes.

    It is recognised by what it holds: CSV (any separator, with named columns: arrivals, tokens of prompts and
    of answers), Azure's and BurstGPT's among them; JSON lines of Mooncake, vLLM's timed traces, AIPerf and
    Dynamo; results of `vllm bench serve --save-detailed` and of GuideLLM. It may be gzipped, and in UTF-8 or
    UTF-16. Blocks that prompts share by their hashes become shared parts of `Request.prompt`. A text is taken
    for a path unless it has several lines or begins like JSON.

    `unit`: that of arrivals, s, ms, us or ns, if it is another than the format says.

    ValueError names the file, the line, the column and the value, and what would do.
    """
    name = "trace"
    if isinstance(source, Path) or (isinstance(source, str) and is_path(source)):
        name, source = Path(source).name or str(source), Path(source)
    try:
        if unit is not None and unit not in PER_SECOND:
            raise ValueError(f"unit={unit!r} is none; use one of {', '.join(PER_SECOND)}")
        with opened(source) as text:
            return gathered(name, recording(text), unit)
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{error.object[error.start]:02x} is no text"
        raise ValueError(f"{name}: {wrong} in {error.encoding}; save it as UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def is_path(text: str) -> bool:
    """Whether a text is taken for the path of a file."""
    return "\n" not in text and "\r" not in text and text.lstrip("\ufeff \t")[:1] not in ("", "{", "[")


def gathered(name: str, found: Recording, unit: str | None) -> Traffic:
    """Return the requests of a recording, in order, with what was understood."""
    rows: list[Row] = []
    left_out: dict[str, int] = {}
    prefixes = Prefixes()
    for row in found.rows:
        if isinstance(row, str):
            left_out[row] = left_out.get(row, 0) + 1
            continue
        if found.ordered and rows and row.arrival < rows[-1].arrival:
            raise ValueError(
                f"{row.where}, {found.columns[0]}={row.arrival!r} lies before {rows[-1].where}'s "
                f"{rows[-1].arrival!r}; sort the rows by arrival"
            )
        rows.append(row._replace(ids=prefixes.seen(row.ids, row.block)) if row.ids else row)
    if not rows:
        counted = "".join(f", and {count:,} {reason}" for reason, count in left_out.items())
        raise ValueError(
            f"{found.format} without a request{counted}; give one with requests that were served"
        )
    if not found.ordered:
        rows.sort(key=lambda row: row.arrival)
    said = unit or found.unit
    scale = PER_SECOND[said if said in PER_SECOND else "ns"]
    first = rows[0].arrival
    origin = first if found.clock or first / scale >= SINCE_1970 else 0
    block, notes = prefixes.block((row.ids, row.prompt) for row in rows)
    sessions = numbered([row.session for row in rows])
    prompts = prefixes.prompts([(row.ids, row.prompt) for row in rows], block)
    requests = []
    for row, prompt, session in zip(rows, prompts, sessions, strict=True):
        arrival = (row.arrival - origin) / scale
        if arrival < 0:
            raise ValueError(f"{row.where}, {found.columns[0]}={row.arrival!r} is no time; use at least 0")
        requests.append(Request(arrival, prompt, row.output, session))
    traffic = Traffic(
        tuple(requests), name, found.format, said, found.columns, len(rows) + sum(left_out.values()),
        tuple(left_out.items()), (*found.notes, *notes), measured(rows),
    )  # fmt: skip
    doubt = "" if said == "dates" or unit else doubtful(traffic, found, rows)
    return replace(traffic, notes=(*traffic.notes, doubt)) if doubt else traffic


def numbered(sessions: Sequence[object]) -> list[int | None]:
    """Return a number for each session that has several requests; None for all others."""
    count: dict[object, int] = {}
    for session in sessions:
        count[session] = count.get(session, 0) + 1
    several = (session for session, requests in count.items() if session is not None and requests > 1)
    number: dict[object, int] = {session: place for place, session in enumerate(several)}
    return [number.get(session) for session in sessions]


def doubtful(traffic: Traffic, found: Recording, rows: Sequence[Row]) -> str:
    """Return a word on times that look as if they were in another unit."""
    rate = traffic.rate
    if rate is None:
        return ""
    if traffic.unit == "s" and not found.sure and rate < SLOW and all(row.arrival % 1 == 0 for row in rows):
        return f"If these times are milliseconds, it is {1000 * rate:.3g} req/s: say so (--trace-time ms)."
    if traffic.unit != "s" and rate > FAST:
        return f"If these times are seconds, it is {rate / PER_SECOND[traffic.unit]:.3g} req/s: say so " + (
            "(--trace-time s)."
        )
    return ""


def measured(rows: Sequence[Row]) -> Measured | None:
    """Return what was measured of the requests; None unless it was of all."""
    ttft = tuple(row.ttft for row in rows if row.ttft is not None)
    tpot = tuple(row.tpot for row in rows if row.tpot is not None)
    if len(ttft) < len(rows) or len(tpot) < len(rows):
        return None
    gaps = tuple(row.gaps for row in rows if row.gaps is not None)
    return Measured(ttft, tpot, gaps if len(gaps) == len(rows) else ())


def window(traffic: Traffic, count: int) -> Traffic:
    """Return the busiest `count` requests in a row: those that arrived in the least time, the first such.

    What is chosen for them lasts through the rest as well, as far as lengths are alike. All, if there are no
    more; the notes say which were taken, and how much busier they are.
    """
    checks.counts("window", count=count)
    if count >= len(traffic):
        return traffic
    arrivals = [request.arrival for request in traffic]
    start = min(
        range(len(arrivals) - count + 1), key=lambda place: arrivals[place + count - 1] - arrivals[place]
    )
    taken = slice(start, start + count)
    seen = traffic.measured
    part = replace(
        traffic,
        requests=traffic.requests[taken],
        measured=seen and Measured(seen.ttft[taken], seen.tpot[taken], seen.gaps[taken]),
    )
    rates = [f"{piece.rate:.3g} req/s" if piece.rate else "all at once" for piece in (part, traffic)]
    note = (
        f"Looked at: the {count:,} requests in a row that arrived in the least time, {start + 1:,} to "
        f"{start + count:,} of {len(traffic):,} ({rates[0]}; all of them: {rates[1]})."
    )
    return replace(part, notes=(*traffic.notes, note))


def alone(traffic: Traffic) -> tuple[float, float, float]:
    """Return what requests with nobody beside them took: their prompt in tokens, seconds of it, of a step.

    The medians over the requests that began after all before them had their answer, and ended before the
    next came. ValueError where nothing was measured, or where no such request has two tokens of answer.
    """
    seen = traffic.measured
    if seen is None:
        raise ValueError(f"{traffic.source}: holds no measured times; give a result of vllm bench serve")
    latest, by_itself = 0.0, []
    ends = [
        request.arrival + ttft + (request.output_tokens - 1) * tpot
        for request, ttft, tpot in zip(traffic, seen.ttft, seen.tpot, strict=True)
    ]
    for place, (request, end) in enumerate(zip(traffic, ends, strict=True)):
        before_next = place + 1 == len(ends) or end <= traffic[place + 1].arrival
        quiet = before_next and (place == 0 or request.arrival >= latest)
        by_itself.append(quiet and request.output_tokens > 1)
        latest = max(latest, end)
    if not any(by_itself):
        raise ValueError(f"{traffic.source}: no request ran alone; measure again with one stream")
    prompts = [request.prompt_tokens for request in compress(traffic, by_itself)]
    prompt = fsum(prompts) / len(prompts)
    return prompt, median(compress(seen.ttft, by_itself)), median(compress(seen.tpot, by_itself))
