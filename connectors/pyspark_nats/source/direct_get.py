"""Reader of short sections of a stream by batched Direct Get, several requests at a time."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.source import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.source.messages import Messages

#: Most bytes of one answer; without flow control this is also the most in flight.
_REQUEST_BYTES = 8 << 20
#: Most bytes of a message besides its payload: subjects and headers.
_HEAD_BYTES = 1 << 10
#: Parsing starts with so many bytes, or once nothing more is in flight.
_PARSE_BYTES = 1 << 20
_SILENCE_S = 2.5
#: Status of a final answer.
_ENDS = (b"NATS/1.0 204 ", b"NATS/1.0 404 ")


class NoDirectGetResponderError(DisconnectedError):
    """No replica of the stream serves Direct Get, now or at all."""


def read(connection: Connection, stream: str, stretches: list[tuple[int, int]]) -> list[Messages]:
    """Read (first, last) sections; returns nothing before all messages have arrived.

    Raises:
        DisconnectedError: as any step under ``Connection.retry_while_unavailable``.
        NoDirectGetResponderError: also for a stream without ``allow_direct``.
    """
    parts: list[Messages] = []
    todo = stretches
    while todo:
        inboxes = connection.new_inboxes(len(todo))
        request = b"".join(
            frames.publish(
                connection.api(f"DIRECT.GET.{stream}"),
                json.dumps(
                    {"seq": first, "batch": last - first + 1, "max_bytes": _REQUEST_BYTES}
                ).encode(),
                reply=inbox,
            )
            for (first, last), (_, inbox) in zip(todo, inboxes, strict=True)
        )
        connection.send(request)
        sids = np.array([sid for sid, _ in inboxes], np.int64)
        received = _until_done(connection, set(sids.tolist()))
        connection.unsubscribe(*sids.tolist())
        # An answer may contain messages after its section, if some of the section are deleted.
        ends = np.array([last for _, last in todo], np.int64)
        reached = np.array([first - 1 for first, _ in todo], np.int64)
        for batch in received:
            got = messages.of_direct_get(stream, batch)
            # Sids are assigned in order, so they identify the section.
            stretch = batch.sid - sids[0]
            np.maximum.at(reached, stretch, got.sequence)
            part = got.take(got.sequence <= ends[stretch])
            if len(part):
                parts.append(part)
        rests = [
            rest(connection, stream, int(at) + 1, int(end))
            for at, end in zip(reached, ends, strict=True)
            if at < end
        ]
        todo = [left for left in rests if left is not None]
    return [messages.in_order(messages.concatenated(parts))] if parts else []


def rest(
    connection: Connection, stream: str, first: int, last: int, subjects: tuple[str, ...] = ()
) -> tuple[int, int] | None:
    """The unread part of first..last, according to the leader; None for none."""
    candidates = [
        jetstream.next_message(connection, stream, first, subject) for subject in subjects or (">",)
    ]
    nearest = min((one.sequence for one in candidates if one is not None), default=last + 1)
    return (nearest, last) if nearest <= last else None


def _until_done(connection: Connection, open_sids: set[int]) -> list[frames.Frames]:
    """The messages for ``open_sids``, until each has received its closing status."""
    received: list[frames.Frames] = []
    sids = list(open_sids)
    deadline_s = time.monotonic() + _SILENCE_S
    while True:
        batch = connection.take_frames()
        mine = batch.where(np.isin(batch.sid, sids))
        is_status = mine.is_status
        for at in np.flatnonzero(is_status):
            _check_status(mine.header[int(at)].as_py())
            open_sids.discard(int(mine.sid[at]))
        if is_status.any():
            mine = mine.where(~is_status)
        if len(mine):
            received.append(mine)
        if not open_sids:
            return received
        if len(batch):
            deadline_s = time.monotonic() + _SILENCE_S
        connection.receive(deadline_s)
        # Many small parses cost more than a few large ones; but nothing follows a final status.
        while connection.buffered_bytes < _PARSE_BYTES:
            is_end = any(code in connection.buffered_tail for code in _ENDS)
            if not connection.is_readable(0.0 if is_end else 0.001):
                break
            connection.receive(deadline_s)


def _check_status(header: bytes) -> None:
    """Raise the error of a closing status, unless it is the plain end."""
    said = frames.status(header)
    assert said is not None
    code, text = said
    if code in (204, 404):
        return
    if code == 503:
        raise NoDirectGetResponderError(
            "no responders: no server responds for the stream, or direct get is off"
        )
    raise RefusedError(f"the server refused to read: {code} {text}")


@dataclass(frozen=True, slots=True)
class SubjectRun:
    """The messages of one subject, from the first that the stream holds."""

    subject: str
    #: Number of messages.
    count: int
    #: Most bytes of their payloads together.
    size: int


def read_runs(connection: Connection, stream: str, runs: Sequence[SubjectRun]) -> list[list[bytes]]:
    """The payloads of each of ``runs``, which are few and large; all are requested at once.

    A replica answers, and a replica that lags returns fewer messages than exist: the caller counts.

    Raises:
        DisconnectedError: as any step under ``Connection.retry_while_unavailable``.
        NoDirectGetResponderError: also for a stream without ``allow_direct``.
    """
    inboxes = connection.new_inboxes(len(runs))
    connection.send(
        b"".join(
            frames.publish(
                connection.api(f"DIRECT.GET.{stream}"),
                json.dumps(
                    {
                        "seq": 1,
                        "next_by_subj": one.subject,
                        "batch": one.count,
                        "max_bytes": one.size + one.count * _HEAD_BYTES,
                    }
                ).encode(),
                reply=inbox,
            )
            for one, (_, inbox) in zip(runs, inboxes, strict=True)
        )
    )
    payloads: list[list[bytes]] = [[] for _ in runs]
    first_sid = inboxes[0][0]
    left = len(runs)
    deadline_s = time.monotonic() + _SILENCE_S
    while left:
        frame = connection.next_frame()
        if frame is None:
            connection.receive(deadline_s)
            deadline_s = time.monotonic() + _SILENCE_S
            continue
        sid, _, header, data = frame
        if not first_sid <= sid < first_sid + len(runs):
            continue
        if frames.status(header) is None:
            payloads[sid - first_sid].append(data)
            continue
        _check_status(header)
        left -= 1
    connection.unsubscribe(*(sid for sid, _ in inboxes))
    return payloads
