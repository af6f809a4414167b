"""The error stream of an app: events that could not be read or failed in a query.

An entry's id is its sequence in the stream, which also holds the markers of who wrote it.  What is
replayed or discarded is deleted there.

Replay of a failed payload to the source or sink that had it, and to no one else.

The connector host that runs it answers once the payload is written, or says why not.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import NoRespondersError
from nats.js.errors import APIError, NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import channels
from mesh.model import error_entry, names

if TYPE_CHECKING:
    from collections.abc import Collection

    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.api import RawStreamMsg

    from mesh.model.values import JsonMapping, JsonObject


#: The server's code for a message that can't be deleted because it is not there.
_NO_SUCH_MESSAGE: Final = 10057
#: Data of the entries of a list, in characters.
LIST_BYTES_MAX: Final = 16_000_000
#: Time limit of one page of the list of streams, seconds.
_LIST_S: Final = 5.0
#: Sequences that are looked through one by one.
WINDOW: Final = 32
#: Fields of an entry by type; a publisher may have written anything.
_NUMBERS: Final = ("sequence", "index", "time_ms", "event_time_ms", "data_bytes")
_TEXTS: Final = (
    "stream", "group", "query", "reason", "data", "data_base64",
    "connector", "event",
)  # fmt: skip

#: Time for a write under way and then this one, seconds.
_ANSWER_S: Final = 15.0


async def count_entries(js: JetStreamContext, app: str) -> int:
    """The number of entries."""
    subject = names.error_subject(app)
    try:
        info = await js.stream_info(names.error_js_stream(app), subjects_filter=subject)
    except NotFoundError:
        return 0
    return (info.state.subjects or {}).get(subject, 0)


class FailedCounts:
    """Numbers of entries by app; only streams that have changed since are counted again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: By app: the state of its error stream, and the number of entries in it.
        self._counts: dict[str, tuple[tuple[int, int], int]] = {}

    async def read(self) -> dict[str, int]:
        """The apps with entries; apps without are absent."""
        counts = {}
        subject = names.error_subject("*")
        async for info in channels.all_streams(self._client, _LIST_S, subject):
            state = info["state"]["messages"], info["state"]["last_seq"]
            app = names.app_of_error_js_stream(info["config"]["name"])
            if app is None or not state[0]:
                continue
            counts[app] = self._counts.get(app, ((0, 0), 0))
            if counts[app][0] != state:
                counts[app] = state, await count_entries(self._client.jetstream(), app)
        self._counts = counts
        return {app: count for app, (_, count) in counts.items() if count}


async def last_entries(
    js: JetStreamContext, app: str, limit: int, before: int | None = None
) -> list[JsonObject]:
    """The last ``limit`` entries with an id below ``before``, oldest first.

    Fewer if their data have more than ``LIST_BYTES_MAX``.  A gap of n sequences costs some log n
    requests: windows of sequences are doubled while they hold nothing, and halved when they do.
    """
    try:
        state = (await js.stream_info(names.error_js_stream(app))).state
    except NotFoundError:
        return []
    first = max(1, state.first_seq)
    end = min(state.last_seq + 1, before or state.last_seq + 1)
    entries: list[JsonObject] = []
    width, size = WINDOW, 0
    while end > first and len(entries) < limit and size < LIST_BYTES_MAX:
        start = max(first, end - width)
        entry = await _first_from(js, app, start)
        if entry is None or entry["id"] >= end:
            # Nothing but a gap, and there may be more of it.
            end, width = start, width * 2
        elif width > WINDOW:
            width //= 2
        else:
            among = []
            while entry is not None and entry["id"] < end:
                among.append(entry)
                size += len(entry.get("data", "")) + len(entry.get("data_base64", ""))
                entry = await _first_from(js, app, entry["id"] + 1)
            entries = among + entries
            end = start
    return entries[-limit:] if limit else []


async def first_ids(js: JetStreamContext, app: str, limit: int) -> list[int]:
    """The ids of the oldest ``limit`` entries."""
    ids: list[int] = []
    entry = await _first_from(js, app, 1)
    while entry is not None and len(ids) < limit:
        ids.append(entry["id"])
        entry = await _first_from(js, app, entry["id"] + 1)
    return ids


