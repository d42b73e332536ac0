"""The other answer to a question: no."""

from __future__ import annotations


class InfeasibleError(Exception):
    """No plan meets the limits (exit code 1). Its text is one line that says what is short, and by how much."""
