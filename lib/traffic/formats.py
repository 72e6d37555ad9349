"""Who calls what by which name, and in which unit: the formats in which traffic is recorded.

Layouts: Azure Public Dataset's LLM inference traces of 2023 and 2024, BurstGPT 1 and 2, Mooncake (FAST '25;
arrivals in ms, hashes of 512 tokens), Qwen Bailian (seconds, 16 tokens), vLLM's timed traces and results,
GuideLLM 0.1 to 0.7, AIPerf's profile_export.jsonl, Dynamo's request traces (schema v1).
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import fsum
from typing import Any, NamedTuple, NoReturn, TextIO

from lib.traffic.cells import PER_SECOND, date, instant, number, shown, tokens

Record = Mapping[str, Any]


class Row(NamedTuple):
    """A request as recorded: where it stands, its arrival in the file's unit, its lengths in tokens.

    `ids`: hashes of its blocks, of `block` tokens if it says so. `ttft`, `tpot`, `gaps`: measured, seconds.
    """

    where: str
    arrival: int | float
    prompt: int
    output: int
    session: object = None
    ids: Sequence[Any] | None = None
    block: int | None = None
    ttft: float | None = None
    tpot: float | None = None
    gaps: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """What a file turned out to be, and its rows: requests, or the reasons to leave one out.

    `unit` of arrivals: "dates" (nanoseconds since 1970), or s, ms, us, ns; `sure`: the format says so.
    `clock`: arrivals are a clock's, and count from the first. `ordered`: rows have to be in order of arrival;
    else they were written as requests ended.
    """

    format: str
    unit: str
    columns: tuple[str, str, str]
    rows: Iterator[Row | str]
    clock: bool = False
    ordered: bool = True
    sure: bool = True
    notes: tuple[str, ...] = ()


FAILED, EMPTY = "without output tokens (failed)", "with an empty prompt"


def recording(text: TextIO) -> Recording:
    """Return what a text records, recognised by what it holds. ValueError where it is nothing known."""
    first = next((line for line in text if line.strip()), "")
    text.seek(0)
    if not first:
        raise ValueError("is empty; give a file with requests")
    if first.lstrip()[:1] in ("{", "["):
        return known(records(text, first))
    return table(text)


def served(row: Row) -> Row | str:
    """Return the row, or why it is left out."""
    return FAILED if not row.output else EMPTY if not row.prompt else row


# ---- tables

ARRIVAL = (
    "arrival", "arrivals", "arrivaltime", "arrivaltimestamp", "arrivedat", "timestamp", "requesttimestamp",
    "requesttime", "requeststarttime", "starttime", "start", "submittime", "time", "datetime", "date", "ts",
)  # fmt: skip
PROMPT = (
    "prompttokens", "contexttokens", "requesttokens", "inputtokens", "inputlength", "inputlen",
    "promptlength", "promptlen", "numprefilltokens", "numprompttokens", "numinputtokens",
    "inputsequencelength", "prompttokencount", "inputtokencount", "isl", "prefilltokens",
    "prompt", "input", "context",
)  # fmt: skip
OUTPUT = (
    "outputtokens", "generatedtokens", "responsetokens", "completiontokens", "answertokens",
    "outputlength", "outputlen", "responselength", "numdecodetokens", "numoutputtokens",
    "outputsequencelength", "outputtokencount", "generationtokens", "osl", "decodetokens",
    "output", "response", "answer", "generated",
)  # fmt: skip
SESSION = ("sessionid", "session", "conversationid", "xcorrelationid")
UNITS = {"s": "s", "sec": "s", "seconds": "s", "secs": "s", "ms": "ms", "milliseconds": "ms", "msec": "ms",
         "us": "us", "microseconds": "us", "ns": "ns", "nanoseconds": "ns"}  # fmt: skip
FOLLOWED = re.compile(rf"(.+?)[\s_.\[(/]+(?:unix_)?({'|'.join(UNITS)})[\])]?", re.IGNORECASE)


def plain(name: str) -> str:
    """Return a name's letters and digits, in lower case."""
    return "".join(filter(str.isalnum, name.casefold()))


