"""Past events as rows of their stream with times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.plan.history_addresses import unusable
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PastRows:
    """Past events, n of them, in the schema of their stream."""

    rows: pa.RecordBatch
    #: int64[n], their own times, milliseconds since 1970.
    time_ms: npt.NDArray[np.int64]
    #: int64[n], growing: events of one number were sent as one message; None: each was alone.
    message: npt.NDArray[np.int64] | None = None
    #: Where the reader is after them; None for one that counts its rows.
    place: int | None = None
    #: Events beside these that can't be read.
    unreadable: int = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def after(self, count: int) -> PastRows:
        """All but the first ``count``, or none."""
        return PastRows(self.rows.slice(min(count, len(self))), self.time_ms[count:])

    def before(self, end_ms: int) -> PastRows:
        """Those that are earlier than a time."""
        is_past = self.time_ms < end_ms
        return self if is_past.all() else self.take(np.flatnonzero(is_past))

    def take(self, chosen: npt.NDArray[np.int64]) -> PastRows:
        """The rows with these numbers, which grow."""
        at: Any = pa.array(chosen)
        message = None if self.message is None else self.message[chosen]
        return replace(self, rows=self.rows.take(at), time_ms=self.time_ms[chosen], message=message)

    def message_numbers(self) -> npt.NDArray[np.int64]:
        """int64[n], from 0: the number of the message of each event."""
        if self.message is None:
            return np.arange(len(self))
        return np.cumsum(np.diff(self.message, prepend=self.message[:1]) != 0)


def rows_of(where: object, batch: pa.RecordBatch, schema: pa.Schema, time: str) -> PastRows:
    """The events of a batch.

    Args:
        where: the file or table, for errors.
        batch: it has a column for each attribute of the stream, and ``time``.
        schema: of the stream.
        time: the column with the times of events: timestamps, or milliseconds since 1970.

    Raises:
        MeshError: MESH-C161 for an event without a time; ArrowException for other values that do
            not fit.
    """
    times = batch.column(time)
    if times.null_count:
        raise unusable(f'{where} has a row without a time in "{time}"', "")
    if pa.types.is_timestamp(times.type):
        # A timestamp without a zone is UTC.
        times = kernels.cast(times, pa.timestamp("ms", times.type.tz), safe=False)
        times = times.cast(pa.int64())
    elif not pa.types.is_integer(times.type):
        raise unusable(
            f'column "{time}" of {where} has no times but {times.type}',
            "Times are timestamps, or whole numbers: milliseconds since 1970.",
        )
    columns = [batch.column(f.name).cast(f.type) for f in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    time_ms = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return PastRows(rows, np.asarray(time_ms, np.int64))
