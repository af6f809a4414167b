"""Rows that no database takes, by the columns of their table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute

from mesh.model.stored import Merge
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    import pyarrow as pa

    from mesh.model.stored import StoredTable

#: The stubs have a dozen overloads for each function of Arrow, and reject most valid calls.
_compute: Any = pyarrow.compute


def refused(rows: pa.RecordBatch, table: StoredTable) -> dict[int, str]:
    """By row, why no database takes it: a text is too long, or has a character of code 0.

    Args:
        rows: of the table, all of its columns or some.
        table: with the lengths; without a time, its keys may not be null.
    """
    found: dict[int, str] = {}
    for column in table.columns:
        if column.name not in rows.schema.names:
            continue
        values = rows.column(column.name)
        # Keys without a value are only those of groups.
        if column.merge is Merge.KEY and not table.time:
            for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                found.setdefault(row, f'"{column.name}" of the primary key is null')
        if column.type is not AttributeType.STRING:
            continue
        lengths = _compute.fill_null(_compute.utf8_length(values), 0).to_numpy()
        for row in np.flatnonzero(lengths > column.length).tolist():
            length = int(lengths[row])
            found.setdefault(
                row,
                f'"{column.name}" has {length} characters, and the column of table '
                f'"{table.name}" {column.length} (field.length)',
            )
        zero = _compute.fill_null(_compute.match_substring(values, "\0"), False)
        for row in np.flatnonzero(zero.to_numpy(zero_copy_only=False)).tolist():
            found.setdefault(row, f'"{column.name}" has a character of code 0')
    return found
