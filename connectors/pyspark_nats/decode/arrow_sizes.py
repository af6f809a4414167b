"""Sizes that Arrow messages claim: of compressed batches, and of arrays that are small for long.

A few octets may claim any number of rows (a column of nulls), or any size after decompression.  One
text may be the value of every row (a dictionary, runs, views).  Nothing here is proportional to the
claim.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode.result import width

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.result import Ints

#: Key in messages of versions of Arrow before 1.0 with compressed bodies.
_EARLY_COMPRESSION: Final = b"ARROW:experimental_compression"
#: Fields of the tables of Arrow's ``Message.fbs``, by number.
_HEADER, _CUSTOM_METADATA = 2, 4
_BUFFERS, _COMPRESSION = 2, 3
_DATA = 1


def decompressed_bytes(message: Any) -> int:
    """Bytes of the body of a batch or dictionary after decompression; 0 if it is not compressed.

    Raises:
        ValueError, struct.error: it is malformed.
    """
    if message.type not in ("record batch", "dictionary"):
        return 0
    octets = memoryview(message.metadata)
    root = _at(octets, 0)
    batch = _table(octets, root, _HEADER)
    if message.type == "dictionary":
        batch = _table(octets, batch, _DATA)
    if not _field(octets, batch, _COMPRESSION) and not (
        _field(octets, root, _CUSTOM_METADATA) and _EARLY_COMPRESSION in bytes(octets)
    ):
        return 0
    body = memoryview(message.body)
    vector = _table(octets, batch, _BUFFERS)
    total = 0
    for number in range(struct.unpack_from("<I", octets, vector)[0]):
        start, length = struct.unpack_from("<qq", octets, vector + 4 + 16 * number)
        if length <= 0:
            continue
        # Each buffer starts with its size; -1 if this one is not compressed.
        (size,) = struct.unpack_from("<q", body, start)
        total += length if size < 0 else size
    return total


def _at(octets: memoryview, place: int) -> int:
    """The target of the reference at ``place``."""
    return place + int(struct.unpack_from("<I", octets, place)[0])


def _field(octets: memoryview, table: int, number: int) -> int:
    """Position of a field of a table; 0 if it is absent."""
    layout = table - struct.unpack_from("<i", octets, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", octets, layout)[0]:
        return 0
    offset = int(struct.unpack_from("<H", octets, layout + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _table(octets: memoryview, table: int, number: int) -> int:
    """Position of the table or vector in a field."""
    place = _field(octets, table, number)
    if not place:
        raise ValueError("a batch without its description")
    return _at(octets, place)


def is_bounded(kind: DataType) -> bool:
    """Whether arrays of a type are never longer than their buffers: plain values, texts, octets."""
    types = pa.types
    return not (
        types.is_null(kind)
        or types.is_nested(kind)
        or types.is_dictionary(kind)
        or types.is_run_end_encoded(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


def converted_bytes(array: Array, kind: DataType) -> int:
    """Bytes of a valid array after its conversion to ``kind``, at most."""
    types, source, count = pa.types, array.type, len(array)
    if types.is_dictionary(source):
        chosen = kernels.drop_null(array.indices)
        return _repeated(array.dictionary, kind, count, lambda sizes: _taken(sizes, chosen))
    if types.is_run_end_encoded(source):
        ends = np.minimum(array.run_ends.to_numpy().astype(np.int64), count + array.offset)
        lengths = np.diff(ends, prepend=0)
        return _repeated(array.values, kind, count, lambda sizes: int(sizes @ lengths))
    if types.is_struct(source) and types.is_struct(kind):
        total = count
        for n in range(kind.num_fields):
            field = kind.field(n)
            at = source.get_field_index(field.name)
            inner = array.field(at) if at >= 0 else None
            total += count * width(field.type) if inner is None else _of(inner, field.type)
        return total
    if types.is_map(source) and types.is_map(kind):
        inner = _of(array.keys, kind.key_type) + _of(array.items, kind.item_type)
        return count * width(kind) + inner
    if is_list(source) and types.is_list(kind):
        if types.is_list_view(source) or types.is_large_list_view(source):
            items = int(kernels.sum(kernels.list_value_length(array)).as_py() or 0)
            if items > len(array.values):
                raise ValueError("items of lists overlap")
        return count * width(kind) + _of(array.values, kind.value_type)
    if types.is_nested(source):
        # It can't be converted.
        return 0
    return count * width(kind) + (int(_lengths(array).sum()) if _is_text(source) else 0)


_of = converted_bytes


def is_list(kind: DataType) -> bool:
    """Whether a type is a list of any layout."""
    types = pa.types
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _repeated(values: Array, kind: DataType, count: int, total: Any) -> int:
    """Bytes of ``count`` rows that repeat ``values``; ``total`` adds up the sizes of texts."""
    if _is_text(values.type):
        return count * width(kind) + int(total(_lengths(values)))
    if is_bounded(values.type) or pa.types.is_null(values.type):
        return count * width(kind)
    # Of other values the size of each is not known.
    return count * (width(kind) + _of(values, kind))


def _taken(sizes: Ints, chosen: Array) -> int:
    return int(sizes[chosen.to_numpy(zero_copy_only=False)].sum()) if len(chosen) else 0


def _is_text(kind: DataType) -> bool:
    types = pa.types
    return (
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


def _lengths(array: Array) -> Ints:
    """int64[n], octets of each text; 0 for null."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        # A view is its length and twelve more octets.
        views = np.frombuffer(array.buffers()[1], np.int32)[::4]
        lengths = views[array.offset : array.offset + len(array)].astype(np.int64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    octets = kernels.fill_null(kernels.binary_length(array), 0)
    return np.asarray(octets.to_numpy(zero_copy_only=False), np.int64)
