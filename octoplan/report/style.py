"""Colours, units and texts that the still picture and the page share."""

from __future__ import annotations

#: Kinds of ops in the order of the legend, and what they are called there.
KIND_NAMES = {
    "F": "F: forward",
    "B": "B: backward",
    "I": "I: input gradient",
    "W": "W: weight gradient",
}

#: Okabe and Ito's palette, which stays apart under the common kinds of colour blindness.
KIND_COLOURS = {"F": "#0072b2", "B": "#d55e00", "I": "#e69f00", "W": "#009e73"}

IDLE_COLOUR = "#eceff1"
IDLE_HATCH_COLOUR = "#d3d9dd"
STATE_COLOUR = "#90a4ae"
ACTIVATION_COLOUR = "#b39ddb"
LIMIT_COLOUR = "#b00020"
TEXT_COLOUR = "#263238"
MUTED_COLOUR = "#607d8b"

#: How far the last stage of a rank is faded towards white.
_MAX_FADE = 0.55


def op_colour(kind: str, level: float) -> tuple[float, float, float]:
    """Colour of an op as red, green and blue in 0..1; later stages of a rank (``level`` to 1) are lighter."""
    code = KIND_COLOURS[kind]
    fade = _MAX_FADE * level
    red, green, blue = (int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red + (1 - red) * fade, green + (1 - green) * fade, blue + (1 - blue) * fade


def hex_colour(colour: tuple[float, float, float]) -> str:
    """Write a colour as ``#rrggbb``."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def is_dark(colour: tuple[float, float, float]) -> bool:
    """Whether white text is easier to read on the colour than black."""
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.52


def time_unit(makespan_s: float) -> tuple[float, str]:
    """Return how many units make a second, and the unit's name."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if makespan_s * factor >= 1:
            return factor, unit
    return (1e9, "ns") if makespan_s > 0 else (1.0, "s")


def time_text(seconds: float, makespan_s: float) -> str:
    """Write a time in the unit that suits the makespan."""
    factor, unit = time_unit(makespan_s)
    return f"{seconds * factor:.4g} {unit}"


def gib(num_bytes: float) -> float:
    """Convert bytes to GiB."""
    return num_bytes / 2**30


def printable(text: str) -> str:
    """Replace control characters: they have no place in a picture and break XML."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
