"""The journal of reads: what runs have read in databases, so that a replay finds it again.

A run's rows are one entry of ``mesh_reads``.  Entries are kept for a day: a replay begins at the
last snapshot, which is minutes old.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.ipc

from mesh.model.stored import ReadRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.store.sql import sa
    from pyspark_nats.arrow import ArrowArray

#: Life of an entry.
LIFE_MS: Final = 86_400_000
#: Old entries are removed with each entry whose number is a multiple of this.
_EVERY: Final = 256


def keep_reads(connection: sa.Connection, table: sa.Table, producer: str, run: ReadRun) -> None:
    """Add an entry; inside of a transaction."""
    now_ms = time.time_ns() // 1_000_000
    new = {
        "producer": producer,
        "number": run.number,
        "until": run.until,
        "known_ms": run.known_ms,
        "continues": int(run.continues),
        "made_ms": now_ms,
        "data": packed(run.rows),
    }
    connection.execute(table.insert().values(**new))
    if run.number % _EVERY == 0:
        old = table.c.made_ms < now_ms - LIFE_MS
        connection.execute(table.delete().where(table.c.producer == producer, old))


def load_reads(
    connection: sa.Connection, table: sa.Table, producer: str, after: int
) -> list[ReadRun]:
    """The entries of a producer with higher numbers than ``after``, in their order."""
    chosen = (
        table.select()
        .where(table.c.producer == producer, table.c.number > after)
        .order_by(table.c.number)
    )
    return [
        ReadRun(one.number, one.until, one.known_ms, bool(one.continues), unpacked(one.data))
        for one in connection.execute(chosen).all()
    ]


def packed(rows: Mapping[str, pa.RecordBatch]) -> bytes:
    """Rows by table as bytes."""
    streams = [_stream(batch) for batch in rows.values()]
    arrays: list[ArrowArray] = [pa.array(list(rows)), pa.array(streams, pa.binary())]
    return _stream(pa.RecordBatch.from_arrays(arrays, names=["table", "rows"]))


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> dict[str, pa.RecordBatch]:
    """The rows by table of ``packed``."""
    with pa.ipc.open_stream(data) as reader:
        listed = reader.read_next_batch().to_pylist()
    batches = {}
    for one in listed:
        with pa.ipc.open_stream(one["rows"]) as reader:
            batches[one["table"]] = reader.read_next_batch()
    return batches
