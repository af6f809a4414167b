"""JSON codec of records, by their dataclass fields.

Unknown fields are skipped and missing ones take their default, so that nodes of neighbouring
versions read each other's records.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

import orjson

from mesh.errors import MeshError

T = TypeVar("T")


def encode(record: Any) -> bytes:
    """A dataclass record, or a dict, as a JSON object; a lone surrogate in a text becomes ``?``."""
    try:
        return orjson.dumps(record)
    except TypeError:
        # A file's name or an error may have one; UTF-8 has none.
        text = json.dumps(record, default=dataclasses.asdict, ensure_ascii=False)
        return text.encode(errors="replace")


def decode(kind: type[T], data: bytes) -> T:
    """A record of type ``kind`` from its JSON; MESH-C100 when it isn't one."""
    try:
        return cast("T", _build(kind, orjson.loads(data)))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise MeshError(
            "MESH-C100",
            f"record {kind.__name__} can't be read",
            detail=f"{error}.",
            hint="Was it written by hand, or by another version of mesh?",
        ) from error


def to_values(record: Any) -> Any:
    """A record as JSON values: dicts, lists, strings, numbers."""
    return orjson.loads(orjson.dumps(record))


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _build(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (kind,) = [a for a in typing.get_args(kind) if a is not types.NoneType]
        return _build(kind, value)
    if origin is tuple:
        (item, _ellipsis) = typing.get_args(kind)
        return tuple(_build(item, v) for v in value)
    if origin in (dict, Mapping):
        (_key, item) = typing.get_args(kind)
        return {k: _build(item, v) for k, v in value.items()}
    if dataclasses.is_dataclass(kind):
        wanted = _fields(cast("type", kind))
        given = {name: _build(wanted[name], v) for name, v in value.items() if name in wanted}
        return cast("type", kind)(**given)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int):
        return float(value)
    if kind is not Any and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value
