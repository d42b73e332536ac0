"""A blackboard that all ranks of a run share: the first failure, and where each rank is.

It lives in the key-value store that torch's rendezvous uses, over a connection of its own.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

_FAILURE = "failure"
_REPORT = "report"


class Board:
    """Texts by key, seen by every rank and by the process that started them."""

    def __init__(self, store: Store) -> None:
        self._store = PrefixStore(f"octoplan/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    @classmethod
    def connect(cls, timeout_s: float) -> Board:
        """Connect to the store at ``MASTER_ADDR`` and ``MASTER_PORT``."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return cls(TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s)))

    def fail(self, text: str) -> str:
        """Write down a failure unless there is one already; return the one that stands."""
        return str(self._store.compare_set(_FAILURE, "", text).decode())

    def failure(self, wait_s: float = 0.0) -> str | None:
        """Return the first failure, waiting up to ``wait_s`` for one."""
        deadline = time.monotonic() + wait_s
        while not self._store.check([_FAILURE]):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)
        return str(self._store.get(_FAILURE).decode())

    def place(self, rank: int, text: str) -> None:
        """Write down where a rank is."""
        self._store.set(f"place/{rank}", text)

    def place_of(self, rank: int) -> str:
        """Return where a rank was when it last said so."""
        key = f"place/{rank}"
        return str(self._store.get(key).decode()) if self._store.check([key]) else "start"

    def report(self, text: str) -> None:
        """Leave the result of the run."""
        self._store.set(_REPORT, text)

    def take_report(self) -> str | None:
        """Return the result of the run, if it was left."""
        return str(self._store.get(_REPORT).decode()) if self._store.check([_REPORT]) else None
