"""What every document of the contract shares: strictness, numbers, canonical form and hash."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError, WithJsonSchema
from pydantic import JsonValue as JsonValue

from octoplan_schemas.errors import InputError


def _number(minimum: float = -math.inf, exclusive: bool = False) -> Any:
    """Build a validator that keeps ints as ints: a document's hash must not change by being read."""

    def validate(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, not {value!r}")
        if not _is_finite(value):
            raise ValueError(f"must be finite, not {_shorten(value)}")
        if value < minimum or (exclusive and value == minimum):
            raise ValueError(f"must be {'above' if exclusive else 'at least'} {minimum:g}, not {value!r}")
        return value

    return validate


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def _number_schema(keyword: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "number", keyword: 0})


_AS_IS = PlainSerializer(lambda value: value, return_type=Any)

#: A finite number of either sign. Ints stay ints.
Finite = Annotated[float, PlainValidator(_number()), _AS_IS, WithJsonSchema({"type": "number"})]
#: A finite number, zero or more: seconds, bytes, flop/s.
NonNegative = Annotated[float, PlainValidator(_number(0.0)), _AS_IS, _number_schema("minimum")]
#: A finite number above zero.
Positive = Annotated[
    float, PlainValidator(_number(0.0, exclusive=True)), _AS_IS, _number_schema("exclusiveMinimum")
]


class StrictModel(BaseModel):
    """Frozen, and unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True
    )


class Document(StrictModel):
    """A file of the contract: first field ``format``, canonical JSON, SHA-256."""

    FORMAT: ClassVar[str]
    format: str

    @classmethod
    def from_document(cls, document: Any, *, source: str | None = None) -> Self:
        """Validate a parsed JSON value.

        Raises
        ------
        InputError
            One line that names the source, the field, the value and what is wrong.
        """
        check_format(document, cls.FORMAT, source)
        text, is_finite = _as_text(document, source)
        try:
            # Aliases only: the Python name of an aliased field is an unknown field of a file.
            result = cls.model_validate_json(text, by_alias=True, by_name=False)
        except ValidationError as error:
            raise input_error(error, source) from None
        if not is_finite:
            raise InputError("NaN and Infinity are not allowed; numbers must be finite", source=source)
        return result

    def to_document(self) -> dict[str, Any]:
        """Return the JSON value as it would be written: only the fields that were set, ``format`` first."""
        return {"format": self.format, **self.model_dump(by_alias=True, exclude_unset=True, mode="json")}

    def sha256(self) -> str:
        """Return the hash of the canonical JSON (contract, section 3)."""
        return canonical_sha256(self.to_document())


def _as_text(document: Any, source: str | None) -> tuple[str, bool]:
    """Write a parsed document as JSON text, and say whether all its numbers are finite."""
    try:
        try:
            return json.dumps(document, allow_nan=False), True
        except ValueError:
            # The validator names the field, if it is one of the schema's.
            return json.dumps(document), False
    except RecursionError:
        raise InputError("is nested too deeply", source=source) from None
    except (TypeError, ValueError) as error:
        raise InputError(f"holds what JSON cannot: {error}", source=source) from None


def canonical_json(document: Any) -> str:
    """Write a JSON value with sorted keys, no spaces and ASCII escapes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_sha256(document: Any) -> str:
    """Return the hex SHA-256 of the canonical JSON of a parsed document."""
    return hashlib.sha256(canonical_json(document).encode("ascii")).hexdigest()


def check_format(document: Any, expected: str, source: str | None = None) -> None:
    """Refuse what is not an object, and an unknown major format, with one clear line."""
    if not isinstance(document, dict):
        raise InputError(f"expected a JSON object of format {expected!r}", source=source)
    found = document.get("format")
    if found is None:
        raise InputError(f'missing; write "format": "{expected}"', source=source, field="format")
    if not isinstance(found, str) or not re.fullmatch(re.escape(expected) + r"(\.\d+)?", found):
        raise InputError(
            f"{found!r} is not supported; this reader takes {expected!r}", source=source, field="format"
        )


def input_error(error: ValidationError, source: str | None) -> InputError:
    """Turn pydantic's first complaint into one line; say how many more there are."""
    first = error.errors(include_url=False)[0]
    field = _field(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown field; remove it or correct its name"
    elif first["type"] == "missing":
        message = "missing"
    elif first["type"] not in ("value_error", "assertion_error", "json_invalid"):
        message = f"{message}, not {_shorten(first['input'])}"
    more = len({_field(problem["loc"]) for problem in error.errors(include_url=False)}) - 1
    if more:
        message += f" ({more} more problem{'s' if more > 1 else ''})"
    return InputError(message, source=source, field=field or None)


def _field(location: tuple[int | str, ...]) -> str:
    """Dotted path, without the parts by which pydantic names the branches of a union."""
    parts = [str(part) for part in location if not str(part).startswith("function-")]
    if parts and parts[-1] in ("str", "int", "none"):
        parts.pop()
    return ".".join(parts)


def _shorten(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
