"""``octoplan explain``: where a plan's time goes, what holds it back, and what each change would be worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

import octoplan
from octoplan.cli import console
from octoplan.cli import options as flags
from octoplan.cli.bubbles import bubble_table
from octoplan.cli.commands import naming, read_inputs
from octoplan.cli.live import compile_progress
from octoplan.explain import Explanation
from octoplan.explain.explanation import Diagnosis, LinkUse, RankMemory, WhatIf
from octoplan.explain.report import DEFAULT_TIME_LIMIT_S

#: Links that are shown, and the share of the makespan from which idle time is worth a line.
_MOST_LINKS = 3
_WORTH_A_LINE = 1e-4


@flags.with_import_flags
def explain(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    model: flags.ModelSource,
    cluster: flags.ClusterFile,
    job: Annotated[
        Path | None,
        typer.Option(
            "--job", metavar="FILE", help="The job file whose constraints the plan was compiled under."
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds of all searches together.")
    ] = DEFAULT_TIME_LIMIT_S,
    max_evaluations: Annotated[
        int | None,
        typer.Option("--max-evaluations", help="Candidates of all searches together: reproducible."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the searches.")] = 0,
    json_output: flags.Json = False,
) -> None:
    """Say where a plan's time goes, what holds it back, and what each change would be worth, recomputed."""
    document, graph, devices = read_inputs(plan, model, cluster, imports)
    assert graph is not None
    assert devices is not None
    constraints = () if job is None else octoplan.load_job(job).constraints
    with naming(plan), compile_progress(quiet=json_output) as (on_progress, should_stop):
        options = octoplan.ExplainOptions(
            time_limit, max_evaluations, seed, constraints, on_progress=on_progress, should_stop=should_stop
        )
        explanation = octoplan.explain_plan(document, graph, devices, options)
    if should_stop():
        console.note("interrupted: changes that were not tried are left out")
    if json_output:
        console.print_json(explanation.to_document())
    else:
        _print(f"{plan}: {graph.name} on {devices.name}, {document.provenance.strategy}", explanation)


def _print(title: str, explanation: Explanation) -> None:
    diagnosis = explanation.diagnosis
    bound = diagnosis.bounds[0]
    gap = diagnosis.makespan_s / bound.seconds - 1 if bound.seconds > 0 else None
    _line(title)
    _line(
        f"makespan {console.seconds(diagnosis.makespan_s)}, bubble fraction "
        f"{console.percent(diagnosis.bubble_fraction)}; no plan is faster than {console.seconds(bound.seconds)}: "
        f"gap {console.percent(gap)}"
    )
    console.out.print()
    console.out.print(bubble_table(diagnosis.bubbles))
    _line("what holds it back")
    for text in _holding_back(diagnosis):
        _line(f"  {text}")
    console.out.print()
    console.out.print(_what_if_table(explanation))


def _line(text: str) -> None:
    console.out.print(text, soft_wrap=True, highlight=False, markup=False)


def _holding_back(diagnosis: Diagnosis) -> list[str]:
    """Return one line each on the bound, the critical path, the heaviest layer, memory and links."""
    makespan, path, layer = diagnosis.makespan_s, diagnosis.critical_path, diagnosis.heaviest_layer
    bound = diagnosis.bounds[0]
    busiest = max(range(len(path.compute_s)), key=lambda rank: path.compute_s[rank])
    lines = [
        f"bound: {bound.name}, {bound.because}",
        f"critical path: {_share(sum(path.compute_s), makespan)} compute, most of it on rank {busiest} "
        f"({_share(path.compute_s[busiest], makespan)}); {_share(path.transfer_s, makespan)} transfers",
        f"heaviest layer: {layer.name}, {console.seconds(layer.microbatch_s)} per microbatch, "
        f"{_share(layer.all_s, makespan)} of the makespan in all",
    ]
    late = [link for link in diagnosis.links if link.waiting_s > _WORTH_A_LINE * makespan]
    return [*lines, *_memory_lines(diagnosis), *(_link_line(link, makespan) for link in late[:_MOST_LINKS])]


def _memory_lines(diagnosis: Diagnosis) -> list[str]:
    limited = [rank for rank in diagnosis.memory if rank.limit_bytes is not None]
    if not limited:
        return ["memory: no limit"]
    waiting = [rank for rank in limited if rank.waiting_s > _WORTH_A_LINE * diagnosis.makespan_s]
    if waiting:
        return [_memory_line(rank) for rank in sorted(waiting, key=lambda rank: -rank.waiting_s)]
    fullest = max(limited, key=lambda rank: rank.peak_bytes / max(rank.limit_bytes or 0.0, 1.0))
    return [f"{_memory_line(fullest)}; no rank idles for it"]


def _memory_line(rank: RankMemory) -> str:
    peak, limit = console.gibibytes(rank.peak_bytes), console.gibibytes(rank.limit_bytes)
    used = f"memory: rank {rank.rank} uses {peak} of {limit}"
    return (
        f"{used}, and idles {console.seconds(rank.waiting_s)} for want of more"
        if rank.waiting_s > 0
        else used
    )


def _link_line(link: LinkUse, makespan: float) -> str:
    return (
        f"link: ranks idle {console.seconds(link.waiting_s)} for transfers from rank {link.source} to rank "
        f"{link.destination}, a link that is busy {_share(link.busy_s, makespan)} of the time"
    )


def _what_if_table(explanation: Explanation) -> Table:
    table = Table(
        title="what each change would be worth, searched from this plan", title_justify="left", box=box.SIMPLE
    )
    table.add_column("change")
    for column in ("makespan", "gain", "no faster than"):
        table.add_column(column, justify="right")
    own = explanation.diagnosis
    bound = console.seconds(own.bounds[0].seconds)
    table.add_row("none: this plan", console.seconds(own.makespan_s), "", bound)
    table.add_row(*_row(explanation.control))
    table.add_section()
    for what_if in explanation.what_ifs:
        table.add_row(*_row(what_if))
    return table


def _row(what_if: WhatIf) -> tuple[str, str, str, str]:
    return (
        what_if.change,
        "none found" if what_if.makespan_s is None else console.seconds(what_if.makespan_s),
        "" if what_if.gain is None else console.percent(what_if.gain),
        console.seconds(what_if.lower_bound_s),
    )


def _share(seconds: float, makespan: float) -> str:
    return console.percent(seconds / makespan if makespan > 0 else 0.0)
