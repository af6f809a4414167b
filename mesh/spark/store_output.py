"""Rows of a partition for tables in databases: collected during a run, committed at its end.

They are committed before the state is stored, so a stored state is never further than the marker
in the database.  After a failure the state is that of an earlier run, and the replay makes the same
rows with the same positions; those up to the marker are skipped.

Rows that no database takes leave as failed events, with the positions that they have.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.model.stored import changes_channel, is_stored, rows_channel
from mesh.model.stored_limits import refused
from mesh.operators.base import concat
from mesh.operators.executor import OutputRun
from mesh.operators.failures import FAILED
from mesh.store.backends import writer_of
from mesh.store.sources import database
from mesh.store.stored_rows import StoredRows
from mesh.telemetry.logs import fields
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink.producer_state import CLOCKS_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.stored import Database, StoredTable, StoreTarget
    from mesh.operators.aggregations.bucket_reads import BucketReads
    from mesh.operators.executor import Executor
    from mesh.operators.tables.lookup_table import LookupTable
    from mesh.store.backends import Writer
    from mesh.store.refusals import RefusedRow

log = logging.getLogger(__name__)


class StoreOutput:
    """The writers of one partition, and the rows of its present run."""

    def __init__(
        self, targets: Sequence[StoreTarget], producer: str, epoch: int, app: str = ""
    ) -> None:
        """Writers that are not connected yet.

        Args:
            targets: the stored tables of the partition's operators.
            producer: the name in markers.
            app: its name, for databases that not every app may use.
            epoch: of the assignment.

        Raises:
            MeshError: MESH-S143 .. S145.
        """
        self._rows: dict[Writer, list[StoredRows]] = {}
        self._state_tables: dict[Writer, list[StoredTable]] = {}
        self._tables: dict[str, StoredTable] = {}
        self.writer_of: dict[str, Writer] = {}
        self._lookup_tables: Sequence[LookupTable] = ()
        self._buckets: Sequence[BucketReads] = ()
        #: Of writers whose database may refuse rows: the positions up to which the last two calls
        #: of ``refused`` had returned them.
        self._reported: dict[Writer, tuple[int, int]] = {}
        #: Records what runs read in databases; None if none of that is repeated.
        self._journal: Writer | None = None
        #: Whether the present run has rows of the run before at hand.
        self._continues = False
        #: The broker's time once this process alone writes; None if it is not known.
        self.claimed_ms: int | None = None
        #: Whether the last ``commit`` had rows to write.
        self.has_committed = False
        #: Whether the last ``refused`` had rows: the output of its run has to be acknowledged
        #: before the one after the next run.
        self.has_refused = False
        if any(target.shard is not None and not target.shard[1] for target in targets):
            raise MeshError(
                "MESH-S144",
                "an aggregation has @PartitionById, and this mesh no shard_id",
                hint="Set stores.shard_id on all nodes, another for each mesh.",
            )
        by_database: dict[Database, list[StoreTarget]] = {}
        for target in targets:
            by_database.setdefault(database(target.options, app), []).append(target)
        for where, some in by_database.items():
            tables = [table for target in some for table in target.tables]
            columns = {
                t.name: target.shard for target in some for t in target.tables if target.shard
            }
            in_state = [table for target in some if target.is_in_state for table in target.tables]
            names = [table.name for table in in_state]
            # The first one records the reads of all.
            records = self._journal is None and any(target.is_repeated for target in some)
            refusable = [t.name for one in some if one.options.is_refusable for t in one.tables]
            writer = writer_of(where, producer, epoch, tables, columns, names, records, refusable)
            if refusable:
                self._reported[writer] = (0, 0)
            self._journal = writer if records else self._journal
            self._rows[writer] = []
            self._state_tables[writer] = in_state
            for table in tables:
                self._tables[rows_channel(table.name)] = table
                self._tables[changes_channel(table.name)] = table
                self.writer_of[table.name] = writer

    @classmethod
    def of(cls, executor: Executor, epoch: int, app: str = "") -> StoreOutput | None:
        """The writers of an executor's tables, of an app, connected; None without tables.

        Raises:
            MeshError: MESH-S140 .. S146.
        """
        targets = executor.stores
        if not targets:
            return None
        output = cls(targets, executor.producer, epoch, app)
        output._describe(executor)
        output._lookup_tables = executor.lookup_tables
        for table in output._lookup_tables:
            writer = output.writer_of[table.stored.name]
            table.find_rows = partial(writer.find, table.stored)
        output._buckets = executor.bucket_reads
        for reads in output._buckets:
            writer = output.writer_of[reads.table.name]
            reads.find_rows = partial(writer.find, reads.table)
            reads.marker = partial(getattr, writer, "position")
        return output

    def _describe(self, executor: Executor) -> None:
        """Compare tables with their databases, and use the types of the columns from now on."""
        for writer in self._rows:
            writer.open()
            for table in writer.tables:
                self._tables[rows_channel(table.name)] = table
                self._tables[changes_channel(table.name)] = table
        executor.describe({table.name: table for table in self._tables.values()})
        self._state_tables = {
            writer: [self._tables[rows_channel(table.name)] for table in tables]
            for writer, tables in self._state_tables.items()
        }

    def prepare(self) -> None:
        """Forget rows of databases before a run, unless it continues one that is not written."""
        self._continues = any(self._rows.values())
        if self._lookup_tables and not self._continues:
            now_ms = time.monotonic_ns() // 1_000_000
            for table in self._lookup_tables:
                table.settle(now_ms)
        for reads in self._buckets:
            reads.begin_run(is_settled=not self._continues)

    def record(self, executor: Executor) -> None:
        """Record what the run has read, before its output leaves.

        Raises:
            MeshError: see ``commit``.
        """
        if self._journal is not None:
            run = executor.take_reads(continues=self._continues)
            if run is not None:
                self._journal.record(run)

    def recall(self, executor: Executor) -> None:
        """Let an executor that continues from a state read what was read after it.

        Raises:
            MeshError: see ``commit``.
        """
        if self._journal is not None:
            executor.replay.repeat(self._journal.recorded(executor.replay.number))

    def begin(self, executor: Executor) -> None:
        """Give tables that begin without a state the rows of their database.

        If changes of an earlier life without a snapshot are among them, and others were there
        before, the replay applies its changes to these rows again.

        Raises:
            MeshError: see ``commit``.
        """
        for writer, tables in self._state_tables.items():
            if not tables:
                continue
            writer.open()
            if writer.position and not writer.initial:
                # All rows come from the events that follow.
                continue
            if writer.position:
                _warn(tables)
            for table in tables:
                executor.fill(table.name, writer.rows(table))

    def continue_from(self, executor: Executor) -> None:
        """Make tables of a restored state and of their database the same.

        Those that had no part in the state get the rows of their database: another text of the app
        has them, or defines them in another way.  A database that has lost its marker and all rows
        gets those of the state again.

        Raises:
            MeshError: see ``commit``.
        """
        for writer, tables in self._state_tables.items():
            begun = [table for table in tables if table.name in executor.begun_tables]
            if not tables:
                continue
            writer.open()
            if executor.outputs_count and not writer.position and not writer.initial:
                # Rows of a state are of its database, or were written to it before.
                _write_again(writer, [t for t in tables if t not in begun], executor)
            if not begun:
                continue
            if writer.position > executor.outputs_count:
                _warn(begun)
            for table in begun:
                executor.fill(table.name, writer.rows(table))

    def take(self, runs: Sequence[OutputRun]) -> list[OutputRun]:
        """Keep the rows for tables until ``commit``, and return the others."""
        if not self._rows:
            return list(runs)
        others = [run for run in runs if not is_stored(run.stream)]
        failed: list[OutputRun] = []
        for run in runs:
            if not is_stored(run.stream):
                continue
            position, rows = run.position, run.rows
            table = self._tables.get(run.stream)
            reasons = {} if table is None else refused(rows, table)
            if reasons:
                assert table is not None, "purges are not refused"
                failed.append(_failed(run, table, reasons))
                indexes = np.setdiff1d(np.arange(rows.num_rows), list(reasons))
                position, rows = position[indexes], rows.take(pa.array(indexes))
            writer = self.writer_of[run.stream.split(" ", 1)[1]]
            if rows.num_rows:
                self._rows[writer].append(StoredRows(run.stream, position, rows))
        return _with_failed(others, failed)

    def commit(self, since_ms: int = 0) -> None:
        """Write the rows that were kept.

        Args:
            since_ms: the broker's time after which everything came that the rows are of; 0 if it is
                not known.

        Raises:
            MeshError: MESH-S140 .. S143; the partition has to start again from its stored state.
                MESH-S148: the marker is ahead of the rows, which would be passed over.
        """
        self.has_committed = False
        for writer, batches in self._rows.items():
            if batches:
                first = min(int(one.position[0]) for one in batches)
                is_later = self.claimed_ms is not None and since_ms > self.claimed_ms + CLOCKS_MS
                if is_later and first <= writer.position:
                    raise _ahead(writer, first)
                self.has_committed = True
                writer.commit(_joined(batches))
                batches.clear()

    def refused(self) -> list[tuple[str, OutputRun]]:
        """Rows that databases have refused, as failed events, by table; after each ``commit``.

        They are returned once, and again in the next life, unless they are deleted by then: those
        of the run before the last have left.

        Raises:
            MeshError: see ``commit``.
        """
        runs: list[tuple[str, OutputRun]] = []
        for writer, (left, until) in self._reported.items():
            # The output of the last run may be on its way: see ``BackgroundPublisher``, and
            # ``has_refused``.
            writer.drop_refused(left)
            rows = writer.refused(until)
            self._reported[writer] = until, rows[-1].position if rows else until
            runs += [
                (table, _refused(table, [row for row in rows if row.table == table]))
                for table in dict.fromkeys(row.table for row in rows)
            ]
        self.has_refused = bool(runs)
        return runs

    def __del__(self) -> None:
        # A partition that fails in a run is dropped as it is.
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for writer in self._rows:
            writer.close()


def broker_ms(nats: Mapping[str, str], js_stream: str) -> int:
    """The time of the server that leads a stream, over a connection of its own."""
    with Connection(connection_options(nats)) as connection:
        return jetstream.server_ms(connection, js_stream)


def _ahead(writer: Writer, first: int) -> MeshError:
    return MeshError(
        "MESH-S148",
        f"DATA-LOSS: the marker of {writer.producer} is ahead of its input",
        detail=f"In {writer.database} it has position {writer.position}, and row {first} is of "
        "input that came later: the input has lost its end, or the marker was changed.",
        hint="Look which rows are in the tables; then correct the row of mesh_marker, or restore a "
        "backup: 'mesh backups APP'.",
    )


def _warn(tables: Sequence[StoredTable]) -> None:
    log.warning(
        "a table begins with rows that later events may have changed already",
        extra=fields(tables=", ".join(table.name for table in tables)),
    )


def _write_again(writer: Writer, tables: Sequence[StoredTable], executor: Executor) -> None:
    """Write all rows of a state that has made ``outputs_count`` rows."""
    contents = [(table.name, executor.written_again(table.name)) for table in tables]
    if not any(rows.num_rows for _, rows in contents):
        return
    log.warning(
        "a database has lost its rows: those of the state are written to it again",
        extra=fields(database=str(writer.database), tables=", ".join(name for name, _ in contents)),
    )
    last = executor.outputs_count
    writer.commit(
        [
            StoredRows(changes_channel(name), np.full(rows.num_rows, last, np.int64), rows)
            for name, rows in contents
        ]
    )


def _joined(batches: Sequence[StoredRows]) -> list[StoredRows]:
    """One batch for each channel."""
    by_channel: dict[str, list[StoredRows]] = {}
    for one in batches:
        by_channel.setdefault(one.channel, []).append(one)
    return [
        StoredRows(
            channel,
            np.concatenate([one.position for one in parts]),
            concat([one.rows for one in parts]),
        )
        for channel, parts in by_channel.items()
    ]


def _failed(run: OutputRun, table: StoredTable, reasons: Mapping[int, str]) -> OutputRun:
    """Rows that no database takes, as events on which a query failed."""
    where = np.array(sorted(reasons))
    rows = run.rows.take(pa.array(where)).to_pylist()
    events = [orjson.dumps(row, default=str).decode() for row in rows]
    failures = _failures(table.name, [reasons[row] for row in sorted(reasons)], events)
    return OutputRun(FAILED, run.position[where], run.time_ms[where], failures)


def _refused(table: str, rows: Sequence[RefusedRow]) -> OutputRun:
    n = len(rows)
    failures = _failures(table, [row.reason for row in rows], [row.event for row in rows])
    position = np.fromiter((row.position for row in rows), np.int64, n)
    return OutputRun(
        FAILED, position, np.fromiter((row.time_ms for row in rows), np.int64, n), failures
    )


def _failures(table: str, reasons: Sequence[str], events: Sequence[str]) -> pa.RecordBatch:
    columns = {
        "query": [table] * len(events),
        "stream": [table] * len(events),
        "reason": list(reasons),
        "event": list(events),
    }
    return pa.RecordBatch.from_pydict(columns, pa.schema([(n, pa.string()) for n in columns]))


def _with_failed(runs: list[OutputRun], failed: Sequence[OutputRun]) -> list[OutputRun]:
    """Runs with failed rows among those of the same channel, by position."""
    if not failed:
        return runs
    parts = [*(run for run in runs if run.stream == FAILED), *failed]
    position = np.concatenate([run.position for run in parts])
    order = np.argsort(position)
    together = OutputRun(
        FAILED,
        position[order],
        np.concatenate([run.time_ms for run in parts])[order],
        concat([run.rows.cast(parts[-1].rows.schema) for run in parts]).take(order),
    )
    return [*(run for run in runs if run.stream != FAILED), together]
