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

from mesh.errors import MeshError
from mesh.functions.vectors import from_arrow
from mesh.model.stored import (
    DELETED,
    ROW_NUMBER,
    UNFIT,
    MergeRule,
    StoredColumn,
    StoredTable,
    StoreTarget,
    changes_channel,
    changes_schema,
)
from mesh.model.stored import STRING_LENGTH as _LENGTH
from mesh.model.stored_limits import formed as formed_rows
from mesh.model.stored_limits import has_forms
from mesh.model.stored_limits import refused as refused_rows
from mesh.model.types import AttributeType
from mesh.operators.base import State, concat
from mesh.operators.tables.app_table import AppTable
from mesh.operators.tables.conditions import Condition
from mesh.operators.tables.store import SLOT
from mesh.plan.annotations import index_lists
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.stored import StoreOptions
    from mesh.operators.base import Longs
    from mesh.operators.expressions import Environment, Frame
    from mesh.operators.tables.order import Key
    from mesh.plan.bound import BoundApp, BoundExpression, BoundTable


class WrittenTable(AppTable):
    """The rows of a table in a store, and its changes since the last ``take_changes``."""

    def __init__(
        self, definition: BoundTable, environment: Environment, options: StoreOptions
    ) -> None:
        super().__init__(definition, environment)
        self.stored = stored_form(definition, options)
        is_repeated = not options.is_in_state and options.cache is None
        self.target = StoreTarget(
            options, (self.stored,), is_in_state=options.is_in_state, is_repeated=is_repeated
        )
        #: By primary key, rows of the database with a value that its attribute can't have.
        self._unfit: dict[Key, str] = {}
        #: The row of the events that is being applied; None if all of them are at once.
        self.cause: int | None = None
        self._change_log: list[tuple[Longs, pa.RecordBatch]] = []

    @property
    def channel(self) -> str:
        """The channel of its changes."""
        return changes_channel(self.stored.name)

    def take_changes(self) -> tuple[Longs, pa.RecordBatch] | None:
        """The changes in order, each with the row of the events that caused it; None for none."""
        taken, self._change_log = self._change_log, []
        if not taken:
            return None
        causes = np.concatenate([cause for cause, _ in taken])
        return causes, concat([rows for _, rows in taken])

    def fill(self, rows: pa.RecordBatch) -> None:
        """Add the rows of the database, before any event."""
        columns = zip(self._columns.values(), rows.select(list(self._columns)).columns, strict=True)
        super().add([from_arrow(array, column.type) for column, array in columns], rows.num_rows)
        self.note_unfit(rows)

    def note_unfit(self, rows: pa.RecordBatch) -> None:
        """Note which rows that were read have a value that is null here, and why."""
        if UNFIT not in rows.schema.names:
            return
        keys = zip(*(rows.column(name).to_pylist() for name in self.primary_key), strict=True)
        for key, reason in zip(keys, rows.column(UNFIT).to_pylist(), strict=True):
            if reason is not None:
                self._unfit[key if len(key) > 1 else key[0]] = reason

    def check_fit(self, frame: Frame, rows: Longs, slots: Longs) -> None:
        """Fail each row of a frame that has found a row with a value that is null here."""
        if not self._unfit:
            return
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            reason = self._unfit.get(self._key_at(slot))
            if reason is not None:
                frame.failures.setdefault(row, reason)

    def condition(self, on: BoundExpression | None) -> Condition:
        """See ``AppTable.condition``."""
        return WrittenCondition(on, self)

    def rows(self) -> pa.RecordBatch:
        """See ``Table``.

        Raises:
            MeshError: MESH-S147, a row has a value that its attribute can't have.
        """
        if self._unfit:
            raise MeshError(
                "MESH-S147",
                f'table "{self.schema.name}" has rows with values that its attributes can\'t have',
                detail=f"{next(iter(self._unfit.values()))}.",
                hint="Change these rows in the database, or the type of the attribute.",
            )
        return super().rows()

    def snapshot(self) -> State:
        """See ``Table``."""
        state = super().snapshot()
        if not self._unfit:
            return state
        unfit = [
            [list(key) if isinstance(key, tuple) else [key], reason]
            for key, reason in self._unfit.items()
        ]
        return State(state.pieces, {**state.scalars, "unfit": unfit})

    def restore(self, state: State) -> None:
        """See ``Table``."""
        super().restore(state)
        scalars = state.scalars
        for key, reason in scalars.get("unfit", ()):
            self._unfit[tuple(key) if len(key) > 1 else key[0]] = reason

    def _leave(self, slot: int) -> None:
        if self._unfit:
            self._unfit.pop(self._key_at(slot), None)
        super()._leave(slot)

    def add(self, vectors: Sequence[Vector], count: int) -> dict[int, str]:
        """See ``Table``."""
        vectors = self.formed(vectors, count)
        rows = self._as_rows(dict(zip(self._columns, vectors, strict=True)), count)
        refused = refused_rows(rows, self.stored)
        accepted = np.setdiff1d(np.arange(count), list(refused))
        if refused:
            vectors = [vector.spread(count).take(accepted) for vector in vectors]
        first = self._slot_count
        rejections = super().add(vectors, len(accepted))
        refused |= {int(accepted[row]): reason for row, reason in rejections.items()}
        taken = np.setdiff1d(accepted, list(refused)) if rejections else accepted
        slots = first + np.searchsorted(accepted, taken)
        self._note(rows.take(pa.array(taken, pa.int64())) if refused else rows, slots, taken)
        return refused

    def formed(
        self, vectors: Sequence[Vector], count: int, names: tuple[str, ...] = ()
    ) -> Sequence[Vector]:
        """Values of attributes as the columns have them, where their texts may be others.

        ``names``: of the attributes; without it, all.
        """
        if not has_forms(self.stored):
            return vectors
        named = dict(zip(names or tuple(self._columns), vectors, strict=True))
        rows = formed_rows(self._as_rows(named, count), self.stored)
        is_text = {n: self._columns[n].type is AttributeType.STRING for n in named}
        return [
            from_arrow(rows.column(name), self._columns[name].type) if is_text[name] else vector
            for name, vector in named.items()
        ]

    def remove(self, slots: Longs) -> None:
        """See ``Table``."""
        self._note(self.take(slots), slots, is_gone=True)
        super().remove(slots)

    def put(self, vectors: Sequence[Vector]) -> str | None:
        """See ``Table``."""
        vectors = self.formed(vectors, 1)
        rows = self._as_rows(dict(zip(self._columns, vectors, strict=True)), 1)
        reason = refused_rows(rows, self.stored).get(0) or super().put(vectors)
        if reason is None:
            self._forget_unfit(rows)
        return reason

    def put_all(self, vectors: Sequence[Vector], count: int) -> bool:
        """See ``Table``."""
        vectors = self.formed(vectors, count)
        rows = self._as_rows(dict(zip(self._columns, vectors, strict=True)), count)
        if refused_rows(rows, self.stored) or not super().put_all(vectors, count):
            return False
        self._forget_unfit(rows)
        # Only a table with a primary key has rows that are put.
        self._note(rows, np.zeros(0, dtype=np.int64), np.arange(count))
        return True

    def change(self, slots: Longs, values: Mapping[str, Vector]) -> str | None:
        """See ``Table``."""
        if len(slots) and has_forms(self.stored):
            formed = self.formed(list(values.values()), len(slots), tuple(values))
            values = dict(zip(values, formed, strict=True))
        reasons = refused_rows(self._as_rows(values, len(slots)), self.stored)
        return next(iter(reasons.values()), None) or super().change(slots, values)

    def _forget_unfit(self, rows: pa.RecordBatch) -> None:
        """Forget what is written over."""
        if self._unfit:
            keys = zip(*(rows.column(name).to_pylist() for name in self.primary_key), strict=True)
            for key in keys:
                self._unfit.pop(key if len(key) > 1 else key[0], None)

    def _move(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        self._note(self.take(slots), slots, is_gone=True)
        first = self._slot_count
        super()._move(slots, values)
        moved = np.arange(first, self._slot_count)
        self._note(self.take(moved), moved)

    def _set(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        super()._set(slots, values)
        self._note(self.take(slots), slots)

    def _as_rows(self, values: Mapping[str, Vector], count: int) -> pa.RecordBatch:
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
        if self.cause is not None or causes is None:
            causes = np.full(rows.num_rows, self.cause or 0, dtype=np.int64)
        self._change_log.append((causes, self._as_changes(rows, slots, is_gone=is_gone)))

    def written_again(self) -> pa.RecordBatch:
        """All rows, as changes that make them."""
        slots = np.flatnonzero(self._flags[: self._slot_count])
        return self._as_changes(self.take(slots), slots)

    def _as_changes(
        self, rows: pa.RecordBatch, slots: Longs, *, is_gone: bool = False
    ) -> pa.RecordBatch:
        rows = self._with_numbers(rows, slots)
        flags = pa.array([is_gone] * rows.num_rows, pa.bool_())
        marked = pa.RecordBatch.from_arrays(
            [*rows.columns, flags], schema=rows.schema.append(pa.field(DELETED, pa.bool_()))
        )
        in_order = marked.select([column.name for column in self.stored.columns] + [DELETED])
        return in_order.cast(changes_schema(self.stored))


class NumberedTable(WrittenTable):
    """One without a primary key: its rows have numbers, by which they are written.

    A row keeps the number with which it was added, and none is given twice, so the database has as
    many equal rows as the state.
    """

    def __init__(
        self, definition: BoundTable, environment: Environment, options: StoreOptions
    ) -> None:
        super().__init__(definition, environment, options)
        #: By slot, and the number of the next row.
        self._numbers: Longs = np.zeros(0, dtype=np.int64)
        self._next = 0

    def fill(self, rows: pa.RecordBatch) -> None:
        """See ``WrittenTable``."""
        rows = rows.sort_by(ROW_NUMBER)
        first = self._slot_count
        super().fill(rows)
        numbers = rows.column(ROW_NUMBER).to_numpy()
        self._numbers[first:] = numbers
        self._next = max(self._next, int(numbers.max(initial=-1)) + 1)

    def _give(self, count: int) -> None:
        super()._give(count)
        self._numbers = np.concatenate([self._numbers, self._next + np.arange(count)])
        self._next += count

    def _pack(self) -> None:
        live, slot_count = self.slots(), self._slot_count
        super()._pack()
        if self._slot_count < slot_count:
            self._numbers = self._numbers[live]

    def _with_numbers(self, rows: pa.RecordBatch, slots: Longs) -> pa.RecordBatch:
        return rows.append_column(ROW_NUMBER, pa.array(self._numbers[slots]))

    def snapshot(self) -> State:
        """See ``Table``."""
        state = super().snapshot()
        pieces = {
            name: self._with_numbers(rows, rows.column(SLOT).to_numpy())
            for name, rows in state.pieces.items()
        }
        return State(pieces, {**state.scalars, "next": self._next})

    def restore(self, state: State) -> None:
        """See ``Table``."""
        super().restore(state)
        scalars = state.scalars
        self._numbers = np.zeros(self._slot_count, dtype=np.int64)
        for rows in state.pieces.values():
            self._numbers[rows.column(SLOT).to_numpy()] = rows.column(ROW_NUMBER).to_numpy()
        self._next = scalars["next"]


class WrittenCondition(Condition):
    """A condition that fails for an event that finds a row with a value that is null here."""

    def __init__(self, on: BoundExpression | None, table: WrittenTable) -> None:
        super().__init__(on, table)
        self._written = table

    def find(self, frame: Frame, row: int) -> Longs:
        """See ``Condition.find``."""
        slots = super().find(frame, row)
        self._written.check_fit(frame, np.full(len(slots), row), slots)
        return slots

    def pairs(self, frame: Frame) -> tuple[Longs, Longs]:
        """See ``Condition.pairs``."""
        rows, slots = super().pairs(frame)
        self._written.check_fit(frame, rows, slots)
        return rows, slots


def stored_form(definition: BoundTable, options: StoreOptions) -> StoredTable:
    """The table as the database has it: its columns in their order.

    Without a primary key the number of each row is the first.
    """
    columns = tuple(
        StoredColumn(
            attribute.name,
            attribute.type,
            MergeRule.KEY if attribute.name in definition.primary_key else MergeRule.LATEST,
            options.lengths.get(attribute.name, _LENGTH),
        )
        for attribute in definition.schema.attributes
    )
    if not definition.primary_key:
        columns = (StoredColumn(ROW_NUMBER, AttributeType.LONG, MergeRule.KEY), *columns)
    name = options.table_name or definition.schema.name
    indexes = index_lists(definition.annotations)
    return StoredTable(name, columns, indexes=indexes, life=options.life)


def change_channels(app: BoundApp, tables: Iterable[str] | None = None) -> tuple[str, ...]:
    """The channels of the changes of an app's tables in stores, or of some of them."""
    channels = []
    for table in app.tables:
        options = stored_table_of(table)
        if options is not None and (tables is None or table.schema.name in tables):
            channels.append(changes_channel(stored_form(table, options).name))
    return tuple(channels)
