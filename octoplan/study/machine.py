"""Which machine and which versions a result comes from; no host name, no user."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("octoplan", "numpy", "numba", "ortools", "highspy", "pulp")


@cache
def describe_machine() -> dict[str, str]:
    """Return ``machine`` and ``versions`` as text."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}"
    versions = [f"python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    return {"machine": machine, "versions": ", ".join(versions)}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"
