"""Where a suite's models and clusters come from: shipped ones by name, others from a folder they cannot leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from octoplan.importers import ImportOptions, import_model
from octoplan_schemas import Cluster, InputError, ModelGraph, ModelSource, load

_DATA = Path(__file__).parent / "data"
_SUITES = Path(__file__).parent / "suites"
Found = TypeVar("Found")


def shipped_suites() -> list[str]:
    """Return the names of the suites that come with the package."""
    return sorted(path.stem for path in _SUITES.glob("*.yaml"))


def suite_path(suite: str) -> Path:
    """Return the file of a suite: a path, or the name of a shipped one."""
    if suite in shipped_suites():
        return _SUITES / f"{suite}.yaml"
    path = Path(suite)
    if not path.exists():
        raise InputError(
            f"is neither a file nor a shipped suite; there are: {', '.join(shipped_suites())}", source=suite
        )
    if not path.is_file():
        raise InputError("is not a file", source=suite)
    return path


class Sources:
    """Reads models and clusters once each.

    Parameters
    ----------
    root:
        Folder that paths are relative to. A suite may come from a stranger, so no path leads out of it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._read: dict[tuple[str, ...], ModelGraph | Cluster] = {}

    def cluster(self, name: str) -> Cluster:
        """Return a shipped cluster, or one of a file."""
        path = self._find(name, "clusters")
        return self._once(("cluster", str(path)), lambda: load(path, Cluster))

    def model(self, source: ModelSource, cluster: Cluster) -> ModelGraph:
        """Import a model for a cluster's device types.

        Shipped are timing tables with the configs that give their byte counts, and as ``configs/NAME`` the configs
        alone, with times by the cost model.
        """
        path = self._find(source.source, "profiles")
        config = None if source.config is None else self._find(source.config, "configs")
        if path.parent == _DATA / "profiles":
            config = config or _DATA / "configs" / path.name
        options = ImportOptions(
            sequence_length=source.sequence_length,
            micro_batch_size=source.micro_batch_size,
            tensor_parallel=source.tensor_parallel,
            data_parallel=source.data_parallel,
            granularity=source.granularity,
            cluster=cluster,
            config=config,
        )
        key = ("model", source.model_dump_json(), cluster.sha256())
        return self._once(key, lambda: import_model(path, options))

    def _once(self, key: tuple[str, ...], read: Callable[[], Found]) -> Found:
        if key not in self._read:
            self._read[key] = read()  # type: ignore[assignment]
        return self._read[key]  # type: ignore[return-value]

    def _find(self, name: str, kind: str) -> Path:
        """Return the file that a name stands for."""
        shipped = {path.stem: path for path in (_DATA / kind).glob("*.json")}
        if kind == "profiles":
            shipped |= {f"configs/{path.stem}": path for path in (_DATA / "configs").glob("*.json")}
        if name in shipped:
            return shipped[name]
        try:
            path = (self._root / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
            path, is_file = self._root, False
        if not path.is_relative_to(self._root):
            raise InputError(
                f"{name!r} leads out of {str(self._root)!r}; give the folder that holds it as --root",
                field="instances",
            )
        if not is_file:
            raise InputError(
                f"{name!r} is neither a shipped name ({', '.join(sorted(shipped))}) nor a file in "
                f"{str(self._root)!r}",
                field="instances",
            )
        return path
