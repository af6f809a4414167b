"""Rows that a snapshot of the output shows, for each partition instance.

``Shows`` has the four rules by which a row is shown; see ``snapshot``.  Native loops follow
arrivals and expiries, and walk a list for each snapshot.  Attributes stay in Arrow until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, from_arrow
from mesh.model.types import AttributeType
from mesh.operators.base import NIL, State
from mesh.operators.output_rate.live_rows_native import (
    CAME,
    COUNT,
    FIRST,
    GROUP,
    INSTANCE,
    KEY,
    KIND,
    NODE_COLUMNS,
    OUT_ROWS,
    ROW,
    SERIAL,
    SIZE,
    THERE,
    TIME,
    USED,
    empty,
    follow,
    relink,
    show,
)
from mesh.operators.output_rate.live_rows_native import Shows as Shows
from mesh.operators.select.groups import Groups
from mesh.operators.select.hashing import more_rows
from mesh.operators.state.range_pieces import cut, stored, table
from mesh.operators.state.row_store import RowStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Kinds, Longs
    from pyspark_nats.arrow import ArrowArray

#: Unused rows, or keys of equal events, that are kept before they are swept.
_SPARE: Final = 1024


class LiveRows:
    """The rows to show, of all instances.

    ``aggregates``: which attributes are aggregators; ``ALL`` shows them with the newest values of
    their group.  ``grouped``: whether groups mean anything, else an instance is one; ``ALL`` shows
    the first event of each group then.
    """

    def __init__(
        self, shows: Shows, schema: pa.Schema, aggregates: Sequence[int], *, grouped: bool
    ) -> None:
        self._shows = shows
        self._aggregates = frozenset(aggregates if shows is Shows.ALL else ())
        self._grouped = grouped
        plain = [n for n in range(len(schema)) if n not in self._aggregates]
        self._alike = [(n, _type_of(schema.field(n))) for n in plain]
        self._alike_types = [
            AttributeType.STRING if type is AttributeType.OBJECT else type
            for _, type in self._alike
        ]
        self._store = RowStore(schema)
        self._begin()

    def _begin(self) -> None:
        self._alikes = Groups(self._alike_types, nulls_are_text=False)
        self._nodes: Longs = np.zeros((0, NODE_COLUMNS), dtype=np.int64)
        self._lists: Longs = np.zeros((0, 3), dtype=np.int64)
        self._keys: Longs = np.zeros((0, 2), dtype=np.int64)
        self._newest: Longs = np.zeros(0, dtype=np.int64)
        self._seen: Longs = np.zeros(0, dtype=np.int64)
        self._meta: Longs = np.array([NIL, 0, 0, 0, 0], dtype=np.int64)
        self._out: Longs = np.empty((OUT_ROWS, 0), dtype=np.int64)
        self._shown = 0

    def come(
        self, rows: pa.RecordBatch, time_ms: Longs, kind: Kinds, instance: Longs, group: Longs
    ) -> ArrivingRows:
        """Append events, which calls of ``follow`` then process."""
        if not self._grouped:
            group = instance
        time_ms, instance, group = (
            np.ascontiguousarray(column) for column in (time_ms, instance, group)
        )
        base = self._store.came
        self._store.append(rows)
        key = self._keys_of(rows, group, kind)
        self._reserve(len(rows), instance, group, key)
        return ArrivingRows(base, time_ms, kind, instance, group, key)

    def _keys_of(self, rows: pa.RecordBatch, group: Longs, kind: Kinds) -> Longs:
        """By event, a number that equal events share; undefined for a reset."""
        if self._shows is not Shows.ALL:
            return group
        vectors = [_comparable(rows.column(n), type) for n, type in self._alike]
        return self._alikes.number(vectors, group, kind)

    def _reserve(self, count: int, instance: Longs, group: Longs, key: Longs) -> None:
        self._nodes = more_rows(self._nodes, int(self._meta[USED]) + count, NIL)
        self._lists = more_rows(self._lists, int(instance.max(initial=-1)) + 1, NIL)
        self._keys = more_rows(self._keys, int(key.max(initial=-1)) + 1, NIL)
        groups = int(group.max(initial=-1)) + 1
        self._newest = more_rows(self._newest, groups, NIL)
        self._seen = more_rows(self._seen, groups, NIL)

    def follow(self, coming: ArrivingRows, start: int, stop: int) -> None:
        """Process the arrivals from ``start`` to below ``stop``."""
        follow(
            int(self._shows), coming.base, start, stop, coming.time_ms, coming.kind,
            coming.instance, coming.group, coming.key, self._nodes, self._lists, self._keys,
            self._newest, self._meta,
        )  # fmt: skip

    def show(self, instance: int) -> int:
        """Append the rows of ``instance`` to the output rows; returns their number."""
        if instance >= len(self._lists):
            return 0
        before, size = self._shown, int(self._lists[instance, SIZE]) + 1
        if before + size > self._out.shape[1]:
            out = np.empty((OUT_ROWS, 2 * (before + size)), dtype=np.int64)
            out[:, :before] = self._out[:, :before]
            self._out = out
        self._shown = show(
            int(self._shows), instance, self._grouped, self._nodes, self._lists, self._keys,
            self._newest, self._seen, self._meta, self._out, before,
        )  # fmt: skip
        return self._shown - before

    def shown(self) -> tuple[Longs, Kinds, pa.RecordBatch]:
        """Times, kinds and attributes of all rows shown since the last call."""
        row, newest, time_ms, kind = self._out[:, : self._shown].copy()
        self._shown = 0
        rows = self._store.take(row)
        if self._aggregates and len(row):
            values = self._store.take(newest)
            columns = [
                (values if n in self._aggregates else rows).column(n)
                for n in range(len(rows.schema))
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return time_ms, kind.astype(np.int8), rows

    def _live(self) -> Longs:
        """The nodes that are in lists, in order of arrival."""
        used = self._nodes[: self._meta[USED]]
        live = np.flatnonzero(used[:, ROW] != NIL)
        return live[np.argsort(used[live, SERIAL])]

    def sweep(self) -> None:
        """Release unused rows and keys, once they are many."""
        there = int(self._meta[THERE])
        if self._store.count > 2 * there + _SPARE:
            live = self._live()
            rows = self._nodes[live, ROW]
            if self._aggregates:
                rows = np.concatenate([rows, self._newest[np.unique(self._nodes[live, GROUP])]])
            self._store.keep(np.unique(rows))
        if self._shows is Shows.ALL and self._alikes.in_use > 2 * there + _SPARE:
            gone = self._keys[: len(self._alikes), FIRST] == NIL
            gone[self._alikes.free] = False
            self._alikes.release(np.flatnonzero(gone))

    def forget(self, instances: Longs) -> None:
        """Remove the rows of ``instances``."""
        for instance in instances[instances < len(self._lists)].tolist():
            empty(self._nodes, self._lists, self._keys, self._meta, instance)

    def snapshot(self) -> State:
        """The rows, and the present nodes, in pieces that stay."""
        nodes = self._nodes[self._live()]
        there = {str(n): pa.array(nodes[:, n]) for n in _STORED}
        pieces = self._store.pieces() | cut(_EVENTS, table(nodes[:, SERIAL], there))
        if self._aggregates:
            groups = np.unique(nodes[:, GROUP])
            pieces |= cut(_NEWEST, table(groups, {"row": pa.array(self._newest[groups])}))
        return State(pieces, {"store": self._store.scalars(), "came": int(self._meta[CAME])})

    def restore(self, state: State) -> None:
        """Restore what ``snapshot`` returned."""
        scalars = state.scalars
        self._store.restore(state.pieces, scalars["store"])
        nodes = np.zeros((0, NODE_COLUMNS), dtype=np.int64)
        events = stored(_EVENTS, state.pieces)
        if events is not None:
            serial, *columns = (column.to_numpy() for column in events.columns)
            nodes = np.zeros((len(serial), NODE_COLUMNS), dtype=np.int64)
            nodes[:, SERIAL] = serial
            nodes[:, _STORED] = np.stack(columns, axis=1)
        groups = newest = np.empty(0, dtype=np.int64)
        values = stored(_NEWEST, state.pieces)
        if values is not None:
            groups, newest = (column.to_numpy() for column in values.columns)
        self._put(nodes, scalars["came"], groups, newest)

    def _put(self, nodes: Longs, came: int, groups: Longs, newest: Longs) -> None:
        """Begin with these nodes, whose rows are stored, and the newest rows of groups."""
        self._begin()
        kind = np.zeros(len(nodes), dtype=np.int8)
        rows = self._store.take(nodes[:, ROW].copy())
        nodes[:, KEY] = self._keys_of(rows, nodes[:, GROUP].copy(), kind)
        self._reserve(len(nodes), nodes[:, INSTANCE], nodes[:, GROUP], nodes[:, KEY])
        self._nodes[: len(nodes)] = nodes
        self._meta[[USED, THERE, CAME]] = len(nodes), len(nodes), came
        self._newest[groups] = newest
        relink(len(nodes), self._nodes, self._lists, self._keys)


@dataclass(frozen=True, slots=True)
class ArrivingRows:
    """Events on their way into a ``LiveRows``; ``base``: the number of the first one's row."""

    base: int
    time_ms: Longs
    kind: Kinds
    instance: Longs
    group: Longs
    key: Longs


_EVENTS: Final = "events"
_NEWEST: Final = "newest"
#: Columns of ``nodes`` that are stored, beside SERIAL.
_STORED: Final = [ROW, TIME, KIND, INSTANCE, GROUP, COUNT]


def _type_of(field: pa.Field[Any]) -> AttributeType:
    return next(type for type in AttributeType if type.arrow == field.type)


def _comparable(column: ArrowArray, type: AttributeType) -> Vector:
    """A column as ``Groups`` accepts it; objects as texts."""
    if type is not AttributeType.OBJECT:
        return from_arrow(column, type)
    texts = [None if value is None else value.hex() for value in column.to_pylist()]
    return Vector(AttributeType.STRING, pa.array(texts, pa.string()))
