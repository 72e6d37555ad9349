"""Imported first, it spares a process a second: a grammar that jsonschema loads and nobody here asks for."""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
