"""Mapper ``binary``: events as the original's ``siddhi-map-binary`` writes them.

All numbers are big-endian.  A payload is the number of its events (4 bytes), and of each event its
time in milliseconds (8 bytes) and its values in the order of the stream's attributes: 4 or 8 bytes
of a number, 1 byte of a truth value, and a text as the number of its bytes (4 bytes) with UTF-8.
Null exists for texts alone, and is an empty one.

Source: documentation and behaviour of siddhi-map-binary 2.1.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.mapping.events import Refusal, of_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.values import EventValues
    from pyspark_nats.arrow import ArrowArray
    from pyspark_nats.decode.result import DecodeResult

_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_FORMS: Final = {
    pa.int32(): _INT,
    pa.int64(): _LONG,
    pa.float32(): struct.Struct(">f"),
    pa.float64(): struct.Struct(">d"),
    pa.bool_(): struct.Struct(">?"),
}


class BinarySource:
    """See ``SourceMapper``; the events have the times that their sender gives them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fields = [(field.name, _FORMS.get(field.type)) for field in schema]

    def decode(
        self, payloads: Sequence[bytes], properties: Sequence[Mapping[str, str]] | None = None
    ) -> DecodeResult:
        """See ``SourceMapper``."""
        times: dict[int, list[int]] = {}

        def parse(number: int, payload: bytes) -> list[EventValues | str]:
            try:
                events, times[number] = self._events(payload)
            except struct.error as error:
                raise ValueError(f"its {len(payload)} bytes end within a value") from error
            return events

        result = of_values(parse, payloads, self._schema, "null")
        event_times = [
            times[message][index]
            for message, index in zip(result.message.tolist(), result.index.tolist(), strict=True)
        ]
        return replace(result, event_time_ms=pa.array(event_times, pa.int64()))

    def _events(self, payload: bytes) -> tuple[list[EventValues | str], list[int]]:
        """The events of a payload, or reasons, with their times.

        Raises:
            ValueError: it ends too early or too late.
        """
        (count,) = _INT.unpack_from(payload)
        at, events, times = _INT.size, list[dict[str, Any] | str](), list[int]()
        if not 0 <= count <= len(payload) // _LONG.size:
            raise ValueError(f"{count} events don't fit into {len(payload)} bytes")
        for _ in range(count):
            (time_ms,) = _LONG.unpack_from(payload, at)
            at += _LONG.size
            event, at = self._event(payload, at)
            times.append(time_ms)
            events.append(event)
        if at != len(payload):
            raise ValueError(f"{len(payload) - at} bytes follow the last of {count} events")
        return events, times

    def _event(self, payload: bytes, at: int) -> tuple[EventValues | str, int]:
        values: EventValues = {}
        wrong = ""
        for name, form in self._fields:
            if form is not None:
                (values[name],) = form.unpack_from(payload, at)
                at += form.size
                continue
            (size,) = _INT.unpack_from(payload, at)
            at += _INT.size
            if not 0 <= size <= len(payload) - at:
                raise ValueError(f'a text of {size} bytes for "{name}" exceeds the payload')
            try:
                values[name] = payload[at : at + size].decode() or None
            except UnicodeDecodeError as error:
                wrong = wrong or f'attribute "{name}" is no UTF-8: {error.reason}'
            at += size
        return wrong or values, at


class BinarySink:
    """See ``SinkMapper``; an event has the time at which it is encoded."""

    content_type = "application/octet-stream"

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload of one event for each row."""
        now_ms = time.time_ns() // 1_000_000
        head = _INT.pack(1) + _LONG.pack(now_ms)
        columns = [
            _written(name, column)
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        payloads: list[bytes] = []
        for values in zip(*columns, strict=True):
            refusal = next((one for one in values if isinstance(one, Refusal)), None)
            payloads.append(head + b"".join(values) if refusal is None else refusal)
        return payloads


def _written(name: str, column: ArrowArray) -> list[bytes]:
    form = _FORMS.get(column.type)
    write = _text if form is None else form.pack
    null = (
        _INT.pack(0)
        if form is None
        else Refusal(
            f'attribute "{name}" is null, which the mapper binary has for texts alone'.encode()
        )
    )
    return [null if value is None else write(value) for value in column.to_pylist()]


def _text(value: str) -> bytes:
    octets = value.encode()
    return _INT.pack(len(octets)) + octets
