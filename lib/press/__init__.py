"""How the book is checked and printed; it knows nothing of serving.

For chapters: `figures`, `published`, `source`, `table`, `measured`. For the build: all else.
"""

from lib.press.show import measured, source, table

__all__ = ["measured", "source", "table"]
