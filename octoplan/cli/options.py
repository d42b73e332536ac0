"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from octoplan.importers import ImportOptions, import_model
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


@dataclass(frozen=True, slots=True)
class ImportFlags:
    """The flags of an import, which every command that reads a model takes; `with_import_flags` adds them."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="For a timing table: the config.json that gives byte counts."
        ),
    ] = None
    sequence_length: Annotated[
        int | None,
        typer.Option("--sequence-length", help="Tokens per sequence (default 4096, or the table's)."),
    ] = None
    micro_batch_size: Annotated[
        int | None,
        typer.Option("--micro-batch-size", help="Sequences per microbatch (default 1, or the table's)."),
    ] = None
    tensor_parallel: Annotated[
        int, typer.Option("--tensor-parallel", help="Devices that share each layer.")
    ] = 1
    data_parallel: Annotated[
        int, typer.Option("--data-parallel", help="Replicas that share the optimizer state (ZeRO-1).")
    ] = 1
    granularity: Annotated[
        str,
        typer.Option(
            "--granularity", metavar="block|sublayer", help="Whether to cut blocks into attention and MLP."
        ),
    ] = "block"
    efficiency: Annotated[
        float | None, typer.Option("--efficiency", help="Share of the peak flop/s that is reached, 0 to 1.")
    ] = None

    def read(self, source: Path, cluster: Cluster | None) -> ModelGraph:
        """Import a model; the importer checks the flags' values."""
        return import_model(source, ImportOptions(cluster=cluster, **asdict(self)))


def with_import_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a command's parameter ``imports`` by one option for each field of `ImportFlags`."""
    hints = get_type_hints(command, include_extras=True)
    flag_hints = get_type_hints(ImportFlags, include_extras=True)
    signature = inspect.signature(command)
    own = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name != "imports"
    ]
    added = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=flag_hints[field.name],
        )
        for field in fields(ImportFlags)
    ]

    @wraps(command)
    def wrapper(**given: Any) -> Any:
        imports = ImportFlags(**{field.name: given.pop(field.name) for field in fields(ImportFlags)})
        return command(imports=imports, **given)

    parameters = [*own, *added]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
