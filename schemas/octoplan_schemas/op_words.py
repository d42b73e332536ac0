"""Op words: ``2F0``, ``1SEND_F0@4`` (contract, section 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from octoplan_schemas.errors import InputError

FORWARD = "F"
BACKWARD_INPUT = "I"
BACKWARD_WEIGHT = "W"
BACKWARD = "B"
SEND_FORWARD = "SEND_F"
RECV_FORWARD = "RECV_F"
SEND_BACKWARD = "SEND_B"
RECV_BACKWARD = "RECV_B"

COMPUTE_KINDS = (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD)
SEND_KINDS = (SEND_FORWARD, SEND_BACKWARD)
RECV_KINDS = (RECV_FORWARD, RECV_BACKWARD)

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_PATTERN = _NUMBER + r"(SEND_F|RECV_F|SEND_B|RECV_B|F|I|W|B)" + _NUMBER + "(?:@" + _NUMBER + ")?"
_WORD = re.compile(_PATTERN)
_LINE = re.compile(f"^{_PATTERN}$", re.MULTILINE)


class OpWord(NamedTuple):
    """One parsed word. ``peer`` is the other stage of a transfer on a skip edge, else None."""

    stage: int
    kind: str
    microbatch: int
    peer: int | None = None

    @property
    def is_compute(self) -> bool:
        """True for F, I, W and B."""
        return self.kind in COMPUTE_KINDS

    @property
    def is_send(self) -> bool:
        """True for SEND_F and SEND_B."""
        return self.kind in SEND_KINDS

    @property
    def other_stage(self) -> int:
        """The stage at the other end of a SEND or RECV."""
        if self.peer is not None:
            return self.peer
        return self.stage + (1 if self.kind in (SEND_FORWARD, RECV_BACKWARD) else -1)

    def __str__(self) -> str:
        """Write the word as the contract spells it."""
        skip = "" if self.peer is None else f"@{self.peer}"
        return f"{self.stage}{self.kind}{self.microbatch}{skip}"


def parse_word(text: str) -> OpWord:
    """Read one op word.

    Raises
    ------
    InputError
        If the text is not a word, a compute word carries ``@``, or the stage after ``@`` lies on the wrong
        side: activations go to later stages, gradients to earlier ones.
    """
    match = _WORD.fullmatch(text)
    if match is None:
        raise InputError(f"{text[:40]!r} is not an op word such as 2F0, 1SEND_B3 or 1SEND_F0@4")
    stage, kind, microbatch, peer = match.groups()
    if peer is None:
        return OpWord(int(stage), kind, int(microbatch))
    if len(kind) == 1:
        raise InputError(f"{text!r}: only SEND and RECV may name another stage with @")
    word = OpWord(int(stage), kind, int(microbatch), int(peer))
    is_peer_later = kind in (SEND_FORWARD, RECV_BACKWARD)
    if word.other_stage == word.stage or (word.other_stage > word.stage) != is_peer_later:
        side = "a later" if is_peer_later else "an earlier"
        raise InputError(f"{text!r}: the other end of {kind} must be {side} stage than {stage}")
    return word


def split_words(texts: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Cut many op words into stage, kind, microbatch and stage after ``@`` (or ``""``) in one pass.

    Raises
    ------
    InputError
        As `parse_word` does for the first bad word.
    """
    lines = "\n".join(texts)
    found: list[tuple[str, str, str, str]] = _LINE.findall(lines)
    is_one_per_word = len(found) == len(texts) and lines.count("\n") == max(len(texts) - 1, 0)
    for text in texts:
        if not is_one_per_word or "@" in text:
            parse_word(text)
    return found


def transfer_words(source: int, destination: int, direction: str, microbatch: int) -> tuple[str, str]:
    """Return the SEND and the RECV word of one message.

    ``direction`` is ``"F"`` (an activation, to a later stage) or ``"B"`` (a gradient, to an earlier one);
    neighbouring stages need no ``@``.
    """
    if abs(source - destination) == 1:
        return f"{source}SEND_{direction}{microbatch}", f"{destination}RECV_{direction}{microbatch}"
    return (
        f"{source}SEND_{direction}{microbatch}@{destination}",
        f"{destination}RECV_{direction}{microbatch}@{source}",
    )
