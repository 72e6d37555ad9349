"""Bytes become text, whatever a spreadsheet or a tool made of it."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

HEAD = 4096  # bytes that tell an encoding
MARKS = (  # the longer ones first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@contextmanager
def opened(source: str | Path | bytes) -> Iterator[TextIO]:
    """Open a file, its bytes or its text for reading, gunzipped if need be; ValueError where unreadable."""
    try:
        with ExitStack() as stack:
            if isinstance(source, str):
                yield io.StringIO(source.removeprefix("\ufeff"), newline="")
                return
            stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
            stack.enter_context(stream)
            if stream.read(2) == b"\x1f\x8b":
                stream.seek(0)
                stream = stack.enter_context(gzip.GzipFile(fileobj=stream))  # type: ignore[assignment]
            stream.seek(0)
            name = encoding(stream.read(HEAD))
            stream.seek(0)
            yield stack.enter_context(io.TextIOWrapper(stream, name, newline=""))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"is no whole gzip file ({error}); compress it again") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error}); give a path") from None


def encoding(head: bytes) -> str:
    """Return the encoding that a text which begins so is in: by its mark, or by the zeros of UTF-16."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    pairs = len(head) // 2
    if pairs and head[1::2].count(0) > 0.8 * pairs and not head[0::2].count(0):
        return "utf-16-le"
    if pairs and head[0::2].count(0) > 0.8 * pairs and not head[1::2].count(0):
        return "utf-16-be"
    if 0 in head:
        raise ValueError("is no text (it holds a zero byte); give CSV or JSON")
    return "utf-8"
