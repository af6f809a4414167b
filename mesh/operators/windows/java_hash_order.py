"""Iteration order of the reference engine's hash maps.

It is visible where a window expires several keys at once.  A map iterates over its table; a key's
place is its hash code modulo the table's length, which grows with the number of keys.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.arrow import ArrowArray

_TABLE = 16


@lru_cache(maxsize=65_536)
def spread(text: str) -> int:
    """The hash code of a Java string, with its upper half mixed in."""
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return code ^ (code >> 16)


def table_of(count: int, length: int = _TABLE) -> int:
    """The length of the table of a concurrent map that has ``count`` keys, ``length`` before."""
    while count >= length - length // 4:
        length *= 2
    return length


def places(column: ArrowArray) -> Sequence[int]:
    """The hash codes of values as objects of their types, as ``spread`` returns those of texts."""
    values = column.to_pylist()
    kind = column.type
    if pa.types.is_string(kind):
        return [0 if value is None else spread(value) for value in values]
    if pa.types.is_boolean(kind):
        return [0 if value is None else 1231 if value else 1237 for value in values]
    if pa.types.is_float32(kind):
        codes = [_bits(">f", value) for value in values]
    elif pa.types.is_float64(kind):
        codes = [_folded(_bits(">d", value)) for value in values]
    elif pa.types.is_int64(kind):
        codes = [0 if value is None else _folded(value) for value in values]
    else:
        codes = [0 if value is None else value & 0xFFFFFFFF for value in values]
    return [code ^ (code >> 16) for code in codes]


def _bits(form: str, value: float | None) -> int:
    if value is None:
        return 0
    if value != value:
        # Java has one NaN.
        value = float("nan")
    return int.from_bytes(struct.pack(form, value), "big")


def _folded(value: int) -> int:
    """A number of 64 bits folded to 32."""
    bits = value & 0xFFFFFFFFFFFFFFFF
    return (bits ^ (bits >> 32)) & 0xFFFFFFFF
