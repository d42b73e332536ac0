"""Names of strategies: ``octoplan``, ``1f1b``, ``interleaved-1f1b:balanced:v=4`` (contract, section 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octoplan.baselines.registry import BASELINES, require_stages_per_rank
from octoplan_schemas import InputError

#: The strategy that is not a baseline: partition, placement and order found together.
OCTOPLAN = "octoplan"
PartitionKind = Literal["uniform", "balanced"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A parsed strategy; ``str()`` is the inverse of `parse_strategy`.

    Attributes
    ----------
    partition:
        How a baseline cuts the layers into stages; without meaning for ``octoplan``.
    stages_per_rank:
        None takes the baseline's default.
    """

    name: str
    partition: PartitionKind = "uniform"
    stages_per_rank: int | None = None

    @property
    def is_baseline(self) -> bool:
        """False for ``octoplan`` alone."""
        return self.name != OCTOPLAN

    def __str__(self) -> str:
        """Write the shortest text that `parse_strategy` reads as this strategy."""
        parts = [self.name]
        if self.partition != "uniform":
            parts.append(self.partition)
        if self.stages_per_rank is not None:
            parts.append(f"v={self.stages_per_rank}")
        return ":".join(parts)


def parse_strategy(text: str) -> Strategy:
    """Read ``NAME[:uniform|:balanced][:v=STAGES_PER_RANK]``.

    Raises
    ------
    InputError
        If the name is unknown, or what follows it is unknown, repeated or not admitted.
    """
    name, *options = text.split(":")
    if name != OCTOPLAN and name not in BASELINES:
        raise _error(text, f"unknown name {name!r}; there are: {', '.join([OCTOPLAN, *BASELINES])}")
    if name == OCTOPLAN and options:
        raise _error(text, f"{OCTOPLAN} chooses partition and stages itself; write {OCTOPLAN!r} alone")
    partition: PartitionKind | None = None
    stages_per_rank: int | None = None
    for option in options:
        if option in ("uniform", "balanced") and partition is None:
            partition = "balanced" if option == "balanced" else "uniform"
        elif option.startswith("v=") and stages_per_rank is None:
            stages_per_rank = _stages_per_rank(text, option)
        else:
            raise _error(
                text, f"{option!r}: after the name come 'balanced' or 'uniform' and 'v=NUMBER', each once"
            )
    if stages_per_rank is not None:
        require_stages_per_rank(BASELINES[name], stages_per_rank)
    return Strategy(name, partition or "uniform", stages_per_rank)


def _stages_per_rank(text: str, option: str) -> int:
    number = option.removeprefix("v=")
    if not (number.isascii() and number.isdigit() and len(number) < 7):
        raise _error(text, f"{option!r} must give the stages per rank as a whole number, as in 'v=2'")
    return int(number)


def _error(text: str, message: str) -> InputError:
    return InputError(f"{text[:60]!r}: {message}", field="strategy")
