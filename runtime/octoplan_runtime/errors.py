"""What a rank raises when an op of its program fails, and how it is told."""

from __future__ import annotations

import sys


class PipelineError(RuntimeError):
    """An op of a rank's program failed; the original error is the ``__cause__``.

    Parameters
    ----------
    rank:
        The rank that failed.
    word:
        The op that it was in: an op word, or the name of a phase such as ``start``.
    message:
        What happened, in one line.
    """

    def __init__(self, rank: int, word: str, message: str) -> None:
        self.rank = rank
        self.word = word
        self.message = " ".join(message.split())
        super().__init__(f"rank {rank} failed in {word}: {self.message}")


def say(line: str) -> None:
    """Write one line to standard error in one piece: other ranks write there too."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def one_line(error: BaseException) -> str:
    """Return type and text of an error in one line of at most 300 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:297] + "..."
