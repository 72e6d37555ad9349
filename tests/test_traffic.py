"""Recorded traffic: each format as it is published, its variants, and what is wrong with a file."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib import traffic, workload
from lib.hardware import H100_SXM
from lib.models import LLAMA_3_1_8B
from lib.prefix_cache import common_prefix
from lib.scheduler import vllm
from lib.simulator import Collocated, Engine, simulate
from lib.traffic import Traffic, alone, read, window
from lib.workload import Request

TRACES = Path(__file__).parent / "traces"
ROWS = [(0.5, 100, 10), (0.75, 200, 20), (2.0, 50, 1)]
EXPECTED = tuple(Request(*row) for row in ROWS)
HEADER = ("arrival_s", "prompt_tokens", "output_tokens")


def lines(*rows, separator=",", end="\n"):
    return end.join(separator.join(map(str, row)) for row in rows)


def jsonl(*records):
    return "\n".join(json.dumps(record) for record in records)


# ------------------------------------------------------------------ the files as they are


@pytest.mark.parametrize(
    ("name", "kind", "unit", "left", "requests", "first", "last"),
    [
        ("azure_2023_conversation.csv", "Azure", "dates", 0, 200, (0, 374, 44), None),
        ("burstgpt.csv", "BurstGPT", "s", 1, 3, (5, 472, 18), (118, 417, 276)),
        ("mooncake_conversation.jsonl", "Mooncake", "ms", 0, 100, (0, 6758, 500), None),
        ("vllm_bench_detailed.json", "vllm bench serve", "s", 0, 20, (0, 3671, 52), None),
        ("vllm_timed_trace.jsonl", "timed trace", "ms", 0, 1, (0, 6758, 500), (0, 6758, 500)),
        ("guidellm.json", "GuideLLM", "s", 0, 1, (0, 512, 128), (0, 512, 128)),
        ("aiperf_profile_export.jsonl", "AIPerf", "ns", 0, 10, (0, 550, 9), (9, 550, 9)),
        ("dynamo_trace.jsonl", "Dynamo", "ms", 0, 10, (0, 1000, 80), (4.5, 1000, 80)),
    ],
)
def test_each_format_is_read_as_it_is(name, kind, unit, left, requests, first, last):
    found = read(TRACES / name)
    assert workload.read(str(TRACES / name)) == found
    assert kind in found.format
    assert (found.unit, found.rows - len(found), len(found)) == (unit, left, requests)
    for expected, request in ((first, found[0]), (last, found[-1])):
        if expected:
            assert (request.arrival, request.prompt_tokens, request.output_tokens) == expected
    assert workload.check(found) == found.requests


@pytest.mark.parametrize("name", ["sharegpt.json", "vllm_custom.jsonl"])
def test_texts_without_arrivals_or_lengths_are_refused_with_what_would_do(name):
    with pytest.raises(
        ValueError, match=rf"^{name}: .*neither arrivals nor numbers of tokens; .*--save-detailed"
    ):
        read(TRACES / name)


def test_what_was_understood_is_said():
    said = str(read(TRACES / "burstgpt.csv"))
    for part in ("burstgpt.csv", "BurstGPT", "Timestamp (s)", "3 requests", "113 s", "0.0177 req/s"):
        assert part in said
    assert "Left out of 4: 1 without output tokens (failed)." in said
    assert "659 tokens a prompt and 175 an answer" in said


def test_seven_digits_of_a_second_are_kept():
    first, second = read(TRACES / "azure_2023_conversation.csv")[:2]
    assert second.arrival - first.arrival == pytest.approx(50.995169 - 46.680590, abs=1e-9)
    found = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00,1,1\n2023-01-01 00:00:00.1234567,1,1"
    )
    assert found[1].arrival == 0.1234567


# ------------------------------------------------------------------ variants of the same sources


def test_azures_dates_of_2024_have_a_zone_and_at_times_no_fraction():
    rows = ("2024-05-10 23:59:59.500000+00:00", 10, 2), ("2024-05-11 00:00:01+00:00", 20, 3)
    found = read(lines(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), *rows))
    assert found.requests == (Request(0, 10, 2), Request(1.5, 20, 3))


def test_burstgpt_has_sessions_and_elapsed_times_or_not():
    names = ("Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens",
             "Total tokens", "Log Type")  # fmt: skip
    rows = [(1, "a", 2.5, "GPT-4", 10, 2, 12, "x"), (2, "", 0, "GPT-4", 0, 0, 0, "x"),
            (9, "a", 1, "GPT-4", 30, 2, 32, "x"), (9, "", 1, "GPT-4", 7, 3, 10, "x")]  # fmt: skip
    found = read(lines(names, *rows))
    assert found.requests == (Request(1, 10, 2, 0), Request(9, 30, 2, 0), Request(9, 7, 3))
    assert found.left_out == (("without output tokens (failed)", 1),)


@pytest.mark.parametrize(
    ("names", "scale"),
    [
        (("arrival_time_ms", "input_length", "output_length"), 1000),
        (("Arrival time [ms]", "Input tokens", "Output tokens"), 1000),
        (("arrived_at", "num_prefill_tokens", "num_decode_tokens"), 1),
        (("timestamp_us", "ISL", "OSL"), 10**6),
        (("time", "prompt_len", "completion_tokens"), 1),
    ],
)
def test_other_names_and_units_in_any_order(names, scale):
    rows = [(output, arrival * scale, prompt) for arrival, prompt, output in ROWS]
    assert read(lines((names[2], names[0], names[1]), *rows)).requests == EXPECTED
    records = [dict(zip(names, (row[0] * scale, *row[1:]), strict=True)) for row in ROWS]
    assert read(jsonl(*records)).requests == EXPECTED
    assert read(json.dumps(records, indent=1)).requests == EXPECTED


def test_times_since_1970_count_from_the_first():
    for scale in (1, 1000, 10**6, 10**9):
        rows = [(1_700_000_000 * scale, 5, 5), (1_700_000_003 * scale, 5, 5)]
        assert [
            row.arrival for row in read(lines(("timestamp", "prompt_tokens", "output_tokens"), *rows))
        ] == [0, 3]


def test_what_may_be_milliseconds_is_said_and_can_be_said_to_be():
    text = lines(HEADER, *((100 * i, 3000, 300) for i in range(10)))
    found = read(text)
    assert "0.01 req/s" in str(found)
    assert "15 min" in str(found)
    assert "If these times are milliseconds, it is 10 req/s" in str(found)
    assert read(text, unit="ms").rate == pytest.approx(10)
    assert "If" not in str(read(text, unit="ms"))
    with pytest.raises(ValueError, match="unit='min' is none"):
        read(text, unit="min")


VLLM = json.loads((TRACES / "vllm_bench_detailed.json").read_text())


def test_a_result_of_vllm_is_a_measurement():
    times = VLLM | {"ttfts": [0.1 * (i + 1) for i in range(20)], "errors": [""] * 20}
    found = read(json.dumps(times, indent=2))
    assert found.measured.ttft == tuple(times["ttfts"])
    assert found.measured.gaps[0] == tuple(VLLM["itls"][0])
    output = VLLM["output_lens"][0]
    assert found.measured.tpot[0] == pytest.approx(sum(VLLM["itls"][0]) / (output - 1))


def test_failed_requests_of_vllm_are_left_out_and_of_the_measurement_too():
    times = VLLM | {"ttfts": [0.1 * (i + 1) for i in range(20)]}
    failed = times | {"output_lens": [0, *VLLM["output_lens"][1:]], "errors": ["", "timeout", *[""] * 18]}
    found = read(json.dumps(failed))
    assert len(found) == 18
    assert found.left_out == (("without output tokens (failed)", 1), ("with an error", 1))
    assert found.measured.ttft[0] == times["ttfts"][2]


@pytest.mark.parametrize(
    "without", [("start_times",), ("start_times", "input_lens", "output_lens"), ("input_lens",)]
)
def test_a_result_of_vllm_without_details_is_refused(without):
    kept = {name: value for name, value in VLLM.items() if name not in without}
    with pytest.raises(
        ValueError, match=f"without {without[0]}; save it with vllm bench serve --save-detailed"
    ):
        read(json.dumps(kept))


def test_a_result_of_vllm_without_times_of_tokens_is_a_workload_only():
    found = read(json.dumps({name: value for name, value in VLLM.items() if name not in ("ttfts", "itls")}))
    assert len(found) == 20
    assert found.measured is None


def guidellm(request, requests="requests", successful="successful"):
    return json.dumps(
        {"benchmarks": [{requests: {successful: [request], "errored": [{}], "incomplete": [{}, {}]}}]}
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"start_time": 5.0, "end_time": 7.0, "prompt_tokens": 10, "output_tokens": 3,
         "first_token_time": 5.25, "last_token_time": 5.45},
        {"scheduler_info": {"request_timings": {"request_start": 5.0}}, "prompt_tokens": 10,
         "output_tokens": 3, "time_to_first_token_ms": 250.0, "inter_token_latency_ms": 100.0},
        {"info": {"timings": {"request_start": 5.0}}, "input_metrics": {"text_tokens": 10},
         "output_metrics": {"total_tokens": 3}, "time_to_first_token_ms": 250, "inter_token_latency_ms": 100},
    ],
)  # fmt: skip
def test_guidellms_layouts_old_and_new(request_):
    found = read(guidellm(request_))
    assert found.requests == (Request(0, 10, 3),)
    assert dict(found.left_out) == {"with an error": 1, "incomplete": 2}
    assert found.measured.ttft == pytest.approx((0.25,))
    assert found.measured.tpot == pytest.approx((0.1,))


def test_benchmarks_of_guidellm_follow_one_another():
    run = {"requests": {"successful": [{"start_time": 9.0, "prompt_tokens": 5, "output_tokens": 5}]}}
    before = {"requests": {"successful": [{"start_time": 4.0, "prompt_tokens": 6, "output_tokens": 5}]}}
    found = read(json.dumps({"benchmarks": [run, before]}))
    assert found.requests == (Request(0, 6, 5), Request(5, 5, 5))
    assert "2 benchmarks, one after the other." in str(found)


def test_aiperf_leaves_out_warm_up_errors_and_what_was_cancelled():
    record = json.loads((TRACES / "aiperf_profile_export.jsonl").read_text().splitlines()[0])
    meta, later = record["metadata"], record["metadata"]["request_start_ns"] + 2_500_000_001
    found = read(jsonl(
        record | {"metadata": meta | {"request_start_ns": later}},  # written as they end
        record,
        record | {"metadata": meta | {"benchmark_phase": "warmup"}},
        record | {"error": {"code": 500}, "metrics": {}},
        record | {"metadata": meta | {"was_cancelled": True}},
    ))  # fmt: skip
    assert [row.arrival for row in found] == [0, 2.500000001]
    assert dict(found.left_out) == {"of the warm-up": 1, "with an error or cancelled": 2}
    assert found.measured.ttft == pytest.approx((0.2559, 0.2559))
    assert found.measured.tpot[0] == pytest.approx((0.2975 - 0.2559) / 8)


def test_dynamo_has_other_events_wraps_them_and_says_the_size_of_a_block():
    record = json.loads((TRACES / "dynamo_trace.jsonl").read_text().splitlines()[0])
    request = record["request"] | {
        "replay": {"trace_block_size": 600, "input_length": 1000, "input_sequence_hashes": [2**64 - 1, 5]}
    }
    found = read(jsonl({"event": {"event_type": "request_payload"}}, {"event": record | {"request": request}},
                       record | {"request": request | {"request_received_ms": 1700000001000}}))  # fmt: skip
    assert [row.arrival for row in found] == [0, 1]
    assert found[0].prompt == found[1].prompt == ((f"block {2**64 - 1}", 1000),)
    with pytest.raises(ValueError, match="blocks of 600 and of 16 tokens"):
        read(jsonl(record | {"request": request}, record))


def test_bailian_counts_seconds_and_names_chats_by_the_turn_before():
    rows = [{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 3,
             "turn": 1, "hash_ids": [1, 2]},
            {"chat_id": 9, "parent_chat_id": 7, "timestamp": 61.25, "input_length": 40, "output_length": 3,
             "turn": 2, "hash_ids": [1, 3, 4]}]  # fmt: skip
    found = read(jsonl(*rows))
    assert [(row.arrival, row.session) for row in found] == [(1.5, 0), (61.25, 0)]
    assert found[0].prompt == (("block 1", 16), ("own 0.1", 4))


# ------------------------------------------------------------------ prefixes


def mooncake(*rows):
    return jsonl(*(
        {"timestamp": 1000 * i, "input_length": length, "output_length": 5, "hash_ids": ids}
        for i, (length, ids) in enumerate(rows)
    ))  # fmt: skip


def test_blocks_that_come_together_are_one_part_and_blocks_of_one_request_its_own():
    found = read(mooncake((1600, [1, 2, 3, 4]), (1500, [1, 2, 9]), (1300, [1, 2, 3])))
    assert found[0].prompt == (("block 1", 1024), ("block 3", 512), ("own 0.2", 64))
    assert found[1].prompt == (("block 1", 1024), ("own 1.1", 476))
    assert found[2].prompt == (("block 1", 1024), ("block 3", 276))
    assert "blocks of 512 tokens (by the lengths)" in str(found)


def test_tokens_without_a_hash_are_shared_by_nobody_and_said():
    found = read(mooncake((2000, [1]), (2000, [1])))
    assert found[0].prompt == (("block 1", 512), ("own 0.1", 1488))
    assert "In 2 of 2 prompts there are more or fewer blocks" in str(found)


def expanded(prompt, row):
    """The tokens of a prompt, by name."""
    if isinstance(prompt, int):
        prompt = ((f"row {row}", prompt),)
    return [(label, i) for label, n in prompt for i in range(n)]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True), st.integers(1, 512)),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_two_prompts_begin_alike_as_far_as_their_hashes_do(chains):
    chained = []  # a hash stands for its block and all before it, as those that are recorded do
    for ids, short in chains:
        names = [int("".join(map(str, (1, *ids[: i + 1])))) for i in range(len(ids))]
        chained.append((512 * (len(ids) - 1) + short, names))
    prompts = [row.prompt for row in read(mooncake(*chained))]
    for a, (long, left) in enumerate(chained):
        assert read(mooncake(*chained))[a].prompt_tokens == long
        for b, (other, right) in enumerate(chained[:a]):
            same = common_prefix(left, right) * 512
            mine, theirs = expanded(prompts[a], a), expanded(prompts[b], b)
            assert common_prefix(mine, theirs) == min(same, long, other)


def test_prefix_caching_is_played_as_recorded():
    found = read(mooncake((1024, [1, 2]), (1536, [1, 2, 3])))
    engine = Engine(LLAMA_3_1_8B, H100_SXM, policy=vllm, prefix_caching=True)
    played = simulate(found, Collocated(engine))
    fresh = simulate([Request(row.arrival, row.prompt_tokens, 5) for row in found], Collocated(engine))
    assert played.ttft[1] < 0.6 * fresh.ttft[1]
    assert played.ttft[0] == fresh.ttft[0]


# ------------------------------------------------------------------ tables out of spreadsheets


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", ", ", " ; "])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_spreadsheets_table_is_read(separator, encoding, end):
    assert read(lines(HEADER, *ROWS, separator=separator, end=end).encode(encoding)).requests == EXPECTED


@pytest.mark.parametrize(
    "text",
    [
        'arrival_s,"prompt_tokens",output_tokens\n"0.5","100",10\n0.75,200,20\n2,50,1\n',
        "arrival_s,prompt_tokens,output_tokens\n0.5,100.0,10.\n0.75,2e2,20\n\n2,50,1\n,,\n",
        "sep=;\narrival_s;prompt_tokens;output_tokens\n0,5;100,0;10\n0,75;200;20\n2;50;1",
        "\ufeff\n Arrival_S ,PROMPT_TOKENS, output tokens,note\n0.5,100,10,\n0.75,200,20,x\n2,50,1\n",
        "model,arrival_s,prompt_tokens,output_tokens\n\"a, b\",0.5,100,10\nc,0.75,200,20\n\"d\ne\",2,50,1\n",
    ],
)  # fmt: skip
def test_what_is_plain_to_the_eye_is_read(text):
    assert read(text).requests == EXPECTED


def test_a_file_may_be_gzipped(tmp_path):
    path = tmp_path / "load.csv.gz"
    path.write_bytes(gzip.compress(lines(HEADER, *ROWS).encode("utf-16")))
    assert read(path).requests == EXPECTED
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(ValueError, match=r"^load.csv.gz: is no whole gzip file"):
        read(path)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n  \n", "is empty"),
        ("a,b\n1,2\n", "no column with arrivals nor tokens of prompts nor tokens of answers among 'a, b'"),
        ("arrival_s,prompt_tokens\n1,2\n", "no column with tokens of answers"),
        (lines(HEADER) + "\n", "line 1 is a header, and nothing follows"),
        (lines(HEADER, (0, 5, 0)), "without a request, and 1 without output tokens"),
        (lines(HEADER, (0, 5, 5), ("nan", 5, 5)), "line 3, arrival_s='nan' is no time; use"),
        (lines(HEADER, (0, 5, 5), ("inf", 5, 5)), "line 3, arrival_s='inf' is no time"),
        (lines(HEADER, (-3, 5, 5)), "line 2, arrival_s='-3' lies before the beginning"),
        (lines(HEADER, (1, 5, 5), (0.5, 5, 5)), r"line 3, arrival_s=0\.5 lies before line 2's 1; sort"),
        (lines(HEADER, (0, "five", 5)), "line 2, prompt_tokens='five' is no number of tokens; use a whole"),
        (lines(HEADER, (0, 5, 2.5)), r"line 2, output_tokens='2\.5' is no number of tokens"),
        (lines(HEADER, (0, 5, -2)), "output_tokens='-2' is no number"),
        (lines(HEADER, (0, 10**400, 5)), r"prompt_tokens='1000.*\(40. characters\) is no number"),
        (lines(HEADER, (0, "", 5)), "line 2: no prompt_tokens; the columns are arrival_s"),
        (lines(HEADER, (0, 5)), "line 2: no output_tokens"),
        (lines(HEADER, ("0,5", 100, 10)), "line 2 has 4 cells for 3 columns"),
        (lines(("ts", "isl", "osl"), ("2024-02-30 00:00:00", 5, 5)), "ts='2024-02-30 00:00:00' is no time"),
        (lines(("ts", "isl", "osl"), ("2024-02-03 00:00:00", 5, 5), ("soon", 5, 5)), "ts='soon' is no date"),
        (lines(HEADER, (0, "x" * 200_000, 5)), "line . is no row of a table"),
        ("{", "is no JSON"),
        ('{"a": 1}', "no column with arrivals"),
        ("[1, 2]", "line 1, item 1 is 1 and no record"),
        ("[]", "holds no record"),
        ("[" * 100_000, "nested too deeply"),
        ('{"timestamp": 1e999, "input_length": 5, "output_length": 5}', "timestamp=inf is no time"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 5}', "timestamp=nan is no time"),
        ('{"timestamp": true, "input_length": 5, "output_length": 5}', "timestamp=True is no time"),
        ('{"timestamp": 0, "input_length": "5 tokens", "output_length": 5}', "input_length='5 tokens'"),
        ('{"timestamp": %s, "input_length": 5, "output_length": 5}' % ("9" * 5000), "too many digits"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5}\n{}', "line 2: no timestamp"),
        ('{"timestamp": 0, "isl": 5, "osl": 5, "hash_ids": 3}', "hash_ids=3 are no hashes"),
        ('{"benchmarks": {}}', "benchmarks is no list"),
        ('{"input_lens": [1], "output_lens": [1, 2], "start_times": [1]}', "lists of different lengths"),
        ('{"input_lens": 3}\n{}', "holds several results"),
    ],
)  # fmt: skip
def test_one_sentence_says_where_and_what_would_do(text, words):
    with pytest.raises(ValueError, match=words) as refused:
        read(text.encode())
    said = str(refused.value)
    assert said.startswith("trace: ")
    assert len(said) < 400
    assert "\n" not in said


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.csv", "a\0b"):
        with pytest.raises(ValueError, match=r"cannot be read|null"):
            read(path)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    with pytest.raises(ValueError, match=r"^picture.csv: is no text"):
        read(tmp_path / "picture.csv")
    (tmp_path / "latin.csv").write_bytes("arrival_s,größe\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^latin.csv: byte 0xf6 is no text in utf-8; save it as UTF-8"):
        read(tmp_path / "latin.csv")


def survives(data):
    """Whether some bytes are read, or refused by name."""
    try:
        return isinstance(read(data), Traffic)
    except ValueError as error:
        return str(error).startswith("trace: ")


REAL = sorted(path.read_bytes() for path in TRACES.glob("*.*") if path.stat().st_size < 8000)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-16")))
@settings(deadline=None, max_examples=150)
@example(b"\xff\xfe")
@example(b"\x1f\x8b")
def test_no_bytes_but_are_read_or_refused(data):
    assert survives(data)


@given(st.sampled_from(REAL), st.data())
@settings(deadline=None, max_examples=150)
def test_no_damage_to_a_file_does_more_than_refuse_it(data, draw):
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(data)))
        end = start + draw.draw(st.sampled_from([0, 1, 3, 40]))
        new = draw.draw(st.binary(max_size=4) | st.sampled_from(NASTY))
        data = data[:start] + new + data[end:]
    assert survives(data)


NASTY = [b"null", b"[]", b"{}", b'""', b"1e999", b"-1", b"NaN", b"9" * 400, b"true", b",", b"\n", b'"']
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NAMES = st.sampled_from([
    "metadata", "metrics", "request_start_ns", "input_sequence_length", "output_sequence_length", "value",
    "event", "event_type", "request", "request_received_ms", "replay", "trace_block_size", "agent_context",
    "input_sequence_hashes", "output_tokens", "benchmarks", "requests", "successful", "start_time", "errored",
    "prompt_tokens", "timestamp", "input_length", "output_length", "hash_ids", "session_id", "chat_id",
    "parent_chat_id", "input_lens", "output_lens", "start_times", "itls", "ttfts", "errors",
    "unit", "block_size",
])  # fmt: skip
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)


@given(st.dictionaries(NAMES, JUNK, min_size=1, max_size=6) | st.lists(JUNK, max_size=3))
@settings(deadline=None, max_examples=100)
def test_no_json_does_more_than_be_refused(document):
    assert survives(json.dumps(document).encode())


# ------------------------------------------------------------------ windows, and requests alone


def loaded(*arrivals):
    return read(lines(HEADER, *((at, 10 + i, 2) for i, at in enumerate(arrivals))))


def test_the_window_is_the_busiest_stretch():
    part = window(loaded(0, 5, 10, 11, 12, 20, 25), 3)
    assert [row.prompt_tokens for row in part] == [12, 13, 14]
    assert (
        "the 3 requests in a row that arrived in the least time, 3 to 5 of 7 (1 req/s; all of them: 0.24"
        in str(part)
    )


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 35))
def test_no_other_stretch_is_shorter(gaps, count):
    arrivals = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    part = window(loaded(*arrivals), count)
    assert len(part) == min(count, len(gaps))
    stretches = zip(arrivals, arrivals[len(part) - 1 :], strict=False)
    assert part.span == min(last - first for first, last in stretches)


def test_a_window_keeps_what_was_measured_of_it():
    part = window(read(json.dumps(VLLM | {"ttfts": [float(i) for i in range(20)]})), 5)
    whole = read(json.dumps(VLLM))
    first = whole.requests.index(part[0])
    assert part.measured.ttft == tuple(float(i) for i in range(first, first + 5))
    assert len(part.measured.gaps) == 5


def test_requests_that_ran_alone_time_a_prompt_and_a_step():
    result = {
        "start_times": [0, 10, 20, 20.5], "input_lens": [1000, 3000, 8000, 10], "output_lens": [3, 3, 3, 3],
        "ttfts": [0.5, 1.5, 1.0, 0.1], "itls": [[0.02, 0.02], [0.04, 0.04], [0.1, 0.1], [0.5, 0.5]],
    }  # fmt: skip
    assert alone(read(json.dumps(result))) == pytest.approx((2000, 1.0, 0.03))
    busy = result | {"start_times": [0, 0.1, 0.2, 0.3]}
    with pytest.raises(ValueError, match="no request ran alone; measure again with one stream"):
        alone(read(json.dumps(busy)))
    with pytest.raises(ValueError, match="holds no measured times"):
        alone(loaded(1, 2))


def test_traffic_is_a_sequence_of_its_requests():
    found = read(lines(HEADER, *ROWS))
    assert list(found) == list(EXPECTED)
    assert found[1:] == EXPECTED[1:]
    assert (len(found), found.span, found.rate) == (3, 1.5, 2 / 1.5)
    assert traffic.read(lines(HEADER, (1, 5, 5), (1, 5, 5))).rate is None
