"""The elite pool: the best candidates so far, each with its own assignment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from octoplan.tuner.candidate import Candidate

#: Relative difference that is rounding, not an improvement.
_ROUNDING = 1e-12


@dataclass
class Elite:
    """Best first; of candidates with one assignment only the best policy stays."""

    size: int = 4
    members: list[Candidate] = field(default_factory=list)

    def add(self, candidate: Candidate) -> bool:
        """Take a candidate in if it is good enough; return whether it is the new best."""
        was_best = self.best_makespan_s
        key = _key(candidate)
        same = [member for member in self.members if _key(member) == key]
        others = [member for member in self.members if _key(member) != key]
        keep = min([*same, candidate], key=lambda member: member.makespan_s)
        self.members = sorted([*others, keep], key=lambda member: member.makespan_s)[: self.size]
        return candidate.makespan_s < was_best * (1 - _ROUNDING)

    @property
    def best_makespan_s(self) -> float:
        """Seconds of the best member, infinite without one."""
        return self.members[0].makespan_s if self.members else math.inf

    @property
    def worst_makespan_s(self) -> float:
        """Seconds of the worst member of a full pool: whatever takes longer will not be taken in."""
        return self.members[-1].makespan_s if len(self.members) == self.size else math.inf


def _key(candidate: Candidate) -> tuple[bytes, bytes]:
    return candidate.cuts.tobytes(), candidate.ranks.tobytes()