def arrival_unit(name: str) -> tuple[str, str | None]:
    """Return the plain name of an arrival, and the unit that it carries."""
    match = FOLLOWED.fullmatch(name.strip())
    if match:
        return plain(match[1]), UNITS[match[2].casefold()]
    return plain(name), None


def named(names: Sequence[str], known_as: Sequence[str], key: Callable[[str], str] = plain) -> str | None:
    """Return the first of some names by which a thing is known, best known first."""
    found = {key(name): name for name in reversed(names) if isinstance(name, str)}
    return next((found[each] for each in known_as if each in found), None)


def columns_of(names: Sequence[str]) -> tuple[str, str, str, str | None]:
    """Return which columns hold arrivals, prompts, answers and sessions. ValueError says what is missing."""
    arrival = named(names, ARRIVAL, lambda name: arrival_unit(name)[0])
    prompt, output = named(names, PROMPT), named(names, OUTPUT)
    found = {"arrivals": arrival, "tokens of prompts": prompt, "tokens of answers": output}
    missing = [what for what, column in found.items() if column is None]
    if arrival is None or prompt is None or output is None:
        raise ValueError(
            f"no column with {' nor '.join(missing)} among {shown(', '.join(names))}; use arrival_s, "
            "prompt_tokens, output_tokens"
        )
    return arrival, prompt, output, named(names, SESSION)


def lines_of(text: TextIO) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """Return the separator of a table, and its rows with the number of the line on which each ends."""
    head = next(line for line in text if line.strip())
    text.seek(0)
    separator = "," if not head.startswith("sep=") else head[4:5]
    if not head.startswith("sep="):
        separator = max(",;\t|", key=head.count)
    reader = csv.reader(text, delimiter=separator, skipinitialspace=separator != "\t")

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells) and not (
                    len(cells) < 3 and cells[0].startswith("sep=")
                ):
                    yield reader.line_num, cells
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num} is no row of a table ({error}); give CSV") from None

    return separator, rows()


def table(text: TextIO) -> Recording:
    """Return a table with a header."""
    separator, rows = lines_of(text)
    comma = separator != ","
    head, header = next(rows, (1, [""]))
    names = [name.strip() for name in header]
    arrival, prompt, output, session = columns_of(names)
    places = [names.index(name) for name in (arrival, prompt, output)]
    whose = names.index(session) if session else None
    first = next(rows, None)
    if first is None:
        raise ValueError(f"line {head} is a header, and nothing follows; give rows")
    width = len(names)
    dates = places[0] < len(first[1]) and date(first[1][places[0]]) is not None

    def found() -> Iterator[Row | str]:
        for line, cells in chain([first], rows):
            where = f"line {line}"
            if len(cells) < width and max(places) >= len(cells):
                missing = names[len(cells)]
                raise ValueError(f"{where}: no {missing}; the columns are {', '.join(names)}")
            if len(cells) > width and any(cell.strip() for cell in cells[width:]):
                raise ValueError(
                    f"{where} has {len(cells)} cells for {width} columns; quote what has a separator"
                )
            at, asked, said = (cells[place] for place in places)
            if not (at and asked and said):
                empty = arrival if not at else prompt if not asked else output
                raise ValueError(f"{where}: no {empty}; the columns are {', '.join(names)}")
            if dates:
                then: int | float | None = date(at)
                if then is None:
                    raise ValueError(f"{where}, {arrival}={shown(at)} is no date; use 2024-05-31 23:59:59.5")
            else:
                then = instant(at, where, arrival, comma)
            yield served(Row(
                where, then, tokens(asked, where, prompt, comma), tokens(said, where, output, comma),
                cells[whose].strip() or None if whose is not None and whose < len(cells) else None,
            ))  # fmt: skip

    unit = arrival_unit(arrival)[1]
    kind, sure = "CSV", False
    pair = (plain(prompt), plain(output))
    if pair == ("contexttokens", "generatedtokens"):
        kind, sure = "Azure LLM inference trace", True
    elif pair == ("requesttokens", "responsetokens"):
        kind, sure = "BurstGPT", True
    if dates:
        unit = "dates"
    elif unit is None:
        unit = since_1970(number_of(first[1][places[0]], comma))
    return Recording(kind, unit, (arrival, prompt, output), found(), clock=dates, sure=sure)


