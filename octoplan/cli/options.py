"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octoplan.importers import ImportOptions, import_model
from octoplan.importers.options import Granularity
from octoplan_schemas import Cluster, ModelGraph

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file (octoplan.plan/1).")]
ModelSource = Annotated[
    Path,
    typer.Option("--model", metavar="M", help="A model graph, a Hugging Face config.json or a timing table."),
]
OptionalModelSource = Annotated[
    Path | None,
    typer.Option("--model", metavar="M", help="The model that the plan was compiled for, as given then."),
]
ClusterFile = Annotated[
    Path, typer.Option("--cluster", metavar="C", help="A cluster file (octoplan.cluster/1).")
]
OptionalClusterFile = Annotated[
    Path | None, typer.Option("--cluster", metavar="C", help="A cluster file (octoplan.cluster/1).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="For a timing table: the config.json that gives the byte counts."
    ),
]
SequenceLength = Annotated[
    int | None, typer.Option("--sequence-length", help="Tokens per sequence (default 4096, or the table's).")
]
MicroBatchSize = Annotated[
    int | None,
    typer.Option("--micro-batch-size", help="Sequences per microbatch (default 1, or the table's)."),
]
TensorParallel = Annotated[int, typer.Option("--tensor-parallel", help="Devices that share each layer.")]
DataParallel = Annotated[
    int, typer.Option("--data-parallel", help="Replicas that share the optimizer state (ZeRO-1).")
]
GranularityOption = Annotated[
    str, typer.Option("--granularity", metavar="block|sublayer", help="Cut blocks into attention and MLP?")
]
Efficiency = Annotated[
    float | None, typer.Option("--efficiency", help="Share of the peak flop/s that is reached, 0 to 1.")
]


def import_options(
    cluster: Cluster | None,
    config: Path | None,
    sequence_length: int | None,
    micro_batch_size: int | None,
    tensor_parallel: int,
    data_parallel: int,
    granularity: str,
    efficiency: float | None,
) -> ImportOptions:
    """Collect the flags of an import; the importer checks their values."""
    chosen: Granularity = granularity  # type: ignore[assignment]
    return ImportOptions(
        sequence_length=sequence_length,
        micro_batch_size=micro_batch_size,
        tensor_parallel=tensor_parallel,
        data_parallel=data_parallel,
        granularity=chosen,
        efficiency=efficiency,
        cluster=cluster,
        config=config,
    )


def read_model(source: Path | None, options: ImportOptions) -> ModelGraph | None:
    """Import a model, or return None without one."""
    return None if source is None else import_model(source, options)
