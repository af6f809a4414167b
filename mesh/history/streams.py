"""Past events in a JetStream stream, in the order of their sequences.

Messages are read by the connector's reader and decoded as those of an app's channel.  What is there
when the reading begins is the history: retention that removes messages before they are read ends
it, and deleted messages inside of it are none.  A place is a sequence.

Files of past events as batches of rows, in a fixed order.

The order is that of the files' paths, and of the rows in them; the rows are run as if they had been
published in this order.  Parquet and CSV are read by Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, dataset

from mesh.history.rows import PastRows, rows_of
from mesh.model import names
from mesh.plan import history_addresses
from mesh.plan.history_addresses import PARQUET, stream_of, unusable
from mesh.spark.instance_io import decoder_of
from pyspark_nats.arrow import ArrowArray, kernels
from pyspark_nats.decode import decode_messages
from pyspark_nats.errors import DataLossError, RefusedError
from pyspark_nats.protocol.connection import shared
from pyspark_nats.protocol.jetstream import stream_infos
from pyspark_nats.source.batches import RowLayout, read
from pyspark_nats.source.ranges import StreamRange
from pyspark_nats.source.source_options import source_options
from pyspark_nats.source.typed_rows import Typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mesh.model.app import Channel
    from mesh.model.history import HistoryInput, HistoryTask
    from mesh.plan.history_addresses import StreamPlace
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.source.source_options import SourceOptions


#: Bytes of one batch at most, but for its last part.
_BYTES_MAX: Final = 64 << 20
_METADATA: Final = {
    "_sequence": pa.int64(),
    "_timestamp_ms": pa.int64(),
    "_event_time_ms": pa.int64(),
    "_error": pa.string(),
}


def history_stream(
    task: HistoryTask, entry: HistoryInput, channels: Sequence[Channel]
) -> HistoryStream:
    """The reader of an input in a stream, whose events enter by ``channels``.

    Of a stream that the app itself reads, the events up to the cut that are the app's are its past.

    Raises:
        MeshError: MESH-C161 for what is none.
    """
    place = stream_of(entry.path)
    channel = next((c for c in channels if c.js_stream() == place.js_stream), None)
    subjects = (channel.subject(),) if channel is not None and not place.subject else place.subjects
    end = task.cuts.get(place.js_stream)
    return HistoryStream(
        place,
        channels[0].stream.arrow,
        entry.time,
        task.nats,
        subjects=subjects,
        end=end,
        channel=channel,
    )


@dataclass
class HistoryStream:
    """A JetStream stream with past events."""

    place: StreamPlace
    schema: pa.Schema
    #: Attribute with the times of events; empty for those that live events have.
    time: str
    #: Options of the connection.
    nats: Mapping[str, str]
    subjects: tuple[str, ...] = ()
    #: Last sequence to read; None for that of the stream when the reading begins.
    end: int | None = None
    #: The app's channel that is this stream; None for another stream.
    channel: Channel | None = None
    _options: SourceOptions = field(init=False)

    def __post_init__(self) -> None:
        self._options = source_options({**self.nats, "stream": self.place.js_stream})

    def count(self) -> int:
        """The number of messages; 0 if only some of them are read."""
        span = self._last - self._info.first + 1
        return 0 if self.place.subject else max(0, min(self._info.messages, span))

    def contents(self) -> str:
        """The stream with its beginning: messages that are added to it are after every place."""
        info = self._info
        return f"{self.place} {' '.join(self.subjects)} {info.created_ms} {info.first}"

    def batches(self, place: int = 0) -> Iterator[PastRows]:
        """All rows after a sequence; MESH-C161 where they can't be read."""
        info = self._info
        span = StreamRange(
            self.place.js_stream, max(place, info.first - 1), self._last, 0, 0,
            end_created_ms=info.created_ms, subjects=self.subjects,
        )  # fmt: skip
        held: list[pa.RecordBatch] = []
        rows = size = 0
        try:
            for batch in read(self._options, RowLayout(self._typed(), False), [span]):
                held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= BATCH_ROWS or size >= _BYTES_MAX:
                    yield self._rows(held)
                    held, rows, size = [], 0, 0
        except (DataLossError, RefusedError) as error:
            raise unusable(f"{self.place} can't be read", error.message) from error
        if held:
            yield self._rows(held)

    @property
    def _last(self) -> int:
        last = self._info.last
        return last if self.end is None else min(last, self.end)

    @cached_property
    def _info(self) -> StreamInfo:
        """The stream when the reading began."""
        connection, name = shared(self._options.connection), self.place.js_stream
        try:
            infos = connection.retry_while_unavailable(
                f'reading stream "{name}"', lambda: stream_infos(connection, [name])
            )
        except RefusedError as error:
            raise unusable(f"{self.place} can't be read", error.message) from error
        return infos[name]

    def _typed(self) -> Typed:
        """The function that decodes messages, as the source of an app's group does."""
        metadata = [pa.field(name, kind) for name, kind in _METADATA.items()]
        return Typed(
            schema=self.schema,
            output=pa.schema([*self.schema, *metadata]),
            content_type="",
            corrupt="column",
            event_time_header=names.EVENT_TIME_HEADER,
            decoder=decode_messages if self.channel is None else decoder_of(self.channel),
        )

    def _rows(self, batches: Sequence[pa.RecordBatch]) -> PastRows:
        """The events of whole messages; the others of them are counted."""
        batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        place = int(batch.column("_sequence")[-1].as_py())
        times = batch.column(self.time) if self.time else _times(batch)
        is_good = kernels.and_(kernels.is_null(batch.column("_error")), kernels.is_valid(times))
        good = batch.append_column("_time_ms", kernels.cast(times, pa.int64())).filter(is_good)
        return PastRows(
            good.select(self.schema.names),
            _longs(good.column("_time_ms")),
            _longs(good.column("_sequence")),
            place,
            batch.num_rows - good.num_rows,
        )


def _times(batch: pa.RecordBatch) -> ArrowArray:
    """The times of live events: the publisher's, or else the server's."""
    times: ArrowArray = kernels.coalesce(
        batch.column("_event_time_ms"), batch.column("_timestamp_ms")
    )
    return times


def _longs(column: Any) -> Any:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


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
