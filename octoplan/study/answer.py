"""What a worker answers: a plan document, or why there is none. All of it is JSON."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

from octoplan.compile_options import Progress
from octoplan.errors import InfeasibleError
from octoplan.study.finished import WrongAnswerError
from octoplan.study.methods import SearchLimit, compile_options_of, run_method
from octoplan_schemas import Cluster, InputError, Method, ModelGraph

#: Every status of a cell and what it means.
STATUSES = {
    "ok": "a plan, checked and simulated again",
    "infeasible": "the method found no plan that fits, or proved that there is none",
    "refused": "the method does not admit the instance",
    "wrong": "the plan or bound does not hold",
    "timeout": "stopped: over the cell's time",
    "memory": "stopped: over the cell's memory",
    "crash": "the worker process died",
    "error": "the method raised an error",
}
_LONGEST_MESSAGE = 500


@dataclass
class Recorder:
    """Keeps every improvement that a method reports, with the seconds since its start."""

    started: float = field(default_factory=time.monotonic)
    entries: list[list[float | None]] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        """Note an improvement: seconds, makespan in seconds, bound in seconds, evaluations."""
        makespan = progress.best_makespan_s
        if makespan is None or not makespan < float("inf"):
            return
        if self.entries and makespan >= (self.entries[-1][1] or 0.0):
            return
        bound = progress.lower_bound_s
        known = bound if bound is not None and math.isfinite(bound) else None
        self.entries.append([self.elapsed_s, makespan, known, float(progress.num_evaluations)])

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.started, 6)


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """Run the method of a task (see `octoplan.study.cells.Cell.task`)."""
    recorder = Recorder()
    try:
        result: dict[str, Any] = {"status": "ok", "plan": _plan(task, recorder)}
    except InfeasibleError as error:
        result = _failure("infeasible", str(error))
    except InputError as error:
        result = _failure("refused", str(error))
    except WrongAnswerError as error:
        result = _failure("wrong", str(error))
    except MemoryError:
        result = _failure("memory", "the process was refused more memory")
    except Exception as error:  # whatever a method raises is recorded; the study goes on
        result = _failure("error", f"{type(error).__name__}: {error}")
    return {**result, "seconds": recorder.elapsed_s, "trace": recorder.entries}


def failure(status: str, message: str, seconds: float) -> dict[str, Any]:
    """Return the answer of a worker that could not give one."""
    return {**_failure(status, message), "seconds": round(seconds, 6), "trace": []}


def _plan(task: dict[str, Any], recorder: Recorder) -> dict[str, Any]:
    model, cluster = ModelGraph.from_document(task["model"]), Cluster.from_document(task["cluster"])
    method = Method.model_validate(task["method"], strict=False)
    limit = SearchLimit(task["time_limit_s"], task["max_evaluations"])
    options = compile_options_of(method, task["microbatches"], task["memory_limit"], limit, task["seed"])
    plan = run_method(method, model, cluster, replace(options, on_progress=recorder))
    return plan.to_document()


def _failure(status: str, message: str) -> dict[str, Any]:
    return {"status": status, "message": " ".join(message.split())[:_LONGEST_MESSAGE]}
