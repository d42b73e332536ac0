"""``octoplan export``: a plan as a file for an engine that people already run, or for a trace viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import octoplan
from octoplan.cli import console
from octoplan.cli import options as flags
from octoplan.cli.commands import naming, read_inputs, require_writable


@flags.with_import_flags
def export(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    to: Annotated[
        str, typer.Option("--to", metavar="torch-csv|torchtitan|megatron|perfetto", help="The format.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write it.")],
    model: flags.OptionalModelSource = None,
    cluster: flags.OptionalClusterFile = None,
    json_output: flags.Json = False,
) -> None:
    """Write a plan for torch, torchtitan, Megatron-LM or Perfetto; torchtitan and Megatron-LM need --model."""
    require_writable(output)
    document, graph, devices = read_inputs(plan, model, cluster, imports)
    with naming(plan):
        exported = octoplan.export_plan(document, to, output, model=graph, cluster=devices)
    if json_output:
        console.print_json({"to": exported.to, "files": [str(file) for file in exported.files]})
        return
    for file in exported.files:
        console.out.print(f"{file}: written for {exported.to}", soft_wrap=True, highlight=False)
