"""Nulls inside of values where the schema of a read has none.

A column's own nulls are found where its events are read.  Spark's fields, elements and values of a
map may be NOT NULL as well; it would read a null there as a value, such as 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.result import Ints


def is_strict(kind: DataType) -> bool:
    """Whether a value of the type has parts that can't be null, other than the keys of maps."""
    return any(not part.nullable or is_strict(part.type) for _, part in _parts(kind))


def nulls_inside(name: str, column: Array) -> Iterator[tuple[Ints, str]]:
    """The rows of a column with a null where its type has none, and the path of the place.

    Rows may repeat.  A null of the column itself is none, nor is one inside of a null.
    """
    yield from _nulls(name, column, np.arange(len(column), dtype=np.int64))


def _nulls(path: str, values: Array, rows: Ints) -> Iterator[tuple[Ints, str]]:
    if not len(values) or not is_strict(values.type):
        return
    if values.null_count:
        is_there = kernels.is_valid(values)
        values, rows = values.filter(is_there), rows[_mask(is_there)]
    for step, part in _parts(values.type):
        inner, origin = _inside(values, step, rows)
        if not part.nullable and inner.null_count:
            yield origin[_mask(kernels.is_null(inner))], path + step
        yield from _nulls(path + step, inner, origin)


def _parts(kind: DataType) -> Iterator[tuple[str, pa.Field[Any]]]:
    """The parts of a nested type, each with its step in a path."""
    if pa.types.is_map(kind):
        yield ".*", kind.item_field
    elif pa.types.is_list(kind):
        yield "[]", kind.value_field
    elif pa.types.is_struct(kind):
        for field in kind.fields:
            yield f".{field.name}", field


def _inside(values: Array, step: str, rows: Ints) -> tuple[Array, Ints]:
    """A part of all values, none of which is null, and the row of each."""
    if pa.types.is_struct(values.type):
        return kernels.struct_field(values, step[1:]), rows
    offsets = values.offsets.to_numpy()
    whole = values.items if pa.types.is_map(values.type) else values.values
    return whole.slice(offsets[0], offsets[-1] - offsets[0]), np.repeat(rows, np.diff(offsets))


def _mask(column: Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask
