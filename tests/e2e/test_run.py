"""``python -m octoplan_runtime``: real processes, and every mishap ends all of them with a line that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from octoplan_runtime.__main__ import main
from octoplan_schemas import Cluster, load, save
from tests.e2e import workloads
from tests.runtime import plans
from tests.runtime.test_miniature import model_of, tied_model

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["embedding", "mamba2", "attention", "moe", "lm_head"]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "model.json"
    save(path, model_of(KINDS))
    return path


def plan_file(tmp_path, num_ranks=2, num_layers=5, **fields):
    bounds = [(rank, rank + 1) for rank in range(num_ranks - 1)] + [(num_ranks - 1, num_layers)]
    order = plans.one_forward_one_backward(num_ranks, 4, ("I", "W"))
    plan = plans.make_plan(bounds, list(range(num_ranks)), order, 4)
    path = tmp_path / "plan.json"
    save(path, plan)
    if fields:
        document = json.loads(path.read_text())
        document.update(fields)
        path.write_text(json.dumps(document))
    return path


def run(*arguments, launcher=(), **environment):
    command = [sys.executable, *launcher, "-m", "octoplan_runtime", *map(str, arguments)]
    folders = [str(ROOT), *(str(ROOT / name) for name in ("runtime", "schemas"))]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=110, check=False)


def run_here(capsys, *arguments):
    """Run with this process as the parent; return exit code and standard output."""
    code = main(list(map(str, arguments)))
    return code, capsys.readouterr().out


def error_lines(result):
    return [line for line in result.stderr.splitlines() if line.startswith("rank ")]


def test_a_miniature_trains_three_steps_and_its_gradients_match(tmp_path, model_file):
    result = run(plan_file(tmp_path, 3), "--model", model_file, "--steps", 3, "--verify")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "gradients match"), result.stderr
    assert "warning: " in result.stderr, "the plan names no model"


def test_tied_embedding_and_head_train_as_in_a_single_process(tmp_path, capsys):
    path = tmp_path / "tied.json"
    save(path, tied_model(KINDS, (0, 4)))
    options = ("--model", path, "--steps", 3, "--dtype", "float64", "--verify")
    code, output = run_here(capsys, plan_file(tmp_path, 3), *options)
    assert (code, output.splitlines()[-1]) == (0, "gradients match")


def test_mixed_precision_trains_as_a_single_process_under_autocast(tmp_path, model_file, capsys):
    options = ("--model", model_file, "--steps", 2, "--autocast", "bfloat16", "--verify", "--json")
    code, output = run_here(capsys, plan_file(tmp_path), *options)
    report = json.loads(output)
    assert code == 0
    assert report["max_relative_gradient_error"] <= 1e-5, "no rounding but that of the sums over microbatches"
    code, output = run_here(capsys, tmp_path / "plan.json", *options[:4], "--json")
    assert json.loads(output)["loss"] != report["loss"], "without autocast the loss is another one"


def costed_plan_file(tmp_path, seconds=0.01):
    """A plan of two ranks that records what its stages and its link cost."""
    path = plan_file(tmp_path)
    document = json.loads(path.read_text())
    times = {"forward_s": seconds, "backward_input_s": seconds, "backward_weight_s": seconds}
    sizes = ("activation_bytes", "retained_bytes", "weight_stash_bytes", "workspace_bytes")
    cost = {**times, "backward_s": 2 * seconds, **dict.fromkeys(sizes, 0)}
    link = {"from": 0, "to": 1, "bytes": 1, "transfer_s": [seconds / 2] * 2, "latency_s": [seconds / 4] * 2}
    document["predicted"].update(stages=[cost, cost], edges=[link])
    path.write_text(json.dumps(document))
    return path


def test_emulated_devices_take_at_least_the_predicted_time_and_leave_a_trace(tmp_path, capsys):
    path, trace = costed_plan_file(tmp_path), tmp_path / "trace.json"
    code, output = run_here(
        capsys, path, "--emulate", "--scale", "2", "--trace", trace, "--json", "--timeline"
    )
    assert code == 0
    report = json.loads(output)
    # F, F, and from then on the second rank is never idle; the first rank waits for the last gradient.
    assert report["scale"] == 2
    assert report["predicted_makespan_s"] == pytest.approx(0.02 * (1 + 0.75 + 3 * 4 + 0.75 + 1), rel=0.2)
    assert report["measured_makespan_s"] >= 0.98 * report["predicted_makespan_s"]
    assert sorted(report["kinds"]) == ["F", "I", "SEND_B", "SEND_F", "W"]
    assert report["kinds"]["F"]["count"] == 8
    assert report["kinds"]["F"]["measured_s"] >= 0.02
    assert report["kinds"]["SEND_F"]["predicted_s"] == pytest.approx(0.015)
    assert report["kinds"]["SEND_F"]["measured_s"] >= 0.015
    document = json.loads(trace.read_text())
    assert document["format"] == "octoplan.trace/1"
    assert {word for _, word, *_ in document["ops"]} == {
        word for program in json.loads(path.read_text())["programs"] for word in program if "RECV" not in word
    }
    starts = {(rank, word): start for rank, word, start, _ in document["ops"]}
    ends = {(rank, word): end for rank, word, _, end in document["ops"]}
    assert min(starts.values()) == 0
    for microbatch in range(4):
        arrival = ends[0, f"0SEND_F{microbatch}"]
        assert starts[0, f"0SEND_F{microbatch}"] + 0.015 <= arrival
        # Clocks of two ranks: their offset is known to within half a round trip.
        assert ends[0, f"0F{microbatch}"] + 0.012 <= starts[1, f"1F{microbatch}"]


def test_calibration_writes_a_cluster_that_joins_the_prediction(tmp_path, capsys):
    path, cluster = costed_plan_file(tmp_path), tmp_path / "machine.json"
    code, output = run_here(capsys, path, "--calibrate", cluster)
    assert (code, output) == (0, "")
    machine = load(cluster, Cluster)
    overhead_s = machine.device_types["cpu"].op_overhead_s
    assert machine.num_ranks == 2
    assert 0 < overhead_s < 0.1
    _, output = run_here(capsys, path, "--emulate", "--cluster", cluster, "--json")
    kinds = json.loads(output)["kinds"]
    assert kinds["F"]["predicted_s"] == pytest.approx(0.01 + overhead_s)
    assert kinds["SEND_F"]["predicted_s"] == pytest.approx(0.0075 + machine.links.intra_node.latency_s)


def test_json_reports_the_contracts_fields_and_a_timeline_of_every_word(tmp_path, model_file, capsys):
    path = plan_file(tmp_path, model={"name": "test", "sha256": model_of(KINDS).sha256()})
    options = ("--steps", 2, "--dtype", "float64", "--verify", "--json", "--timeline")
    code, output = run_here(capsys, path, "--model", model_file, *options)
    assert code == 0
    report = json.loads(output)
    assert report["max_relative_gradient_error"] <= 1e-12
    assert report["predicted_makespan_s"] == 1.0
    assert 0 < report["measured_makespan_s"] < 60
    assert len(report["losses"]) == 2
    assert report["loss"] == report["losses"][-1]
    assert [rank["stages"] for rank in report["ranks"]] == [[0], [1]]
    words = [[word for rank, word, *_ in report["ops"] if rank == number] for number in range(2)]
    assert words == json.loads(path.read_text())["programs"]
    assert all(start <= end for _, _, start, end in report["ops"])
    ends = {(rank, word): end for rank, word, _, end in report["ops"]}
    starts = {(rank, word): start for rank, word, start, _ in report["ops"]}
    for microbatch in range(4):
        assert ends[0, f"0F{microbatch}"] <= starts[1, f"1F{microbatch}"] + 0.1
        assert ends[1, f"1I{microbatch}"] <= starts[0, f"0I{microbatch}"] + 0.1


TORCHRUN = (
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "4",
    "--standalone",
    "--no-python",
    sys.executable,
)


def test_torchrun_gives_what_local_processes_give(tmp_path, model_file, capsys):
    options = ("--model", model_file, "--steps", 2, "--verify", "--json")
    result = run(plan_file(tmp_path, 4), *options, launcher=TORCHRUN)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["gradients_match"] is True
    code, output = run_here(capsys, tmp_path / "plan.json", *options)
    assert code == 0
    assert report["losses"] == json.loads(output)["losses"]


def test_an_exception_under_torchrun_is_told_by_every_rank(tmp_path):
    result = run(
        plan_file(tmp_path, 4, 4), "--layers", "tests.e2e.workloads:raising_in_four", launcher=TORCHRUN
    )
    cause = "rank 1 failed in 1F1: ValueError: the middle layer has had enough"
    lines = sorted(error_lines(result))
    assert result.returncode == 1
    assert lines[1] == cause, result.stderr
    assert [line.split(" in ")[0] for line in lines] == [
        f"rank {rank} {'failed' if rank == 1 else 'stopped'}" for rank in range(4)
    ]
    assert all(line.endswith(cause) for line in lines)


def test_a_killed_rank_under_torchrun_ends_all(tmp_path):
    result = run(
        plan_file(tmp_path, 4, 4), "--layers", "tests.e2e.workloads:killed_in_four", launcher=TORCHRUN
    )
    assert result.returncode == 1
    assert "Signal 9 (SIGKILL)" in result.stderr, "torchrun itself names the rank that it has lost"


def test_an_exception_in_a_layer_is_told_by_every_rank(tmp_path):
    result = run(plan_file(tmp_path, 3, 3), "--layers", "tests.e2e.workloads:raising")
    cause = "rank 1 failed in 1F1: ValueError: the middle layer has had enough"
    lines = sorted(error_lines(result))
    assert result.returncode == 1
    assert len(lines) == 3, result.stderr
    assert lines[1] == cause
    assert lines[0].startswith("rank 0 stopped in ")
    assert lines[2].startswith("rank 2 stopped in ")
    assert all(line.endswith(cause) for line in lines)


def test_a_killed_rank_is_told_by_the_others(tmp_path):
    result = run(plan_file(tmp_path, 3, 3), "--layers", "tests.e2e.workloads:killed")
    lines = error_lines(result)
    assert result.returncode == 1
    assert any(line.startswith("rank 1 was ended by SIGKILL, last seen in ") for line in lines), result.stderr
    for rank in (0, 2):
        told = [line for line in lines if line.startswith(f"rank {rank} stopped in ")]
        assert len(told) == 1, result.stderr
        assert "rank 1 was ended by SIGKILL" in told[0]


def test_a_hang_names_the_op_of_every_rank(tmp_path):
    result = run(plan_file(tmp_path, 3, 3), "--layers", "tests.e2e.workloads:asleep", "--timeout", 5)
    lines = error_lines(result)
    assert result.returncode == 1
    assert len(lines) == 3, result.stderr
    assert all("for more than 5 s" in line for line in lines), result.stderr
    assert all("1F1" in line for line in lines), result.stderr
    table = result.stderr[result.stderr.index("where each rank is:") :].splitlines()[1:4]
    assert [line.split()[:2] for line in table] == [["rank", "0"], ["rank", "1"], ["rank", "2"]]
    assert table[1].split()[2] == "1F1"


def test_gradients_that_differ_are_a_no_with_the_parameters_name(tmp_path, capsys):
    options = ("--layers", "tests.e2e.workloads:unlike", "--verify")
    code, output = run_here(capsys, plan_file(tmp_path, 2, 3), *options)
    assert code == 1
    assert output.splitlines()[-1].startswith("gradients differ: layers.")


def test_a_loss_that_is_not_a_number_is_reported_and_not_fatal(tmp_path, capsys):
    options = ("--layers", "tests.e2e.workloads:diverged", "--json")
    code, output = run_here(capsys, plan_file(tmp_path, 2, 3), *options)
    assert code == 0
    assert json.loads(output)["loss"] is None


def refused(capsys, *arguments):
    """Return the one line of a refusal with exit code 2, in this process: nothing is started."""
    assert main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_a_truncated_plan_is_refused(tmp_path, model_file, capsys):
    path = plan_file(tmp_path)
    path.write_text(path.read_text()[:-40])
    assert refused(capsys, path, "--model", model_file).startswith(f"{path}: is not valid JSON")


def test_labelled_messages_train_as_well(tmp_path, model_file, capsys):
    code, output = run_here(capsys, plan_file(tmp_path), "--model", model_file, "--debug", "--verify")
    assert (code, output.splitlines()[-1]) == (0, "gradients match")


def test_another_number_of_processes_is_refused(tmp_path, model_file):
    result = run(plan_file(tmp_path), "--model", model_file, RANK="0", WORLD_SIZE="3")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "the plan is for 2 ranks, but 3 processes were started" in line


def test_another_model_is_refused(tmp_path, model_file, capsys):
    path = plan_file(tmp_path, model={"name": "other", "sha256": "ab" * 32})
    line = refused(capsys, path, "--model", model_file)
    assert line.startswith(f"{path}: model.sha256: the plan was made for 'other' of hash abababababab")


def test_another_format_is_refused(tmp_path, model_file, capsys):
    path = plan_file(tmp_path, format="octoplan.plan/9")
    assert "octoplan.plan/9" in refused(capsys, path, "--model", model_file)


def test_a_model_of_another_length_is_refused(tmp_path, model_file, capsys):
    line = refused(capsys, plan_file(tmp_path, 2, 4), "--model", model_file)
    assert "the plan has 4 layers" in line
    assert "has 5" in line


def change_programs(change):
    def changed(tmp_path):
        path = plan_file(tmp_path)
        document = json.loads(path.read_text())
        change(document["programs"])
        path.write_text(json.dumps(document))
        return path

    return changed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda programs: programs[0].append("0F0"), "0F0 occurs twice"),
        (lambda programs: programs[1].remove("1W2"), "1W2"),
        (lambda programs: programs[1].reverse(), "must come after"),
        (lambda programs: programs[0].append("0X0"), "'0X0' is not an op word"),
    ],
)
def test_a_broken_program_is_refused(tmp_path, model_file, capsys, change, expected):
    line = refused(capsys, change_programs(change)(tmp_path), "--model", model_file)
    assert expected in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "give --model"),
        (("--layers", "tests.e2e.workloads"), "must be written MODULE:FUNCTION"),
        (("--layers", "tests.e2e.nowhere:sound"), "No module named 'tests.e2e.nowhere'"),
        (("--layers", "tests.e2e.workloads:nothing"), "has no 'nothing'"),
        (
            ("--layers", "tests.e2e.workloads:not_a_workload"),
            "must return an octoplan_runtime.Workload, not list",
        ),
        (
            ("--layers", "tests.e2e.workloads:sound"),
            f"{workloads.NUM_LAYERS} layers, but the plan has {len(KINDS)}",
        ),
        (("--model", "no-such-model.json"), "no-such-model.json: no such file"),
        (("--layers", "tests.e2e.workloads:broken"), "tests.e2e.workloads:broken raised KeyError: 'no data'"),
        (("--timeout", "0"), "--timeout: 0 must be above 0 seconds"),
        (("--autocast", "bfloat16", "--dtype", "float64"), "--autocast: needs --dtype float32, not float64"),
        (("--steps", "0"), "--steps: 0 must be at least 1"),
        (("--emulate",), "predicted.stages: the plan does not record what its stages cost"),
        (("--emulate", "--verify"), "--verify: emulated devices compute nothing"),
        (
            ("--model", "x", "--trace", "/no/such/folder/t.json"),
            "--trace: /no/such/folder/t.json cannot be written",
        ),
    ],
)
def test_nothing_to_train_is_refused(tmp_path, capsys, options, expected):
    assert expected in refused(capsys, plan_file(tmp_path), *options)


@pytest.mark.parametrize("scale", ["0", "-1", "x", "inf", "nan"])
def test_a_scale_that_is_no_factor_is_refused_in_one_line(tmp_path, capsys, scale):
    with pytest.raises(SystemExit) as ended:
        main([str(plan_file(tmp_path)), "--emulate", f"--scale={scale}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"argument --scale: {scale!r} must be a number above 0, or auto")
