"""Rows that a snapshot of the output shows, for each partition instance.

``Shows`` has the four rules by which a row is shown; see ``snapshot``.  Native loops follow
arrivals and expiries, and walk a list for each snapshot.  Attributes stay in Arrow until then.

Native lists of the rows that snapshots of the output show: see ``live_rows``.

Events are nodes of lists, one list for each partition instance, in order of arrival.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, from_arrow
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT, NIL, RESET, State
from mesh.operators.native import LONG1, LONG2, READ1, bare, inner, types
from mesh.operators.select.groups import Groups
from mesh.operators.select.hashing import more_rows
from mesh.operators.state.range_pieces import cut, stored, table
from mesh.operators.state.row_store import RowStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Kinds, Longs
    from pyspark_nats.arrow import ArrowArray


class Shows(IntEnum):
    """The rule by which an event is shown."""

    #: The last event of each group.
    LAST = 0
    #: The last event, unless it is an expired one.
    LAST_PRESENT = 1
    #: The last event of each group that has events in the window.
    LAST_OF_GROUPS = 2
    #: The content of the window: an expired event removes the first equal one.
    ALL = 3


#: Columns of ``nodes``; free ones are chained through NEXT and have no row.
ROW, TIME, KIND, SERIAL, INSTANCE, GROUP, KEY, COUNT, PREV, NEXT, ALIKE = range(11)
NODE_COLUMNS: Final = 11
#: Columns of ``lists``, by instance: the list's ends, and how long it is, less one.
HEAD, TAIL, SIZE = range(3)
#: Columns of ``keys``: the first and the last of equal events; except for ``ALL`` a key is a group
#: with a single event.
FIRST, LAST = range(2)
#: Counters: the first free node, nodes in use or free, nodes in lists, events that arrived, number
#: of outputs.
FREE, USED, THERE, CAME, SHOWN = range(5)
#: Rows of the output: the event's row, the row with the aggregators' values, time, kind.
OUT_ROWS: Final = 4

_LAST, _LAST_PRESENT, _LAST_OF_GROUPS, _ALL = (int(one) for one in Shows)
_kinds = types.Array(types.int8, 1, "C", readonly=True)


@inner
def _put_last(nodes, lists, n):
    """Put a node at the end of its instance's list."""
    instance = nodes[n, INSTANCE]
    nodes[n, PREV], nodes[n, NEXT], nodes[n, ALIKE] = lists[instance, TAIL], NIL, NIL
    if lists[instance, HEAD] == NIL:
        lists[instance, HEAD] = n
    else:
        nodes[lists[instance, TAIL], NEXT] = n
    lists[instance, TAIL] = n
    lists[instance, SIZE] += 1


@inner
def _append(nodes, lists, meta, row, time, kind, instance, group, key):
    """A node at the end of its instance's list."""
    n = meta[FREE]
    if n != NIL:
        meta[FREE] = nodes[n, NEXT]
    else:
        n = meta[USED]
        meta[USED] = n + 1
    nodes[n, ROW], nodes[n, TIME], nodes[n, KIND] = row, time, kind
    nodes[n, SERIAL], nodes[n, COUNT] = meta[CAME], 0
    meta[CAME] += 1
    meta[THERE] += 1
    nodes[n, INSTANCE], nodes[n, GROUP], nodes[n, KEY] = instance, group, key
    _put_last(nodes, lists, n)
    return n


@inner
def _remove(nodes, lists, meta, n):
    """Remove a node from its list, and free it."""
    instance, before, after = nodes[n, INSTANCE], nodes[n, PREV], nodes[n, NEXT]
    if before == NIL:
        lists[instance, HEAD] = after
    else:
        nodes[before, NEXT] = after
    if after == NIL:
        lists[instance, TAIL] = before
    else:
        nodes[after, PREV] = before
    lists[instance, SIZE] -= 1
    meta[THERE] -= 1
    nodes[n, ROW] = NIL
    nodes[n, NEXT] = meta[FREE]
    meta[FREE] = n


