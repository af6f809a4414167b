"""A stream that is watched, and ranges that are read from it."""

from __future__ import annotations

from typing import Any

from pyspark_nats.source import offsets, planning, source_options


def watch(broker: Any, **given: str) -> offsets.StreamWatch:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    return offsets.StreamWatch(read, broker.connection)


def partitions(broker: Any, start: dict[str, Any], end: dict[str, Any], **given: str) -> Any:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    planned = planning.partitions(read, broker.connection, start, end)[0]
    assert isinstance(planned, planning.NatsPartition)
    return planned.ranges[0]


def looking_end(broker: Any) -> dict[str, int]:
    return watch(broker, startingOffsets="latest").initial()["S"]
