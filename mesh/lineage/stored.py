"""Stored events of streams, the last of a range, in the order in which a group merges them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import log_reader, stream_positions
from mesh.lineage.replay import events_of
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from mesh.jetstream.log_reader import LogMessage
    from mesh.model.begin import StartPosition
    from mesh.model.lineage import StoredStream
    from mesh.model.values import JsonObject

#: Messages that are read for each wanted event: a batch of an app ends with a marker.
_MESSAGES_EACH: Final = 2
#: Bytes of the events of all streams: a manager has them in its memory for a moment.
BYTES_MAX: Final = 8 << 20


async def stored_events(
    client: Client,
    streams: Sequence[StoredStream],
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> tuple[list[tuple[int, str, JsonObject]], list[str]]:
    """The last events of streams, and notes about what is left out.

    Args:
        client: the connection.
        streams: in the order in which events of one time are merged.
        last: most events of each stream.
        since: the first place that is read; None for the beginning.
        until: the place before which events are read; None for the end.

    Returns:
        Time, stream and values of each event.

    Raises:
        MeshError: MESH-A404 for a stream that is not there, MESH-C172 for too many bytes.
    """
    entries: list[tuple[int, int, tuple[int, str, JsonObject]]] = []
    notes: list[str] = []
    size = 0
    for rank, one in enumerate(streams):
        events: list[tuple[int, JsonObject]] = []
        unreadable = 0
        for js_stream, subject in one.places:
            messages = await _messages(client, js_stream, subject, last, since, until)
            batch = events_of(js_stream, one.channel, messages)
            unreadable += len(messages) - len(set(batch.sequence.tolist()))
            first = max(0, len(batch) - last)
            rows = batch.rows.slice(first)
            size += max(rows.nbytes, sum(len(message.data) for message in messages))
            if size > BYTES_MAX:
                raise MeshError(
                    "MESH-C172",
                    "the preview exceeds its limits",
                    detail=f"The stored events have more than {BYTES_MAX >> 20} MB.",
                    hint="Read fewer of them with --last.",
                )
            events += zip(batch.time_ms[first:].tolist(), rows.to_pylist(), strict=True)
        if len(one.places) > 1:
            events.sort(key=lambda event: event[0])
        latest_ms = 0
        for time_ms, values in events[-last:]:
            # A late event keeps its place in its stream.
            latest_ms = max(latest_ms, time_ms)
            entries.append((latest_ms, rank, (time_ms, one.stream, values)))
        if unreadable:
            notes.append(f'{unreadable} messages of stream "{one.stream}" can\'t be read')
    entries.sort(key=lambda event: event[:2])
    return [event for _, _, event in entries], notes


async def _messages(
    client: Client,
    js_stream: str,
    subject: str,
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> list[LogMessage]:
    """The last messages of a range with events."""
    try:
        info = await client.jetstream().stream_info(js_stream)
    except NotFoundError as error:
        raise MeshError("MESH-A404", f'JetStream stream "{js_stream}" is not there') from error
    if not info.config.allow_direct:
        raise MeshError(
            "MESH-A422",
            f'JetStream stream "{js_stream}" can\'t be read for a preview',
            detail="It is without allow_direct.",
            hint=f"Give its events as text, or run 'nats stream edit {js_stream} --allow-direct'.",
        )
    state = info.state
    first, end = state.first_seq, state.last_seq
    if since is not None:
        skipped = await stream_positions.skipped_positions(client, [js_stream], since)
        first = max(first, skipped.get(js_stream, 0) + 1)
    if until is not None:
        skipped = await stream_positions.skipped_positions(client, [js_stream], until)
        end = skipped.get(js_stream, 0)
    first = max(first, end - _MESSAGES_EACH * last + 1)
    marker = f"{names.marker_subject(js_stream)}."
    messages: deque[LogMessage] = deque()
    size = 0
    async for message in log_reader.read(client, js_stream, first, end, subject):
        if message.subject.startswith(marker):
            continue
        messages.append(message)
        size += len(message.data)
        if len(messages) > last:
            size -= len(messages.popleft().data)
        # The last ones may be smaller, but memory is bounded before they are known.
        if size > 2 * BYTES_MAX:
            break
    return list(messages)