def number_of(cell: str, comma: bool) -> int | float:
    """Return the number in a cell; 0 where there is none (it is refused when it is read)."""
    return number(cell, comma) or 0


def since_1970(first: int | float) -> str:
    """Return the unit by which an arrival is a time since 1970, from 2001 on; else seconds."""
    for unit, scale in PER_SECOND.items():
        if 1e9 * scale <= first < 1e10 * scale:
            return unit
    return "s"


# ---- records


def decoded(text: str, where: str) -> Any:
    """Return what a JSON text holds. ValueError where it is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply; give records as a tool writes them") from None
    except ValueError as error:
        what = getattr(error, "msg", "a number with too many digits")
        raise ValueError(f"{where} is no JSON ({what}); give one record a line, or one document") from None


def records(text: TextIO, first: str) -> Iterator[tuple[str, Record]]:
    """Yield the records of a JSON document, or of JSON lines, and where each stands."""
    try:
        whole = decoded(first, "") is None
    except ValueError:
        whole = True
    if whole:
        documents: Iterable[tuple[str, Any]] = [("the document", decoded(text.read(), "it"))]
    else:
        documents = (
            (f"line {line}", decoded(written, f"line {line}"))
            for line, written in enumerate(text, 1)
            if written.strip()
        )
    for where, document in documents:
        items = enumerate(document, 1) if isinstance(document, list) else [(0, document)]
        for place, item in items:
            at = f"{where}, item {place}" if place else where
            if not isinstance(item, dict):
                raise ValueError(f"{at} is {shown(item)} and no record; give objects with named values")
            yield at, item


def known(found: Iterator[tuple[str, Record]]) -> Recording:
    """Return the recording that some records are, by the names in the first."""
    head = list(islice(found, 1))
    if not head:
        raise ValueError("holds no record; give a file with requests")
    first, rest = head[0][1], chain(head, found)
    if "input_lens" in first or "request_throughput" in first:
        return vllm_result(first, rest)
    if "benchmarks" in first:
        return guidellm(first, rest)
    if "metadata" in first and "metrics" in first:
        return aiperf(rest)
    if "event_type" in first or isinstance(first.get("event"), dict):
        return dynamo(rest)
    if "conversations" in first or "conversation" in first or "messages" in first:
        lengthless("conversations (ShareGPT)")
    names = [name for name in first if isinstance(name, str)]
    if named(names, ARRIVAL, lambda name: arrival_unit(name)[0]) is None and isinstance(
        first.get("prompt"), str
    ):
        lengthless("prompts as texts (a custom data set of vLLM)")
    return timed(first, rest)


def lengthless(what: str) -> NoReturn:
    """Refuse texts without arrivals."""
    raise ValueError(
        f"holds {what}, with neither arrivals nor numbers of tokens; replay it with vllm bench serve "
        "--save-detailed and give its result, or give --rate, --prompt and --output"
    )


def at(record: Any, path: str) -> Any:
    """Return what stands at a path, "info.timings.request_start"; None where nothing does."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def either(record: Any, paths: Sequence[str]) -> tuple[str, Any]:
    """Return the first of some paths at which something stands, and that; else the first path and None."""
    for path in paths:
        value = at(record, path)
        if value is not None:
            return path, value
    return paths[0], None


def seconds(value: object, unit: str, where: str, column: str) -> float:
    """Return a time that was measured, in seconds. ValueError where it is none."""
    found = number(value)
    if found is None or found < 0:
        raise ValueError(f"{where}, {column}={shown(value)} is no time; use a finite number of at least 0")
    return found / PER_SECOND[unit]


