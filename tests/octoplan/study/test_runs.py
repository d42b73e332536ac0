"""Whole studies: killed and resumed, interrupted, and on a Dask cluster, they end with the same rows."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from distributed import LocalCluster

from octoplan.cli import app
from octoplan.study import StudyOptions, load_results, run_study
from tests.octoplan.study.suites import broad_suite, write_suite

#: Columns that tell of time, place or the machine's state.
VOLATILE = ["seconds", "seconds_to_first", "seconds_to_1pct", "worker_peak_bytes", "finished_at"]


def lasting(folder: Path) -> pd.DataFrame:
    return load_results(folder).drop(columns=VOLATILE)


def start(suite: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "octoplan.cli", "study", str(suite), "-o", str(folder), *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def living_children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if is_alive(child)]


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended may still be listed as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def num_lines(folder: Path) -> int:
    path = folder / "cells.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    while num_lines(folder) < count and process.poll() is None:
        time.sleep(0.01)


def test_killed_three_times_it_ends_with_the_rows_of_an_undisturbed_run(
    finished: Path, tmp_path: Path
) -> None:
    suite, folder = write_suite(tmp_path, broad_suite()), tmp_path / "study"
    chance = random.Random()
    total = num_lines(finished)
    for _ in range(3):
        process = start(suite, folder, "--jobs", "1")
        wait_for_lines(process, folder, min(num_lines(folder) + chance.randint(1, total // 4), total - 1))
        time.sleep(chance.random() / 10)
        workers = living_children(process.pid)
        assert workers
        process.kill()
        process.communicate()
        while any(is_alive(worker) for worker in workers):  # they must not outlive the study
            time.sleep(0.05)
        assert num_lines(folder) > 0
        with (folder / "cells.jsonl").open("ab") as stream:  # as if the kill had come amid a line
            stream.write(b'{"cell": "' + b"x" * chance.randint(0, 30))
    before = num_lines(folder)
    run_study(suite, folder, StudyOptions(jobs=2))
    pd.testing.assert_frame_equal(lasting(folder), lasting(finished))
    assert before < num_lines(folder) == total, "cells that were on disk must not run again"


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    suite, folder = write_suite(tmp_path, broad_suite()), tmp_path / "study"
    process = start(suite, folder, "--jobs", "2")
    wait_for_lines(process, folder, 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"octoplan study {suite} -o {folder} --jobs 2" in errors
    assert "Traceback" not in errors
    assert 2 <= num_lines(folder) < 40


def test_a_dask_cluster_of_two_workers_gives_the_same_makespans(finished: Path, tmp_path: Path) -> None:
    suite, folder = write_suite(tmp_path, broad_suite()), tmp_path / "study"
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        run_study(suite, folder, StudyOptions(parallel=f"dask={cluster.scheduler_address}"))
    pd.testing.assert_frame_equal(lasting(folder), lasting(finished))
    assert len(lasting(folder)) == num_lines(finished)


def test_a_finished_study_has_nothing_to_run(finished: Path) -> None:
    lines = (finished / "cells.jsonl").read_bytes()
    run_study(finished.parent / "suite.json", finished, StudyOptions(jobs=1))
    assert (finished / "cells.jsonl").read_bytes() == lines


@pytest.mark.parametrize(
    ("parallel", "told"),
    [("threads", "must be local"), ("local=4", "must be local"), ("ray", "ray"), ("dask=nowhere", "no Dask")],
)
def test_an_engine_that_is_not_there_is_one_clear_error(
    tmp_path: Path,
    parallel: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite, folder = write_suite(tmp_path, broad_suite()), tmp_path / "study"
    monkeypatch.setitem(sys.modules, "ray", None)  # as on a machine without it
    assert app.run(["study", str(suite), "-o", str(folder), "--parallel", parallel]) == 2
    errors = capsys.readouterr().err
    assert told in errors
    assert len(errors.strip().splitlines()) == 1
