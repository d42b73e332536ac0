"""One function per command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import octoplan
from octoplan.cli import console
from octoplan.cli import options as flags
from octoplan.cli.bubbles import bubble_table, division_table
from octoplan.cli.live import compile_progress
from octoplan.cli.profile_command import profile
from octoplan.cli.run_command import run
from octoplan.frontier import require_frontier_output, write_frontier
from octoplan.picture import measured_timeline
from octoplan.problem_builder import require_same_inputs
from octoplan.report.timeline import require_known_ending
from octoplan.simulator import attribute_bubbles
from octoplan.trace_file import load_trace
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan, load, save
from octoplan_solvers.registry import list_solvers

PlanOutput = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the plan.")]


@flags.with_import_flags
def model(
    imports: flags.ImportFlags,
    source: Annotated[Path, typer.Argument(help="A Hugging Face config.json or a timing table.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the model graph.")
    ],
    cluster: flags.OptionalClusterFile = None,
    json_output: flags.Json = False,
) -> None:
    """Import a model: layers with their times and sizes."""
    devices = None if cluster is None else load(cluster, Cluster)
    graph = imports.read(source, devices)
    save(output, graph)
    state = sum(layer.state_bytes for layer in graph.layers)
    summary = {
        "name": graph.name,
        "layers": len(graph.layers),
        "state_bytes": state,
        "sha256": graph.sha256(),
    }
    if json_output:
        console.print_json(summary)
    else:
        console.out.print(
            f"{output}: {graph.name}, {len(graph.layers)} layers, {console.gibibytes(state)} of training state",
            soft_wrap=True,
            highlight=False,
        )


@flags.with_import_flags
def compile_(
    imports: flags.ImportFlags,
    model: flags.ModelSource,
    cluster: flags.ClusterFile,
    output: PlanOutput,
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", help="Microbatches of one optimizer step.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="octoplan (default), or a baseline: 1f1b:balanced, zb-v, ..."),
    ] = None,
    backward: Annotated[
        str | None,
        typer.Option("--backward", metavar="split|fused", help="Two backward ops (default) or one."),
    ] = None,
    max_stages_per_device: Annotated[
        int | None, typer.Option("--max-stages-per-device", help="Stages that a rank may hold (default 4).")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            help="Bytes, 90%, 1f1b:1.5 (times balanced 1F1B's peak) or none (default 95%).",
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds in all (default 10).")
    ] = None,
    max_evaluations: Annotated[
        int | None, typer.Option("--max-evaluations", help="End after so many candidates: reproducible.")
    ] = None,
    gap: Annotated[
        str | None,
        typer.Option("--gap", help="End once the makespan is within 1% (or 0.01) of the certified bound."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the search (default 0).")] = None,
    solver: Annotated[
        str | None,
        typer.Option("--solver", help="Placement solver (default cp-sat); octoplan solvers lists them."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="octoplan|torch|torchtitan|megatron",
            help="The engine that shall run the plan (default: octoplan's runtime, which runs any).",
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(
            "--job", metavar="FILE", help="Options and constraints, JSON or YAML; flags override it."
        ),
    ] = None,
    emit_model: Annotated[
        Path | None,
        typer.Option(
            "--emit-model", metavar="FILE", help="Write the constraint model: .mps, .lp or .pb.txt."
        ),
    ] = None,
    frontier: Annotated[
        Path | None,
        typer.Option(
            "--frontier",
            metavar="OUT",
            help="Also write the trade-off of makespan against memory: a folder, or a .json, .csv, .svg or .png.",
        ),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="With --json: every op's start and end.")
    ] = False,
    json_output: flags.Json = False,
) -> int:
    """Compile a plan: cut the model, place the parts, order the work."""
    devices = load(cluster, Cluster)
    graph = imports.read(model, devices)
    require_writable(output)
    if frontier is not None:
        require_frontier_output(frontier)
    given = {
        "microbatches": microbatches,
        "strategy": strategy,
        "backward": backward,
        "max_stages_per_device": max_stages_per_device,
        "memory_limit": memory_limit,
        "time_limit_s": time_limit,
        "max_evaluations": max_evaluations,
        "gap": gap,
        "seed": seed,
        "solver": solver,
        "target": target,
    }
    options = octoplan.compile_options(None if job is None else octoplan.load_job(job), **given)
    if emit_model is not None:
        octoplan.emit_model(graph, devices, options, emit_model)
    try:
        with compile_progress(quiet=json_output) as (on_progress, should_stop):
            options = replace(options, on_progress=on_progress, should_stop=should_stop)
            trade_off = None if frontier is None else octoplan.compile_frontier(graph, devices, options)
            plan = octoplan.compile_plan(graph, devices, options) if trade_off is None else trade_off.plan
    except octoplan.InfeasibleError as error:
        if json_output:
            console.print_json({"feasible": False, "reason": str(error)})
        raise
    save(output, plan)
    if should_stop():
        console.note(f"interrupted: {output} holds the best plan so far")
    if trade_off is not None and frontier is not None:
        write_frontier(trade_off, frontier)
    if json_output:
        simulation = octoplan.simulate(plan, graph, devices) if timeline else None
        printed = console.prediction_json(plan.predicted, True, simulation)
        console.print_json(printed if trade_off is None else {**printed, "frontier": trade_off.to_document()})
    else:
        console.print_prediction(
            f"{output}: {graph.name} on {devices.name}, {plan.provenance.strategy}", plan.predicted
        )
        if trade_off is not None:
            console.print_frontier(f"{frontier}: makespan against memory", trade_off)
    return 0


def solvers(json_output: flags.Json = False) -> None:
    """List the placement solvers: what is installed, versions, and what each can do."""
    infos = list_solvers()
    if json_output:
        console.print_json([asdict(info) for info in infos])
        return
    console.print_solvers(infos)


@flags.with_import_flags
def simulate(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    model: flags.OptionalModelSource = None,
    cluster: flags.OptionalClusterFile = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="With --json: every op's start and end.")
    ] = False,
    json_output: flags.Json = False,
) -> None:
    """Recompute what a plan takes, from its programs alone; say what the idle time is spent waiting for."""
    document, graph, devices = read_inputs(plan, model, cluster, imports)
    with naming(plan):
        simulation = octoplan.simulate(document, graph, devices)
    predicted = octoplan.predict_again(document, simulation)
    feasible = octoplan.is_feasible(simulation)
    if json_output:
        console.print_json(console.prediction_json(predicted, feasible, simulation if timeline else None))
    else:
        console.print_prediction(f"{plan}: {document.model.name} on {document.cluster.name}", predicted)
        report = attribute_bubbles(simulation)
        console.out.print(bubble_table(report))
        console.out.print(division_table(report))
        if not feasible:
            console.out.print("some rank is above its memory limit: octoplan check says which")


@flags.with_import_flags
def check(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    model: flags.OptionalModelSource = None,
    cluster: flags.OptionalClusterFile = None,
    json_output: flags.Json = False,
) -> int:
    """Decide whether a plan is complete, ordered, deadlock-free and, with model and cluster, within memory."""
    document, graph, devices = read_inputs(plan, model, cluster, imports)
    with naming(plan):
        findings = octoplan.check(document, graph, devices)
    if json_output:
        rows = [{"rule": finding.rule, "message": finding.message} for finding in findings]
        console.print_json({"valid": not findings, "findings": rows})
    else:
        for finding in findings:
            console.fail(f"{plan}: {finding}")
        if not findings:
            within = (
                ", within memory"
                if graph is not None and devices is not None
                else "; memory needs --model and --cluster"
            )
            console.out.print(
                f"{plan}: complete, ordered, first-in-first-out, deadlock-free{within}",
                soft_wrap=True,
                highlight=False,
            )
    return 1 if findings else 0


@flags.with_import_flags
def show(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="A .svg, .png or .html file.")
    ],
    measured: Annotated[
        Path | None,
        typer.Option("--measured", metavar="TRACE", help="Draw what octoplan run --trace wrote above it."),
    ] = None,
    model: flags.OptionalModelSource = None,
    cluster: flags.OptionalClusterFile = None,
) -> None:
    """Draw a plan's timeline: ranks as rows, ops as boxes, memory below."""
    require_known_ending(output)
    require_writable(output)
    document, graph, devices = read_inputs(plan, model, cluster, imports)
    with naming(plan):
        simulation = octoplan.simulate(document, graph, devices)
    timeline = octoplan.timeline_of(document, simulation, devices)
    if measured is not None:
        timeline = measured_timeline(document, timeline, load_trace(measured, document))
    octoplan.draw_timeline(timeline, output)
    console.out.print(f"{output}: {len(timeline.ops):,} ops drawn", soft_wrap=True, highlight=False)


COMMANDS: dict[str, Callable[..., Any]] = {
    "model": model,
    "compile": compile_,
    "solvers": solvers,
    "simulate": simulate,
    "check": check,
    "show": show,
    "run": run,
    "profile": profile,
}


class naming:  # noqa: N801 - reads as a statement: with naming(file)
    """Put the file's name in front of an error that is about its content."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InputError) and error.source is None:
            raise error.in_source(str(self._path)) from None


def require_writable(path: Path) -> None:
    """Refuse an output that cannot be written before the long work, not after it."""
    if path.is_dir():
        raise InputError("is a folder; give a file name", source=str(path))
    if not path.parent.is_dir():
        raise InputError("cannot be written: its folder does not exist", source=str(path))


def read_inputs(
    plan: Path, model: Path | None, cluster: Path | None, imports: flags.ImportFlags
) -> tuple[Plan, ModelGraph | None, Cluster | None]:
    """Read plan, model and cluster; warn of unknown hashes."""
    document = load(plan, Plan)
    devices = None if cluster is None else load(cluster, Cluster)
    graph = None if model is None else imports.read(model, devices)
    with naming(plan):
        for warning in require_same_inputs(document, graph, devices):
            console.warn(f"{plan}: {warning}")
    return document, graph, devices
