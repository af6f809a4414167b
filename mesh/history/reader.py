"""Readers of past events: files, a table of a database or of Iceberg, or a JetStream stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.history.files import HistoryFiles
from mesh.history.iceberg import HistoryIceberg
from mesh.history.streams import history_stream
from mesh.history.tables import HistoryTable
from mesh.plan import history_iceberg, history_streams, history_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mesh.history.rows import Rows
    from mesh.model.app import Channel
    from mesh.model.history import HistoryInput, HistoryTask


class Reader(Protocol):
    """Past events of one stream, in their order."""

    def count(self) -> int:
        """The number of rows; 0 if it is not known without reading them."""
        ...

    def batches(self, place: int = 0) -> Iterator[Rows]:
        """All rows after a place; MESH-C161 where they can't be read.

        It is that of earlier rows; for a reader that counts, their number.
        """
        ...

    def contents(self) -> str:
        """A text that is another one as soon as the rows may be others."""
        ...


def reader_of(task: HistoryTask, asked: HistoryInput, channels: Sequence[Channel]) -> Reader:
    """The reader of an input, whose events enter by ``channels``; MESH-C161 for what is none."""
    if history_streams.is_stream(asked.path):
        return history_stream(task, asked, channels)
    return table_reader(task.root, asked, channels[0].stream.arrow, task.spec.name)


def table_reader(root: str, asked: HistoryInput, schema: pa.Schema, app: str = "") -> Reader:
    """The reader of files or a table with these columns; MESH-C161 for what is none."""
    if history_iceberg.is_iceberg(asked.path):
        return HistoryIceberg(history_iceberg.iceberg_of(root, asked.path), schema, asked.time)
    if history_tables.is_table(asked.path):
        place = history_tables.table_of(root, asked.path)
        return HistoryTable(place, schema, asked.time, app)
    return HistoryFiles(root, asked.path, schema, asked.time)
