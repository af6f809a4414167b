"""The error stream of an app: events that could not be read or failed in a query.

An entry's id is its sequence in the stream, which also holds the markers of who wrote it.  What is
replayed or discarded is deleted there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import APIError, NotFoundError

from mesh.errors import MeshError
from mesh.model import error_entry, names

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import RawStreamMsg

#: The server's code for a message that can't be deleted because it is not there.
_NO_SUCH_MESSAGE: Final = 10057


async def count_entries(js: JetStreamContext, app: str) -> int:
    """The number of entries."""
    subject = names.error_subject(app)
    try:
        info = await js.stream_info(names.error_js_stream(app), subjects_filter=subject)
    except NotFoundError:
        return 0
    return (info.state.subjects or {}).get(subject, 0)


async def last_entries(
    js: JetStreamContext, app: str, limit: int, before: int | None = None
) -> list[dict[str, Any]]:
    """The last ``limit`` entries with an id below ``before``, oldest first."""
    stream, subject = names.error_js_stream(app), names.error_subject(app)
    try:
        state = (await js.stream_info(stream)).state
    except NotFoundError:
        return []
    found: list[dict[str, Any]] = []
    sequence = min(state.last_seq, (before or state.last_seq + 1) - 1)
    while sequence >= max(1, state.first_seq) and len(found) < limit:
        try:
            message = await js.get_msg(stream, sequence, direct=True)
            if message.subject == subject:
                found.append(_entry(message))
        except NotFoundError:
            pass
        sequence -= 1
    return found[::-1]


async def first_ids(js: JetStreamContext, app: str, limit: int) -> list[int]:
    """The ids of the oldest ``limit`` entries."""
    found: list[int] = []
    entry = await _first_from(js, app, 1)
    while entry is not None and len(found) < limit:
        found.append(entry["id"])
        entry = await _first_from(js, app, entry["id"] + 1)
    return found


async def entry_of(js: JetStreamContext, app: str, id_: int) -> dict[str, Any]:
    """An entry; MESH-A404 when it is not there, any more or at all."""
    try:
        message = await js.get_msg(names.error_js_stream(app), id_)
    except NotFoundError:
        message = None
    if message is None or message.subject != names.error_subject(app):
        raise MeshError(
            "MESH-A404",
            f'app "{app}" has no failed event {id_}',
            detail="It was replayed or discarded, or its stream's retention has expired it.",
        )
    return _entry(message)


async def replay(
    js: JetStreamContext, app: str, id_: int, data: bytes | None = None
) -> dict[str, Any]:
    """Publish an entry's event to its stream again, remove the entry, and return it.

    Args:
        js: a context of the account.
        app: the app.
        id_: the entry.
        data: JSON to publish in the event's place; None for the event as it was.

    Raises:
        MeshError: MESH-A404 when there is no such entry; MESH-A422 when it holds no text that could
            be sent again, and ``data`` is None.
    """
    entry = await entry_of(js, app, id_)
    payload = error_entry.event_of(entry) if data is None else data
    if payload is None:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} can't be replayed as it is",
            detail="Its message is not text; which bytes of it are the event is not known.",
            hint="Send the event to replay as JSON along with its id.",
        )
    headers = {"Nats-Msg-Id": f"replay-{app}-{id_}"}
    own_ms = error_entry.own_time_of(entry)
    if own_ms is not None:
        headers[names.EVENT_TIME_HEADER] = str(own_ms)
    await js.publish(names.subject(app, entry["stream"]), payload, headers=headers)
    await discard(js, app, id_)
    return entry


async def discard(js: JetStreamContext, app: str, id_: int) -> bool:
    """Remove an entry; False if it did not exist any more."""
    try:
        return await js.delete_msg(names.error_js_stream(app), id_)
    except APIError as error:
        if isinstance(error, NotFoundError) or error.err_code == _NO_SUCH_MESSAGE:
            return False
        raise


async def discard_older(js: JetStreamContext, app: str, before_ms: int) -> int:
    """Remove entries from before a time, milliseconds since 1970; return their number."""
    stream = names.error_js_stream(app)
    had = await count_entries(js, app)
    try:
        state = (await js.stream_info(stream)).state
    except NotFoundError:
        return 0
    low, high = max(1, state.first_seq), state.last_seq + 1
    while low < high:
        # The first entry from the middle on decides for all between the two.
        middle = (low + high) // 2
        at = await _first_from(js, app, middle)
        if at is None or at["recorded_at_ms"] >= before_ms:
            high = middle
        else:
            low = at["id"] + 1
    if low <= max(1, state.first_seq):
        # The server regards sequence 1 as no bound, and would purge everything.
        return 0
    await js.purge_stream(stream, subject=names.error_subject(app), seq=low)
    return had - await count_entries(js, app)


async def _first_from(js: JetStreamContext, app: str, sequence: int) -> dict[str, Any] | None:
    try:
        message = await js.get_msg(
            names.error_js_stream(app),
            sequence,
            subject=names.error_subject(app),
            next=True,
        )
    except NotFoundError:
        return None
    return _entry(message)


def _entry(message: RawStreamMsg) -> dict[str, Any]:
    values = error_entry.from_json(message.data or b"{}")
    recorded = message.time
    recorded_ms = int(recorded.timestamp() * 1000) if recorded is not None else 0
    return {"id": message.seq, "recorded_at_ms": recorded_ms, **values}
