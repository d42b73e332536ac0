"""``--memory-limit``: bytes, a percentage of the device, a multiple of balanced 1F1B's peak, or none."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from octoplan_schemas import InputError

DEFAULT_MEMORY_LIMIT = "95%"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A parsed limit: ``value`` is bytes, a share of the device (0.95), or a multiple of 1F1B's peak."""

    kind: Literal["bytes", "share", "1f1b", "none"]
    value: float = math.inf

    @classmethod
    def parse(cls, text: str | float | None) -> MemoryLimit:
        """Read ``80e9``, ``"90%"``, ``"1f1b:1.5"`` or ``"none"`` (None means none).

        Raises
        ------
        InputError
            If it is none of these, or not above zero.
        """
        if text is None or str(text).strip().lower() == "none":
            return cls("none")
        written = str(text).strip()
        for kind, pattern, scale in (
            ("share", r"(.+)%", 0.01),
            ("1f1b", r"1f1b:(.+)", 1.0),
            ("bytes", r"(.+)", 1.0),
        ):
            match = re.fullmatch(pattern, written)
            if match:
                value = _positive(match.group(1), written) * scale
                return cls(kind, value)  # type: ignore[arg-type]
        raise _refuse(written)


def _positive(number: str, written: str) -> float:
    try:
        value = float(number)
    except ValueError:
        raise _refuse(written) from None
    if not math.isfinite(value) or value <= 0:
        raise _refuse(written)
    return value


def _refuse(written: str) -> InputError:
    return InputError(
        f"{written!r} is not a memory limit; write bytes (80e9), a percentage of the device (90%), a multiple of "
        "what balanced 1F1B peaks at (1f1b:1.5), or none",
        field="memory_limit",
    )
