"""State of a pattern of single events as an append-only log of the matches that wait.

A match that waits at a step is an entry: its list, its time, and of each of its events the
number, the time and the attributes that are kept.  An entry never changes; a match that moves on
leaves and enters again.  Entries are numbered in the order in which they enter their lists, so
that a list is its entries by number: up to the last ready one they wait, the others do so from the
next event on.

The machine logs entries and exits (``lists.enter``, ``lists.leave``) from the first snapshot on,
when ``enroll`` is called: without snapshots nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.patterns import memory_layout
from mesh.operators.patterns.memory_layout import NONE, SCRATCH, PatternMemory
from mesh.operators.patterns.runs import Runs
from mesh.operators.state.range_pieces import NUMBER, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.values import JsonMapping
    from mesh.operators.base import Longs
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.memory import Array
    from pyspark_nats.arrow import ArrowArray

#: Steps of instances in one piece.
_KEYS: Final = 4096
#: Columns of ``local`` that patterns of single events use, each 0 or 1.
_MARKS: Final = (
    memory_layout.ACTIVE,
    memory_layout.STARTED,
    memory_layout.INITIALIZED,
    memory_layout.RESETS,
)


class MatchLog:
    """The entries of one pattern; ``stream_of``: by step, the number of its stream."""

    def __init__(self, stream_of: Longs, schemas: Sequence[pa.Schema]) -> None:
        self._stream_of = stream_of
        self._schemas = schemas
        fields = [pa.field(name, pa.int64()) for name in (NUMBER, "list", "time", "dropped")]
        for step, stream in enumerate(stream_of.tolist()):
            fields += [pa.field(f"{step}#", pa.int64()), pa.field(f"{step}@", pa.int64())]
            fields += [pa.field(f"{step}.{f.name}", f.type) for f in schemas[stream]]
        self._schema = pa.schema(fields)
        self._runs = Runs()

    def absorb(self, w: PatternMemory, events: EventStore) -> None:
        """Apply the machine's journal."""
        scalars = w.scalars
        count, gone = int(scalars[memory_layout.ENTERED]), w.left[: scalars[memory_layout.LEFT]]
        first = int(scalars[memory_layout.SERIAL])
        waits = np.ones(count, dtype=np.bool_)
        waits[gone[gone >= first] - first] = False
        self._runs.leave(gone[gone < first])
        places = np.flatnonzero(waits)
        self._runs.enter(self._rows(w, events, w.entered[places], first + places))
        scalars[memory_layout.SERIAL] = first + count
        scalars[[memory_layout.ENTERED, memory_layout.LEFT]] = 0

    def _rows(
        self, w: PatternMemory, events: EventStore, entered: Array, numbers: Longs
    ) -> pa.RecordBatch:
        steps = len(self._stream_of)
        matches = w.matches[entered[:, memory_layout.ENTERED_MATCH]]
        columns = [numbers, entered[:, memory_layout.ENTERED_LIST]]
        columns += [matches[:, steps], matches[:, steps + 1]]
        arrays: list[ArrowArray] = [pa.array(np.ascontiguousarray(c)) for c in columns]
        for step, stream in enumerate(self._stream_of.tolist()):
            nodes = matches[:, step]
            has = nodes != NONE
            places = np.where(has, nodes, 0)
            slots = np.where(has, w.nodes[places, memory_layout.EVENT], NONE)
            numbers = np.full(len(slots), NONE, dtype=np.int64)
            numbers[has] = events.number[slots[has]]
            times = np.where(has, w.nodes[places, memory_layout.TIME], 0)
            arrays += [pa.array(numbers), pa.array(times)]
            names = self._schemas[stream].names
            arrays += [events.column(stream, name, slots) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def snapshot(self, w: PatternMemory) -> tuple[dict[str, pa.RecordBatch], dict[str, object]]:
        """Pieces and scalars; all that was written down has been absorbed."""
        self._runs.settle()
        pieces = self._runs.pieces()
        local = w.local[:, list(_MARKS)]
        used = np.flatnonzero(local[:, 1])
        steps = len(self._stream_of)
        keys = (int(used[-1]) // steps + 1) * steps if len(used) else 0
        names = []
        for start in range(0, keys, _KEYS):
            part = slice(start, min(start + _KEYS, keys))
            bits = (local[part] << np.arange(len(_MARKS))).sum(axis=1).astype(np.int8)
            rows = pa.record_batch(
                {"marks": pa.array(bits), "ready": pa.array(w.ready[part].copy())}
            )
            # The same marks may occur in several places.
            names.append(named(f"keys{start // _KEYS}", rows))
            pieces[names[-1]] = rows
        scalars: dict[str, object] = {
            "runs": self._runs.names(),
            "keys": names,
            "serial": int(w.scalars[memory_layout.SERIAL]),
            "flags": w.flags.tolist(),
        }
        return pieces, scalars

    def restore(
        self,
        empty: PatternMemory,
        pieces: Mapping[str, pa.RecordBatch],
        scalars: JsonMapping,
        events: EventStore,
    ) -> PatternMemory:
        """The memory from ``snapshot``; ``events`` gets the events of its matches."""
        self._runs.restore(scalars["runs"], pieces)
        rows = self._runs.waiting(self._schema)
        parts = [pieces[name] for name in scalars["keys"]]
        marks = np.concatenate([np.empty(0, np.int8), *(p.column("marks") for p in parts)])
        ready = np.concatenate([np.empty(0, np.int64), *(p.column("ready") for p in parts)])
        lists = rows.column("list").to_numpy()
        of, count = self._lists(rows, lists, ready)
        order = np.argsort(of, kind="stable")
        rows, of = rows.take(order), of[order]
        w = self._with_matches(empty, rows, events)
        local = np.zeros((len(marks), memory_layout.LOCAL_COLUMNS), dtype=np.int64)
        local[:, list(_MARKS)] = (marks[:, None] >> np.arange(len(_MARKS))) & 1
        local[:, [memory_layout.QUEUE, memory_layout.QUEUE_END]] = NONE
        cells = np.zeros((len(of), memory_layout.CELL_COLUMNS), dtype=np.int64)
        cells[:, memory_layout.HOLDS] = np.arange(len(of))
        cells[:, [memory_layout.AFTER, memory_layout.BEFORE, memory_layout.BUCKET]] = NONE
        follows = np.flatnonzero(of[1:] == of[:-1])
        cells[follows, memory_layout.AFTER] = follows + 1
        cells[follows + 1, memory_layout.BEFORE] = follows
        held = np.full((count, memory_layout.LIST_COLUMNS), NONE, dtype=np.int64)
        held[:, memory_layout.SIZE] = np.bincount(of, minlength=count) if len(of) else 0
        # Open bounds: the lists are always searched.
        held[:, memory_layout.LOW], held[:, memory_layout.HIGH] = (
            -memory_layout.FAR,
            memory_layout.FAR,
        )
        held[of[::-1], memory_layout.HEAD] = np.arange(len(of))[::-1]
        held[of, memory_layout.END] = np.arange(len(of))
        w.scalars[[memory_layout.CELLS, memory_layout.SERIAL, memory_layout.JOURNALS]] = (
            len(of),
            scalars["serial"],
            1,
        )
        room = 1 << (len(cells) + len(empty.buckets)).bit_length()
        numbers = rows.column(NUMBER).to_numpy()
        return w._replace(
            flags=np.array(scalars["flags"], dtype=np.int64),
            cells=np.concatenate([cells, np.zeros_like(empty.cells)]),
            entries=np.concatenate([numbers, np.zeros_like(empty.entries)]),
            buckets=np.zeros((room, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
            hashes=np.full(2 * room, NONE, dtype=np.int64),
            lists=held,
            local=local,
            ready=ready.copy(),
        )

    def _lists(self, rows: pa.RecordBatch, lists: Longs, ready: Longs) -> tuple[Longs, int]:
        """The list that each entry is in, and the number of all lists."""
        keys = (lists - SCRATCH) // 2
        numbers = rows.column(NUMBER).to_numpy()
        is_new = numbers > ready[keys] if len(keys) else np.empty(0, dtype=np.bool_)
        which = np.where(is_new, memory_layout.NEW, memory_layout.PENDING)
        return SCRATCH + 2 * keys + which, SCRATCH + 2 * len(ready)

    def _with_matches(
        self, empty: PatternMemory, rows: pa.RecordBatch, events: EventStore
    ) -> PatternMemory:
        """A match for each of ``rows``, and a node for each of their events."""
        steps = len(self._stream_of)
        matches = np.full((rows.num_rows, steps + 2), NONE, dtype=np.int64)
        matches[:, steps] = rows.column("time").to_numpy()
        matches[:, steps + 1] = rows.column("dropped").to_numpy()
        numbers = [rows.column(f"{step}#").to_numpy() for step in range(steps)]
        together = np.concatenate([np.empty(0, np.int64), *numbers])
        event_numbers, first, slots = np.unique(together, return_index=True, return_inverse=True)
        has_none = int(len(event_numbers) > 0 and event_numbers[0] == NONE)
        event_numbers, first = event_numbers[has_none:], first[has_none:]
        nodes = np.zeros((len(event_numbers), memory_layout.NODE_COLUMNS), dtype=np.int64)
        indices = np.arange(len(event_numbers))
        nodes[:, memory_layout.EVENT] = nodes[:, memory_layout.TAIL] = indices
        nodes[:, [memory_layout.FORWARD, memory_layout.BACK]] = NONE
        nodes[:, memory_layout.LENGTH] = 1
        streams = np.zeros(len(event_numbers), dtype=np.int64)
        batches: list[list[pa.RecordBatch]] = [[] for _ in self._schemas]
        places: list[list[Longs]] = [[] for _ in self._schemas]
        for step, stream in enumerate(self._stream_of.tolist()):
            if rows.num_rows:
                matches[:, step] = slots[step * rows.num_rows :][: rows.num_rows] - has_none
            mine = np.flatnonzero(first // max(rows.num_rows, 1) == step)
            at = first[mine] - step * rows.num_rows
            nodes[mine, memory_layout.TIME] = rows.column(f"{step}@").take(at).to_numpy()
            streams[mine] = stream
            names = self._schemas[stream].names
            columns = [rows.column(f"{step}.{name}").take(at) for name in names]
            batches[stream].append(
                pa.RecordBatch.from_arrays(columns, schema=self._schemas[stream])
            )
            places[stream].append(mine)
        events.add_again(event_numbers, streams, batches, places)
        w = empty
        w.scalars[[memory_layout.MATCHES, memory_layout.NODES]] = len(matches), len(nodes)
        return w._replace(
            matches=np.concatenate([matches, np.zeros_like(empty.matches)]),
            nodes=np.concatenate([nodes, np.zeros_like(empty.nodes)]),
        )
