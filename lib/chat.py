"""The frontend's half of a request: messages to text to token IDs, and token IDs back to text.

A toy of each part, small enough to read and complete enough to be wrong in the ways the real ones are: a
chat template, a greedy tokenizer whose vocabulary holds overlapping words, and a model with one answer.
"""

from collections.abc import Mapping, Sequence
from string import printable

Message = Mapping[str, str]

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "<|start|>assistant\n"
)
WORDS = (
    *("<|start|>", "<|end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("Hello", "Hell", "He", "llo", "o", "user", "assistant", "\n", " ", "Weather", " in", " Paris", "?"),
    *("Need", " the", " tool", ".", '{"name": "get_weather", "args": {"city": "Paris"}}'),
)
VOCABULARY = WORDS + tuple(c for c in sorted(printable) if " " <= c <= "~" and c not in WORDS)
LONGEST = max(map(len, VOCABULARY))
ID = {word: number for number, word in enumerate(VOCABULARY)}
ANSWER = "<think>Need the tool.</think><tool_call>" + WORDS[-1] + "</tool_call>"


def render(messages: Sequence[Message], template: str = TEMPLATE) -> str:
    """Return the one text that the model reads: the messages in the template, the assistant's turn opened.

    As jinja2 does by default, the template's last newline is dropped.
    """
    from jinja2 import Environment, StrictUndefined

    if not messages:
        raise ValueError("render: messages is empty; give at least one with role and content")
    for number, message in enumerate(messages):
        if missing := {"role", "content"} - set(message):
            raise ValueError(f"render: message {number} lacks {' and '.join(sorted(missing))}; give both")
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    return environment.from_string(template).render(messages=messages)


def tokenize(text: str) -> list[int]:
    """Return the IDs of the longest words that match from left to right.

    What no word covers becomes the bytes of its UTF-8, as IDs behind the vocabulary's: any text can be said.
    """
    ids, at = [], 0
    while at < len(text):
        for length in range(min(LONGEST, len(text) - at), 0, -1):
            if (number := ID.get(text[at : at + length])) is not None:
                ids.append(number)
                break
        else:
            length = 1
            ids += [len(VOCABULARY) + byte for byte in text[at].encode("utf-8", "surrogatepass")]
        at += length
    return ids


def detokenize(ids: Sequence[int]) -> str:
    """Return the text of token IDs; bytes that are no text become the replacement character."""
    pieces = bytearray()
    for position, number in enumerate(ids):
        if 0 <= number < len(VOCABULARY):
            pieces += VOCABULARY[number].encode()
        elif 0 <= number - len(VOCABULARY) < 256:
            pieces.append(number - len(VOCABULARY))
        else:
            raise ValueError(
                f"detokenize: ids[{position}]={number!r} is no token; use 0 to {len(VOCABULARY) + 255}"
            )
    try:
        return pieces.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return pieces.decode("utf-8", "replace")


def generate(ids: Sequence[int]) -> list[int]:
    """Return the toy model's answer, whatever it reads: it thinks, then calls a tool."""
    if not ids:
        raise ValueError("generate: ids is empty; a model needs at least one token to answer")
    return tokenize(ANSWER)
