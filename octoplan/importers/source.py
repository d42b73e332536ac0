"""Find out what a file is, and import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from octoplan.importers.config_source import import_config
from octoplan.importers.options import ImportOptions, check_options
from octoplan.importers.timing_table import import_table
from octoplan_schemas import InputError, ModelGraph
from octoplan_schemas.files import read_json

_EXPECTED = (
    f"expected a model graph ({ModelGraph.FORMAT}), a Hugging Face config.json (with model_type), "
    "or a timing table (with pattern and forward_ms)"
)

#: What a model graph leaves no choice about: option, and the value that asks for nothing.
_FIXED_IN_GRAPHS = {
    "sequence_length": None,
    "micro_batch_size": None,
    "tensor_parallel": 1,
    "data_parallel": 1,
    "granularity": "block",
    "efficiency": None,
    "config": None,
}


def import_model(path: str | Path, options: ImportOptions | None = None) -> ModelGraph:
    """Read a model graph, a Hugging Face config or a timing table.

    Parameters
    ----------
    path:
        The file; its content says which of the three it is.
    options:
        Sizes, sharding and devices; default ``ImportOptions()``.

    Returns
    -------
    ModelGraph
        Times in seconds and sizes in bytes of ONE microbatch on one device. A model graph is returned as
        it is.

    Raises
    ------
    InputError
        One line that names file, field and what to change: the file is none of the three, a field is
        missing or wrong, or an option makes no sense for this source.
    """
    options = options or ImportOptions()
    check_options(options)
    path = Path(path)
    try:
        return _dispatch(read_json(path), path, options)
    except InputError as error:
        # An option that does not fit the model (tensor_parallel) knows no file.
        raise error if error.source else error.in_source(str(path)) from None


def _dispatch(document: Any, path: Path, options: ImportOptions) -> ModelGraph:
    if not isinstance(document, dict):
        raise InputError(_EXPECTED)
    if "format" in document:
        return _take_graph(document, path, options)
    if "pattern" in document or "forward_ms" in document:
        return import_table(document, path, options)
    if "model_type" in document or "architectures" in document:
        return import_config(document, path, options)
    raise InputError(_EXPECTED)


def _take_graph(document: dict[str, Any], path: Path, options: ImportOptions) -> ModelGraph:
    graph = ModelGraph.from_document(document, source=str(path))
    for name, neutral in _FIXED_IN_GRAPHS.items():
        if getattr(options, name) not in (neutral, getattr(graph, name, neutral)):
            raise InputError(
                "a model graph is taken as it is; leave the option out", source=str(path), field=name
            )
    return graph
