"""`python -m lib.models FILE [--json]`: what a config.json says of its model."""

import argparse
import json
import sys
from collections.abc import Sequence

from lib.models import Model, read_file

PROG = "python -m lib.models"


def described(model: Model) -> dict[str, object]:
    """Return the numbers of a model: parameters, and bytes of cache a token, state, weights; its context.

    `kv_bytes_per_token_windowed` has what is kept beside full keys and values: those of layers with a window,
    and the index keys of sparse attention (`index_bytes_per_token`), which grow with the context as well.
    """
    return {
        "model": model.name,
        "params": model.params,
        "active_params": model.active_params,
        "kv_bytes_per_token_growing": model.growing_bytes_per_token,
        "kv_bytes_per_token_windowed": model.windowed_bytes_per_token + model.index_bytes_per_token,
        "window": model.window,
        "state_bytes": model.state_bytes,
        "weight_bytes": model.resident_bytes,
        "context": model.context,
        "index_bytes_per_token": model.index_bytes_per_token,
        "cache_bytes_per_value": model.cache_bytes,
        "arithmetic": model.arithmetic,
    }


def words(model: Model) -> str:
    """Return the same in words, a line each."""
    lines = [
        f"{model.name}: {model.layers:,} layers, {model.params / 1e9:.2f} billion parameters, of which a "
        f"token meets {model.active_params / 1e9:.2f} billion",
        f"weights: {model.resident_bytes / 1e9:.2f} GB; products in {model.arithmetic}",
        f"cache: {model.growing_bytes_per_token:,} bytes a token, {model.cache_bytes:g} bytes a value",
    ]
    if model.window:
        lines.append(
            f"and {model.windowed_bytes_per_token:,} bytes for each of the last {model.window:,} tokens"
        )
    if model.index_bytes_per_token:
        lines.append(f"and {model.index_bytes_per_token:,} bytes a token of index keys")
    if model.state_bytes:
        lines.append(f"state: {model.state_bytes / 1e6:.1f} MB a request")
    lines.append("context: " + (f"{model.context:,} tokens" if model.context else "no limit is said"))
    return "\n".join(lines)


def show(text: str) -> None:
    """Print text to any terminal: what its encoding lacks becomes an escape."""
    encoding = sys.stdout.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def main(given: Sequence[str] | None = None) -> int:
    """Print what the file says; 2 and a sentence where it will not do."""
    made = argparse.ArgumentParser(prog=PROG, description="What a model's config.json says of it.")
    made.add_argument("file", help="a config.json; a hf_quant_config.json beside it is read too")
    made.add_argument("--json", action="store_true", help="as JSON")
    arguments = made.parse_args(given)
    try:
        model = read_file(arguments.file)
        show(json.dumps(described(model), indent=2) if arguments.json else words(model))
    except ValueError as error:
        sentence = " ".join(str(error).split())
        print(f"{PROG}: {sentence}".encode("ascii", "backslashreplace").decode(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
