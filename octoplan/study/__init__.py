"""Studies: methods compared on many instances, from one suite file (docs/studies.md).

Needs the packages of ``pip install 'octoplan[study]'``::

    from octoplan import study
    study.run_study("smoke", "out/smoke")
    study.write_report("out/smoke")
    frame = study.load_results("out/smoke")    # pandas, one row per cell
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octoplan.study.compare import Comparison, compare_studies
    from octoplan.study.report import write_report
    from octoplan.study.results import load_results, load_trace
    from octoplan.study.runner import StudyOptions, StudyProgress, load_suite, run_study
    from octoplan.study.sources import shipped_suites

#: Where each public name is; loaded when first asked for, since worker processes need neither pandas nor matplotlib.
_MODULES = {
    "Comparison": "compare",
    "StudyOptions": "runner",
    "StudyProgress": "runner",
    "compare_studies": "compare",
    "load_results": "results",
    "load_suite": "runner",
    "load_trace": "results",
    "run_study": "runner",
    "shipped_suites": "sources",
    "write_report": "report",
}

__all__ = [
    "Comparison",
    "StudyOptions",
    "StudyProgress",
    "compare_studies",
    "load_results",
    "load_suite",
    "load_trace",
    "run_study",
    "shipped_suites",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
