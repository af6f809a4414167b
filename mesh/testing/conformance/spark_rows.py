"""Steps of a case as the rows that a source gives: messages with range markers, or typed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.spark.instance_io import METADATA
from mesh.spark.local_state import InputPosition
from mesh.spark.sink_rows import ARROW_TYPE, JSON_TYPE, TIME_COLUMN
from mesh.testing.conformance.script import StepCall
from pyspark_nats import encode
from pyspark_nats.arrow import ipc_stream
from pyspark_nats.source.rows import MARKED, MESSAGE, RANGE_END, RANGE_START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.app import GroupInput
    from mesh.model.values import JsonObject
    from mesh.testing.conformance.script import Step


def marked_rows(
    inputs: Mapping[str, GroupInput], position: InputPosition, place: int, step: Step
) -> tuple[pa.RecordBatch, InputPosition]:
    """A step as rows of the source, and the position after it.

    ``inputs``: by JetStream stream; ``place``: the step's number, which is in the first row. The
    events are one message, with the broker's time.  A question has a number in the log and no
    message; no time passes.
    """
    starts = position.offsets
    sent = step if isinstance(step, StepCall) else None
    passed = {} if sent is None else {"time_ms": sent.now_ms}
    ends = {stream: {**start, **passed} for stream, start in starts.items()}
    rows = [_marker(RANGE_START, stream, start, str(place)) for stream, start in starts.items()]
    if sent is None:
        # A change makes another state, which is another position.
        ends[next(iter(ends))]["sequence"] += 1
    elif sent.rows is not None:
        stream, group_input = next(
            (s, i) for s, i in inputs.items() if i.channel.stream.name == sent.stream
        )
        ends[stream]["sequence"] += 1
        content_type, data, event_time_ms = _message(sent)
        rows.append(
            {
                "kind": MESSAGE,
                "stream": stream,
                "sequence": ends[stream]["sequence"],
                "time_ms": sent.now_ms,
                "event_time_ms": event_time_ms,
                "subject": group_input.channel.subject(),
                "content_type": content_type,
                "data": data,
            }
        )
    rows += [_marker(RANGE_END, stream, end) for stream, end in ends.items()]
    return pa.RecordBatch.from_pylist(rows, MARKED), InputPosition.of(ends, ends)


def _marker(
    kind: int, stream: str, offset: Mapping[str, int], subject: str | None = None
) -> JsonObject:
    return {"kind": kind, "stream": stream, "subject": subject, **offset}


def _message(sent: StepCall) -> tuple[str, bytes, int | None]:
    """Content type, data and the header's time; JSON if that can express the events."""
    rows, times = sent.rows, sent.time_ms
    assert rows is not None
    assert times is not None
    is_now = bool((times == sent.now_ms).all())
    if _is_plain(rows) and (times == times[0]).all():
        events = encode.to_json(rows).to_pylist()
        data = events[0] if len(events) == 1 else b"[" + b",".join(events) + b"]"
        return JSON_TYPE, data, None if is_now else int(times[0])
    if not is_now:
        rows = rows.append_column(TIME_COLUMN, pa.array(times))
    return ARROW_TYPE, ipc_stream(rows), None


def _is_plain(rows: pa.RecordBatch) -> bool:
    """Whether JSON can express them: no objects, no infinities, and some attribute."""
    for column in rows.columns:
        if pa.types.is_binary(column.type):
            return False
        if pa.types.is_floating(column.type):
            values = column.drop_null().to_numpy()
            if not np.isfinite(values).all():
                return False
    return bool(rows.num_columns)


def typed_rows(place: int, sent: StepCall) -> pa.RecordBatch:
    """Events as rows of a source that decodes; the sequence is the step's number."""
    assert sent.rows is not None
    assert sent.time_ms is not None
    count = sent.rows.num_rows
    columns = [
        *sent.rows.columns,
        pa.array([place] * count, pa.int64()),
        pa.array(range(count), pa.int64()),
        pa.array([sent.now_ms] * count, pa.int64()),
        pa.array(sent.time_ms, pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*sent.rows.schema.names, *METADATA])
