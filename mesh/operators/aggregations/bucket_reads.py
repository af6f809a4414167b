"""Buckets of an aggregation in a store, as joins find them: rows of tables, and what is on its way.

    table in the database ──look-up──▶ rows found ─┐
    rows that left, not committed at that time ────┼──▶ merged by base values with what runs
    running cells ─────────────────────────────────┘

A row leaves with the position of its run, and the database has the rows up to its marker.  So rows
that left count as long as the marker that a look-up met is lower: each is counted once, wherever it
is.  What a run has read is recorded (``tables.replay``) with that marker, and found again in a
replay.  Runs without reads whose rows leave are recorded too: a replay is cut where they were
written, so the rows of one run are all in the database, or none of them.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from mesh.functions.vectors import from_arrow
from mesh.model.stored import EVERY_ROW, AllOf, AnyKey, AnyOf, Clause, Compared, Comparison
from mesh.operators.aggregations.dictionary import KeyNumbers
from mesh.operators.base import State, concat, no_rows
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mesh.model.stored import StoredTable
    from mesh.operators.base import Longs

#: Key of the marker in the metadata of recorded rows.
_POSITION: Final = b"position"
#: Look-ups of one statement.
_ALTERNATIVES_MAX: Final = 50


class BucketReads:
    """The rows of the table of one duration that joins of a run have asked for."""

    def __init__(self, table: StoredTable) -> None:
        self.table = table
        #: Reads rows of the table, and returns the marker's position after it; both are set by the
        #: process that runs the queries.
        self.find_rows: Callable[[Clause], pa.RecordBatch] | None = None
        self.marker: Callable[[], int] | None = None
        #: Rows that left and may not be in the database, with their positions.
        self._left: list[tuple[Longs, pa.RecordBatch]] = []
        self._batches: list[pa.RecordBatch] = []
        self._keys = self._no_keys()
        #: The marker's position when the rows were found; None before the first look-up.
        self._position: int | None = None
        #: Look-ups of this run: the parts that hold for each, with the keys of those by equality.
        self._whole: set[frozenset[Clause]] = set()
        self._by_key: dict[tuple[tuple[str, ...], frozenset[Clause]], set[object]] = {}
        self._has_lookups = False
        self._is_repeating = False

    def __repr__(self) -> str:
        return f"BucketReads({self.table.name}, {sum(map(len, self._batches))} rows found)"

    @property
    def read_name(self) -> str:
        """Its name among what is read; no table has it."""
        return f"@{self.table.name}"

    def leave(self, rows: pa.RecordBatch, position: int) -> None:
        """Note rows that leave for the table in the run whose first position is ``position``."""
        self._left.append((np.full(rows.num_rows, position, dtype=np.int64), rows))

    def settle_positions(self, first: int, position: Longs, rows: pa.RecordBatch) -> None:
        """Replace what left from position ``first`` on by the same ``rows`` with their positions.

        An earlier life may have written some of them, and the marker is then among them.
        """
        self._left = [(at, batch) for at, batch in self._left if len(at) and at[0] < first]
        self._left.append((position, rows))

    # Look-ups

    def require(self, within: tuple[int, int], lookups: Iterable[Clause]) -> None:
        """Find the rows of a span that look-ups by group-by columns find, unless they are known.

        Raises:
            MeshError: the database does not answer.
        """
        self._has_lookups = True
        if self._is_repeating:
            return
        clauses = [one for clause in lookups for one in self._unknown(within, clause)]
        for start in range(0, len(clauses), _ALTERNATIVES_MAX):
            some = tuple(clauses[start : start + _ALTERNATIVES_MAX])
            self._find(some[0] if len(some) == 1 else AnyOf(some))

    def _unknown(self, within: tuple[int, int], clause: Clause) -> list[Clause]:
        """A look-up in a span, if it may find rows that are not found yet."""
        time = self.table.time
        parts = clause.parts if isinstance(clause, AllOf) else (clause,)
        by = next((part for part in parts if isinstance(part, AnyKey)), None)
        rest = frozenset(
            (
                *(part for part in parts if part is not by),
                Compared(time, Comparison.GREATER_OR_EQUAL, within[0]),
                Compared(time, Comparison.LESS, within[1]),
            )
        )
        if any(previous <= rest for previous in self._whole):
            return []
        if by is None:
            self._whole.add(rest)
        elif any(
            columns == by.columns and previous <= rest and keys.issuperset(by.keys)
            for (columns, previous), keys in self._by_key.items()
        ):
            return []
        else:
            self._by_key.setdefault((by.columns, rest), set()).update(by.keys)
        spans = [part for part in rest if isinstance(part, Compared) and part.column == time]
        others = [part for part in parts if part is not by and part != EVERY_ROW]
        return [AllOf((*sorted(spans, key=str), *((by,) if by else ()), *others))]

    def _find(self, clause: Clause) -> None:
        assert self.find_rows is not None, "a process that runs queries sets a reader"
        assert self.marker is not None, "a process that runs queries sets a reader"
        rows = self.find_rows(clause)
        self._position = self.marker()
        self._take_in(rows)

    def _no_keys(self) -> KeyNumbers:
        return KeyNumbers([column.type for column in self.table.keys], nulls_are_text=False)

    def _take_in(self, rows: pa.RecordBatch) -> None:
        """Add rows that are not found yet: what was found first holds for the whole run."""
        count = len(self._keys)
        keys = [from_arrow(rows.column(one.name), one.type) for one in self.table.keys]
        new = self._keys.number(keys, rows.num_rows, "") >= count
        if new.any():
            self._batches.append(rows.filter(pa.array(new)))

    def rows(self, within: tuple[int, int]) -> pa.RecordBatch:
        """The rows of a span that were found, and those on their way; several for one key."""
        position = -1 if self._position is None else self._position
        parts = [*self._batches, *(rows.filter(pa.array(at > position)) for at, rows in self._left)]
        batch = concat(parts) if parts else no_rows(self.table.arrow)
        times = batch.column(self.table.time)
        met = kernels.and_(kernels.greater_equal(times, within[0]), kernels.less(times, within[1]))
        return batch.filter(met)

    # Runs

    def begin_run(self, *, is_settled: bool) -> None:
        """Forget what was found; ``is_settled``: whether all rows that left are in the database."""
        if self._is_repeating:
            return
        self._forget()
        if is_settled:
            self._left.clear()

    def take_reads(self) -> pa.RecordBatch | None:
        """The rows found since ``begin_run``; None if nothing was asked for."""
        has_lookups, self._has_lookups = self._has_lookups, False
        if not has_lookups:
            return None
        rows = concat(self._batches) if self._batches else no_rows(self.table.arrow)
        position = 0 if self._position is None else self._position
        return rows.replace_schema_metadata({_POSITION: str(position).encode()})

    def repeat(self, rows: pa.RecordBatch | None, *, continues: bool) -> None:
        """Find the rows of an earlier run, and ask for no others from now on."""
        del continues
        self._forget()
        self._is_repeating = True
        if rows is not None:
            self._position = int((rows.schema.metadata or {}).get(_POSITION, b"0"))
            self._take_in(rows.replace_schema_metadata(None))

    def ask_again(self) -> None:
        """Ask the database again: no earlier run is left."""
        self._is_repeating = False
        self._forget()

    def _forget(self) -> None:
        self._batches = []
        self._keys = self._no_keys()
        self._position = None
        self._whole.clear()
        self._by_key.clear()
        self._has_lookups = False

    # State

    def snapshot(self) -> State:
        """Nothing: all that left is in the database when a state is stored.

        While earlier runs are repeated it is what left: a run may have read the database before.
        """
        if not self._is_repeating or not self._left:
            return State()
        left = [[at.tolist(), base64.b64encode(_stream(rows)).decode()] for at, rows in self._left]
        return State({}, {"left": left})

    def restore(self, state: State) -> None:
        """Restore what left."""
        left = state.scalars.get("left", ())
        self._left = []
        for at, text in left:
            # Earlier versions have one position for all.
            rows = _batch(base64.b64decode(text))
            self._left.append((np.full(rows.num_rows, at, dtype=np.int64), rows))


def rank_of(numbers: KeyNumbers) -> Longs:
    """int64[n], the place of each key in the order of values: that of no database or input."""
    count, columns = len(numbers), len(numbers.types)
    if not columns:
        return np.zeros(count, dtype=np.int64)
    names = [str(column) for column in range(columns)]
    arrays = [numbers.values(column).to_arrow(count) for column in range(columns)]
    table = pa.Table.from_arrays(arrays, names=names)
    order = kernels.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    rank = np.empty(count, dtype=np.int64)
    rank[order.to_numpy()] = np.arange(count)
    return rank


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def _batch(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
