"""Which reader takes which ``model_type``, or ``architectures`` where that is missing."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from octoplan.cost_model import Architecture
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.deepseek_v3 import read_deepseek_v3
from octoplan.importers.huggingface.gemma import read_gemma2, read_gemma3
from octoplan.importers.huggingface.jamba import read_jamba
from octoplan.importers.huggingface.llama import read_llama
from octoplan.importers.huggingface.nemotron_h import read_nemotron_h
from octoplan.importers.huggingface.qwen3_moe import read_qwen3_moe
from octoplan.importers.options import Granularity
from octoplan_schemas import InputError

Reader = Callable[[ConfigFields, str, Granularity], Architecture]

#: By ``model_type``.
SUPPORTED: MappingProxyType[str, Reader] = MappingProxyType(
    {
        "deepseek_v3": read_deepseek_v3,
        "gemma2": read_gemma2,
        "gemma3": read_gemma3,
        "gemma3_text": read_gemma3,
        "jamba": read_jamba,
        "llama": read_llama,
        "nemotron_h": read_nemotron_h,
        "qwen3_moe": read_qwen3_moe,
    }
)

#: By what ``architectures`` says, in lower case and up to its "For...".
_BY_CLASS = MappingProxyType({name.replace("_", ""): name for name in SUPPORTED})


def read_architecture(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of any supported family.

    Raises
    ------
    InputError
        If the family is not supported, or a field is missing or wrong.
    """
    return SUPPORTED[_model_type(fields)](fields, name, granularity)


def _model_type(fields: ConfigFields) -> str:
    if fields.has("model_type"):
        field, found = "model_type", fields.text("model_type")
        known = found if found in SUPPORTED else None
    else:
        field, found = "architectures", (fields.texts("architectures") or [""])[0]
        known = _BY_CLASS.get(found.split("For")[0].lower())
    if known is None:
        message = f"{found!r} is not supported; supported are {', '.join(SUPPORTED)}"
        raise InputError(message, source=fields.source, field=field)
    return known
