"""The events that are read and written, made in bulk; the same ones every time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

#: Columns of the events by their size in bytes as JSON, as Spark's DDL.
SCHEMAS: Final = {
    70: "device string, temp double, room int, at long, ok boolean",
    120: "deviceID string, site string, temperature double, humidity double, room int, "
    "timestamp long, ok boolean",
}

ARROW_CONTENT_TYPE: Final = "application/vnd.apache.arrow.stream"

_START_MS: Final = 1_763_712_000_000


def columns(size: int, first: int, count: int) -> dict[str, list[str] | list[float] | list[int]]:
    """Events ``first`` to ``first + count`` as columns by name; truth values are 0 and 1."""
    number = np.arange(first, first + count)
    values = {
        "device": [f"dev-{n:04d}" for n in (number % 1000).tolist()],
        "temp": ((number * 7 % 1500) / 100 + 10.01).round(2).tolist(),
        "room": (10 + number % 40).tolist(),
        "at": (_START_MS + number).tolist(),
        "ok": (number % 7 != 0).astype(int).tolist(),
    }
    if size == 70:
        return values
    return {
        "deviceID": values["device"],
        "site": [f"plant-{n}" for n in (number % 9).tolist()],
        "temperature": values["temp"],
        "humidity": ((number * 3 % 4000) / 100 + 40.01).round(2).tolist(),
        "room": values["room"],
        "timestamp": values["at"],
        "ok": values["ok"],
    }


def as_json(size: int, first: int, count: int) -> list[bytes]:
    """Events as JSON objects of about ``size`` bytes each; 70 or 120."""
    given = columns(size, first, count)
    flags = ("false", "true")
    if size == 70:
        line = '{"device":"%s","temp":%s,"room":%d,"at":%d,"ok":%s}'
    else:
        line = (
            '{"deviceID":"%s","site":"%s","temperature":%s,"humidity":%s,"room":%d,'
            '"timestamp":%d,"ok":%s}'
        )
    *others, ok = given.values()
    rows = zip(*others, [flags[int(n)] for n in ok], strict=True)
    return [(line % row).encode() for row in rows]


def as_arrow(size: int, first: int, count: int, rows_per_message: int) -> list[bytes]:
    """Events as Arrow IPC streams of ``rows_per_message`` rows each."""
    given = columns(size, first, count)
    batch = pa.RecordBatch.from_arrays(
        [_arrow_column(name, values) for name, values in given.items()], names=list(given)
    )
    messages: list[bytes] = []
    for at in range(0, count, rows_per_message):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch.slice(at, rows_per_message))
        messages.append(sink.getvalue().to_pybytes())
    return messages


def _arrow_column(name: str, values: list[str] | list[float] | list[int]) -> Any:
    if name == "ok":
        return pa.array([bool(value) for value in values])
    return pa.array(values, pa.int32()) if name == "room" else pa.array(values)
