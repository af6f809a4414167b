r"""Entry of an app's error stream: its fields, its JSON, and the event that can be sent again.

There are two kinds of entry: an event of a message, which could not be read, or on which a query of
a group without state failed; and an event on which a query of a group with state failed.  Workers
write entries, manager and CLI read them.

An example of the first kind::

    {"stream": "S", "sequence": 7, "index": 0, "time_ms": 1570442400000, "group": "default",
     "reason": "attribute \"n\" is missing", "data": "{\"s\":\"x\"}"}

``SimulatedEvent`` is an event as a person hands it to a manager.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

import orjson

from mesh.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.values import JsonMapping


#: Size of an entry whose data is stored whole: NATS accepts messages of 1 MB by default.
_ENTRY_BYTES_MAX: Final = 512 << 10
#: Beginning of the reason for an event whose own time is refused.
_TIME_REFUSED: Final = "event time "
#: Characters of a reason.
_REASON_MAX: Final = 2000
#: Of larger data this is stored; as JSON each byte is at most six.
_BEGINNING_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """An event to send for a test."""

    stream: str
    #: Values in the order of the definition, or by name.
    data: list[Any] | JsonObject
    #: Its own time, milliseconds since 1970; None for the broker's.
    time_ms: int | None = None


class ErrorEntry(TypedDict, total=False):
    """Fields of an entry, in JSON and as it is read back."""

    #: Stream of the app that the event was sent to.
    stream: str
    #: Query that failed on it.
    query: str
    #: Of the message, in the channel's JetStream stream; not of a query with state.
    sequence: int
    #: Of the event in its message, from 0; not of a query with state.
    index: int
    #: By the broker's clock; of a failed query, the event's time.  Milliseconds since 1970.
    time_ms: int
    #: The event's own time, where it brought one.
    event_time_ms: int
    group: str
    reason: str
    #: The whole message, or the event as JSON.  Of several events of one message that are recorded,
    #: each has its own, and only the first has a message that can't be divided.
    data: str
    #: The whole message, where it is not text.
    data_base64: str
    #: Whether ``data`` is the event of a message with several; ``index`` is not its place in it.
    is_event: bool
    #: Bytes of the data, where only its beginning is stored, or its options are too large.
    data_bytes: int
    #: Source or sink that has refused it, with the number of the destination: ``sink http 2``.
    connector: str
    #: Times that the sink has tried to write it.
    attempts: int
    #: Values of the sink's dynamic options for it, or of the properties that its source maps.
    options: dict[str, str]
    #: The event as JSON, of which a sink's ``data`` is the payload.
    event: str


def of_unreadable(
    stream: str,
    sequence: int,
    index: int,
    time_ms: int,
    event_time_ms: int | None,
    group: str,
    reason: str,
    data: bytes | None,
    is_event: bool = False,
    *,
    query: str = "",
    connector: str = "",
    attempts: int = 0,
    options: Mapping[str, str] | None = None,
    event: bytes = b"",
) -> bytes:
    """Entry of an event of a message: one that can't be read, or on which a stateless query failed.

    Args: see ``ErrorEntry``; ``data`` is stored as text where it is UTF-8, else as base64.  Of data
    that would not fit into a message the beginning is stored.
    """
    entry: ErrorEntry = {
        "stream": stream,
        "sequence": sequence,
        "index": index,
        "time_ms": time_ms,
        "group": group,
        "reason": reason,
    }
    if event_time_ms is not None:
        entry["event_time_ms"] = event_time_ms
    if is_event:
        entry["is_event"] = True
    if query:
        entry["query"] = query
    if connector:
        entry["connector"] = connector
    if attempts:
        entry["attempts"] = attempts
    if options:
        entry["options"] = {name: readable(text) for name, text in options.items()}
    if event and len(event) <= _BEGINNING_BYTES:
        entry["event"] = event.decode(errors="replace")
    return _with_data(entry, data)


def _with_data(entry: ErrorEntry, data: bytes | None) -> bytes:
    # The reason may be the text of any exception of a function of the app.
    entry["reason"] = readable(entry["reason"][:_REASON_MAX])
    whole = orjson.dumps(entry | _stored(data))
    if data is None or len(whole) <= _ENTRY_BYTES_MAX:
        return whole
    entry["data_bytes"] = len(data)
    if len(orjson.dumps(entry.get("options"))) > _BEGINNING_BYTES:
        del entry["options"]
    return orjson.dumps(entry | _stored(data[:_BEGINNING_BYTES]))


def readable(text: str) -> str:
    """A text without lone surrogates, as the names of files may have."""
    return text.encode(errors="replace").decode()


def _stored(data: bytes | None) -> ErrorEntry:
    if data is None:
        return {}
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def events_of(data: bytes) -> list[bytes]:
    """The events of a message as JSON, one for each index; none if the message is one event."""
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError:
        lines = [line for line in data.split(b"\n") if line.strip()]
        return lines if len(lines) > 1 and data.lstrip()[:1] != b"[" else []
    return [orjson.dumps(item) for item in whole] if isinstance(whole, list) else []


def of_failed(
    stream: str,
    query: str,
    time_ms: int,
    event_time_ms: int | None,
    group: str,
    reason: str,
    event: str | bytes,
) -> bytes:
    """Entry of an event on which a query of a group with state failed.

    Args: see ``ErrorEntry``; ``event`` is the event as JSON.
    """
    entry: ErrorEntry = {"stream": stream, "query": query, "time_ms": time_ms}
    if event_time_ms is not None:
        entry["event_time_ms"] = event_time_ms
    entry |= {"group": group, "reason": reason}
    return _with_data(entry, event.encode() if isinstance(event, str) else event)


def from_json(data: bytes) -> JsonObject:
    """The fields of an entry, as a message of the error stream has them."""
    fields = orjson.loads(data)
    # Version 0.1.0 stored it by another name.
    if isinstance(fields, dict) and "door" in fields:
        fields["connector"] = fields.pop("door")
    return fields  # type: ignore[no-any-return]  # checked by who reads it


def resend_time_of(entry: JsonMapping) -> int | None:
    """The time to send the event with, ms since 1970; None for the broker's.

    A time for which the event was refused would be refused again.
    """
    is_refused = str(entry.get("reason", "")).startswith(_TIME_REFUSED)
    return None if is_refused else entry.get("event_time_ms")


def event_of(entry: JsonMapping) -> bytes | None:
    """The event of an entry as JSON; None when its message was no text, or is not stored whole.

    A message may have held several: an array, or one a line.  The others were read, so that they
    must not be sent again.
    """
    if isinstance(entry.get("event"), str):
        return str(entry["event"]).encode()
    if entry.get("connector"):
        # A payload of the outside world.
        return None
    data = entry.get("data")
    if not isinstance(data, str) or "data_bytes" in entry:
        return None
    if entry.get("is_event"):
        return data.encode()
    index = entry.get("index", 0)
    events = events_of(data.encode())
    return events[index] if index < len(events) else data.encode()
