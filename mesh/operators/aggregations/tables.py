"""Tables of an aggregation in a database: one for each duration, with the base values of its cells.

Columns, in the order of the reference engine: ``AGG_TIMESTAMP``, with several meshes ``SHARD_ID``,
with ``aggregate by`` ``AGG_EVENT_TIMESTAMP``, the group-by attributes, latest values with their
time, base values.  A row is one bucket and one group, and both times are the start of the bucket.

A set has a table of its own beside it, with a row for each value.  Columns: the start of the
bucket, with several meshes ``SHARD_ID``, the group-by attributes, and the value.  All of them are
the key, so writing a value that is there already changes nothing, and the rows of several meshes
together are the union of their sets.  ``AGG_KIND`` tells values that a key can't have, or not in
every database, from others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_arrow
from mesh.language.syntax import TimeUnit, find
from mesh.model.stored import (
    NULL_KEYS,
    STRING_LENGTH,
    MergeRule,
    StoredColumn,
    StoredTable,
    StoreTarget,
    purge_channel,
    rows_channel,
)
from mesh.model.types import AttributeType
from mesh.operators.aggregations.cells import Cells
from mesh.operators.aggregations.numbering import CellNumbers, CellOrder
from mesh.operators.aggregations.values import BaseKind, type_of_column
from mesh.plan.aggregation_tables import (
    EVENT_TIMESTAMP,
    LAST_EVENT_TIMESTAMP,
    TIMESTAMP,
    table_name,
)
from mesh.plan.bound import AggregateCall, Column, walk
from mesh.plan.stores import stored_in
from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.stored import StoreOptions
    from mesh.operators.aggregations.dictionary import KeyNumbers
    from mesh.operators.aggregations.layout import Layout
    from mesh.operators.base import Longs
    from mesh.plan.bound import BoundAggregation

SHARD: Final = "SHARD_ID"
_AMOUNTS: Final = {
    BaseKind.SUM: MergeRule.SUM,
    BaseKind.COUNT: MergeRule.SUM,
    BaseKind.MIN: MergeRule.MIN,
    BaseKind.MAX: MergeRule.MAX,
}
_SET_VALUE: Final = "AGG_VALUE"
_SET_KIND: Final = "AGG_KIND"
_NULL: Final = 1
#: By ``AGG_KIND`` the number that a value is; 0 is that of the column itself.
_NUMBERS: Final = np.array([0.0, 0.0, np.nan, np.inf, -np.inf, -0.0])


class AggregationTables(dict[TimeUnit, StoredTable]):
    """The tables of ``definition`` by duration.

    ``shard``: the value of ``SHARD_ID``; None for tables without that column.  ``sets``: by
    duration the tables of its sets, in the order of their base values.
    """

    def __init__(
        self,
        definition: BoundAggregation,
        layout: Layout,
        options: StoreOptions,
        shard: str | None = None,
    ) -> None:
        self._layout = layout
        self._options = options
        self._shard = shard
        self._is_timed = definition.aggregate_by is not None
        columns = tuple(self._columns(options))
        indexes = tuple(
            tuple(text for _, text in annotation.elements)
            for annotation in definition.annotations
            if annotation.name.lower() == "index"
        )
        super().__init__(
            {
                duration: StoredTable(name, columns, self.bucket_column, indexes)
                for duration, name in _table_names(definition, options).items()
            }
        )
        self.sets = {
            duration: tuple(
                _set_table(table, layout.attributes[n], layout.base[n].type, options.lengths)
                for n in layout.sets
            )
            for duration, table in self.items()
        }

    @property
    def target(self) -> StoreTarget:
        """The tables with their store."""
        shard = None if self._shard is None else (SHARD, self._shard)
        tables = tuple(table for duration in self for table in self.of(duration))
        return StoreTarget(self._options, tables, shard)

    def of(self, duration: TimeUnit) -> tuple[StoredTable, ...]:
        """The table of a duration, and those of its sets."""
        return self[duration], *self.sets[duration]

    @property
    def bucket_column(self) -> str:
        """The column with the start of the bucket of a row."""
        return EVENT_TIMESTAMP if self._is_timed else TIMESTAMP

    def _columns(self, options: StoreOptions) -> Iterator[StoredColumn]:
        layout = self._layout
        lengths = options.lengths
        long = AttributeType.LONG
        yield StoredColumn(TIMESTAMP, long, MergeRule.KEY)
        if self._shard is not None:
            yield StoredColumn(SHARD, AttributeType.STRING, MergeRule.KEY, 50)
        if self._is_timed:
            yield StoredColumn(EVENT_TIMESTAMP, long, MergeRule.KEY)
        for key in layout.keys:
            length = lengths.get(key.name, STRING_LENGTH)
            yield StoredColumn(key.name, key.type or AttributeType.OBJECT, MergeRule.KEY, length)
        for number in self._latest:
            name = layout.names[number]
            length = lengths.get(name, STRING_LENGTH)
            yield StoredColumn(name, layout.base[number].type, MergeRule.LATEST, length)
        if self._has_last:
            yield StoredColumn(LAST_EVENT_TIMESTAMP, long, MergeRule.LAST)
        for number in self._others:
            base = layout.base[number]
            yield StoredColumn(layout.names[number], type_of_column(base), _AMOUNTS[base.kind])

    @property
    def _latest(self) -> list[int]:
        return [n for n, v in enumerate(self._layout.base) if v.kind is BaseKind.LATEST]

    @property
    def _others(self) -> list[int]:
        return [n for n, v in enumerate(self._layout.base) if v.kind in _AMOUNTS]

    @property
    def _has_last(self) -> bool:
        return self._is_timed and self._layout.has_latest

    def rows(self, duration: TimeUnit, cells: Cells, groups: KeyNumbers) -> pa.RecordBatch:
        """Cells as rows of the duration's table, in their order."""
        count = len(cells)
        buckets = pa.array(cells.bucket, pa.int64())
        columns: list[ArrowArray] = [buckets]
        if self._shard is not None:
            columns.append(pa.repeat(pa.scalar(self._shard), count))
        if self._is_timed:
            columns.append(buckets)
        columns += [
            groups.values(place).take(cells.group).to_arrow(count)
            for place in range(len(self._layout.keys))
        ]
        columns += [cells.values[number].to_arrow(count) for number in self._latest]
        if self._has_last:
            columns.append(pa.array(cells.last, pa.int64()))
        columns += [cells.values[number].to_arrow(count) for number in self._others]
        return pa.RecordBatch.from_arrays(columns, schema=self[duration].arrow)

    def set_rows(
        self,
        duration: TimeUnit,
        cells: Cells,
        rows: pa.RecordBatch,
        values_of: Callable[[int], Vector],
    ) -> Iterator[tuple[Longs, pa.RecordBatch]]:
        """Rows for the tables of the duration's sets: by table the cells that they are of, rising.

        ``rows``: see ``rows``.  ``values_of``: by number of the base value all values by number.
        """
        for number, table in zip(self._layout.sets, self.sets[duration], strict=True):
            places, values = cells.sets[number]
            order = np.argsort(places, kind="stable")
            places, values = places[order], values[order]
            names = [c.name for c in table.columns if c.name in rows.schema.names]
            columns = rows.select(names).take(pa.array(places, pa.int64())).columns
            extra = _set_value_columns(values_of(number).take(values), len(values))
            yield places, pa.RecordBatch.from_arrays([*columns, *extra], schema=table.arrow)

    def cells(
        self,
        duration: TimeUnit,
        batches: Sequence[pa.RecordBatch],
        groups: KeyNumbers,
        values: Mapping[int, KeyNumbers],
    ) -> Cells:
        """Rows of the duration's tables as cells; new groups, and new values of sets, get numbers.

        ``batches``: rows of each of the tables ``of`` the duration.  Values of a bucket and group
        that the first does not have are left out.  ``values``: by number of the base value.
        """
        rows, *sets = batches
        count = rows.num_rows
        bucket, group = self._keys(rows, groups)
        last = rows.column(LAST_EVENT_TIMESTAMP).to_numpy() if self._has_last else bucket
        return Cells(
            np.zeros(count, dtype=np.int64),
            bucket,
            group,
            last if self._layout.has_latest else bucket[:0],
            {
                number: from_arrow(rows.column(name), type_of_column(base))
                for number, (name, base) in enumerate(
                    zip(self._layout.names, self._layout.base, strict=True)
                )
                if base.kind is not BaseKind.SET
            },
            {
                number: self._set(bucket, group, batch, groups, values[number])
                for number, batch in zip(self._layout.sets, sets, strict=True)
            },
        )

    def _keys(self, rows: pa.RecordBatch, groups: KeyNumbers) -> tuple[Longs, Longs]:
        """int64[n] each, the buckets of rows, and the numbers of their groups."""
        keys = [from_arrow(rows.column(key.name), key.type) for key in self._layout.keys]
        bucket: Longs = rows.column(self.bucket_column).to_numpy()
        return bucket, groups.number(keys, rows.num_rows, "")

    def _set(
        self,
        bucket: Longs,
        group: Longs,
        rows: pa.RecordBatch,
        groups: KeyNumbers,
        values: KeyNumbers,
    ) -> tuple[Longs, Longs]:
        """The places of cells and the numbers of the values in their sets."""
        count, row_count = len(bucket), rows.num_rows
        if not count or not row_count:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        row_bucket, row_group = self._keys(rows, groups)
        numbers = CellNumbers(CellOrder.ANY).number(
            np.zeros(count + row_count, dtype=np.int64),
            np.concatenate([bucket, row_bucket]),
            np.concatenate([group, row_group]),
        )
        # Of several cells with one key, those of several meshes, any may have the values.
        place = np.full(count + row_count, -1, dtype=np.int64)
        place[numbers[:count]] = np.arange(count)
        places = place[numbers[count:]]
        (type,) = values.types
        members = values.number([_values_of_set(rows, type)], row_count, "")
        has_cell = places >= 0
        return places[has_cell], members[has_cell]


