"""Typed access to a JSON object that a stranger wrote: every complaint names file and field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from octoplan.importers.options import MAXIMUM_COUNT
from octoplan_schemas import InputError

#: No real model has more layers; a larger count is a mistake, and would only keep everybody waiting.
MAXIMUM_LAYERS = 100_000


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The fields of one JSON object.

    Parameters
    ----------
    values:
        The parsed object.
    source:
        File name for messages.
    prefix:
        Where the object sits in the file, for example ``text_config.``.

    Notes
    -----
    A reader takes the names that a field goes by, the usual one first. ``null`` counts as absent. Without a
    default an absent field is an error.
    """

    values: dict[str, Any]
    source: str
    prefix: str = ""

    def section(self, name: str) -> ConfigFields:
        """Return a nested object."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            self.refuse(name, "must be an object" if name in self.values else "missing")
        return ConfigFields(value, self.source, f"{self.prefix}{name}.")

    def has(self, *names: str) -> bool:
        """Return whether a field is there under one of its names."""
        return any(self.values.get(name) is not None for name in names)

    def count(
        self, *names: str, default: int | None = None, minimum: int = 1, maximum: int = MAXIMUM_COUNT
    ) -> int:
        """Return an integer in [minimum, maximum]."""
        name, value = self._find(names, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, f"must be an integer, not {_short(value)}")
        if not minimum <= value <= maximum:
            self.refuse(name, f"must be between {minimum} and {maximum}, not {_short(value)}")
        return value

    def optional_count(self, *names: str) -> int | None:
        """Return a positive integer, or None where the field is absent or null."""
        return self.count(*names) if self.has(*names) else None

    def flag(self, *names: str, default: bool) -> bool:
        """Return true or false."""
        name, value = self._find(names, default)
        if not isinstance(value, bool):
            self.refuse(name, f"must be true or false, not {_short(value)}")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """Return a non-empty string."""
        name, value = self._find(names, default)
        if not isinstance(value, str) or not value:
            self.refuse(name, f"must be a non-empty string, not {_short(value)}")
        return value

    def texts(self, *names: str) -> list[str]:
        """Return a list of strings."""
        name, value = self._find(names, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(name, f"must be a list of strings, not {_short(value)}")
        return value

    def indices(self, *names: str) -> frozenset[int]:
        """Return a list of layer numbers as a set; absent means none."""
        name, value = self._find(names, [])
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            self.refuse(name, f"must be a list of layer numbers, not {_short(value)}")
        return frozenset(value)

    def seconds(self, name: str) -> float:
        """Return a time given in milliseconds, in seconds."""
        _, value = self._find((name,), None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, f"must be a number of milliseconds, not {_short(value)}")
        # Compared before dividing: an integer of JSON may be too large for a float.
        if not (0 <= value <= MAXIMUM_COUNT) or not math.isfinite(value):
            self.refuse(name, f"must be between 0 and {MAXIMUM_COUNT} milliseconds, not {_short(value)}")
        return value / 1000

    def refuse(self, name: str, message: str) -> NoReturn:
        """Raise an InputError about one field."""
        raise InputError(message, source=self.source, field=f"{self.prefix}{name}")

    def _find(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        if default is None:
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            self.refuse(names[0], f"missing{others}")
        return names[0], default


def _short(value: Any, limit: int = 60) -> str:
    """Return the value as the message shows it; a huge integer is never written out."""
    if isinstance(value, int) and abs(value) > 10**limit:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
