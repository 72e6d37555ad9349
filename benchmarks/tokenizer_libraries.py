"""How long three libraries take for the same tokens: splintr, tiktoken and Hugging Face's tokenizers.

All three get Qwen's vocabulary from splintr, so nothing is downloaded, and must find the same IDs.
Needs two packages that the book does without: pip install tiktoken tokenizers
"""

import sys
from itertools import pairwise
from pathlib import Path

from lib import tokenizer
from lib.timing import seconds

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # Qwen's: how a text is split before its pieces are merged


def ranks():
    """Return the bytes of every plain token, with its ID, which is the rank at which it is merged."""
    first = min(tokenizer.marks().values())
    return {word: number for number, word in enumerate(tokenizer.words()[:first])}


def openai():
    """Return tiktoken's `encode` with Qwen's vocabulary."""
    import tiktoken

    return tiktoken.Encoding("qwen", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={}).encode


def hugging_face():
    """Return `encode` of Hugging Face's tokenizers with Qwen's vocabulary."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    letters, known = byte_letters(), ranks()

    def spelled(word):
        return "".join(letters[byte] for byte in word)

    pairs = [halves(word, number, known) for word, number in known.items() if len(word) > 1]
    merges = [(spelled(a), spelled(b)) for a, b in pairs]
    library = Tokenizer(models.BPE({spelled(word): number for word, number in known.items()}, merges))
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return lambda text: library.encode(text).ids


def byte_letters():
    """Return the letter that stands for each byte in such vocabularies: itself where it can be printed."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def halves(word, number, known):
    """Return the two tokens that are merged into a word: what merging its bytes leaves just before."""
    parts = [bytes([byte]) for byte in word]
    while len(parts) > 2:
        joined = [known.get(a + b, number) for a, b in pairwise(parts)]
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return tuple(parts)


def main():
    """Time all three on a chapter of the book."""
    text = Path(__file__).parents[1].joinpath("book/kv_dissection.md").read_text("utf8")
    expected = tokenizer.encode(text)
    print(f"{len(text):,} characters, {len(expected):,} tokens, Python {sys.version.split()[0]}")
    libraries = {"splintr": tokenizer.encode, "tiktoken": openai(), "tokenizers": hugging_face()}
    for name, encode in libraries.items():
        assert list(encode(text)) == expected, f"{name} finds other tokens"
        took = seconds(lambda encode=encode: encode(text), before=tokenizer.forget)
        print(f"{name:12} {1e6 * took / len(expected):.3f} µs a token")


if __name__ == "__main__":
    main()
