import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.chat import LONGEST, VOCABULARY, detokenize, generate, render, tokenize
from lib.page import published

USER = {"role": "user", "content": "Weather in Paris?"}


def test_the_toy_request_renders_and_tokenizes_as_published():
    assert tokenize(render([USER])) == published.get("frontend.render_ids")


def test_the_toy_answer_is_the_published_one():
    assert generate([0]) == published.get("frontend.generate_ids")


def test_the_vocabulary_begins_as_published_and_holds_no_word_twice():
    head = published.get("frontend.vocab_head")
    assert list(VOCABULARY[: len(head)]) == head
    assert len(set(VOCABULARY)) == len(VOCABULARY)


def test_sampled_pieces_of_a_word_come_back_as_another_token():
    sampled = published.get("frontend.sampled_ids")
    assert tokenize(detokenize(sampled)) == published.get("frontend.retokenized_ids") != sampled


@given(st.text(alphabet=st.characters()))
def test_any_text_survives_tokenizing(text):
    assert detokenize(tokenize(text)) == text


@given(st.lists(st.integers(0, len(VOCABULARY) + 255)))
def test_any_tokens_can_be_read(ids):
    assert isinstance(detokenize(ids), str)


@given(st.lists(st.sampled_from(VOCABULARY)))
def test_no_longer_word_would_have_matched(words):
    text = "".join(words)
    at = 0
    for number in tokenize(text):
        word = VOCABULARY[number]
        longer = (text[at : at + n] for n in range(len(word) + 1, min(LONGEST, len(text) - at) + 1))
        assert text.startswith(word, at)
        assert not any(candidate in VOCABULARY for candidate in longer)
        at += len(word)


@pytest.mark.parametrize(("messages", "says"), [([], "empty"), ([{"role": "user"}], "content")])
def test_a_request_without_words_is_refused(messages, says):
    with pytest.raises(ValueError, match=says):
        render(messages)


def test_a_number_that_is_no_token_is_named():
    with pytest.raises(ValueError, match=r"ids\[1\]=99999"):
        detokenize([0, 99999])
    with pytest.raises(ValueError, match="ids is empty"):
        generate([])
