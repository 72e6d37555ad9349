"""The fields of a config.json: read with a check, and remembered, so that none is passed over in silence."""

from collections.abc import Mapping
from typing import Any

from lib import checks

MOST = 10**9  # no size of a model is larger; keeps sums within a float's range
LAYERS = 10_000  # no model has more
ABSENT = (None, False, "", "none", "None")


class Fields:
    """A config's fields. Each method takes a key and its other spellings, of which the first counts."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.defaults = defaults or {}
        self.used: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self.config.get(key) is not None

    def get(self, *keys: str, default: Any = None) -> Any:
        """Return the value of the first key that has one."""
        self.used.update(keys)
        for source in (self.config, self.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return source[key]
        return default

    def size(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of at least `least`, which must be there unless there is a default."""
        value = self.get(*keys)
        if value is None:
            if default is None:
                raise ValueError(f"config.json: {keys[0]} is missing; give its value")
            return default
        key = next((key for key in keys if self.config.get(key) is not None), keys[0])
        (checks.counts if least else checks.counts_or_zero)("config.json", **{key: value})
        if value > MOST:
            raise ValueError(f"config.json: {key} is over {MOST:,}, which will not do; use the model's own")
        return int(value)

    def zero(self, *keys: str, default: int | None = 0) -> int:
        """Return a whole number of at least 0."""
        return self.size(*keys, default=default, least=0)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.get(key, default=default)
        if value not in (True, False):
            raise ValueError(f"config.json: {key}={value!r} will not do; use true or false")
        return bool(value)

    def text(self, *keys: str, default: str = "") -> str:
        """Return a string."""
        value = self.get(*keys, default=default)
        if not isinstance(value, str):
            raise ValueError(f"config.json: {keys[0]}={value!r} will not do; use text")
        return value

    def sizes(self, key: str) -> list[int] | None:
        """Return a list of whole numbers of at least 0; None where there is none."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ValueError(f"config.json: {key}={value!r} will not do; use a list")
        for i, one in enumerate(value):
            checks.counts_or_zero("config.json", **{f"{key}[{i}]": one})
        return [min(int(one), MOST) for one in value]

    def kinds(self, key: str, layers: int, allowed: tuple[str, ...]) -> list[str] | None:
        """Return a word for each layer, out of those allowed; None where there is none."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers or any(one not in allowed for one in value):
            raise ValueError(
                f"config.json: {key} will not do; use one of {', '.join(allowed)} for each of {layers} layers"
            )
        return value

    def inner(self, key: str) -> "Fields":
        """Return the fields of an object within."""
        value = self.get(key, default={})
        if not isinstance(value, Mapping):
            raise ValueError(f"config.json: {key}={value!r} will not do; use an object")
        return Fields(value)

    def layers(self, *keys: str) -> int:
        """Return the number of layers."""
        count = self.size(*(keys or ("num_hidden_layers", "n_layer", "n_layers", "num_layers")))
        if count > LAYERS:
            raise ValueError(f"config.json: {count:,} layers are too many; use at most {LAYERS:,}")
        return count

    def off(self, *keys: str) -> None:
        """Refuse any of the keys that is switched on: what it would change is not covered."""
        for key in keys:
            value = self.get(key)
            if value not in ABSENT and value != 0:
                raise ValueError(f"config.json: {key}={value!r} is not covered; use a model without it")

    def rest(self) -> list[str]:
        """Return the keys that say something and that nobody has read."""
        nothing: tuple[object, ...] = ([], {}, "")
        return [
            key
            for key, value in self.config.items()
            if key not in self.used and value is not None and value is not False and value not in nothing
        ]
