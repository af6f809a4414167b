"""Few rows as lists of values, for which Arrow's arrays cost more to make than to process.

``FewRows`` has the methods of a record batch that those who process few rows call, and makes arrays
when one of them needs some.  ``values_of`` and ``as_batch`` take a record batch as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_nats.arrow import Array

    #: Few rows are passed as a record batch; see ``FewRows``.
    _Batch = pa.RecordBatch
else:
    _Batch = object


class FewRows(_Batch):
    """Rows of a schema; not changed once they are made.

    To the type checker it is a record batch: it stands for one where only these methods are called,
    and no function of Arrow gets it.
    """

    __slots__ = ("_arrays", "lists", "num_rows", "schema")

    def __init__(
        self, schema: pa.Schema, lists: Mapping[str, list[Any]], num_rows: int | None = None
    ) -> None:
        """From the values of each column.

        Args:
            schema: of the rows.
            lists: by column, in the order of the schema, n values as ``to_pylist`` gives them.
            num_rows: n, if it is known.
        """
        self.schema = schema  # type: ignore[misc]
        self.lists = lists
        self.num_rows = len(next(iter(lists.values()))) if num_rows is None else num_rows  # type: ignore[misc]
        self._arrays: dict[str, Array] = {}

    def column(self, which: str | int) -> Array:
        """A column by name or number, as an array."""
        name = which if isinstance(which, str) else [*self.lists][which]
        array = self._arrays.get(name)
        if array is None:
            array = pa.array(self.lists[name], self.schema.field(name).type)
            self._arrays[name] = array
        return array

    @property
    def columns(self) -> list[Array]:
        """All columns, as arrays."""
        return [self.column(name) for name in self.lists]

    def select(self, names: Sequence[str]) -> FewRows:  # type: ignore[override]
        """Some of the columns."""
        if list(self.lists) == list(names):
            return self
        schema = pa.schema([self.schema.field(name) for name in names])
        return FewRows(schema, {name: self.lists[name] for name in names}, self.num_rows)

    def take(self, rows: Any) -> FewRows:
        """The rows with these numbers, an array of NumPy or Arrow."""
        at = rows.tolist()
        taken = {name: [values[n] for n in at] for name, values in self.lists.items()}
        return FewRows(self.schema, taken, len(at))

    def filter(self, mask: Array) -> FewRows:  # type: ignore[override]
        """The rows where a mask without nulls is true."""
        return self.take(np.flatnonzero(mask))

    def slice(self, offset: int = 0, length: int | None = None) -> FewRows:
        """The rows from number ``offset`` on, at most ``length``."""
        end = self.num_rows if length is None else min(self.num_rows, offset + length)
        if not offset and end == self.num_rows:
            return self
        some = {name: values[offset:end] for name, values in self.lists.items()}
        return FewRows(self.schema, some, max(0, end - offset))

    def whole(self) -> pa.RecordBatch:
        """The rows as a record batch."""
        return pa.RecordBatch.from_arrays(self.columns, schema=self.schema)


def as_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of either form as a record batch."""
    return rows.whole() if isinstance(rows, FewRows) else rows


def values_of(rows: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column."""
    return rows.lists[name] if isinstance(rows, FewRows) else rows.column(name).to_pylist()


def first_of(rows: pa.RecordBatch, name: str) -> Any:
    """The first value of a column that has one."""
    return rows.lists[name][0] if isinstance(rows, FewRows) else rows.column(name)[0].as_py()


def last_of(rows: pa.RecordBatch, name: str) -> Any:
    """The last value of a column that has one."""
    return rows.lists[name][-1] if isinstance(rows, FewRows) else rows.column(name)[-1].as_py()


def joined(parts: Sequence[FewRows]) -> FewRows:
    """Rows of one schema together; there is at least one part."""
    first = parts[0]
    lists = {name: [value for part in parts for value in part.lists[name]] for name in first.lists}
    return FewRows(first.schema, lists)


def batches_of(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Parts of one schema as record batches; neighbours that are few rows become one."""
    batches: list[pa.RecordBatch] = []
    few: list[FewRows] = []
    for part in (*parts, None):
        if isinstance(part, FewRows):
            few.append(part)
            continue
        if few:
            batches.append(joined(few).whole())
            few = []
        if part is not None:
            batches.append(part)
    return batches
