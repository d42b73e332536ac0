"""What layers cost: flops, bytes moved, memory held, and the time a roofline makes of them."""

from octoplan.cost_model.architecture import (
    Architecture,
    ArchitectureLayer,
    Part,
    forward_flops,
    parameter_count,
)
from octoplan.cost_model.devices import DEVICES, CatalogueDevice
from octoplan.cost_model.memory import LayerMemory, layer_memory, state_bytes
from octoplan.cost_model.operator import Operator, Work, total_parameters
from octoplan.cost_model.roofline import (
    DEFAULT_COMPUTE_EFFICIENCY,
    DEFAULT_MEMORY_EFFICIENCY,
    Roofline,
    layer_cost,
)
from octoplan.cost_model.workload import AttentionConvention, Workload

__all__ = [
    "Architecture",
    "ArchitectureLayer",
    "AttentionConvention",
    "CatalogueDevice",
    "DEFAULT_COMPUTE_EFFICIENCY",
    "DEFAULT_MEMORY_EFFICIENCY",
    "DEVICES",
    "LayerMemory",
    "Operator",
    "Part",
    "Roofline",
    "Work",
    "Workload",
    "forward_flops",
    "layer_cost",
    "layer_memory",
    "parameter_count",
    "state_bytes",
    "total_parameters",
]
