"""Readers of past events: files, or a table of a database or of Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.history.files import HistoryFiles
from mesh.history.iceberg import HistoryIceberg
from mesh.history.tables import HistoryTable
from mesh.plan import history_iceberg, history_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mesh.history.rows import Rows
    from mesh.model.history import HistoryInput


class Reader(Protocol):
    """Past events of one stream, in their order."""

    def count(self) -> int:
        """The number of rows; 0 if it is not known without reading them."""
        ...

    def batches(self, skipped: int = 0) -> Iterator[Rows]:
        """All rows but the first ``skipped``; MESH-C161 where they can't be read."""
        ...

    def contents(self) -> str:
        """A text that is another one as soon as the rows may be others."""
        ...


def reader_of(root: str, asked: HistoryInput, schema: pa.Schema) -> Reader:
    """The reader of an input; MESH-C161 for what is none."""
    if history_iceberg.is_iceberg(asked.path):
        return HistoryIceberg(history_iceberg.iceberg_of(root, asked.path), schema, asked.time)
    if history_tables.is_table(asked.path):
        place = history_tables.table_of(root, asked.path)
        return HistoryTable(place, schema, asked.time)
    return HistoryFiles(root, asked.path, schema, asked.time)
