"""Reading the contract's documents."""

from __future__ import annotations

from pathlib import Path

from octoplan_schemas import Cluster, Plan, load


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster file; raise `InputError` if it is bad."""
    return load(path, Cluster)


def load_plan(path: str | Path) -> Plan:
    """Read a plan file; raise `InputError` if it is bad."""
    return load(path, Plan)
