"""What the command line reads: recordings in place of numbers, flags of any kind, words for any terminal."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.decide import Timed, command, reading
from lib.decide.command import main
from lib.traffic import read

TRACES = Path(__file__).parent / "traces"
BASE = ["--model", "qwen2.5-7b", "--gpu", "L40S", "--link", "PCIe 4.0", "--itl-ms", "100"]


@pytest.fixture
def asked(monkeypatch):
    """What `decide` is asked; it is not played."""
    kept = {}
    monkeypatch.setattr(command, "decide", lambda case, tell: kept.update(load=case.load, timed=case.timed))
    monkeypatch.setattr(command, "report", lambda case, advice: "Answer")
    return kept


def test_a_time_of_a_prompt_is_that_of_the_recordings_mean(asked):
    trace = TRACES / "azure_2023_conversation.csv"
    assert main([*BASE, "--trace", str(trace), "--prefill-ms", "400", "--decode-ms", "22.5"]) == 0
    mean = round(read(trace).prompt)
    assert mean == 903
    assert asked["timed"] == Timed(mean, 0.4, 0.0225)


def test_a_recording_calibrates_where_requests_ran_alone(asked, tmp_path, capsys):
    result = {
        "start_times": [0, 10], "input_lens": [2000, 2000], "output_lens": [3, 3], "ttfts": [0.5, 0.5],
        "itls": [[0.03, 0.03], [0.03, 0.03]],
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(result))
    given = [*BASE, "--trace", str(tmp_path / "result.json")]
    assert main(given) == 0
    assert asked["timed"] is None
    assert main([*given, "--calibrate"]) == 0
    assert asked["timed"] == Timed(2000, 0.5, 0.03)
    assert "Measured there: TTFT p50 500 ms, p99 500 ms; mean gap p50 30 ms" in capsys.readouterr().out


def test_what_is_too_much_to_play_is_cut_to_a_window_and_said(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reading, "MOST_REQUESTS", 50)
    assert main([*BASE, "--trace", str(TRACES / "azure_2023_conversation.csv")]) == 0
    assert len(asked["load"].sample) == 50
    printed = " ".join(capsys.readouterr().out.split())
    assert "Looked at: the 50 requests in a row that arrived in the least time" in printed
    assert "of 200 (" in printed


def test_a_unit_that_the_file_got_wrong_can_be_said(asked, tmp_path):
    rows = "".join(f"{100 * i},3000,300\n" for i in range(20))
    (tmp_path / "ms.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    assert main([*BASE, "--csv", str(tmp_path / "ms.csv"), "--trace-time", "ms"]) == 0
    assert asked["load"].rate == pytest.approx(10)


# ------------------------------------------------------------------ flags


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rate", "1", "--rate", "2"], "--rate is given twice"),
        (["--trace", "a", "--csv", "b"], "is given twice"),
        (["--rate", "nan"], "'nan' is not a finite number"),
        (["--rate", "1e400"], "'1e400' is not a finite number"),
        (["--prompt", "9" * 400], "(400 characters)' is out of this world"),
        (["--prompt", "9" * 5000], "(5,000 characters)"),
        (["--prompt", "1.5"], "'1.5' is not a whole number"),
        (["--price", "ten"], "'ten' is not a finite number"),
        (["--rat", "1"], "unrecognized arguments: --rat 1"),
        (["--gpu"], "expected one argument"),
    ],
)
def test_a_flag_that_will_not_do_is_refused_in_one_line(flags, words, capsys):
    base = [] if "--gpu" in flags else ["--gpu", "L40S"]
    with pytest.raises(SystemExit) as left:
        main(["--model", "qwen2.5-7b", *base, *flags])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert words in said
    assert said.count("\n") == 1


WORDS = st.sampled_from(
    ["0", "-1", "1e-300", "1e12", "1e999", "nan", "inf", "", " ", "1_0", "0x1", "9" * 400, "4"]
)
VALUES = WORDS | st.text(max_size=6) | st.sampled_from([str(path) for path in sorted(TRACES.iterdir())])
FLAGS = st.sampled_from([
    "--link", "--gpus", "--tensor-parallel", "--rate", "--prompt", "--output", "--spread", "--trace", "--csv",
    "--trace-time", "--new-tokens", "--ttft-s", "--tpot-ms", "--itl-ms", "--gap-ms", "--target",
    "--handoff-s",
    "--prefill-ms", "--decode-ms", "--cpu-ms-per-request", "--price", "--gpu", "--model", "--calibrate",
    "--history-can-change", "--steps",
])  # fmt: skip


@given(st.lists(st.tuples(FLAGS, VALUES), max_size=5))
@settings(deadline=None, max_examples=100)
def test_no_flags_do_more_than_be_refused(pairs):
    given = [*BASE, *(word for flag, value in pairs for word in (flag, value)[: 1 + (flag[-1] not in "ea")])]
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(command, "decide", lambda case, tell: None)
        patch.setattr(command, "report", lambda case, advice: "Answer")
        with contextlib.redirect_stderr(error):
            try:
                status = main(given)
            except SystemExit as left:
                status = left.code
    assert status in (0, 2)
    assert error.getvalue().count("\n") == (1 if status else 0)


FILES = sorted(TRACES.iterdir()) + sorted((TRACES.parent / "configs").glob("*.json"))[:20]


@given(
    st.sampled_from(FILES), st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=4)), max_size=6),
    st.integers(0, 6000), st.sampled_from(["--trace", "--model"]),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_no_bytes_of_a_file_do_more_than_be_refused(file, changes, length, flag):
    """Files that people have, with bytes changed and an end cut off, as a recording and as a model."""
    held = bytearray(file.read_bytes()[:length])
    for place, new in changes:
        held[place % (len(held) + 1) : place % (len(held) + 1) + len(new)] = new
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{file.suffix}"
        path.write_bytes(held)
        asked = ["--gpu", "L40S", "--link", "PCIe 4.0", "--itl-ms", "100", flag, str(path)]
        asked += ["--model", "qwen2.5-7b"] if flag == "--trace" else ["--rate", "1"]
        out, error = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
            patch.setattr(command, "decide", lambda case, tell: None)
            patch.setattr(command, "report", lambda case, advice: "Answer")
            with contextlib.redirect_stderr(error):
                status = main(asked)
    assert status in (0, 2)
    assert error.getvalue().count("\n") == (1 if status else 0)


# ------------------------------------------------------------------ terminals


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "cp932", "latin-1", "utf-8", "cp437"])
def test_every_terminal_can_say_it(encoding, asked, monkeypatch):
    text = "10\u202f000 tokens, 2\xa0× −3 – 4 µs “so” … 中文 \ud800"
    monkeypatch.setattr(command, "report", lambda case, advice: f"Answer: {text}")
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", out)
    assert main([*BASE, "--rate", "0.2", "--ttft-s", "5", "--price", "1.5"]) == 0
    assert b"Answer: " in out.buffer.getvalue()


def test_what_a_terminal_lacks_is_said_plainly():
    assert reading.printable("2\xa0× −3 – µs…", "ascii") == "2 x -3 - us..."
    assert reading.printable("2\xa0× −3", "utf-8") == "2\xa0× −3"


@given(st.text())
def test_an_error_is_one_line(text):
    assert len(reading.one_line(text).splitlines()) <= 1
