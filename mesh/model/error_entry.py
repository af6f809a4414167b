r"""Entry of an app's error stream: its fields, its JSON, and the event that can be sent again.

There are two kinds of entry: an event that could not be read from its message, and an event on
which a query of a group with state failed.  Workers write entries, manager and CLI read them.

An example of the first kind::

    {"stream": "S", "sequence": 7, "index": 0, "time_ms": 1570442400000, "group": "default",
     "reason": "attribute \"n\" is missing", "data": "{\"s\":\"x\"}"}
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorEntry(TypedDict, total=False):
    """Fields of an entry, in JSON and as it is read back."""

    #: Stream of the app that the event was sent to.
    stream: str
    #: Query that failed on it; only of a group with state.
    query: str
    #: Of the message, in the channel's JetStream stream; not where ``query`` is.
    sequence: int
    #: Of the event in its message, from 0; not where ``query`` is.
    index: int
    #: By the broker's clock; of a failed query, the event's time.  Milliseconds since 1970.
    time_ms: int
    #: The event's own time, where it brought one.
    event_time_ms: int
    group: str
    reason: str
    #: The whole message, or the event as JSON.
    data: str
    #: The whole message, where it is not text.
    data_base64: str


def of_unreadable(
    stream: str,
    sequence: int,
    index: int,
    time_ms: int,
    event_time_ms: int | None,
    group: str,
    reason: str,
    data: bytes,
) -> bytes:
    """Entry of an event of a message: one that can't be read, or on which a stateless query failed.

    Args: see ``ErrorEntry``; ``data`` is stored as text where it is UTF-8, else as base64.
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
    try:
        entry["data"] = data.decode()
    except UnicodeDecodeError:
        entry["data_base64"] = base64.b64encode(data).decode()
    return orjson.dumps(entry)


def of_failed(
    stream: str,
    query: str,
    time_ms: int,
    event_time_ms: int | None,
    group: str,
    reason: str,
    event: str,
) -> bytes:
    """Entry of an event on which a query of a group with state failed.

    Args: see ``ErrorEntry``; ``event`` is the event as JSON.
    """
    entry: ErrorEntry = {"stream": stream, "query": query, "time_ms": time_ms}
    if event_time_ms is not None:
        entry["event_time_ms"] = event_time_ms
    return orjson.dumps(entry | {"group": group, "reason": reason, "data": event})


def from_json(data: bytes) -> dict[str, Any]:
    """The fields of an entry, as a message of the error stream has them."""
    fields: dict[str, Any] = orjson.loads(data)
    return fields


def event_of(entry: Mapping[str, Any]) -> bytes | None:
    """The event of an entry as JSON; None when its message was no text.

    A message may have held several: an array, or one a line.  The others were read, so that they
    must not be sent again.
    """
    data = entry.get("data")
    if not isinstance(data, str):
        return None
    index = entry.get("index", 0)
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError:
        lines = [line for line in data.splitlines() if line.strip()]
        return lines[index].encode() if index < len(lines) else data.encode()
    if isinstance(whole, list) and index < len(whole):
        return orjson.dumps(whole[index])
    return data.encode()