async def entry_of(js: JetStreamContext, app: str, id_: int) -> JsonObject:
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
    js: JetStreamContext,
    app: str,
    id_: int,
    streams: Collection[str],
    data: bytes | None = None,
) -> None:
    """Publish an entry's event to its stream again, and remove the entry.

    All readers of the stream get it, also where one sink has refused it.

    Args:
        js: a context of the account.
        app: the app.
        id_: the entry.
        streams: the streams of the app, to which alone an event is published.
        data: JSON to publish in the event's place; None for the event as it was.

    Raises:
        MeshError: MESH-A404 when there is no such entry; MESH-A422 when it names no stream of the
            app, or holds no text that could be sent again, and ``data`` is None.
    """
    entry = await entry_of(js, app, id_)
    if entry["stream"] not in streams:
        raise MeshError(
            "MESH-A422",
            f'failed event {id_} is of no stream of app "{app}"',
            detail="It is a row of a table, or an earlier text of the app or another publisher has "
            "written it.",
            hint="Publish an event in its place to a stream of the app, and discard it: "
            "'mesh discard'.",
        )
    payload = error_entry.event_of(entry) if data is None else data
    if payload is None:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} can't be replayed as it is",
            detail="Its message is not text; which bytes of it are the event is not known.",
            hint="Send the event to replay as JSON along with its id.",
        )
    headers = {"Nats-Msg-Id": f"replay-{app}-{id_}"}
    event_ms = error_entry.resend_time_of(entry)
    if event_ms is not None:
        headers[names.EVENT_TIME_HEADER] = str(event_ms)
    await js.publish(names.subject(app, entry["stream"]), payload, headers=headers)
    await discard(js, app, id_)


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


async def _first_from(js: JetStreamContext, app: str, sequence: int) -> JsonObject | None:
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


def _entry(message: RawStreamMsg) -> JsonObject:
    """An entry with its id; of a message that is no entry, its data and a reason that says so."""
    recorded = message.time
    recorded_ms = int(recorded.timestamp() * 1000) if recorded is not None else 0
    values = _fields(message.data or b"")
    return {"stream": "", **values, "id": message.seq, "recorded_at_ms": recorded_ms}


def _fields(data: bytes) -> JsonObject:
    try:
        values = error_entry.from_json(data)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return {"reason": "it is no entry of mesh", "data": data.decode(errors="replace")}
    is_number = {name: type(values.get(name)) is int and values[name] >= 0 for name in _NUMBERS}
    is_text = {name: isinstance(values.get(name), str) for name in _TEXTS}
    fits = is_number | is_text
    return {name: value for name, value in values.items() if fits.get(name, True)}


def payload_of(entry: JsonMapping) -> bytes | None:
    """The payload of an entry; None if only its beginning is stored."""
    if "data_bytes" in entry:
        return None
    if isinstance(entry.get("data"), str):
        return str(entry["data"]).encode()
    if isinstance(entry.get("data_base64"), str):
        return base64.b64decode(entry["data_base64"])
    return None


async def send(client: Client, app: str, entry: JsonMapping, data: bytes | None) -> None:
    """Have the entry's source or sink take its payload, or ``data`` in its place.

    Raises:
        MeshError: MESH-A422 for a payload that is not stored whole, or is refused again;
            MESH-A503 if no host runs the source or sink, or its destination is away.
    """
    payload = payload_of(entry) if data is None else data
    id_, connector = entry["id"], entry["connector"]
    if payload is None:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} can't be replayed as it is",
            detail="Only the beginning of its payload is stored.",
            hint="Send the payload along with its id.",
        )
    question = {
        "id": id_,
        "connector": connector,
        "sequence": entry.get("sequence", 0),
        "index": entry.get("index", 0),
        "options": entry.get("options") or {},
        "payload": base64.b64encode(payload).decode(),
    }
    try:
        answer = await client.request(
            names.connector_subject(app, str(entry.get("group", ""))),
            orjson.dumps(question),
            timeout=_ANSWER_S,
        )
        said = orjson.loads(answer.data)
    except (NoRespondersError, TimeoutError) as error:
        said = {
            "away": "no worker runs it" if isinstance(error, NoRespondersError) else "no answer"
        }
    if "refused" in said:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} was refused again by {connector}",
            detail=f"{said['refused']}.",
            hint="Send a corrected payload along with its id, or replay to the stream.",
        )
    if "away" in said:
        raise MeshError(
            "MESH-A503",
            f"failed event {id_} can't be replayed to {connector} now",
            detail=f"{said['away']}.",
            hint="'mesh status' shows sources and sinks; try again later.",
        )
