"""`kernel`: numba's ``njit`` with a cache that notices when a kernel called from another file has changed.

Numba keys its cache on the file of the function alone; a caller keeps the old code of what it calls in other files.
Here the key covers every file of the package (and of this one) that defines kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

_IMPORT = "from octoplan_solvers.compiled import kernel"


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call: cached on disk, and without the interpreter's lock."""
    dispatcher = njit(cache=True, nogil=True)(function)
    # Where numba keeps its cache elsewhere, its own key stands.
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _stamp(_package_folder(function)) + _stamp(Path(__file__).parent)
    return dispatcher


def _package_folder(function: Callable[..., Any]) -> Path:
    """Return the folder of the top-level package that a function belongs to."""
    depth = function.__module__.count(".")
    return Path(function.__code__.co_filename).resolve().parents[max(depth - 1, 0)]


@cache
def _stamp(folder: Path) -> str:
    """Return a hash of all files below a folder that define kernels."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256("".join(text for text in texts if _IMPORT in text).encode()).hexdigest()