def mean_gap(value: float | None, count: int) -> float | None:
    """Return the mean gap of an answer; 0 where it has one token."""
    return 0.0 if count == 1 else value


def timed(first: Record, found: Iterable[tuple[str, Record]]) -> Recording:
    """Return JSON lines with a timestamp and lengths: Mooncake's, vLLM's timed traces, Qwen Bailian's."""
    arrival, prompt, output, session = columns_of([name for name in first if isinstance(name, str)])
    dates = date(first[arrival]) is not None
    hashed = named(list(first), ("hashids", "blockhashes", "inputsequencehashes"))
    sized = named(list(first), ("blocksize", "traceblocksize"))
    bailian = "chat_id" in first or "parent_chat_id" in first
    unit = arrival_unit(arrival)[1]
    kind, sure = "JSON lines", unit is not None
    if plain(prompt) in ("inputlength", "inputlen") and plain(arrival) == "timestamp":
        kind = "Qwen Bailian trace" if bailian else "Mooncake or vLLM timed trace"
        unit, sure = ("s" if bailian else "ms"), True
    chats: dict[Any, Any] = {}

    def rows() -> Iterator[Row | str]:
        for where, record in found:
            for name in (arrival, prompt, output):
                if record.get(name) is None:
                    raise ValueError(f"{where}: no {name}; give it in every record")
            then = date(record[arrival]) if dates else instant(record[arrival], where, arrival)
            if then is None:
                raise ValueError(f"{where}, {arrival}={shown(record[arrival])} is no date")
            whose: Any = record.get(session) if session else None
            if bailian:  # a chat is named by its turn before
                parent, chat = record.get("parent_chat_id"), record.get("chat_id")
                whose = chats.get(scalar(parent), scalar(chat))
                chats[scalar(chat)] = whose
            ids = checked_ids(record.get(hashed), where, hashed) if hashed else None
            block = tokens(record[sized], where, sized) if sized and record.get(sized) is not None else None
            yield served(Row(
                where, then, tokens(record[prompt], where, prompt), tokens(record[output], where, output),
                scalar(whose), ids, block or None,
            ))  # fmt: skip

    if dates:
        unit = "dates"
    elif unit is None:
        unit = since_1970(number(first[arrival]) or 0)
    return Recording(kind, unit, (arrival, prompt, output), rows(), clock=dates, sure=sure)


def scalar(value: object) -> object:
    """Return what may name a session; None for anything else."""
    return value if isinstance(value, str | int) else None


def checked_ids(value: object, where: str, column: str) -> Sequence[Any] | None:
    """Return hashes of blocks. ValueError where they are none."""
    if value is None or (isinstance(value, list) and {int, str}.issuperset(map(type, value))):
        return value
    raise ValueError(f"{where}, {column}={shown(value)} are no hashes; use whole numbers or texts")


def metric(record: Record, names: Sequence[str]) -> tuple[str, Any, str]:
    """Return the name, the value and the unit of an AIPerf metric."""
    name, found = either(record, [f"metrics.{name}" for name in names])
    if isinstance(found, dict):
        return name, found.get("value"), UNITS.get(str(found.get("unit")), "ms")
    return name, found, "ms"


def aiperf(found: Iterable[tuple[str, Record]]) -> Recording:
    """Return AIPerf's profile_export.jsonl: a record for each request, as it ended."""

    def rows() -> Iterator[Row | str]:
        for where, record in found:
            if at(record, "metadata.benchmark_phase") not in (None, "profiling"):
                yield "of the warm-up"
                continue
            if record.get("error") or at(record, "metadata.was_cancelled"):
                yield "with an error or cancelled"
                continue
            start = at(record, "metadata.request_start_ns")
            prompt, asked, _ = metric(record, ("input_sequence_length", "input_token_count"))
            output, said, _ = metric(record, ("output_sequence_length", "output_token_count"))
            if said is None:
                yield FAILED
                continue
            count = tokens(said, where, output)
            first, ttft, unit = metric(record, ("time_to_first_token", "ttft"))
            early = None if ttft is None else seconds(ttft, unit, where, first)
            gap, itl, per = metric(record, ("inter_token_latency",))
            mean = None if itl is None else seconds(itl, per, where, gap)
            last, whole, per = metric(record, ("request_latency",))
            if mean is None and early is not None and whole is not None and count > 1:
                mean = max(0.0, seconds(whole, per, where, last) - early) / (count - 1)
            _, session = either(record, ("metadata.x_correlation_id", "metadata.conversation_id"))
            yield served(Row(
                where, instant(start, where, "request_start_ns"), tokens(asked, where, prompt), count,
                scalar(session), ttft=early, tpot=mean_gap(mean, count),
            ))  # fmt: skip

    columns = ("request_start_ns", "input_sequence_length", "output_sequence_length")
    return Recording("AIPerf export", "ns", columns, rows(), clock=True, ordered=False)


