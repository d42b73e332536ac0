"""Every target by name."""

from __future__ import annotations

from octoplan.targets.megatron import MegatronTarget
from octoplan.targets.target import Target
from octoplan.targets.torch_engine import TorchTarget
from octoplan.targets.torchtitan import TorchtitanTarget
from octoplan_schemas import InputError

TARGETS: dict[str, Target] = {
    target.name: target for target in (Target(), TorchTarget(), TorchtitanTarget(), MegatronTarget())
}


def get_target(name: str) -> Target:
    """Return a target by name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in TARGETS:
        raise InputError(f"{name!r} is not a target; there are: {', '.join(TARGETS)}", field="target")
    return TARGETS[name]