def _table_names(definition: BoundAggregation, options: StoreOptions) -> dict[TimeUnit, str]:
    """The names of the tables by duration, without those of sets."""
    name = options.table_name or definition.schema.name
    return {duration: table_name(name, duration) for duration in definition.durations}


def channels_in(aggregations: Iterable[BoundAggregation]) -> tuple[str, ...]:
    """The channels of all tables of aggregations; none of those without ``@store``."""
    names: list[str] = []
    for one in aggregations:
        store = stored_in(one)
        for name in () if store is None else _table_names(one, store).values():
            names += [name, *(_set_name(name, column) for column in _set_columns(one))]
    return tuple(channel(name) for name in names for channel in (rows_channel, purge_channel))


def _set_columns(definition: BoundAggregation) -> list[str]:
    """The attributes of which an aggregation counts distinct values."""
    parts = (part for output in definition.outputs for part in walk(output.expression))
    calls = (
        part
        for part in parts
        if isinstance(part, AggregateCall) and part.function.lower() == "distinctcount"
    )
    arguments = (argument for call in calls for argument in call.arguments)
    return list(dict.fromkeys(one.name for one in arguments if isinstance(one, Column)))


def tables_of(definition: BoundAggregation, layout: Layout, shard: str) -> AggregationTables | None:
    """The tables of an aggregation with ``@store``; None for one without.

    Args:
        definition: of the aggregation.
        layout: of its base values.
        shard: the name of this mesh among those that write the tables; empty for none, which is
            enough for readers.
    """
    options = stored_in(definition)
    if options is None:
        return None
    return AggregationTables(definition, layout, options, shard if is_sharded(definition) else None)


