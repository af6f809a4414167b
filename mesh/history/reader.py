"""Readers of past events: files, a table of a database or of Iceberg, or a JetStream stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.history.files import HistoryFiles
from mesh.history.iceberg import HistoryIceberg
from mesh.history.streams import history_stream
from mesh.history.tables import HistoryTable
from mesh.plan import history_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mesh.history.rows import PastRows
    from mesh.model.app import Channel
    from mesh.model.history import HistoryInput, HistoryTask


class PastReader(Protocol):
    """Past events of one stream, in their order."""

    def count(self) -> int:
        """The number of rows; 0 if it is not known without reading them."""
        ...

    def batches(self, place: int = 0) -> Iterator[PastRows]:
        """All rows after a place; MESH-C161 where they can't be read.

        It is that of earlier rows; for a reader that counts, their number.
        """
        ...

    def contents(self) -> str:
        """A text that is another one as soon as the rows may be others."""
        ...


def reader_of(task: HistoryTask, entry: HistoryInput, channels: Sequence[Channel]) -> PastReader:
    """The reader of an input, whose events enter by ``channels``; MESH-C161 for what is none."""
    if history_addresses.is_stream(entry.path):
        return history_stream(task, entry, channels)
    return table_reader(task.root, entry, channels[0].stream.arrow, task.spec.name)


def table_reader(root: str, entry: HistoryInput, schema: pa.Schema, app: str = "") -> PastReader:
    """The reader of files or a table with these columns; MESH-C161 for what is none."""
    if history_addresses.is_iceberg(entry.path):
        return HistoryIceberg(history_addresses.iceberg_of(root, entry.path), schema, entry.time)
    if history_addresses.is_table(entry.path):
        place = history_addresses.table_of(root, entry.path)
        return HistoryTable(place, schema, entry.time, app)
    return HistoryFiles(root, entry.path, schema, entry.time)
