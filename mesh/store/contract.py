"""Duties of a database with tables: read rows by condition, and write runs with a marker.

A writer belongs to one producer, a part of a group, and to one thread.  The rows of a run, the
marker's position and what the run has read are in the database together, or not at all; a writer of
an older epoch changes nothing.  So each kind of database needs one step that is atomic: a
transaction, or a script.

    open      connect, and claim the marker: ``position`` is that of the last rows that are there
    find      rows of a table that a look-up finds, and perhaps others
    record    what a run has read, before its output leaves
    commit    rows after ``position``, and the new position
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mesh.model.lookup import Clause, ReadRun
    from mesh.model.stored import Database, StoredTable
    from mesh.store.refusals import RefusedRow
    from mesh.store.stored_rows import StoredRows


class Writer(Protocol):
    """The writer of one producer to one database."""

    database: Database
    #: The name in the marker.
    producer: str
    #: Those that it writes; with the types of their columns once it is open.
    tables: tuple[StoredTable, ...]
    #: Rows that were in tables with all of their rows in the state, when the marker was written
    #: first.
    initial: int
    #: Of the last rows that are in the database.
    position: int

    def open(self) -> None:
        """Connect, create what is missing, and claim the marker.

        Raises:
            MeshError: MESH-S140, no answer; MESH-S141, a newer epoch has claimed it; MESH-S142.
        """

    def commit(self, batches: Sequence[StoredRows]) -> None:
        """Write rows after ``position``, and move it to that of the last, as one.

        Raises:
            MeshError: see ``open``.  The outcome is unknown then, and the connection closed.
        """

    def find(self, table: StoredTable, clause: Clause) -> pa.RecordBatch:
        """The rows of a table that a look-up finds, see ``mesh.store.rows.to_arrow``.

        Raises:
            MeshError: see ``open``.
        """

    def rows(self, table: StoredTable) -> pa.RecordBatch:
        """All rows of a table; see ``find``."""

    def record(self, run: ReadRun) -> None:
        """Record what a run has read, before its output leaves.

        Raises:
            MeshError: see ``open``.
        """

    def recorded(self, after: int) -> list[ReadRun]:
        """The reads of runs with higher numbers, in their order; see ``record``."""

    def refused(self, after: int) -> list[RefusedRow]:
        """The rows after a position that the database has refused and that are not dropped.

        Raises:
            MeshError: see ``open``.
        """

    def drop_refused(self, until: int) -> None:
        """Drop the refused rows up to a position, which have left.

        Raises:
            MeshError: see ``open``.
        """

    def close(self) -> None:
        """Close the connection."""