def dynamo(found: Iterable[tuple[str, Record]]) -> Recording:
    """Return Dynamo's request trace: an event at each request's end, among others."""

    def rows() -> Iterator[Row | str]:
        for where, record in found:
            event = record["event"] if isinstance(record.get("event"), dict) else record
            if event.get("event_type") != "request_end":
                continue
            request = event.get("request")
            received, whole = at(request, "request_received_ms"), at(request, "total_time_ms")
            if received is None and whole is not None:
                ended = instant(event.get("event_time_unix_ms"), where, "event_time_unix_ms")
                received = max(0, ended - instant(whole, where, "total_time_ms"))
            prompt, asked = either(request, ("replay.input_length", "input_tokens"))
            count = tokens(at(request, "output_tokens") or 0, where, "output_tokens")
            early = at(request, "ttft_ms")
            ttft = None if early is None else seconds(early, "ms", where, "ttft_ms")
            mean = None
            if ttft is not None and whole is not None and count > 1:
                mean = max(0.0, seconds(whole, "ms", where, "total_time_ms") - ttft) / (count - 1)
            ids = checked_ids(at(request, "replay.input_sequence_hashes"), where, "input_sequence_hashes")
            block = at(request, "replay.trace_block_size")
            yield served(Row(
                where, instant(received, where, "request_received_ms"), tokens(asked, where, prompt), count,
                scalar(at(event, "agent_context.session_id")), ids,
                None if block is None else tokens(block, where, "trace_block_size") or None,
                ttft, mean_gap(mean, count),
            ))  # fmt: skip

    columns = ("request_received_ms", "input_length", "output_tokens")
    return Recording("Dynamo request trace", "ms", columns, rows(), clock=True, ordered=False)


STARTS = (
    "request_start_time", "start_time", "info.timings.request_start", "info.timings.resolve_start",
    "scheduler_info.request_timings.request_start", "scheduler_info.scheduler_timings.resolve_start",
    "scheduler_info.started_at",
)  # fmt: skip
ASKED = ("prompt_tokens", "input_metrics.total_tokens", "input_metrics.text_tokens", "prompt_token_count")
SAID = ("output_tokens", "output_metrics.total_tokens", "output_metrics.text_tokens", "output_token_count")


def guidellm(first: Record, found: Iterable[tuple[str, Record]]) -> Recording:
    """Return GuideLLM's report: the requests of its benchmarks, by how they ended."""
    runs = first["benchmarks"] if isinstance(first["benchmarks"], list) else []

    def rows() -> Iterator[Row | str]:
        for where, document in found:
            if not isinstance(document.get("benchmarks"), list):
                raise ValueError(f"{where}: benchmarks is no list; give a report as GuideLLM saves it")
            for place, run in enumerate(document["benchmarks"], 1):
                yield from guidellm_run(f"benchmark {place}", run)

    notes = (f"{len(runs)} benchmarks, one after the other.",) if len(runs) > 1 else ()
    columns = ("request_start_time", "prompt_tokens", "output_tokens")
    return Recording("GuideLLM report", "s", columns, rows(), clock=True, ordered=False, notes=notes)


