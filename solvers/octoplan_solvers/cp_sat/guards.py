"""`Guards`: names for constraints, so that CP-SAT can say which of them cannot hold together."""

from __future__ import annotations

from dataclasses import dataclass, field

from ortools.sat.python import cp_model


@dataclass
class Guards:
    """Enforcement literals by name. Without ``explain`` there are none, and every constraint simply holds."""

    model: cp_model.CpModel
    explain: bool = False
    literals: dict[str, cp_model.IntVar] = field(default_factory=dict)

    def named(self, name: str) -> list[cp_model.IntVar]:
        """Return what to pass to ``only_enforce_if`` for the constraint of this name."""
        if not self.explain:
            return []
        if name not in self.literals:
            self.literals[name] = self.model.new_bool_var(name)
        return [self.literals[name]]
