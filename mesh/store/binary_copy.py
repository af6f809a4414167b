r"""Rows in PostgreSQL's binary format of COPY, encoded by column.

    header    "PGCOPY\n\xff\r\n\0", flags, length of the extension: 19 bytes
    row       int16 number of fields, then of each field int32 length (-1: null) and its bytes
    end       int16 -1

Numbers are big-endian.  The format is in PostgreSQL's documentation of COPY, "Binary Format".  The
driver encodes it value by value; here each column is an array of the bytes of its fields, and Arrow
joins these row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
#: Rows of a piece.
_ROWS: Final = 10_000
#: Bytes of a length.
_LENGTH: Final = 4
#: By the database's type: the representation of a value of fixed length.
_FIXED: Final = {
    "bool": ">u1",
    "int2": ">i2",
    "int4": ">i4",
    "int8": ">i8",
    "float4": ">f4",
    "float8": ">f8",
}


def encoded(rows: pa.RecordBatch, types: Sequence[str]) -> Iterator[bytes]:
    """Rows as the data of ``COPY .. FROM STDIN (FORMAT BINARY)``, in pieces.

    Args:
        rows: any number of rows.
        types: the database's type of each column: ``text``, ``bytea``, or one of fixed length.
    """
    yield _HEADER
    for first in range(0, rows.num_rows, _ROWS):
        yield _piece(rows.slice(first, _ROWS), types)
    yield _END


def _piece(rows: pa.RecordBatch, types: Sequence[str]) -> bytes:
    number = np.full(rows.num_rows, rows.num_columns, ">i2")
    parts = [_binary(_bytes_of(number))]
    for column, type_ in zip(rows.columns, types, strict=True):
        parts += _fixed(column, _FIXED[type_]) if type_ in _FIXED else _text(column)
    whole = kernels.binary_join_element_wise(*parts, b"")
    size = int(kernels.sum(kernels.binary_length(whole)).as_py())
    data: pa.Buffer = whole.buffers()[2]
    return data.slice(0, size).to_pybytes()


def _fixed(column: ArrowArray, kind: str) -> Iterator[ArrowArray]:
    """The fields of a column of values of one length."""
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = filled.to_numpy(zero_copy_only=False).astype(kind)
    lengths = np.full(len(column), values.dtype.itemsize, ">i4")
    fields = np.concatenate([_bytes_of(lengths), _bytes_of(values)], axis=1)
    if not column.null_count:
        yield _binary(fields)
        return
    nulls = _nulls(column)
    fields[nulls, :_LENGTH] = 255
    sizes = np.where(nulls, _LENGTH, fields.shape[1])
    mask = np.arange(fields.shape[1]) < sizes[:, None]
    yield _binary(fields[mask], np.concatenate([[0], np.cumsum(sizes)]))


def _text(column: ArrowArray) -> Iterator[ArrowArray]:
    """The lengths and the contents of a column of strings, in UTF-8, or of bytes."""
    lengths = kernels.binary_length(column).fill_null(-1).to_numpy().astype(">i4")
    yield _binary(_bytes_of(lengths))
    yield kernels.fill_null(column.cast(pa.binary()), b"")


def _binary(fields: NDArray[np.uint8], offsets: NDArray[Any] | None = None) -> ArrowArray:
    """An array of bytes: ``fields`` row by row, or cut at ``offsets``."""
    if offsets is None:
        offsets = np.arange(len(fields) + 1) * fields.shape[1]
    cuts, data = (pa.py_buffer(one.tobytes()) for one in (offsets.astype(np.int32), fields))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, cuts, data])


def _nulls(column: ArrowArray) -> NDArray[np.bool_]:
    return column.is_null().to_numpy(zero_copy_only=False)


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values as uint8[n, bytes of one]."""
    return values.view(np.uint8).reshape(len(values), values.dtype.itemsize)
