"""Files of the OctoPlan contract: pydantic models, canonical hashing, op words and plan validation."""

from octoplan_schemas.base import canonical_json, canonical_sha256
from octoplan_schemas.cluster import Cluster, Device, DeviceType, Link, Links, PairLink
from octoplan_schemas.errors import InputError
from octoplan_schemas.files import load, save
from octoplan_schemas.job import Constraint, Job
from octoplan_schemas.model import ANY_DEVICE_TYPE, Layer, ModelGraph, OpCost, SkipEdge
from octoplan_schemas.op_words import OpWord, parse_word, transfer_words
from octoplan_schemas.plan import (
    EdgeCost,
    InputReference,
    Plan,
    PlanJob,
    Prediction,
    Provenance,
    RankPrediction,
    Stage,
    StageCost,
)
from octoplan_schemas.study import CellLimits, InstanceGrid, Method, ModelSource, RandomInstances, Study
from octoplan_schemas.validation import Finding, ProgramIndex, check_plan, require_valid, stage_edges

__all__ = [
    "ANY_DEVICE_TYPE",
    "CellLimits",
    "Cluster",
    "Constraint",
    "Device",
    "DeviceType",
    "EdgeCost",
    "Finding",
    "InputError",
    "InputReference",
    "InstanceGrid",
    "Job",
    "Layer",
    "Link",
    "Links",
    "Method",
    "ModelGraph",
    "ModelSource",
    "OpCost",
    "OpWord",
    "PairLink",
    "Plan",
    "PlanJob",
    "Prediction",
    "ProgramIndex",
    "Provenance",
    "RandomInstances",
    "RankPrediction",
    "SkipEdge",
    "Stage",
    "StageCost",
    "Study",
    "canonical_json",
    "canonical_sha256",
    "check_plan",
    "load",
    "parse_word",
    "require_valid",
    "save",
    "stage_edges",
    "transfer_words",
]
