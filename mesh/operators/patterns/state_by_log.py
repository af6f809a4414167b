"""State of a pattern of single events as an append-only log of the matches that wait.

A match that waits at a step is an entry: its list, its time, and of each of its events the
number, the time and the attributes that are kept.  An entry never changes; a match that moves on
leaves and enters again.  Entries are numbered in the order in which they enter their lists, so
that a list is its entries by number: up to the last ready one they wait, the others do so from the
next event on.

The machine logs entries and exits (``lists.enter``, ``lists.leave``) from the first snapshot on,
when ``enroll`` is called: without snapshots nothing is written.

Entries in order of arrival, stored in runs that never change.

A run is a record batch of entries with rising numbers, beside a mask of the entries that still
wait.  The entries since the last snapshot are a new run.  The last runs are merged as soon as one
is not much larger than the next.  So there are few of them, and each entry is written a few times
at most.  A run of which less than half still waits is rewritten without the rest.

A run's content determines the name of its piece: runs with the same name are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import concat
from mesh.operators.patterns import memory_layout
from mesh.operators.patterns.memory_layout import NONE, SCRATCH, PatternMemory
from mesh.operators.state.range_pieces import NUMBER, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.values import JsonMapping
    from mesh.operators.base import Bools, Longs
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.memory_layout import Array
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

#: Approximate limit of entries in a run; a run of this size is not merged with others.
_FULL: Final = 8192
#: A run that is so many times the next is not merged.
_MUCH: Final = 2


@dataclass(slots=True)
class _Run:
    rows: pa.RecordBatch
    numbers: Longs
    waits: Bools
    #: By ``named``; empty until requested.
    _name: str = ""

    @property
    def name(self) -> str:
        """The name of its piece."""
        if not self._name:
            self._name = named("run", self.rows)
        return self._name

    @property
    def count(self) -> int:
        """Number of its waiting entries."""
        return int(np.count_nonzero(self.waits))

    def waiting(self) -> pa.RecordBatch:
        """Those that wait, in memory of their own."""
        return self.rows.take(np.flatnonzero(self.waits))


def _run(rows: pa.RecordBatch) -> _Run:
    numbers = rows.column(NUMBER).to_numpy()
    return _Run(rows, numbers, np.ones(rows.num_rows, dtype=np.bool_))


class Runs:
    """All entries that wait, and some that no longer do."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def enter(self, rows: pa.RecordBatch) -> None:
        """Add entries with numbers beyond the earlier ones."""
        for start in range(0, rows.num_rows, _FULL):
            places = np.arange(start, min(start + _FULL, rows.num_rows))
            self._runs.append(_run(rows.take(places) if rows.num_rows > _FULL else rows))

    def leave(self, numbers: Longs) -> None:
        """Entries no longer wait; numbers that are in no run are passed over."""
        if not self._runs or not len(numbers):
            return
        numbers = np.sort(numbers)
        firsts = np.array([int(run.numbers[0]) for run in self._runs])
        cuts = [*np.searchsorted(numbers, firsts).tolist(), len(numbers)]
        for run, start, stop in zip(self._runs, cuts, cuts[1:], strict=False):
            mine = numbers[start:stop]
            if len(mine):
                places = np.minimum(np.searchsorted(run.numbers, mine), len(run.numbers) - 1)
                run.waits[places[run.numbers[places] == mine]] = False

    def settle(self) -> None:
        """Merge runs, and rewrite those with few waiting entries."""
        runs: list[_Run] = []
        for run in self._runs:
            count = run.count
            if not count:
                continue
            if 2 * count < len(run.waits):
                run = _run(run.waiting())
            runs.append(run)
        while len(runs) > 1:
            last, before = len(runs[-1].waits), len(runs[-2].waits)
            if before >= _FULL or before > _MUCH * last:
                break
            rows = concat([runs[-2].waiting(), runs[-1].waiting()])
            runs[-2:] = [_run(rows)]
        self._runs = runs

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """A piece for each run, and one with the masks of waiting entries."""
        by_name = {run.name: run.rows for run in self._runs}
        bits = np.packbits(np.concatenate([np.empty(0, np.bool_), *(r.waits for r in self._runs)]))
        waits = pa.record_batch({"bits": pa.array(bits)})
        return {**by_name, named("waits", waits): waits}

    def names(self) -> list[str]:
        """The names of the runs, in order."""
        return [run.name for run in self._runs]

    def restore(self, names: Sequence[str], pieces: Mapping[str, pa.RecordBatch]) -> None:
        """Restore from the result of ``pieces``, with the names from ``names``."""
        (waits,) = (rows for name, rows in pieces.items() if name.startswith("waits-"))
        bits = np.unpackbits(waits.column("bits").to_numpy()).astype(np.bool_)
        self._runs = []
        at = 0
        for name in names:
            rows = pieces[name]
            mask = bits[at : at + rows.num_rows].copy()
            self._runs.append(_Run(rows, rows.column(NUMBER).to_numpy(), mask, name))
            at += rows.num_rows

    def waiting(self, schema: pa.Schema) -> pa.RecordBatch:
        """All entries that wait, by number."""
        parts = [run.waiting() for run in self._runs]
        return concat(parts) if parts else pa.RecordBatch.from_pylist([], schema)


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
