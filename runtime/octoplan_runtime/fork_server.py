"""The process that ranks are forked from: it loads torch once, for all of them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
from multiprocessing.context import ForkServerContext

#: The second is what the split backward needs; it takes as long to load as the rest of torch.
_LOADED_ONCE = ["octoplan_runtime.session", "torch.distributed.pipelining._backward"]


def fork_server() -> ForkServerContext:
    """Start the server unless it runs, without waiting for it, and return the context of its processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED_ONCE)
    multiprocessing.forkserver.ensure_running()
    return context


def under_torchrun() -> bool:
    """Whether this process already is one rank of a run, and has none to start."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
