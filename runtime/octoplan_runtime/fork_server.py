"""The process that ranks are forked from: it loads torch once, for all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext

#: The second is loaded by every optimizer and takes as long as the rest of torch.
_LOADED_ONCE = ["octoplan_runtime.session", "torch._dynamo"]


def fork_server() -> ForkServerContext:
    """Start the server unless it runs, without waiting for it, and return the context of its processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED_ONCE)
    forkserver.ensure_running()
    return context


def stop_fork_server() -> None:
    """End the server and its helper, and collect them, before this process ends.

    Left to themselves they end a moment after it, and where process 1 collects no orphans, as in many containers,
    two dead entries would stay in the process table after every run. Python offers no public way.
    """
    server = getattr(forkserver, "_forkserver", None)
    process_id = getattr(server, "_forkserver_pid", None)
    if process_id is not None:
        # It may still be loading torch, and the ranks have ended: nothing is gained by waiting for that.
        os.kill(process_id, signal.SIGTERM)
    for helper in (server, getattr(resource_tracker, "_resource_tracker", None)):
        stop = getattr(helper, "_stop", None)
        if stop is not None:
            stop()


def under_torchrun() -> bool:
    """Whether this process already is one rank of a run, and has none to start."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
