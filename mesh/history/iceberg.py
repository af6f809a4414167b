"""Past events in an Iceberg table, in the order of their times.

A table's files have no order.  Those whose ranges of times overlap are read and sorted together, so
a table that is written day by day takes the memory of a day.  Events of one time are in the order
of the files' names.  All files are those of one snapshot, so rows that are written meanwhile are
none of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from mesh.errors import MeshError
from mesh.history.rows import rows_of
from mesh.plan.history_addresses import unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

    from mesh.history.rows import PastRows
    from mesh.plan.history_addresses import IcebergPlace

#: Rows of one batch.
BATCH_ROWS = 65_536


@dataclass(slots=True)
class HistoryIceberg:
    """An Iceberg table with past events.

    It has a column for each attribute of the stream, and ``time`` with the times of events:
    timestamps (UTC without a zone), or milliseconds since 1970.
    """

    place: IcebergPlace
    schema: pa.Schema
    time: str
    _cached_table: Table | None = field(default=None, init=False)

    def count(self) -> int:
        """The number of rows; 0 where rows were deleted, which only a read would tell."""
        tasks = list(self._scan().plan_files())
        if any(task.delete_files for task in tasks):
            return 0
        return sum(int(task.file.record_count) for task in tasks)

    def contents(self) -> str:
        """The table with its snapshot."""
        snapshot = self._table().current_snapshot()
        return f"{self.place} {'' if snapshot is None else snapshot.snapshot_id}"

    def batches(self, skipped: int = 0) -> Iterator[PastRows]:
        """All rows but the first ``skipped``; MESH-C161 where they can't be read."""
        from pyiceberg.io.pyarrow import ArrowScan

        scan = self._scan()
        reader = ArrowScan(
            scan.table_metadata, scan.io, scan.projection(), scan.row_filter, scan.case_sensitive
        )
        for tasks in self._together(scan):
            count = sum(int(task.file.record_count) for task in tasks)
            if count <= skipped and not any(task.delete_files for task in tasks):
                skipped -= count
                continue
            try:
                # Sorted by Arrow, which keeps the order of rows of one time.
                table = pa.concat_tables(reader.to_table([task]) for task in tasks)
                for batch in table.sort_by(self.time).to_batches(BATCH_ROWS):
                    rows = rows_of(self.place, batch, self.schema, self.time)
                    left = rows.after(skipped)
                    skipped -= len(rows) - len(left)
                    if len(left):
                        yield left
            except (pa.ArrowException, OSError) as error:
                raise unusable(f"{self.place} can't be read", f"{error}") from error

    def _together(self, scan: Any) -> Iterator[list[Any]]:
        """The files in the order of their times; those that overlap are together."""
        from pyiceberg.conversions import from_bytes

        column = scan.table_metadata.schema().find_field(self.time)

        def bound(values: Any) -> Any:
            data = (values or {}).get(column.field_id)
            return None if data is None else from_bytes(column.field_type, data)

        ranges = []
        tasks = sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
        for task in tasks:
            self._check(task.file.file_path)
            ranges.append((bound(task.file.lower_bounds), bound(task.file.upper_bounds), task))
        if any(low is None or high is None for low, high, _ in ranges):
            # Written without statistics: no order is known.
            yield tasks
            return
        some: list[Any] = []
        end: Any = None
        for low, high, task in sorted(ranges, key=lambda one: one[0]):
            if some and low > end:
                yield some
                some, end = [], None
            some.append(task)
            end = high if end is None else max(end, high)
        if some:
            yield some

    def _check(self, where: str) -> None:
        """Refuse a file outside of the directory, of a table that is named by its metadata."""
        parts = urlsplit(str(where))
        if self.place.catalog:
            return
        path = Path(os.path.realpath(unquote(parts.path)))
        if parts.scheme not in ("", "file") or not path.is_relative_to(self.place.root):
            raise unusable(f"{self.place} has files outside of manager.history_dir", f"{where}.")

    def _scan(self) -> Any:
        table = self._table()
        names = list(dict.fromkeys((*self.schema.names, self.time)))
        columns = [one.name for one in table.schema().fields]
        missing = [name for name in names if name not in columns]
        if missing:
            raise unusable(
                f'{self.place} has no column "{missing[0]}"', f"It has: {', '.join(columns)}."
            )
        return table.scan(selected_fields=tuple(names))

    def _table(self) -> Any:
        if self._cached_table is None:
            self._cached_table = _opened(self.place)
        return self._cached_table


def _opened(place: IcebergPlace) -> Table:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise MeshError(
            "MESH-C161",
            f"{place} can't be read: PyIceberg is not installed",
            detail=f"{error}.",
            hint="Install nats-event-mesh[iceberg] where the manager runs.",
        ) from error
    try:
        if not place.catalog:
            return StaticTable.from_metadata(place.metadata)
        return load_catalog(place.catalog).load_table(place.table)
    # Catalogs raise errors of their clients.
    except Exception as error:
        raise unusable(f"{place} can't be opened", f"{type(error).__name__}: {error}") from error
