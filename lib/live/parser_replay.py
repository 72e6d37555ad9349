"""How many characters a parser looks at that remembers, that replays, and that replays and rescans."""

from __future__ import annotations

from lib.live import Answer, Number, calculates, line, points
from lib.parsers import replay_work

LENGTHS = [2**n for n in range(4, 15)]  # tokens


@calculates(
    "Stream an answer of your own",
    Number("tokens", "Answer", "tokens", 4000, 1, 16_384, 500),
    Number("characters", "Characters a token", "", 4, 1, 8),
    Number("bundle", "Tokens a chunk", "tokens", 1, 1, 256),
    Number("gap", "Time between tokens", "ms", 24.5, 1, 1000, 0.5, whole=False),
)
def parser_replay(tokens: int, characters: int, bundle: int, gap: float) -> Answer:
    """Return the characters of work of three kinds of parser, whole and for the last chunk alone."""
    kinds = {"remembers": None, "replays": False, "replays and rescans": True}
    looked = [work(tokens, characters, bundle, kind) for kind in kinds.values()]
    before = [work(tokens - bundle, characters, bundle, kind) for kind in kinds.values()]
    last = [whole - part for whole, part in zip(looked, before, strict=True)]
    pace = [1e3 * one / (gap * bundle) for one in last]
    lengths = sorted({*(n for n in LENGTHS if n >= bundle), tokens})
    colours = ("cpu", "other", "waiting")
    return {
        "say": [
            f"A parser that remembers looks at {looked[0]:,} characters, one that replays at {looked[1]:,}, "
            f"and one that rescans as well at {looked[2]:,}.",
            f"To keep up with this stream's last chunk a core must look at {pace[0]:,.0f} characters a "
            f"second, at {pace[1]:,.0f}, or at {pace[2]:,.0f}.",
        ],
        "table": {
            "the parser": list(kinds),
            "characters in all": looked,
            "times the first": [whole / looked[0] for whole in looked],
            "for the last chunk": last,
            "a second, to keep up": [round(one) for one in pace],
        },
        "plot": {
            "title": "A line, a square and a cube",
            "alt": "Characters looked at against tokens of the answer, on logarithmic scales. The parser "
            "that remembers rises in proportion, the one that replays with the square, the one that rescans "
            "too with the cube.",
            "x": {"label": "tokens of the answer", "log": True, "ends": (16, 16_384)},
            "y": {"label": "characters looked at", "log": True, "ends": (10, 1e13)},
            "marks": [
                *(
                    line(name, colour, lengths, [work(n, characters, bundle, kind) for n in lengths])
                    for (name, kind), colour in zip(kinds.items(), colours, strict=True)
                ),
                points("this answer", "ink", [tokens] * 3, looked),
            ],
        },
    }


def work(tokens: int, characters: int, bundle: int, rescan: bool | None) -> int:
    """Return the characters looked at, tokens coming in full chunks; rescan None: the parser remembers."""
    chunks = max(0, -(-tokens // bundle))
    if rescan is None or not chunks:
        return chunks * bundle * characters
    return replay_work(chunks, bundle * characters, rescan)
