import subprocess
import sys
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.chat import render
from lib.tokenizer import LONGEST, TEMPLATE, decode, encode, forget, marks, spellings, words

ANY = st.text(alphabet=st.characters())  # lone surrogates among them
MARKED = st.lists(st.sampled_from(["<think>", "<|im_start|>", "<|think|>", "<", "|>", "e\u0301", "x"]) | ANY)


def test_the_tags_of_reasoning_came_with_qwen3_behind_the_last_token_of_qwen2_5():
    last_of_qwen2_5 = 151_664  # <|file_sep|>, the last of the added tokens in its tokenizer_config.json
    assert encode("<think></think>") == [151_667, 151_668]
    assert min(encode("<think></think>")) > last_of_qwen2_5


def test_a_chat_request_gets_the_ids_that_qwen_s_own_tokenizer_gives_it():
    # what transformers prints for Qwen2.5-Coder-32B-Instruct, as seen in public notebooks
    request = [
        {
            "role": "system",
            "content": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        },
        {"role": "user", "content": "write a quick sort algorithm."},
    ]
    assert encode(render(request, TEMPLATE)) == [
        *(151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264),
        *(10950, 17847, 13, 151645, 198, 151644, 872, 198, 4934, 264, 3974, 3378, 12111, 13, 151645, 198),
        *(151644, 77091, 198),
    ]


def test_the_vocabulary_is_qwen_s():
    assert len(words()) == 151669
    assert [marks()[mark] for mark in ("<|endoftext|>", "<tool_call>", "<think>", "</think>")] == [
        *(151643, 151657, 151667, 151668)
    ]
    assert len(set(words())) == len(words())
    assert max(map(len, words())) == LONGEST


def test_sampled_pieces_of_a_word_come_back_as_another_token():
    sampled = encode("He") + encode("llo")
    assert sampled == [1519, 75, 385]
    assert encode(decode(sampled)) == [9707]


def test_marks_that_only_the_package_knows_are_plain_text():
    assert max(encode("<|think|>")) < 151643


@given(ANY | MARKED.map("".join))
def test_any_text_comes_back_composed(text):
    said = text.encode("utf-8", "replace").decode()
    parts = encode(text)
    assert normalize("NFC", decode(parts)) == normalize("NFC", said)
    assert encode(decode(parts)) == parts


@given(st.lists(st.integers(0, 151668)))
def test_any_tokens_can_be_read(ids):
    assert encode(decode(ids)) is not None


SHORT = {word for word in words() if word.strip(b"Helo ") == b""}


def written(text):
    """Every way to write a text, by trying each token that it begins with."""
    if not text:
        return [[]]
    starts = [text[:n] for n in range(1, len(text) + 1) if text[:n] in SHORT]
    return [[start, *rest] for start in starts for rest in written(text[len(start) :])]


@settings(deadline=None)
@given(st.text("Helo ", max_size=6))
def test_spellings_are_counted_one_by_one(text):
    assert spellings(text) == len(written(text.encode()))


def test_the_words_seen_so_far_change_nothing():
    first = encode("the same words, the same tokens")
    forget()
    assert encode("the same words, the same tokens") == first


@pytest.mark.parametrize("number", [-1, 151669])
def test_a_number_that_is_no_token_is_named(number):
    with pytest.raises(ValueError, match=rf"ids\[1\]={number}.* 0 to 151668"):
        decode([0, number])


def test_nothing_is_asked_of_the_network_or_loaded_before_it_is_used():
    code = (
        "import socket, sys; import lib.tokenizer as t; assert 'splintr' not in sys.modules;"
        "socket.socket = None; socket.create_connection = None; assert t.encode('Hello') == [9707]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
