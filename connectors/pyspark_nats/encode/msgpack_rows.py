"""Encoder of rows as MessagePack maps, one for each row; flat columns need no loop over the values.

A map is its head and then key, value, key, value.  Keys are equal in every row, and a number is a
type byte and its bytes in network order; so a row is a join of columns of bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.encode import iso_texts, plain_value

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array

_NIL = b"\xc0"


def to_msgpack(rows: pa.RecordBatch) -> Array:
    """One MessagePack map for each row.

    Args:
        rows: n rows, without columns of durations and intervals.

    Returns:
        Length n, binary.  Null is nil; integers are int64, doubles float64 and floats float32;
        times, dates and decimals are text, as in JSON; binary is bin.
    """
    head = msgpack.Packer().pack_map_header(rows.num_columns)
    pieces: list[Array] = [pa.scalar(head, pa.binary())]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        pieces += [pa.scalar(msgpack.packb(name), pa.binary()), _values(column)]
    if rows.num_columns == 0:
        return pa.array([head] * rows.num_rows, pa.binary())
    return kernels.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def array_head(count: int) -> bytes:
    """The head of an array."""
    return bytes(msgpack.Packer().pack_array_header(count))


def _values(column: Array) -> Array:
    """The values as MessagePack; no nulls."""
    kind = column.type
    types = pa.types
    if types.is_nested(kind):
        plain = plain_value(kind, binary=bytes, decimal=str)
        return pa.array([msgpack.packb(plain(v)) for v in column.to_pylist()], pa.binary())
    if types.is_null(kind):
        return pa.array([_NIL] * len(column), pa.binary())
    if types.is_boolean(kind):
        packed = kernels.if_else(column, b"\xc3", b"\xc2")
    elif types.is_integer(kind):
        packed = _numbers(0xD3, ">i8", column.cast(pa.int64()))
    elif types.is_floating(kind):
        packed = (
            _numbers(0xCA, ">f4", column)
            if types.is_float32(kind)
            else _numbers(0xCB, ">f8", column.cast(pa.float64()))
        )
    elif types.is_binary(kind) or types.is_large_binary(kind):
        packed = _with_length(column.cast(pa.binary()), is_text=False)
    else:
        texts = iso_texts(column) if types.is_temporal(kind) else column.cast(pa.string())
        packed = _with_length(texts.cast(pa.binary()), is_text=True)
    return kernels.fill_null(packed, _NIL)


def _numbers(tag: int, form: str, column: Array) -> Array:
    """A type byte and the number's bytes."""
    filled = kernels.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(form)
    octets = np.empty((len(filled), 1 + filled.dtype.itemsize), np.uint8)
    octets[:, 0] = tag
    octets[:, 1:] = filled.view(np.uint8).reshape(len(filled), -1)
    return _masked(_fixed(octets), column)


def _fixed(octets: npt.NDArray[np.uint8]) -> Array:
    """The rows of a matrix of bytes as binary values."""
    width = octets.shape[1]
    bounds = np.arange(0, octets.size + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(octets), [None, pa.py_buffer(bounds.data), pa.py_buffer(octets.data)]
    )


def _masked(packed: Array, column: Array) -> Array:
    if not column.null_count:
        return packed
    return kernels.if_else(column.is_valid(), packed, pa.scalar(None, pa.binary()))


def _with_length(values: Array, *, is_text: bool) -> Array:
    """Texts or bytes, each after a head with its length; null stays null."""
    lengths = kernels.fill_null(kernels.binary_length(values), 0)
    unique = kernels.unique(lengths)
    heads = pa.array([_head(n, is_text=is_text) for n in unique.to_pylist()], pa.binary())
    lead = heads.take(kernels.index_in(lengths, value_set=unique))
    return kernels.binary_join_element_wise(lead, values, pa.scalar(b"", pa.binary()))


def _head(length: int, *, is_text: bool) -> bytes:
    """A type byte and a length, in the shortest form."""
    if is_text and length < 32:
        return bytes([0xA0 | length])
    tags = b"\xd9\xda\xdb" if is_text else b"\xc4\xc5\xc6"
    for tag, width in zip(tags, (1, 2, 4), strict=True):
        if length < 1 << (8 * width):
            return bytes([tag]) + length.to_bytes(width)
    raise ValueError(f"{length} bytes are more than MessagePack can say")
