"""Sets of an aggregation in a database: a table for each set of a duration, a row for each value.

Columns: the start of the bucket, with several meshes ``SHARD_ID``, the group-by attributes, and the
value.  All of them are the key, so writing a value that is there already changes nothing, and the
rows of several meshes together are the union of their sets.  ``AGG_KIND`` tells values that a key
can't have, or not in every database, from others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions.vectors import from_arrow
from mesh.model.stored import NULL_KEYS, STRING_LENGTH, MergeRule, StoredColumn, StoredTable
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.functions.vectors import Vector

VALUE: Final = "AGG_VALUE"
KIND: Final = "AGG_KIND"
_NULL: Final = 1
#: By ``AGG_KIND`` the number that a value is; 0 is that of the column itself.
_NUMBERS: Final = np.array([0.0, 0.0, np.nan, np.inf, -np.inf, -0.0])


def set_name(table: str, attribute: str) -> str:
    """The name of the table with the values of an attribute, beside the table of a duration."""
    return f"{table}_SET_{attribute}"


def set_table(
    table: StoredTable, attribute: str, type: AttributeType, lengths: Mapping[str, int]
) -> StoredTable:
    """The table with the values of an attribute.

    Args:
        table: that of the duration.
        attribute: its name.
        type: of the values.
        lengths: by attribute the most characters of its strings, if not the default.
    """
    first = next(column for column in table.keys if column.name == table.time)
    # One time is enough: the one that rows are looked up and purged by.
    others = (column for column in table.keys[1:] if column is not first)
    length = lengths.get(attribute, STRING_LENGTH)
    extra = (
        StoredColumn(VALUE, type, MergeRule.KEY, length),
        StoredColumn(KIND, AttributeType.INT, MergeRule.KEY),
    )
    return StoredTable(set_name(table.name, attribute), (first, *others, *extra), table.time)


def written(values: Vector, count: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Values as the columns ``AGG_VALUE`` and ``AGG_KIND``."""
    array = values.to_arrow(count)
    kinds = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, 0)
    if values.type is AttributeType.STRING:
        return array.fill_null(""), pa.array(kinds, pa.int32())
    numbers: Any = array.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        is_negative = np.signbit(numbers)
        kinds[np.isnan(numbers)] = 2
        kinds[np.isinf(numbers)] = 3
        kinds[np.isinf(numbers) & is_negative] = 4
        kinds[(numbers == 0) & is_negative] = 5
        numbers = np.where(kinds > 0, 0, numbers)
    return pa.array(numbers, array.type), pa.array(kinds, pa.int32())


def read(rows: pa.RecordBatch, type: AttributeType) -> Vector:
    """The values of rows of a set's table: see ``written``."""
    array, kinds = rows.column(VALUE), rows.column(KIND).to_numpy()
    is_null = kinds == _NULL
    if type is AttributeType.STRING:
        compute: Any = pc
        return from_arrow(compute.if_else(pa.array(is_null), None, array), type)
    # The lowest number of a key is read as null.
    numbers: Any = array.fill_null(NULL_KEYS[type]).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = np.where(kinds > _NULL, _NUMBERS[kinds], numbers).astype(numbers.dtype)
    return from_arrow(pa.array(numbers, type.arrow, mask=is_null), type)
