"""The order in which the reference engine lists the rows of a table with a primary key.

The engine keeps them in a map of Java's: a sorted one where the key is one number, else a hash map.
The order of the latter follows from the keys' hash codes and the largest size of the map.  Rows
in one bucket are in order of insertion.  (From eight rows in a bucket on, Java builds a tree of it;
that order is not reproduced.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mesh.functions.conversion import java_text
from mesh.model.types import AttributeType

Key = Any
#: Capacity of Java's map before it first grows, and its load factor.
BUCKETS = 16
_LOAD = 0.75
#: Separator after each part of a key, in the text that the engine builds from several.
_BEHIND = ":-:"


def buckets_for(count: int, buckets: int) -> int:
    """Number of buckets that a map of ``buckets`` has when it holds ``count`` entries."""
    while count > buckets * _LOAD:
        buckets *= 2
    return buckets


def bucket(key: Key, types: tuple[AttributeType, ...], buckets: int) -> int:
    """The bucket of a key in Java's hash map; the key is a value, or a tuple of several."""
    code = _hash(key, types)
    return (code ^ (code >> 16)) & (buckets - 1)


def _hash(key: Key, types: tuple[AttributeType, ...]) -> int:
    if len(types) > 1:
        return _text_hash("".join(_text(*part) + _BEHIND for part in zip(key, types, strict=True)))
    if key is None:
        return 0
    if isinstance(key, bool):
        return 1231 if key else 1237
    return _text_hash(str(key))


def _text_hash(text: str) -> int:
    code = 0
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2")
    for unit in units.tolist():
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


def _text(value: Any, type: AttributeType) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type is AttributeType.FLOAT:
        return java_text(np.float32(value))
    if type is AttributeType.DOUBLE:
        return java_text(np.float64(value))
    return str(value)
