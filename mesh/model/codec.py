"""JSON codec of records, by their dataclass fields.

Unknown fields are skipped and missing ones take their default, so that nodes of neighbouring
versions read each other's records.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
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
        read = _reader(cast("Any", kind))
        return cast("T", read(orjson.loads(data)))
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
def _reader(kind: Any) -> Callable[[Any], Any]:
    """A function from JSON values to values of type ``kind``; made once for each type."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (kind,) = [a for a in typing.get_args(kind) if a is not types.NoneType]
        reader = _reader(kind)
        return lambda value: None if value is None else reader(value)
    if origin is tuple:
        (item, _ellipsis) = typing.get_args(kind)
        of_item = _reader(item)
        return lambda value: tuple(map(of_item, value))
    if origin in (dict, Mapping):
        (_key, item) = typing.get_args(kind)
        of_value = _reader(item)
        return lambda value: {k: of_value(v) for k, v in value.items()}
    if dataclasses.is_dataclass(kind):
        return _of_fields(cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is Any:
        return lambda value: value
    return partial(_checked, kind)


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}


def _of_fields(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        # Not before the first record, as a type may be a part of itself.
        readers = _readers(kind)
        entries = value.items()
        return kind(**{name: readers[name](item) for name, item in entries if name in readers})

    return read


def _checked(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if kind is float and isinstance(value, int):
        return float(value)
    raise TypeError(f"expected {kind.__name__}, found {value!r}")
