"""Reading and writing the contract's files: strict JSON in, whole files out."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from octoplan_schemas.base import Document
from octoplan_schemas.errors import InputError

AnyDocument = TypeVar("AnyDocument", bound=Document)


def load(path: str | Path, kind: type[AnyDocument]) -> AnyDocument:
    """Read and validate one document.

    Raises
    ------
    InputError
        If the file is missing, is not JSON, or does not fit the schema.
    """
    return kind.from_document(read_json(path), source=str(path))


def read_json(path: str | Path) -> Any:
    """Parse a JSON file; NaN, Infinity and doubled keys are refused."""
    return parse_json(read_text(path), source=str(path))


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, or say in one line why not."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=str(path)) from None
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def parse_json(text: str, *, source: str | None = None) -> Any:
    """Parse JSON text; NaN, Infinity and doubled keys are refused."""
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"is not valid JSON: {error.msg} ({where})", source=source) from None
    except RecursionError:
        raise InputError("is nested too deeply", source=source) from None
    except InputError as error:
        raise error.in_source(source) if source else error from None
    except ValueError as error:
        raise InputError(f"is not valid JSON: {error}", source=source) from None


def _refuse_constant(constant: str) -> NoReturn:
    raise InputError(f"{constant} is not allowed; numbers must be finite")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InputError(f"{text[:40]} is too large; numbers must be finite")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(f"the key {double!r} occurs twice in one object")
    return result


def save(path: str | Path, document: Document) -> None:
    """Write a document as JSON; the file is either whole or not there."""
    write_text(path, to_text(document))


def to_text(document: Document) -> str:
    """Return the document as readable JSON: one line per list of plain values."""
    return _pretty(document.to_document(), 0) + "\n"


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file or none: a temporary neighbour is renamed into place."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file or none: a temporary neighbour is renamed into place."""
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _pretty(value: Any, depth: int) -> str:
    """Indent objects and lists of objects; keep lists of numbers or words and small objects on one line."""
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value:
        if depth > 0 and not any(_is_nested(item) for item in value.values()):
            return json.dumps(value, allow_nan=False)
        body = ",\n".join(
            f"{pad}{json.dumps(key)}: {_pretty(item, depth + 1)}" for key, item in value.items()
        )
        return "{\n" + body + "\n" + "  " * depth + "}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        body = ",\n".join(pad + _pretty(item, depth + 1) for item in value)
        return "[\n" + body + "\n" + "  " * depth + "]"
    return json.dumps(value, allow_nan=False)


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and (
        len(value) > 4 or any(isinstance(item, dict | list) for item in value)
    )
