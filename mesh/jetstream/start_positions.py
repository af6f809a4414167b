"""Resolving where an app begins to read: a place in words to a sequence of each stream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nats.js.errors import APIError, NotFoundError

from mesh.jetstream.connection import api_call
from mesh.model.begin import StartPositionKind
from pyspark_nats.protocol.jetstream import TIME_MAX_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client

    from mesh.model.begin import StartPosition

#: The server's code for a stream without such a message.
_NO_MESSAGE = 10037


async def skipped_positions(
    client: Client, streams: Iterable[str], begin: StartPosition
) -> dict[str, int]:
    """The last sequence to skip of each JetStream stream; none for a stream that is read whole.

    A position before the first stored message means that message; one after the end, the end.
    """
    if begin.kind is StartPositionKind.EARLIEST:
        return {}
    positions = {}
    for stream in streams:
        try:
            state = (await client.jetstream().stream_info(stream)).state
        except NotFoundError:
            continue
        match begin.kind:
            case StartPositionKind.LATEST:
                place = state.last_seq
            case StartPositionKind.SEQUENCE:
                place = begin.sequence - 1
            case StartPositionKind.TIME:
                place = await _before(client, stream, begin.time_ms, state.last_seq)
        positions[stream] = min(max(place, state.first_seq - 1), state.last_seq)
    return {stream: place for stream, place in positions.items() if place > 0}


async def _before(client: Client, stream: str, time_ms: int, last: int) -> int:
    """The sequence just below that of the first message not older than ``time_ms``."""
    moment = datetime.fromtimestamp(min(time_ms, TIME_MAX_MS) / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    request = {"start_time": moment.replace("+00:00", "Z"), "next_by_subj": ">"}
    answer = await api_call(client, f"STREAM.MSG.GET.{stream}", request)
    if "message" in answer:
        return int(answer["message"]["seq"]) - 1
    if answer["error"].get("err_code") != _NO_MESSAGE:
        # As that JetStream is away for now: the app would skip all that is stored.
        APIError.from_error(answer["error"])
    return last
