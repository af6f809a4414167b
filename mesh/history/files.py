"""Files of past events as batches of rows, in a fixed order.

The order is that of the files' paths, and of the rows in them; the rows are run as if they had been
published in this order.  Parquet and CSV are read by Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import csv, dataset

from mesh.history.rows import rows_of
from mesh.plan import history_addresses
from mesh.plan.history_addresses import PARQUET, unusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.history.rows import PastRows

#: Rows of one batch at most; of 8 partitions each gets an eighth.
BATCH_ROWS: Final = 262_144


class HistoryFiles:
    """The files of a history.

    Args:
        root: directory outside of which nothing is read.
        path: a file, or a directory with all files below it, relative to ``root`` or absolute.
        schema: of the stream; the files have a column for each attribute.
        time: the column with the times of events: timestamps, or milliseconds since 1970.

    Raises:
        MeshError: MESH-C161 for what is no file of events.
    """

    def __init__(self, root: str, path: str, schema: pa.Schema, time: str) -> None:
        self._schema, self._time = schema, time
        self.paths = history_addresses.files_of(root, path)

    def count(self) -> int:
        """The number of rows, as far as files tell without being read; 0 if one doesn't."""
        if not all(path.name.endswith(PARQUET) for path in self.paths):
            return 0
        try:
            return sum(_count(path) for path in self.paths)
        except (pa.ArrowException, OSError) as error:
            raise unusable("a file can't be read", f"{error}") from error

    def contents(self) -> str:
        """The files with their sizes and times."""
        stats = [(str(path), path.stat()) for path in self.paths]
        return "\n".join(f"{path} {one.st_size} {one.st_mtime_ns}" for path, one in stats)

    def batches(self, skipped: int = 0) -> Iterator[PastRows]:
        """The rows of all files but the first; MESH-C161 at the first file that can't be read."""
        for path in self.paths:
            try:
                count = _count(path) if skipped and path.name.endswith(PARQUET) else 0
                if 0 < count <= skipped:
                    skipped -= count
                    continue
                for rows in self._of_file(path):
                    left = rows.after(skipped)
                    skipped -= len(rows) - len(left)
                    if len(left):
                        yield left
            except (pa.ArrowException, OSError) as error:
                raise unusable(f"{path} can't be read", f"{error}") from error

    def _of_file(self, path: Path) -> Iterator[PastRows]:
        data = dataset.dataset(path, format=self._format(path))
        names = list(dict.fromkeys((*self._schema.names, self._time)))
        missing = [name for name in names if name not in data.schema.names]
        if missing:
            raise unusable(
                f'{path} has no column "{missing[0]}"',
                f"Its columns: {', '.join(data.schema.names)}.",
            )
        for batch in data.to_batches(columns=names, batch_size=BATCH_ROWS):
            if batch.num_rows:
                yield rows_of(path, batch, self._schema, self._time)

    def _format(self, path: Path) -> dataset.FileFormat:
        if path.name.endswith(PARQUET):
            return dataset.ParquetFileFormat()
        kinds = {field.name: field.type for field in self._schema if field.name != self._time}
        options = csv.ConvertOptions(column_types=kinds)
        return dataset.CsvFileFormat(convert_options=options)


def _count(path: Path) -> int:
    """The number of rows of a Parquet file."""
    return int(dataset.dataset(path, format="parquet").count_rows())
