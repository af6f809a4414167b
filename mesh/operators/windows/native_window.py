"""Window with a native loop: rows in Arrow, lists and timers in arrays, snapshot in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import (
    BEFORE_ALL,
    NEVER,
    NIL,
    EventBatch,
    Longs,
    State,
    Timeline,
    no_events,
)
from mesh.operators.state.range_pieces import NUMBER, cut, joined, pieces_of
from mesh.operators.state.row_store import RowStore
from mesh.operators.windows import window_loop as m
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.operators.windows.kind import WindowContext
    from pyspark_nats.arrow import ArrowArray

TIME, INSTANCE = "#time", "#instance"
#: Unused rows that the store may have before it is swept.
_SWEEP_ROWS = 65_536
#: Output buffers of up to this many events are reused.
_BUFFER_EVENTS = 1 << 18
#: Added by a loop to the count of output events when it needs more room.
_NO_ROOM = 1 << 40
#: The registers of up to this many instances are stored with the scalars.
_FEW_INSTANCES = 16


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Loop, parameters and layout of one kind of window.

    ``loop``: the native loop; ``arguments``: its own parameters, which follow the common ones.
    ``registers``: how many each instance has; ``start``: their first values if not 0.
    ``finds``: the list that joins look into.  ``listed``: the lists that can't be derived from the
    rows that are stored, and are stored themselves.
    ``columns``: attributes of type long that the loop needs, at most two; ``replaces``: whether it
    gives the first of them another value.
    ``queue``: the loop for a single instance whose expired events are not read; ``latest``: the
    register of the latest time, if there is one; ``batch_rows``: the rows after which its batches
    end, if that is a constant; 0 elsewhere.  ``lines``: the largest output for an input event; 0 if
    it depends on the content of the window.
    """

    loop: Callable[..., None]
    arguments: tuple[int, ...] = ()
    registers: int = m.COMMON
    start: Mapping[int, int] = field(default_factory=dict)
    finds: int = m.A_HEAD
    listed: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    replaces: bool = False
    queue: Callable[..., int] | None = None
    latest: int | None = None
    batch_rows: int = 0
    lines: int = 0


