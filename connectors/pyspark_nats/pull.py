"""Reading a long stretch of a stream through a pull consumer without acks."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np

from pyspark_nats import frames, jetstream, messages
from pyspark_nats.connection import DisconnectedError
from pyspark_nats.errors import RefusedError

if TYPE_CHECKING:
    from pyspark_nats.connection import Connection
    from pyspark_nats.messages import Messages

#: What one request may bring; two are under way at a time, below the server's limit of a client.
_REQUEST_MESSAGES = 50_000
_REQUEST_BYTES = 8 << 20
#: Parsing starts when so much is there, or nothing more is under way.
_PARSE_BYTES = 1 << 20
_SILENCE_S = 2.5
#: What a filter costs the server for each message, in messages read without one.
_FILTER_COST = 8


class Pull:
    """A consumer being read up to a sequence, two requests under way."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        first: int,
        last: int,
        subjects: tuple[str, ...] = (),
    ) -> None:
        """Make the consumer; it gives ``subjects``, or more where filtering would not pay."""
        self._connection = connection
        self._stream = stream
        self._last = last
        self._name = _reader(connection, stream, first, subjects)
        #: Last sequence that came.
        self._at = first - 1
        #: The consumer's own count of the last message that came.
        self._delivered = 0
        #: Messages that each request may still bring, by the sid of its inbox: the server serves
        #: requests in turns, and says nothing when one is filled exactly.
        self._open: dict[int, int] = {}
        self._bytes_max = _REQUEST_BYTES
        #: False once it has nothing more to give.
        self.is_good = True

    def some(self) -> list[Messages]:
        """Some messages up to the last; none when the consumer has no more.

        Raises:
            DisconnectedError: as any step under ``Connection.riding``; make another one then.
        """
        while self.is_good:
            self._ask()
            if not self._open:
                self.is_good = False
                break
            found = self._received()
            mine = messages.frames_where(found, np.isin(found.sid, list(self._open)))
            is_status = messages.is_status(mine)
            data = messages.frames_where(mine, ~is_status)
            for sid, count in zip(*np.unique(data.sid, return_counts=True), strict=True):
                self._open[int(sid)] -= int(count)
            for at in np.flatnonzero(is_status):
                self._ended(int(mine.sid[at]), mine.header[int(at)].as_py(), bool(len(data)))
            for sid in [sid for sid, left in self._open.items() if left <= 0]:
                self._forget(sid)
            if not len(data):
                continue
            got = messages.of_consumer(self._stream, data)
            self._check_whole(got)
            self._at = int(got.messages.sequence[-1])
            self.is_good = self._has_more()
            kept = got.messages.take(got.messages.sequence <= self._last)
            return [kept] if len(kept) else []
        return []

    def _check_whole(self, got: messages.Delivered) -> None:
        """Nothing acknowledges what is read, so nothing else would notice a message lost."""
        if got.first != self._delivered + 1 or got.last - got.first + 1 != len(got.messages):
            raise DisconnectedError(
                f"the consumer's messages {got.first} to {got.last} do not follow {self._delivered}"
            )
        self._delivered = got.last

    def _has_more(self) -> bool:
        return self._at < self._last and (self.is_good or bool(self._open))

    def _ask(self) -> None:
        """Keep two requests under way, as far as the range is not covered by them."""
        while len(self._open) < 2:
            batch = min(_REQUEST_MESSAGES, self._last - self._at - sum(self._open.values()))
            if batch <= 0:
                return
            sid, inbox = self._connection.new_inbox()
            query = {"batch": batch, "max_bytes": self._bytes_max, "no_wait": True}
            self._connection.send(
                frames.publish(
                    f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
                    json.dumps(query).encode(),
                    reply=inbox,
                )
            )
            self._open[sid] = batch

    def _received(self) -> frames.Frames:
        connection = self._connection
        while True:
            # Many small parses cost more than one large one.
            while connection.unread < _PARSE_BYTES and connection.is_readable():
                connection.receive(time.monotonic() + _SILENCE_S)
            found = connection.take_frames()
            if len(found):
                return found
            connection.receive(time.monotonic() + _SILENCE_S)

    def _ended(self, sid: int, header: bytes, has_data: bool) -> None:
        """Deal with the status that ends a request before it is filled."""
        said = frames.status(header)
        assert said is not None
        code, text = said
        self._forget(sid)
        if code == 409 and text.startswith(("Batch Completed", "Message Size Exceeds MaxBytes")):
            # The request is served, as far as it goes; the range is not.
            if not has_data and text.startswith("Message"):
                # One message may be larger than what was asked for.
                self._bytes_max *= 4
        elif code in (404, 408):
            self.is_good = False
        elif code in (409, 503):
            # The consumer was deleted, or its leader changed: make another.
            raise DisconnectedError(f"{code} {text}")
        else:
            raise RefusedError(f"the server refused to read: {code} {text}")

    def _forget(self, sid: int) -> None:
        del self._open[sid]
        self._connection.unsubscribe(sid)

    def close(self) -> None:
        """Give the consumer back."""
        try:
            for sid in list(self._open):
                self._forget(sid)
            jetstream.delete_reader(self._connection, self._stream, self._name)
        except (DisconnectedError, OSError):
            self._connection.close()


def _reader(connection: Connection, stream: str, first: int, subjects: tuple[str, ...]) -> str:
    """Make the consumer that reads ``subjects`` most cheaply; returns its name."""
    if not subjects:
        return jetstream.create_reader(connection, stream, first).name
    filtered = jetstream.create_reader(connection, stream, first, subjects)
    info = jetstream.stream_infos(connection, [stream])[stream]
    if filtered.pending * _FILTER_COST < min(info.messages, info.last - first + 1):
        return filtered.name
    jetstream.delete_reader(connection, stream, filtered.name)
    return jetstream.create_reader(connection, stream, first).name
