"""Timing tables: milliseconds of F, I and W for each kind of layer, and the pattern of layers.

A table knows times alone, measured on devices that it does not name: costs stand under ``"*"``, and all
byte counts are zero unless a config of the same model supplies them, layer by layer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from octoplan.cost_model import Architecture, Workload
from octoplan.importers.config_fields import MAXIMUM_LAYERS, ConfigFields
from octoplan.importers.config_source import config_architecture
from octoplan.importers.graph import build_graph
from octoplan.importers.huggingface.common import EMBEDDING, HEAD
from octoplan.importers.options import DEFAULT_MICRO_BATCH_SIZE, ImportOptions
from octoplan_schemas import ANY_DEVICE_TYPE, InputError, Layer, ModelGraph, OpCost
from octoplan_schemas.files import read_json

#: Kinds that a symbol of the pattern stands for; the first is what it means without a config.
_SYMBOLS = {
    "E": (EMBEDDING,),
    "M": ("mamba2", "mamba"),
    "-": ("mlp",),
    "*": ("attention", "local_attention"),
    "#": ("moe",),
    "T": ("transformer", "transformer_moe"),
    "L": (HEAD,),
}

_TIMES = {"forward_s": "forward_ms", "backward_input_s": "backward_ms", "backward_weight_s": "weight_ms"}


def import_table(document: dict[str, Any], path: Path, options: ImportOptions) -> ModelGraph:
    """Return the graph of a table, with the byte counts of ``options.config`` if there is one."""
    fields = ConfigFields(document, str(path))
    pattern = _pattern(fields)
    _check_options(fields, pattern, options)
    cost_of = {symbol: {ANY_DEVICE_TYPE: _cost(fields, symbol)} for symbol in dict.fromkeys(pattern)}
    costs = [cost_of[symbol] for symbol in pattern]
    name = fields.text("name", default=path.stem)
    if options.config is None:
        return _graph_without_bytes(fields, name, pattern, costs)
    architecture = _matching_architecture(fields, name, pattern, options.config)
    workload = Workload(
        options.sequence_length or fields.count("sequence_length"),
        options.micro_batch_size or fields.count("micro_batch_size", default=DEFAULT_MICRO_BATCH_SIZE),
        options.tensor_parallel,
    )
    return build_graph(architecture, workload, options, costs, source="table")


def _pattern(fields: ConfigFields) -> str:
    pattern = fields.text("pattern")
    if len(pattern) > MAXIMUM_LAYERS:
        fields.refuse("pattern", f"has {len(pattern)} layers; at most {MAXIMUM_LAYERS} are taken")
    for index, symbol in enumerate(pattern):
        if symbol not in _SYMBOLS:
            fields.refuse("pattern", f"symbol {index} is {symbol!r}; known are {' '.join(_SYMBOLS)}")
    if "E" in pattern[1:] or "L" in pattern[:-1]:
        fields.refuse("pattern", "E (embedding) may stand first only, and L (head) last only")
    return pattern


def _cost(fields: ConfigFields, symbol: str) -> OpCost:
    return OpCost(**{name: fields.section(table).seconds(symbol) for name, table in _TIMES.items()})


def _check_options(fields: ConfigFields, pattern: str, options: ImportOptions) -> None:
    """Refuse what would change times that the table has measured, or bytes that it does not have."""
    for name in ("sequence_length", "micro_batch_size"):
        wanted, measured = getattr(options, name), fields.optional_count(name)
        if wanted is not None and measured is not None and wanted != measured:
            fields.refuse(name, f"the times are measured at {measured}; {wanted} needs another table")
    if options.efficiency is not None:
        _refuse_option(fields, "efficiency", "changes nothing: a table's times are measured; leave it out")
    if options.granularity == "sublayer" and "T" in pattern:
        _refuse_option(fields, "granularity", "sublayer cannot cut T: a table times whole blocks; use block")
    for name in ("tensor_parallel", "data_parallel"):
        if getattr(options, name) != 1 and options.config is None:
            _refuse_option(
                fields, name, "a table has no byte counts to shard; give the model's config as well"
            )


def _refuse_option(fields: ConfigFields, name: str, message: str) -> None:
    raise InputError(message, source=fields.source, field=name)


def _graph_without_bytes(
    fields: ConfigFields, name: str, pattern: str, costs: list[dict[str, OpCost]]
) -> ModelGraph:
    return ModelGraph(
        name=name,
        layers=tuple(
            Layer(
                name=layer_name,
                kind=_SYMBOLS[symbol][0],
                cost=cost,
                state_bytes=0,
                activation_bytes=0,
                weight_stash_bytes=0,
                workspace_bytes=0,
                output_bytes=0,
            )
            for layer_name, symbol, cost in zip(_layer_names(pattern), pattern, costs, strict=True)
        ),
        sequence_length=fields.optional_count("sequence_length"),
        micro_batch_size=fields.optional_count("micro_batch_size"),
        source="table",
    )


def _layer_names(pattern: str) -> list[str]:
    first = 1 if pattern.startswith("E") else 0
    ends = {"E": EMBEDDING, "L": HEAD}
    return [ends.get(symbol, f"layers.{index - first}") for index, symbol in enumerate(pattern)]


def _matching_architecture(fields: ConfigFields, name: str, pattern: str, config: Path) -> Architecture:
    """Read the config, and insist that it lists the layers of the pattern."""
    document = read_json(config)
    if not isinstance(document, dict):
        raise InputError("expected a Hugging Face config.json", source=str(config))
    whole_blocks = "T" in pattern
    architecture = config_architecture(document, config, "block" if whole_blocks else "sublayer")
    for index, (symbol, layer) in enumerate(zip(pattern, architecture.layers, strict=False)):
        if layer.kind not in _SYMBOLS[symbol]:
            found = f"{layer.name} in {config} is {layer.kind}"
            fields.refuse("pattern", f"layer {index} is {symbol} ({_SYMBOLS[symbol][0]}), but {found}")
    if len(pattern) != len(architecture.layers):
        fields.refuse("pattern", f"has {len(pattern)} layers, but {config} has {len(architecture.layers)}")
    return replace(architecture, name=name)
