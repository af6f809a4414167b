"""Rows of a group without state over a part of its log, by the task that instances run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.lineage.replay import events_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.jetstream.channel_reader import LogMessage
    from mesh.model.app import Channel
    from mesh.spark.stateless_task import StatelessTask


def positions(
    task: StatelessTask,
    channel: Channel,
    messages: Sequence[LogMessage],
    producer: str,
    js_stream: str,
) -> list[int]:
    """The positions of the events that one producer publishes to one stream, in order."""
    events = events_of(task.js_stream, channel, messages)
    if not len(events):
        return []
    broker = {m.sequence: m.time_ms for m in messages}
    none = pa.nulls(len(events))
    event_ms = pa.array(events.time_ms, mask=~events.has_event_time)
    columns: dict[str, Any] = {
        "_sequence": pa.array(events.sequence),
        "_index": pa.array(events.index),
        "_timestamp_ms": pa.array([broker[s] for s in events.sequence.tolist()], pa.int64()),
        "_event_time_ms": event_ms,
        "_error": none.cast(pa.string()),
        "_data": none.cast(pa.binary()),
    }
    batch = pa.RecordBatch.from_arrays(
        [*events.rows.columns, *columns.values()], names=[*events.rows.schema.names, *columns]
    )
    results: list[int] = []
    for output in task([batch]):
        ours = [
            (first, last, data)
            for name, stream, first, last, data in zip(
                *(output.column(c).to_pylist() for c in _COLUMNS), strict=True
            )
            if (name, stream) == (producer, js_stream)
        ]
        for first, last, data in ours:
            results += [last] if first == last else _inside(data)
    return sorted(results)


_COLUMNS = ("producer", "stream", "first_position", "position", "data")


def _inside(data: bytes) -> list[int]:
    from mesh.spark.sink_rows import POSITION_COLUMN

    with pa.ipc.open_stream(data) as reader:
        return np.asarray(reader.read_all().column(POSITION_COLUMN)).tolist()  # type: ignore[no-any-return]