def is_sharded(definition: BoundAggregation) -> bool:
    """Whether ``@PartitionById`` is on: several meshes write the tables of the aggregation."""
    annotation = find(definition.annotations, "PartitionById")
    return annotation is not None and (annotation.get("enable") or "true").lower() == "true"


def _set_name(table: str, attribute: str) -> str:
    """The name of the table with the values of an attribute, beside the table of a duration."""
    return f"{table}_SET_{attribute}"


def _set_table(
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
        StoredColumn(_SET_VALUE, type, MergeRule.KEY, length),
        StoredColumn(_SET_KIND, AttributeType.INT, MergeRule.KEY),
    )
    return StoredTable(_set_name(table.name, attribute), (first, *others, *extra), table.time)


def _set_value_columns(values: Vector, count: int) -> tuple[ArrowArray, ArrowArray]:
    """Values as the columns ``AGG_VALUE`` and ``AGG_KIND``."""
    array = values.to_arrow(count)
    kinds = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, 0)
    if values.type is AttributeType.STRING:
        return array.fill_null(""), pa.array(kinds, pa.int32())
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        is_negative = np.signbit(numbers)
        kinds[np.isnan(numbers)] = 2
        kinds[np.isinf(numbers)] = 3
        kinds[np.isinf(numbers) & is_negative] = 4
        kinds[(numbers == 0) & is_negative] = 5
        numbers = np.where(kinds > 0, 0, numbers)
    return pa.array(numbers, array.type), pa.array(kinds, pa.int32())


def _values_of_set(rows: pa.RecordBatch, type: AttributeType) -> Vector:
    """The values of rows of a set's table: see ``_set_value_columns``."""
    array, kinds = rows.column(_SET_VALUE), rows.column(_SET_KIND).to_numpy()
    is_null = kinds == _NULL
    if type is AttributeType.STRING:
        return from_arrow(kernels.if_else(pa.array(is_null), None, array), type)
    # The lowest number of a key is read as null.
    numbers = array.fill_null(NULL_KEYS[type]).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = np.where(kinds > _NULL, _NUMBERS[kinds], numbers).astype(numbers.dtype)
    return from_arrow(pa.array(numbers, type.arrow, mask=is_null), type)
