"""Messages of a hostile publisher, decoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_nats import decode

ARROW, MSGPACK, JSON = "application/vnd.apache.arrow.stream", "application/msgpack", None
SMALL = decode.MessageLimits(events_max=1000, bytes_max=100_000)


def stream(*batches: pa.RecordBatch, compression: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def column(values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], names=["id"])