@inner
def _link(nodes, keys, n):
    """Append a node to those that are equal."""
    key = nodes[n, KEY]
    if keys[key, FIRST] == NIL:
        keys[key, FIRST] = n
    else:
        nodes[keys[key, LAST], ALIKE] = n
    keys[key, LAST] = n


@bare(types.void(LONG2, LONG2, LONG2, LONG1, types.int64))
def empty(nodes, lists, keys, meta, instance):
    """Remove all nodes of an instance."""
    n = lists[instance, HEAD]
    while n != NIL:
        after = nodes[n, NEXT]
        keys[nodes[n, KEY], FIRST] = NIL
        _remove(nodes, lists, meta, n)
        n = after


@bare(
    types.void(
        types.int64, types.int64, types.int64, types.int64, READ1, _kinds, READ1, READ1, READ1,
        LONG2, LONG2, LONG2, LONG1, LONG1,
    )
)  # fmt: skip
def follow(
    shows, base, start, stop, time, kind, instance, group, key, nodes, lists, keys, newest, meta
):
    """Process the events ``start`` to below ``stop``, with rows numbered from ``base`` on."""
    for e in range(start, stop):
        k, row = key[e], base + e
        if shows == _ALL and kind[e] == RESET:
            empty(nodes, lists, keys, meta, instance[e])
        elif k == NIL:
            continue
        elif shows == _ALL:
            if kind[e] == CURRENT:
                newest[group[e]] = row
                n = _append(nodes, lists, meta, row, time[e], kind[e], instance[e], group[e], k)
                _link(nodes, keys, n)
            elif keys[k, FIRST] != NIL:
                newest[group[e]] = row
                n = keys[k, FIRST]
                keys[k, FIRST] = nodes[n, ALIKE]
                _remove(nodes, lists, meta, n)
        elif kind[e] == CURRENT or shows == _LAST or keys[k, FIRST] != NIL:
            n = keys[k, FIRST]
            if shows == _LAST_PRESENT and kind[e] != CURRENT:
                keys[k, FIRST] = NIL
                _remove(nodes, lists, meta, n)
                continue
            if n == NIL:
                n = _append(nodes, lists, meta, row, time[e], kind[e], instance[e], group[e], k)
                keys[k, FIRST] = n
            nodes[n, ROW], nodes[n, TIME], nodes[n, KIND] = row, time[e], kind[e]
            nodes[n, COUNT] += 1 if kind[e] == CURRENT else -1


@bare(
    types.int64(
        types.int64, types.int64, types.boolean, LONG2, LONG2, LONG2, LONG1, LONG1, LONG1,
        LONG2, types.int64,
    )
)  # fmt: skip
def show(shows, instance, grouped, nodes, lists, keys, newest, seen, meta, out, at):
    """Write the rows of ``instance`` to ``out``, from ``at`` on; the index after the last.

    ``grouped``: just the first event of each group; ``seen``: when each group was last written.
    """
    meta[SHOWN] += 1
    n = lists[instance, HEAD]
    while n != NIL:
        after = nodes[n, NEXT]
        group = nodes[n, GROUP]
        if shows == _LAST_OF_GROUPS and nodes[n, COUNT] <= 0:
            keys[nodes[n, KEY], FIRST] = NIL
            _remove(nodes, lists, meta, n)
        elif not grouped or seen[group] != meta[SHOWN]:
            row = nodes[n, ROW]
            out[0, at] = row
            out[1, at] = newest[group] if shows == _ALL else row
            out[2, at], out[3, at] = nodes[n, TIME], nodes[n, KIND]
            if grouped:
                seen[group] = meta[SHOWN]
            at += 1
        n = after
    return at


@bare(types.void(types.int64, LONG2, LONG2, LONG2))
def relink(count, nodes, lists, keys):
    """Rebuild the lists from the first ``count`` nodes, which are in order of arrival."""
    for n in range(count):
        _put_last(nodes, lists, n)
        _link(nodes, keys, n)


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
