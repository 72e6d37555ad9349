"""A real tokenizer beside the toy of `chat`: the vocabulary of Qwen 2.5 and 3, with its chat format.

The package splintr has the vocabulary compiled in, so nothing is downloaded; it is imported where it is used.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from unicodedata import normalize

# What Qwen's own template makes of plain messages. Qwen 2.5 puts a system message of its own first if there
# is none; tools and earlier reasoning are more work, and left out.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
LONGEST = 128  # bytes in a token: as many spaces


@cache
def vocabulary() -> Any:
    """Return splintr's tokenizer with Qwen's vocabulary."""
    from splintr import Tokenizer

    return Tokenizer.from_pretrained("qwen3")


@cache
def marks() -> dict[str, int]:
    """Return Qwen's special tokens, from `<|endoftext|>` to `</think>`, with their IDs.

    splintr numbers some of its own behind them. No model knows those.
    """
    from splintr import base_vocab_size

    found: dict[str, int] = vocabulary().special_tokens()
    return {mark: number for mark, number in found.items() if number < base_vocab_size("qwen3")}


@cache
def words() -> tuple[bytes, ...]:
    """Return the bytes of every token, in the order of their IDs."""
    spelled = {number: mark.encode() for mark, number in marks().items()}
    plain = vocabulary().decode_token_bytes
    return tuple(spelled.get(number) or plain(number) for number in range(max(spelled) + 1))


@cache
def distinct() -> frozenset[bytes]:
    """Return the tokens' bytes, to look them up."""
    return frozenset(words())


def encode(text: str) -> list[int]:
    """Return the IDs of a text: each special token is one, the rest is composed (Unicode's NFC) and merged.

    A lone surrogate, which UTF-8 cannot say, is read as a question mark.
    """
    ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, marks()))})", text):
        if part in marks():
            ids.append(marks()[part])
        else:
            said = part.encode("utf-8", "replace").decode()
            ids += vocabulary().encode_ordinary(normalize("NFC", said))
    return ids


def decode(ids: Sequence[int]) -> str:
    """Return the text of token IDs; bytes that are no text become the replacement character."""
    known = words()
    for position, number in enumerate(ids):
        if not 0 <= number < len(known):
            raise ValueError(f"decode: ids[{position}]={number!r} is no token; use 0 to {len(known) - 1}")
    return b"".join(known[number] for number in ids).decode("utf-8", "replace")


def spellings(text: str) -> int:
    """Return the number of token sequences that read as this text. `encode` returns one of them."""
    said, known = text.encode("utf-8", "replace"), distinct()
    ways = [1]  # to write the first 0, 1, 2, ... bytes
    for end in range(1, len(said) + 1):
        starts = range(max(0, end - LONGEST), end)
        ways.append(sum(ways[start] for start in starts if said[start:end] in known))
    return ways[-1]


def forget() -> None:
    """Empty splintr's cache of words that it has seen, so that the next text is new to it."""
    vocabulary().clear_cache()