def guidellm_run(where: str, run: Record) -> Iterator[Row | str]:
    """Yield the requests of one of GuideLLM's benchmarks."""
    _, requests = either(run, ("requests", "results"))
    ends = requests if isinstance(requests, dict) else {"successful": requests}
    failed = {
        "errored": ends.get("errored"),
        "errors": at(run, "errors"),
        "incomplete": ends.get("incomplete"),
    }
    for reason, rows in failed.items():
        yield from (f"{'incomplete' if reason == 'incomplete' else 'with an error'}" for _ in listed(rows))
    for place, request in enumerate(listed(either(ends, ("successful", "completed"))[1]), 1):
        at_ = f"{where}, request {place}"
        (start, then), (prompt, asked), (output, said) = (
            either(request, paths) for paths in (STARTS, ASKED, SAID)
        )
        if said is None:
            yield FAILED
            continue
        count, begin = tokens(said, at_, output), instant(then, at_, start)
        early, token = at(request, "time_to_first_token_ms"), at(request, "first_token_time")
        ttft = None if early is None else seconds(early, "ms", at_, "time_to_first_token_ms")
        if ttft is None and token is not None:
            ttft = max(0.0, instant(token, at_, "first_token_time") - begin)
        gap, last = at(request, "inter_token_latency_ms"), at(request, "last_token_time")
        mean = None if gap is None else seconds(gap, "ms", at_, "inter_token_latency_ms")
        if mean is None and token is not None and last is not None and count > 1:
            times = [instant(value, at_, "last_token_time") for value in (token, last)]
            mean = max(0.0, times[1] - times[0]) / (count - 1)
        yield served(Row(
            at_, begin, tokens(asked, at_, prompt), count, ttft=ttft, tpot=mean_gap(mean, count)
        ))  # fmt: skip


def listed(value: object) -> list[Any]:
    """Return a list, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def vllm_result(result: Record, found: Iterable[tuple[str, Record]]) -> Recording:
    """Return the result of `vllm bench serve --save-detailed`: a list for each quantity."""
    if next(islice(found, 1, None), None):
        raise ValueError("holds several results of vllm bench serve; give one of them")
    lists = {name: result.get(name) for name in ("start_times", "input_lens", "output_lens")}
    for name, values in lists.items():
        if not isinstance(values, list):
            raise ValueError(
                f"is a result of a benchmark without {name}; save it with vllm bench serve --save-detailed, "
                "of a vLLM that writes start_times, or give --rate, --prompt and --output"
            )
    optional = ("ttfts", "itls", "errors")
    lists |= {name: result[name] for name in optional if isinstance(result.get(name), list)}
    sizes = {name: len(listed(values)) for name, values in lists.items()}
    if len(set(sizes.values())) > 1:
        counted = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise ValueError(f"has lists of different lengths ({counted}); give a result as vLLM saves it")

    def rows() -> Iterator[Row | str]:
        for place in range(sizes["start_times"]):
            where = f"request {place + 1}"
            start, asked, said, ttft, itl, error = (
                lists[name][place] if name in lists else None  # type: ignore[index]
                for name in ("start_times", "input_lens", "output_lens", *optional)
            )
            if error:
                yield "with an error"
                continue
            count = tokens(said, where, "output_lens")
            gaps = None
            if isinstance(itl, list):
                gaps = tuple(seconds(gap, "s", where, "itls") for gap in itl)
            yield served(Row(
                where, instant(start, where, "start_times"), tokens(asked, where, "input_lens"), count,
                ttft=None if ttft is None else seconds(ttft, "s", where, "ttfts"),
                tpot=mean_gap(None if gaps is None else fsum(gaps) / max(1, count - 1), count), gaps=gaps,
            ))  # fmt: skip

    streams = result.get("max_concurrency")
    notes = (f"At most {shown(streams)} requests were in flight: a closed loop.",) if streams else ()
    columns = ("start_times", "input_lens", "output_lens")
    name = "result of vllm bench serve"
    return Recording(name, "s", columns, rows(), clock=True, ordered=False, notes=notes)
