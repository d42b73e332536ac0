"""How a source becomes a model graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octoplan_schemas import Cluster, InputError

#: ``block``: a decoder layer is one layer of the graph; ``sublayer``: attention and feed-forward are two.
Granularity = Literal["block", "sublayer"]

#: Sequence length for configs, which do not say what they are trained at.
DEFAULT_SEQUENCE_LENGTH = 4096
#: Microbatch size where nothing else is said.
DEFAULT_MICRO_BATCH_SIZE = 1
#: Larger counts are mistakes, and times computed from them could overflow.
MAXIMUM_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of :func:`octoplan.importers.import_model`; what a source has no use for is refused.

    Parameters
    ----------
    sequence_length:
        Tokens per sequence; default 4096 for configs, and the table's own for tables.
    micro_batch_size:
        Sequences per microbatch; default 1, and the table's own for tables.
    tensor_parallel:
        Devices that share every layer; all times and sizes are those of one of them.
    data_parallel:
        Replicas over which ZeRO-1 shards the optimizer state.
    granularity:
        Whether a transformer block stays one layer.
    efficiency:
        Share of the peak flop/s that is reached, above 0 and up to 1; default
        :data:`octoplan.cost_model.DEFAULT_COMPUTE_EFFICIENCY`.
    cluster:
        Costs are computed for its device types; without one, for every device of the catalogue.
    config:
        For timing tables: the Hugging Face config that byte counts come from.
    """

    sequence_length: int | None = None
    micro_batch_size: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    granularity: Granularity = "block"
    efficiency: float | None = None
    cluster: Cluster | None = None
    config: Path | None = None


def check_options(options: ImportOptions) -> None:
    """Refuse values out of range.

    Raises
    ------
    InputError
        Names the option, its value and the limit.
    """
    for name in ("sequence_length", "micro_batch_size", "tensor_parallel", "data_parallel"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= MAXIMUM_COUNT:
            raise InputError(f"must be between 1 and {MAXIMUM_COUNT}, not {value}", field=name)
    if options.granularity not in ("block", "sublayer"):
        raise InputError(f"must be block or sublayer, not {options.granularity!r}", field="granularity")
    if options.efficiency is not None and not 0 < options.efficiency <= 1:
        raise InputError(f"must be above 0 and at most 1, not {options.efficiency!r}", field="efficiency")