class NativeWindow:
    """A window with a row of registers for each partition instance."""

    def __init__(self, spec: WindowSpec, context: WindowContext) -> None:
        self.is_batch = context.is_batch
        self._spec = spec
        self._schema = context.schema
        self._names = context.schema.names
        beside = [pa.field(TIME, pa.int64()), pa.field(INSTANCE, pa.int32())]
        self._store = RowStore(pa.schema([*context.schema, *beside]))
        self._out = np.empty((m.OUT_ROWS, 0), dtype=np.int64)
        self._par = np.zeros(m.PARAMETERS, dtype=np.int64)
        self._par[m.P_PATH] = context.timer_path
        self._par[m.P_EXPIRED] = context.expired
        self._par[m.P_BEFORE] = BEFORE_ALL
        self._par[m.P_ARGS : m.P_ARGS + len(spec.arguments)] = spec.arguments
        #: No row with a smaller number is in a list.
        self.lowest = 0
        self._swept = 0
        self._clear()

    def _clear(self) -> None:
        self._node = np.empty((0, 3), dtype=np.int64)
        self._reg = np.empty((0, self._spec.registers), dtype=np.int64)
        self._heap = np.empty((0, 3), dtype=np.int64)
        self._meta = np.zeros(m.COUNTERS, dtype=np.int64)
        self._meta[m.M_FREE] = NIL
        self._meta[[m.M_ORDER, m.M_CLOCK]] = BEFORE_ALL
        self._meta[m.M_ORDER] = -1
        #: (order, clock, path, piece, number) of the last emitted line.
        self._last = np.full(5, -1, dtype=np.int64)

    def process(self, events: EventBatch, timeline: Timeline) -> EventBatch:
        """Process ``events`` and timers; the current and expired events that they cause."""
        out, count = self._run(events, timeline)
        output = self._emit(out, count)
        self.sweep()
        return output

    def _run(self, events: EventBatch, timeline: Timeline) -> tuple[Longs, int]:
        """Run the loop; returns the output columns, and how many events they hold."""
        count = len(events)
        par, meta = self._par, self._meta
        par[m.P_FIRST], par[m.P_NOW] = timeline.first, timeline.now_ms
        par[m.P_BASE] = self._store.came
        par[m.P_PLAYBACK] = getattr(timeline, "playback", False)
        if timeline.is_idle_playback:
            par[m.P_BEFORE] = BEFORE_ALL
        if not count and (not meta[m.M_HEAP] or self._heap[0, m.DUE] > timeline.now_ms):
            par[m.P_BEFORE] = timeline.now_ms
            return self._out, 0
        ev = self._columns(events)
        if count:
            self._grow_registers(int(events.instance.max()) + 1)
        self._grow(2 * count)
        size = 3 * count + 2 * self._present() + 2 * len(self._reg) + 16
        out = self._buffer(self._spec.lines * count if self._spec.lines else size)
        meta[[m.M_OUT, m.M_NEAR]] = 0
        clocks = np.ascontiguousarray(timeline.clocks_ms)
        self._spec.loop(ev, clocks, par, self._node, self._reg, self._heap, meta, out)
        while meta[m.M_OUT] >= _NO_ROOM:
            meta[m.M_OUT] -= _NO_ROOM
            out = np.concatenate([out, np.empty_like(out)], axis=1)
            self._spec.loop(ev, clocks, par, self._node, self._reg, self._heap, meta, out)
        par[m.P_BEFORE] = timeline.now_ms
        self._keep(events, ev[m.E_NODE_TIME], ev[m.E_ARG])
        return out, int(meta[m.M_OUT])

    def _columns(self, events: EventBatch) -> Longs:
        ev = np.empty((m.EVENT_ROWS, len(events)), dtype=np.int64)
        ev[m.E_TIME], ev[m.E_CLOCK] = events.time_ms, events.clock_ms
        ev[m.E_ORDER], ev[m.E_PATH] = events.order, events.path
        ev[m.E_CHUNK], ev[m.E_INSTANCE] = events.chunk, events.instance
        ev[m.E_NODE_TIME] = events.time_ms
        for at, name in enumerate(self._spec.columns):
            column = events.rows.column(name)
            ev[m.E_ARG + at] = column.fill_null(0).to_numpy(zero_copy_only=False)
        return ev

    def _present(self) -> int:
        """Elements in lists, at most."""
        return int(self._meta[m.M_USED])

    def _grow_registers(self, instances: int) -> None:
        had = len(self._reg)
        if instances <= had:
            return
        size = max(instances, had + had // 2)
        reg = self._fresh(size)
        reg[:had] = self._reg
        self._reg = reg

    def _fresh(self, instances: int) -> Longs:
        """The registers of instances without events."""
        reg = np.zeros((instances, self._spec.registers), dtype=np.int64)
        reg[:, [m.A_HEAD, m.A_TAIL, m.B_HEAD, m.B_TAIL]] = NIL
        reg[:, m.ALARM] = NEVER
        for register, value in self._spec.start.items():
            reg[:, register] = value
        return reg

    def _grow(self, more: int) -> None:
        """Make room for ``more`` elements, and as many timers."""
        need = int(self._meta[m.M_USED]) + more
        if need > len(self._node):
            # In place where the system can: copying ten million elements would be noticeable.
            size = max(need, len(self._node) + len(self._node) // 4)
            self._node.resize((size, 3), refcheck=False)
        if int(self._meta[m.M_HEAP]) > 4 * len(self._reg) + 1024:
            m.rebuild_heap(self._reg, self._heap, self._meta)
        need = int(self._meta[m.M_HEAP]) + more + 2 * len(self._reg) + 16
        if need > len(self._heap):
            self._heap.resize((need + need // 4, 3), refcheck=False)

    def _keep(self, events: EventBatch, times: Longs, replaced: Longs) -> None:
        """Append the new rows to the store, with their times and instances."""
        count = len(events)
        if not count:
            return
        rows = events.rows
        if isinstance(rows, FewRows) and not self._spec.replaces:
            lists = {name: rows.lists[name] for name in self._names}
            lists |= {TIME: times.tolist(), INSTANCE: events.instance.tolist()}
            self._store.append(FewRows(self._store.schema, lists, count))
            return
        if rows.schema.names != self._schema.names:
            rows = rows.select(self._schema.names)
        attributes: list[ArrowArray] = list(rows.columns)
        if self._spec.replaces:
            at = self._schema.get_field_index(self._spec.columns[0])
            attributes[at] = pa.array(replaced.copy())
        arrays = [
            *attributes,
            # A copy: the kept column must not keep all other columns of the run alive.
            pa.array(times.copy()),
            pa.array(events.instance.astype(np.int32)),
        ]
        self._store.append(pa.RecordBatch.from_arrays(arrays, schema=self._store.schema))

    def _buffer(self, size: int) -> Longs:
        """Room for ``size`` output events; parts that are never written use no memory."""
        if size > _BUFFER_EVENTS:
            return np.empty((m.OUT_ROWS, size), dtype=np.int64)
        if size > self._out.shape[1]:
            self._out = np.empty((m.OUT_ROWS, size + size // 2), dtype=np.int64)
        return self._out

    def _chunks(self, out: Longs, count: int) -> Longs:
        chunk = np.empty(count, dtype=np.int64)
        m.number_chunks(out, count, self._last, chunk)
        return chunk

    def _emit(self, out: Longs, count: int) -> EventBatch:
        if not count:
            return self._nothing()
        chunk = self._chunks(out, count)
        numbers = out[m.O_ROW, :count]
        if int(numbers.max()) < 0:
            # A reset alone: the content of its row is ignored.
            nulls = [pa.nulls(count, field.type) for field in self._schema]
            rows = pa.RecordBatch.from_arrays(nulls, schema=self._schema)
        else:
            numbers[numbers < 0] = numbers.max()
            rows = self._store.take(numbers, self._schema.names)
        return EventBatch(
            out[m.O_TIME, :count].copy(),
            out[m.O_CLOCK, :count].copy(),
            out[m.O_ORDER, :count].copy(),
            out[m.O_PATH, :count].copy(),
            chunk,
            out[m.O_KIND, :count].astype(np.int8),
            out[m.O_INSTANCE, :count].copy(),
            rows,
        )

    def _nothing(self) -> EventBatch:
        return no_events(self._schema)

    @property
    def live(self) -> int:
        """Rows in lists, at least."""
        return int(self._reg[:, m.A_COUNT].sum() + self._reg[:, m.B_COUNT].sum())

    def live_rows(self) -> Longs:
        """The numbers of the rows that are in a list, growing."""
        rows = self._node[: self._meta[m.M_USED], m.ROW]
        return np.sort(rows[rows >= 0])

    def sweep(self) -> None:
        """Forget rows that are in no list."""
        store = self._store
        # A sweep visits each instance, so it waits for a number of rows in proportion.
        if len(self._reg) == 0 or store.came - self._swept < len(self._reg) // 8:
            return
        self._swept = store.came
        if not self._spec.listed:
            heads = np.concatenate([self._reg[:, m.A_HEAD], self._reg[:, m.B_HEAD]])
            heads = heads[heads != NIL]
            self.lowest = int(self._node[heads, m.ROW].min()) if len(heads) else store.came
            store.release_below(self.lowest)
        if store.count > 2 * self.live + _SWEEP_ROWS:
            self.compact()

    def compact(self) -> None:
        """Keep just the rows that are in a list."""
        self._store.keep(self.live_rows())

    def next_time(self) -> int | None:
        """Time of the earliest timer; None without one."""
        if not self._meta[m.M_HEAP]:
            return None
        return int(self._heap[0, m.DUE])

    def content(self, instance: int) -> tuple[pa.RecordBatch, Longs]:
        """The rows that a join finds, in the engine's order, and their times."""
        numbers, times = self._list(instance, self._spec.finds)
        return self._store.take(numbers, self._schema.names), times

    def _list(self, instance: int, head: int) -> tuple[Longs, Longs]:
        rows: list[int] = []
        times: list[int] = []
        if instance < len(self._reg):
            n = int(self._reg[instance, head])
            while n != NIL:
                rows.append(int(self._node[n, m.ROW]))
                times.append(int(self._node[n, m.TIME]))
                n = int(self._node[n, m.NEXT])
        return np.array(rows, dtype=np.int64), np.array(times, dtype=np.int64)

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        for i in instances.tolist():
            if i >= len(self._reg):
                continue
            for head in (m.A_HEAD, m.B_HEAD):
                m.clear(self._node, self._reg, self._meta, i, head)
            self._reg[i] = self._fresh(1)
            self._reg[i, [m.A_ROW, m.B_ROW]] = self._store.came
        self._meta[m.M_STEPS] += 1
        m.rebuild_heap(self._reg, self._heap, self._meta)

    def snapshot(self) -> State:
        """The rows in pieces that stay; registers by ranges of instances."""
        steps = int(self._meta[m.M_STEPS])
        pieces = self._store.pieces()
        few = len(self._reg) <= _FEW_INSTANCES
        if not few:
            reg = _unlisted(self._reg.copy())
            columns = {str(k): pa.array(reg[:, k].copy()) for k in range(reg.shape[1])}
            pieces |= cut("registers", _batch({NUMBER: pa.array(np.arange(len(reg))), **columns}))
        for head in self._spec.listed:
            pieces[f"list{head}-{steps}"] = self._listed(head)
        scalars = {
            "store": self._store.scalars(),
            "registers": self._reg.tolist() if few else None,
            "steps": steps,
            "number": int(self._meta[m.M_NUMBER]),
            "before": [
                int(self._meta[k]) for k in (m.M_ORDER, m.M_CLOCK, m.M_PATH, m.M_CHUNK, m.M_PIECE)
            ],
            "last": self._last.tolist(),
            "now": int(self._par[m.P_BEFORE]),
        }
        return State(pieces, scalars)

    def _listed(self, head: int) -> pa.RecordBatch:
        lists = [self._list(i, head) for i in range(len(self._reg))]
        whose = np.repeat(np.arange(len(lists)), [len(rows) for rows, _ in lists])
        none = np.empty(0, dtype=np.int64)
        return _batch(
            {
                "whose": pa.array(whose),
                "row": pa.array(np.concatenate([none, *(rows for rows, _ in lists)])),
                "time": pa.array(np.concatenate([none, *(times for _, times in lists)])),
            }
        )

    def restore(self, state: State) -> None:
        """Restore rows and registers, and rebuild the lists."""
        self._clear()
        scalars = state.scalars
        steps = scalars["steps"]
        self._store.restore(state.pieces, scalars["store"])
        if scalars["registers"] is not None:
            reg = np.array(scalars["registers"], dtype=np.int64).reshape(-1, self._spec.registers)
        else:
            registers = joined(pieces_of("registers", state.pieces))
            columns = [column.to_numpy() for column in registers.columns]
            reg = np.stack(columns[1:], axis=1)
        self._reg = _unlisted(reg)
        meta = self._meta
        meta[m.M_STEPS], meta[m.M_NUMBER] = steps, scalars["number"]
        meta[[m.M_ORDER, m.M_CLOCK, m.M_PATH, m.M_CHUNK, m.M_PIECE]] = scalars["before"]
        self._last[:] = scalars["last"]
        self._par[m.P_BEFORE] = scalars["now"]
        self.lowest = self._swept = 0
        self._relist(state, steps)
        self._grow(0)
        m.rebuild_heap(self._reg, self._heap, self._meta)

    def _relist(self, state: State, steps: int) -> None:
        listed = self._spec.listed
        if m.A_HEAD not in listed:
            registers = self._reg[:, [m.A_ROW, m.B_ROW]].copy()
            if m.B_HEAD in listed or not self.is_batch:
                # The other list is no older one: rows that have left are in none.
                self._reg[:, m.B_ROW] = NEVER
            for rows, (times, instances) in self._store.columns((TIME, INSTANCE)):
                self._grow(len(rows))
                m.rebuild_lists(rows, instances, times, self._node, self._reg, self._meta)
            self._reg[:, [m.A_ROW, m.B_ROW]] = registers
        for head in listed:
            piece = state.pieces[f"list{head}-{steps}"]
            self._grow(piece.num_rows)
            whose, rows, times = (
                piece.column(name).to_numpy() for name in ("whose", "row", "time")
            )
            m.rebuild_list(head, rows, whose, times, self._node, self._reg, self._meta)


def _unlisted(reg: Longs) -> Longs:
    """``reg`` without the places of its lists in memory."""
    reg[:, [m.A_HEAD, m.A_TAIL, m.B_HEAD, m.B_TAIL]] = NIL
    reg[:, [m.A_COUNT, m.B_COUNT]] = 0
    return reg


def _batch(columns: Mapping[str, ArrowArray]) -> pa.RecordBatch:
    arrays: Sequence[ArrowArray] = list(columns.values())
    schema = pa.schema([pa.field(name, pa.int64()) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
