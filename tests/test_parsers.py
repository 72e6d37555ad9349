import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.chat import ANSWER
from lib.page import published
from lib.parsers import (
    Parser,
    Reply,
    RescanningParser,
    derender,
    pieces,
    replay_work,
    replayed,
    reply,
    streamed,
)

WORDS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "f"}',
    "{",
    "<",
    "</",
    "th",
    "x",
    " ",
    '"',
    "\\",
    "\n",
    '{"name": "f", "args": "',
]
NAMED = '{"name": "f"}'
TAG_IN_TEXT = '<tool_call>{"name": "f", "args": "</tool_call>"}'  # never closed: the tag is in a string
DEEP = f"<tool_call>{'[' * 100_000}</tool_call>"
LONG_NUMBER = f'<tool_call>{{"name": "f", "args": {"9" * 5000}}}</tool_call>'
ANYTHING = st.lists(st.sampled_from(WORDS) | st.text(max_size=3)).map("".join)


def whole(parts):
    return "".join(part.opened + part.text + part.closed for part in parts)


def test_the_toy_answer_splits_as_published():
    message = derender(ANSWER)
    expected = published.get("frontend.derender")
    assert message.content is None
    assert message.reasoning == expected["reasoning"]
    assert message.tool_calls == [{"name": expected["tool"], "args": {"city": expected["city"]}}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Reply(None, None, [])),
        ("hi", Reply("hi", None, [])),
        ("<think>never closed", Reply(None, "never closed", [])),
        ("<think>a<think>b</think>c", Reply("c", "a<think>b", [])),
        ("</think>x", Reply("</think>x", None, [])),
        ("<tool_call>{broken</tool_call>", Reply("<tool_call>{broken</tool_call>", None, [])),
        ("<tool_call>[1]</tool_call>", Reply("<tool_call>[1]</tool_call>", None, [])),
        ('<tool_call>{"name": "f"}', Reply('<tool_call>{"name": "f"}', None, [])),
        ('a<tool_call>{"name": "f"}</tool_call>b', Reply("ab", None, [{"name": "f"}])),
        ("<<think>a<</think>>", Reply("<>", "a<", [])),
        ("<thi<think>nk>a</think>", Reply("<thi", "nk>a", [])),
        ("<think></think>", Reply(None, None, [])),
        (
            '<think><tool_call>{"name": "f"}</tool_call></think>',
            Reply(None, f"<tool_call>{NAMED}</tool_call>", []),
        ),
        (
            "<tool_call><think>a</think></tool_call>",
            Reply("<tool_call><think>a</think></tool_call>", None, []),
        ),
        (
            f"<tool_call><tool_call>{NAMED}</tool_call>",
            Reply(f"<tool_call><tool_call>{NAMED}</tool_call>", None, []),
        ),
        (TAG_IN_TEXT, Reply(TAG_IN_TEXT, None, [])),
        (f"<tool_call>{NAMED}{NAMED}</tool_call>", Reply(f"<tool_call>{NAMED}{NAMED}</tool_call>", None, [])),
        (DEEP, Reply(DEEP, None, [])),
        (LONG_NUMBER, Reply(LONG_NUMBER, None, [])),
        ("<tool_call>{}</tool_call>", Reply("<tool_call>{}</tool_call>", None, [])),
        ("<tool_call></tool_call>", Reply("<tool_call></tool_call>", None, [])),
        ('<tool_call>{"name": 1}</tool_call>', Reply('<tool_call>{"name": 1}</tool_call>', None, [])),
        ("\ud800<think>\udfff", Reply("\ud800", "\udfff", [])),
    ],
)
def test_malformed_output_stays_in_the_message(text, expected):
    assert derender(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><tool_call>{}</tool_call>",
        "<<think>a<</think>>",
        TAG_IN_TEXT,
        "<think><think></think></think>",
    ],
)
def test_a_tag_may_be_cut_anywhere(text):
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            parser = Parser()
            for chunk in (text[:first], text[first:second], text[second:]):
                parser.feed(chunk)
            assert parser.pieces() == pieces(text)


def test_many_tags_are_no_more_work_than_their_length():
    many = "<think></think>" * 50_000
    start = time.perf_counter()
    assert len(pieces(many)) == 50_000
    assert time.perf_counter() - start < 2  # many seconds where each tag is sought to the end


@given(ANYTHING, st.booleans())
def test_no_text_is_lost(text, thinking):
    assert whole(pieces(text, thinking)) == text


@given(ANYTHING, st.booleans(), st.data())
def test_a_stream_gives_the_same_message_wherever_it_is_cut(text, thinking, data):
    parser, at = Parser(thinking), 0
    while at < len(text):
        length = data.draw(st.integers(1, len(text) - at))
        parser.feed(text[at : at + length])
        at += length
    assert parser.pieces() == pieces(text, thinking)
    assert parser.reply() == derender(text, thinking)
    assert parser.work == len(text)


@given(ANYTHING, st.booleans())
def test_what_a_stream_says_adds_up_to_the_message_and_is_never_taken_back(text, thinking):
    parser, heard = Parser(thinking), []
    for character in text:
        heard += parser.feed(character)
        so_far = reply(heard)
        assert (parser.reply().content or "").startswith(so_far.content or "")
        assert (parser.reply().reasoning or "").startswith(so_far.reasoning or "")
        assert parser.reply().tool_calls == so_far.tool_calls
    assert reply(heard + parser.end()) == parser.reply()


@given(st.text(), st.booleans())
def test_any_argument_reaches_the_tool(text, ascii_only):
    call = {"name": "save", "arguments": {"text": text + "</tool_call>" + text}}
    written = f"a<tool_call>\n{json.dumps(call, ensure_ascii=ascii_only)}\n</tool_call>b"
    assert derender(written) == Reply("ab", None, [call])


@given(st.text().filter(lambda text: "<" not in text), st.text().filter(lambda text: "<" not in text))
def test_a_thought_that_the_template_opened_is_read_as_if_the_model_had(thought, answer):
    written = f"{thought}</think>{answer}"
    assert derender(written, thinking=True) == derender(f"<think>{written}")
    assert derender(thought, thinking=True) == Reply(None, thought or None, [])


def test_a_stray_quote_does_not_swallow_the_next_call():
    good = f"<tool_call>{NAMED}</tool_call>"
    for bad in ('<tool_call>say "hi</tool_call>', '<tool_call>{"name": "f\n</tool_call>'):
        assert derender(bad + good) == Reply(bad, None, [{"name": "f"}])


@pytest.mark.parametrize("parser", [Parser, RescanningParser])
@given(tokens=st.integers(1, 40))
def test_the_formula_counts_what_a_replay_really_does(parser, tokens):
    assert replayed(["word"] * tokens, parser) == replay_work(tokens, rescan=parser is RescanningParser)


def test_a_parser_that_keeps_its_state_looks_at_each_character_once():
    assert streamed(["word"] * 250, Parser) == published.get("parser_replay.stateful")[0]


def test_replay_grows_as_published():
    tokens = published.get("parser_replay.output_tokens")
    assert [replay_work(n) for n in tokens] == published.get("parser_replay.replay")
    assert [replay_work(n, rescan=True) for n in tokens] == published.get("parser_replay.replay_rescan")
