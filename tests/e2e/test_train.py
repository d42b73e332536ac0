"""``examples/train.py``: a user's own loop under torchrun, its restarts, and checkpoints that change plans."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys

import pytest
import torch

from octoplan_runtime import ForwardMode, SingleProcess
from octoplan_schemas import save
from tests.e2e.test_run import ROOT
from tests.runtime import plans

NUM_LAYERS = 6
#: Runs the example with a rank that dies once, in the middle of a step.
CRASH = """
import os, runpy, signal, sys
sys.argv = sys.argv[1:]
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    from octoplan_runtime.interpreter import Interpreter
    run, calls = Interpreter.run, []
    def dying(self, state):
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        run(self, state)
    Interpreter.run = dying
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def plan_file(path, num_ranks, num_microbatches=4):
    cuts = [NUM_LAYERS * rank // num_ranks for rank in range(num_ranks + 1)]
    bounds = [(cuts[rank], cuts[rank + 1]) for rank in range(num_ranks)]
    order = plans.one_forward_one_backward(num_ranks, num_microbatches, ("I", "W"))
    save(path, plans.make_plan(bounds, list(range(num_ranks)), order, num_microbatches))
    return path


def train(plan, num_ranks, folder, steps, *, script=None, restarts=0):
    target = (
        [str(script), str(ROOT / "examples" / "train.py")]
        if script
        else [str(ROOT / "examples" / "train.py")]
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(num_ranks), "--max-restarts", str(restarts), *target, str(plan)]
    command += ["--steps", str(steps), "--every", "2", "--folder", str(folder), "--timeout", "20"]
    folders = os.pathsep.join(str(ROOT / name) for name in ("", "runtime", "schemas"))
    variables = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=110, check=False)


def uninterrupted_losses(steps):
    """Train in this process, without checkpoints."""
    example = runpy.run_path(str(ROOT / "examples" / "train.py"))
    model = SingleProcess(
        example["build_layer"],
        example["loss_of"],
        num_layers=NUM_LAYERS,
        num_microbatches=4,
        mode=ForwardMode(seed=0),
    )
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-3)
    found = {}
    for step in range(steps):
        found[str(step + 1)] = model.step(*example["batch_of"](step, 4)).item()
        optimizer.step()
        optimizer.zero_grad()
    return found


def losses(result):
    return dict(re.findall(r"step (\d+): loss (\S+)", result.stdout))


@pytest.mark.timeout(240)
def test_a_killed_run_goes_on_from_its_checkpoint_and_another_plan_goes_on_after_it(tmp_path):
    plan = plan_file(tmp_path / "four.json", 4)
    crash = tmp_path / "crash.py"
    crash.write_text(CRASH)
    broken = train(plan, 4, tmp_path / "broken", 4, script=crash, restarts=1)
    assert broken.returncode == 0, broken.stderr
    steps = re.findall(r"step (\d+):", broken.stdout)
    assert steps == ["1", "2", "3", "3", "4"], "the third step was done twice: once before the crash"
    on_two = train(plan_file(tmp_path / "two.json", 2), 2, tmp_path / "broken", 6)
    assert on_two.returncode == 0, on_two.stderr
    assert sorted(losses(on_two)) == ["5", "6"]
    expected = uninterrupted_losses(6)
    for step, loss in {**losses(broken), **losses(on_two)}.items():
        assert float(loss) == pytest.approx(float(expected[step]), rel=1e-5)
