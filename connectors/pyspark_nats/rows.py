"""What the source gives as columns: schemas, and messages turned into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats import frames
from pyspark_nats.arrow import arrow, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.arrow import Array
    from pyspark_nats.fetch import Messages
    from pyspark_nats.ranges import StreamRange

MESSAGE: Final = 0
RANGE_START: Final = 1
RANGE_END: Final = 2

RAW_DDL: Final = (
    "subject string, data binary, headers map<string,array<string>>, stream string, "
    "sequence long, timestamp timestamp"
)
MARKED_DDL: Final = (
    "kind int, stream string, sequence long, time_ms long, event_time_ms long, subject string, "
    "content_type string, data binary"
)

RAW: Final = arrow.schema(
    [
        pa.field("subject", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.field("stream", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
MARKED: Final = arrow.schema(
    [
        pa.field("kind", pa.int32()),
        pa.field("stream", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("time_ms", pa.int64()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("data", pa.binary()),
    ]
)

#: Put into stored messages by the server and the sink: bookkeeping, no headers of the publisher.
_BOOKKEEPING = frozenset(
    ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending",
     "Nats-Last-Sequence", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit")
)  # fmt: skip


def event_times(messages: Messages, header: str) -> Array:
    """The event times in ``header``: int64 ms since 1970, null where absent or no number."""
    if not header:
        return pa.nulls(len(messages), pa.int64())
    texts = frames.header_values(messages.header, header)
    if texts.null_count == len(texts):
        return pa.nulls(len(messages), pa.int64())
    # A foreign publisher may write anything there; 18 digits always fit.
    is_number = kernels.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
    return kernels.cast(kernels.if_else(is_number, texts, None), pa.int64())


def range_markers(kind: int, ranges: Sequence[StreamRange]) -> pa.RecordBatch:
    """The rows before (``RANGE_START``) or behind (``RANGE_END``) a partition's messages."""
    at_start = kind == RANGE_START
    count = len(ranges)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([kind] * count, pa.int32()),
            pa.array([r.stream for r in ranges], pa.string()),
            pa.array([r.start if at_start else r.end for r in ranges], pa.int64()),
            pa.array([r.start_ms if at_start else r.end_ms for r in ranges], pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.binary()),
        ],
        schema=MARKED,
    )


def marked(messages: Messages, event_time_header: str) -> pa.RecordBatch:
    """Messages as rows of the ``rangeMarkers`` form."""
    count = len(messages)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.zeros(count, np.int32)),
            constant(messages.stream, count),
            pa.array(messages.sequence),
            pa.array(messages.time_ns // 1_000_000),
            event_times(messages, event_time_header),
            messages.subject,
            frames.header_values(messages.header, "Content-Type"),
            messages.data,
        ],
        schema=MARKED,
    )


def raw(messages: Messages) -> pa.RecordBatch:
    """Messages as rows of the plain form."""
    count = len(messages)
    return pa.RecordBatch.from_arrays(
        [
            messages.subject,
            messages.data,
            _header_maps(messages.header),
            constant(messages.stream, count),
            pa.array(messages.sequence),
            pa.array(messages.time_ns // 1000).cast(pa.timestamp("us", "UTC")),
        ],
        schema=RAW,
    )


def constant(value: str, count: int) -> Array:
    """``count`` times ``value``."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _header_maps(headers: Array) -> Array:
    parsed = [_header_map(block) for block in headers.to_pylist()]
    return pa.array([list(m.items()) for m in parsed], RAW.field("headers").type)


def _header_map(block: bytes | None) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in (block or b"").split(b"\r\n")[1:]:
        name, colon, value = line.decode(errors="replace").partition(":")
        if colon and name not in _BOOKKEEPING:
            values.setdefault(name, []).append(value.strip())
    return values
