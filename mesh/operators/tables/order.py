"""The order in which the reference engine lists the rows of a table with a primary key.

The engine keeps them in a map of Java's: a sorted one where the key is one number, else a hash map.
The order of the latter follows from the keys' hash codes and the largest size of the map.  Rows
in one bucket are in order of insertion.  (From eight rows in a bucket on, Java builds a tree of it;
that order is not reproduced.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions.kernels import java_text
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.operators.base import Longs
    from pyspark_nats.arrow import ArrowArray

Key = Any
#: Capacity of Java's map before it first grows, and its load factor.
BUCKETS = 16
_LOAD = 0.75
#: Separator after each part of a key, in the text that the engine builds from several.
_BEHIND = ":-:"
_ASCII_MAX = 127


def buckets_for(count: int, buckets: int) -> int:
    """Number of buckets that a map of ``buckets`` has when it holds ``count`` entries."""
    while count > buckets * _LOAD:
        buckets *= 2
    return buckets


def bucket(key: Key, types: tuple[AttributeType, ...], buckets: int) -> int:
    """The bucket of a key in Java's hash map; the key is a value, or a tuple of several."""
    code = _hash(key, types)
    return (code ^ (code >> 16)) & (buckets - 1)


def places_of_texts(keys: ArrowArray, buckets: int) -> Longs | None:
    """int64[n], ``bucket`` of each of n keys of one text; None if a key is not ASCII."""
    keys = keys.fill_null("")
    _, ends, texts = keys.buffers()
    data = np.frombuffer(memoryview(texts or b""), dtype=np.uint8)
    offsets = np.frombuffer(memoryview(ends or b""), dtype=np.int32)
    offsets = offsets[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    if (data[offsets[0] : offsets[-1]] > _ASCII_MAX).any():
        return None
    starts, lengths = offsets[:-1], np.diff(offsets)
    codes = np.zeros(len(keys), dtype=np.int64)
    for place in range(int(lengths.max(initial=0))):
        more = np.flatnonzero(lengths > place)
        codes[more] = (31 * codes[more] + data[starts[more] + place]) & 0xFFFFFFFF
    places: Longs = (codes ^ (codes >> 16)) & (buckets - 1)
    return places


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
