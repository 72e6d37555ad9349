"""Imported first, it spares a process a second: jsonschema loads a grammar of addresses that nobody asks for."""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
