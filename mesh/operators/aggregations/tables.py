"""Tables of an aggregation in a database: one for each duration, with the base values of its cells.

Columns, in the order of the reference engine: ``AGG_TIMESTAMP``, with several meshes ``SHARD_ID``,
with ``aggregate by`` ``AGG_EVENT_TIMESTAMP``, the group-by attributes, latest values with their
time, base values.  A row is one bucket and one group, and both times are the start of the bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_arrow
from mesh.language.syntax import TimeUnit, find
from mesh.model.stored import (
    STRING_LENGTH,
    Merge,
    StoredColumn,
    StoredTable,
    StoreTarget,
    purge_channel,
    rows_channel,
)
from mesh.model.types import AttributeType
from mesh.operators.aggregations.cells import Cells
from mesh.operators.aggregations.values import BaseKind, type_of_column
from mesh.plan.stores import stored_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.model.stored import StoreOptions
    from mesh.operators.aggregations.dictionary import KeyNumbers
    from mesh.operators.aggregations.layout import Layout
    from mesh.plan.bound import BoundAggregation

TIME: Final = "AGG_TIMESTAMP"
SHARD: Final = "SHARD_ID"
EVENT_TIME: Final = "AGG_EVENT_TIMESTAMP"
LAST: Final = "AGG_LAST_EVENT_TIMESTAMP"
_SUFFIXES: Final = {
    TimeUnit.SECOND: "SECONDS",
    TimeUnit.MINUTE: "MINUTES",
    TimeUnit.HOUR: "HOURS",
    TimeUnit.DAY: "DAYS",
    TimeUnit.MONTH: "MONTHS",
    TimeUnit.YEAR: "YEARS",
}
_MERGES: Final = {
    BaseKind.SUM: Merge.SUM,
    BaseKind.COUNT: Merge.SUM,
    BaseKind.MIN: Merge.MIN,
    BaseKind.MAX: Merge.MAX,
    BaseKind.LATEST: Merge.LATEST,
}


class AggregationTables(dict[TimeUnit, StoredTable]):
    """The tables of ``definition`` by duration.

    ``shard``: the value of ``SHARD_ID``; None for tables without that column.
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
                for duration, name in table_names(definition, options).items()
            }
        )

    @property
    def target(self) -> StoreTarget:
        """The tables with their store."""
        own = None if self._shard is None else (SHARD, self._shard)
        return StoreTarget(self._options, tuple(self.values()), own)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels on which rows and purges leave."""
        return channels_of(table.name for table in self.values())

    @property
    def bucket_column(self) -> str:
        """The column with the start of the bucket of a row."""
        return EVENT_TIME if self._is_timed else TIME

    def _columns(self, options: StoreOptions) -> Iterator[StoredColumn]:
        layout = self._layout
        lengths = options.lengths
        long = AttributeType.LONG
        yield StoredColumn(TIME, long, Merge.KEY)
        if self._shard is not None:
            yield StoredColumn(SHARD, AttributeType.STRING, Merge.KEY, 50)
        if self._is_timed:
            yield StoredColumn(EVENT_TIME, long, Merge.KEY)
        for key in layout.keys:
            length = lengths.get(key.name, STRING_LENGTH)
            yield StoredColumn(key.name, key.type or AttributeType.OBJECT, Merge.KEY, length)
        for number in self._latest:
            name = layout.names[number]
            length = lengths.get(name, STRING_LENGTH)
            yield StoredColumn(name, layout.base[number].type, Merge.LATEST, length)
        if self._has_last:
            yield StoredColumn(LAST, long, Merge.LAST)
        for number in self._others:
            base = layout.base[number]
            yield StoredColumn(layout.names[number], type_of_column(base), _MERGES[base.kind])

    @property
    def _latest(self) -> list[int]:
        return [n for n, v in enumerate(self._layout.base) if v.kind is BaseKind.LATEST]

    @property
    def _others(self) -> list[int]:
        return [n for n, v in enumerate(self._layout.base) if v.kind is not BaseKind.LATEST]

    @property
    def _has_last(self) -> bool:
        return self._is_timed and self._layout.has_latest

    def rows(self, duration: TimeUnit, cells: Cells, groups: KeyNumbers) -> pa.RecordBatch:
        """Cells as rows of the duration's table, in their order."""
        count = len(cells)
        buckets = pa.array(cells.bucket, pa.int64())
        columns: list[pa.Array[Any]] = [buckets]
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

    def cells(self, duration: TimeUnit, rows: pa.RecordBatch, groups: KeyNumbers) -> Cells:
        """Rows of the duration's table as cells; new groups get numbers."""
        count = rows.num_rows
        bucket = rows.column(self.bucket_column).to_numpy()
        keys = [from_arrow(rows.column(key.name), key.type) for key in self._layout.keys]
        last = rows.column(LAST).to_numpy() if self._has_last else bucket
        return Cells(
            np.zeros(count, dtype=np.int64),
            bucket,
            groups.number(keys, count, ""),
            last if self._layout.has_latest else bucket[:0],
            {
                number: from_arrow(rows.column(name), type_of_column(base))
                for number, (name, base) in enumerate(
                    zip(self._layout.names, self._layout.base, strict=True)
                )
            },
            {},
        )


def table_names(definition: BoundAggregation, options: StoreOptions) -> dict[TimeUnit, str]:
    """The names of the tables by duration."""
    name = options.table_name or definition.schema.name
    return {duration: f"{name}_{_SUFFIXES[duration]}" for duration in definition.durations}


def channels_of(tables: Iterable[str]) -> tuple[str, ...]:
    """The channels of tables with these names."""
    return tuple(channel(name) for name in tables for channel in (rows_channel, purge_channel))


def channels_in(aggregations: Iterable[BoundAggregation]) -> tuple[str, ...]:
    """The channels of all tables of aggregations; none of those without ``@store``."""
    found = ((one, stored_in(one)) for one in aggregations)
    names = (table_names(one, store).values() for one, store in found if store is not None)
    return channels_of(name for own in names for name in own)


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
