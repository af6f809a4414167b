"""A table in a database: kept in the state like any other, with its changes as output.

Its queries read the state alone, so a replay finds the rows that it found before.  Each event's
changes leave as rows: a row as it is after the event, or the key of one that is gone.  Which rows
leave is a function of the events, however they are cut into batches.  A row that no database takes
is refused, so the state has what the database has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_arrow
from mesh.model.stored import (
    DELETED,
    ROW_NUMBER,
    Merge,
    StoredColumn,
    StoredTable,
    StoreTarget,
    changes_channel,
    changes_schema,
)
from mesh.model.stored import STRING_LENGTH as _LENGTH
from mesh.model.stored_limits import refused as refused_rows
from mesh.model.types import AttributeType
from mesh.operators.base import concat
from mesh.operators.tables.app_table import AppTable
from mesh.plan.annotations import index_lists
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.stored import StoreOptions
    from mesh.operators.base import Longs
    from mesh.operators.environment import Environment
    from mesh.plan.bound import BoundApp, BoundTable


class WrittenTable(AppTable):
    """The rows of a table in a store, and its changes since the last ``take_changes``."""

    def __init__(
        self, definition: BoundTable, environment: Environment, options: StoreOptions
    ) -> None:
        super().__init__(definition, environment)
        self.stored = stored_form(definition, options)
        is_repeated = not options.is_kept and options.cache is None
        self.target = StoreTarget(
            options, (self.stored,), is_kept=options.is_kept, is_repeated=is_repeated
        )
        #: The row of the events that is being applied; None if all of them are at once.
        self.cause: int | None = None
        self._changes_made: list[tuple[Longs, pa.RecordBatch]] = []

    @property
    def channel(self) -> str:
        """The channel of its changes."""
        return changes_channel(self.stored.name)

    def take_changes(self) -> tuple[Longs, pa.RecordBatch] | None:
        """The changes in order, each with the row of the events that caused it; None for none."""
        taken, self._changes_made = self._changes_made, []
        if not taken:
            return None
        causes = np.concatenate([cause for cause, _ in taken])
        return causes, concat([rows for _, rows in taken])

    def fill(self, rows: pa.RecordBatch) -> None:
        """Add the rows of the database, before any event."""
        columns = zip(self._columns.values(), rows.select(list(self._columns)).columns, strict=True)
        super().add([from_arrow(array, column.type) for column, array in columns], rows.num_rows)

    def add(self, vectors: Sequence[Vector], count: int) -> dict[int, str]:
        """See ``Table``."""
        rows = self._given_rows(dict(zip(self._columns, vectors, strict=True)), count)
        refused = refused_rows(rows, self.stored)
        given = np.setdiff1d(np.arange(count), list(refused))
        if refused:
            vectors = [vector.spread(count).take(given) for vector in vectors]
        first = self._given
        found = super().add(vectors, len(given))
        refused |= {int(given[row]): reason for row, reason in found.items()}
        taken = np.setdiff1d(given, list(refused)) if found else given
        slots = first + np.searchsorted(given, taken)
        self._note(rows.take(pa.array(taken, pa.int64())) if refused else rows, slots, taken)
        return refused

    def remove(self, slots: Longs) -> None:
        """See ``Table``."""
        self._note(self.take(slots), slots, is_gone=True)
        super().remove(slots)

    def put(self, vectors: Sequence[Vector]) -> str | None:
        """See ``Table``."""
        rows = self._given_rows(dict(zip(self._columns, vectors, strict=True)), 1)
        return refused_rows(rows, self.stored).get(0) or super().put(vectors)

    def put_all(self, vectors: Sequence[Vector], count: int) -> bool:
        """See ``Table``."""
        rows = self._given_rows(dict(zip(self._columns, vectors, strict=True)), count)
        if refused_rows(rows, self.stored) or not super().put_all(vectors, count):
            return False
        # Only a table with a primary key has rows that are put.
        self._note(rows, np.zeros(0, dtype=np.int64), np.arange(count))
        return True

    def change(self, slots: Longs, values: Mapping[str, Vector]) -> str | None:
        """See ``Table``."""
        reasons = refused_rows(self._given_rows(values, len(slots)), self.stored)
        return next(iter(reasons.values()), None) or super().change(slots, values)

    def _move(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        self._note(self.take(slots), slots, is_gone=True)
        first = self._given
        super()._move(slots, values)
        moved = np.arange(first, self._given)
        self._note(self.take(moved), moved)

    def _set(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        super()._set(slots, values)
        self._note(self.take(slots), slots)

    def _given_rows(self, values: Mapping[str, Vector], count: int) -> pa.RecordBatch:
        """Values of attributes, one for each row or the same for all, as rows."""
        schema = pa.schema([self.schema.arrow.field(name) for name in values])
        arrays = [
            vector.spread(count).to_arrow(count).cast(type, safe=False)
            for vector, type in zip(values.values(), schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _with_numbers(self, rows: pa.RecordBatch, slots: Longs) -> pa.RecordBatch:
        """Rows with all columns of the stored table; ``slots``: where they are."""
        return rows

    def _note(
        self,
        rows: pa.RecordBatch,
        slots: Longs,
        causes: Longs | None = None,
        *,
        is_gone: bool = False,
    ) -> None:
        if not rows.num_rows:
            return
        rows = self._with_numbers(rows, slots)
        if self.cause is not None or causes is None:
            causes = np.full(rows.num_rows, self.cause or 0, dtype=np.int64)
        flags = pa.array([is_gone] * rows.num_rows, pa.bool_())
        marked = pa.RecordBatch.from_arrays(
            [*rows.columns, flags], schema=rows.schema.append(pa.field(DELETED, pa.bool_()))
        )
        in_order = marked.select([column.name for column in self.stored.columns] + [DELETED])
        self._changes_made.append((causes, in_order.cast(changes_schema(self.stored))))


def stored_form(definition: BoundTable, options: StoreOptions) -> StoredTable:
    """The table as the database has it: its columns in their order.

    Without a primary key the number of each row is the first.
    """
    columns = tuple(
        StoredColumn(
            attribute.name,
            attribute.type,
            Merge.KEY if attribute.name in definition.primary_key else Merge.LATEST,
            options.lengths.get(attribute.name, _LENGTH),
        )
        for attribute in definition.schema.attributes
    )
    if not definition.primary_key:
        columns = (StoredColumn(ROW_NUMBER, AttributeType.LONG, Merge.KEY), *columns)
    name = options.table_name or definition.schema.name
    return StoredTable(name, columns, indexes=index_lists(definition.annotations))


def change_channels(app: BoundApp, tables: Iterable[str] | None = None) -> tuple[str, ...]:
    """The channels of the changes of an app's tables in stores, or of some of them."""
    found = []
    for table in app.tables:
        options = stored_table_of(table)
        if options is not None and (tables is None or table.schema.name in tables):
            found.append(changes_channel(stored_form(table, options).name))
    return tuple(found)
