"""A Hugging Face config as a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from octoplan.cost_model import Architecture, Workload
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.graph import roofline_graph
from octoplan.importers.huggingface import read_architecture
from octoplan.importers.options import (
    DEFAULT_MICRO_BATCH_SIZE,
    DEFAULT_SEQUENCE_LENGTH,
    Granularity,
    ImportOptions,
)
from octoplan_schemas import InputError, ModelGraph


def import_config(document: dict[str, Any], path: Path, options: ImportOptions) -> ModelGraph:
    """Return the roofline graph of a config."""
    if options.config is not None:
        raise InputError("is a config itself; config goes with a timing table", source=str(path))
    architecture = config_architecture(document, path, options.granularity)
    workload = Workload(
        options.sequence_length or DEFAULT_SEQUENCE_LENGTH,
        options.micro_batch_size or DEFAULT_MICRO_BATCH_SIZE,
        options.tensor_parallel,
    )
    return roofline_graph(architecture, workload, options)


def config_architecture(
    document: dict[str, Any], path: Path, granularity: Granularity = "block"
) -> Architecture:
    """Return the architecture that a config describes."""
    return read_architecture(ConfigFields(document, str(path)), _model_name(path), granularity)


def _model_name(path: Path) -> str:
    """Return the file's name, or its folder's where the file is the usual ``config.json``."""
    stem = path.stem
    return path.resolve().parent.name or stem if stem == "config" else stem
