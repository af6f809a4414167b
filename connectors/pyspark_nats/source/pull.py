"""Reader of a long section of a stream through a pull consumer without acks."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.protocol.header_columns import header_values
from pyspark_nats.source import messages

if TYPE_CHECKING:
    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.source.messages import Messages

#: Most messages and bytes of one request; two must fit into the server's limit for a client, 64 MB.
_REQUEST_MESSAGES = 200_000
_REQUEST_BYTES = 24 << 20
#: The next request is sent when so few messages are in flight.  The server serves two requests in
#: turns, message by message, at a higher cost.
_ASK_AT = 25_000
#: Parsing starts with so many bytes, or once nothing more is in flight.
_PARSE_BYTES = 2 << 20
_PAUSE_S = 0.005
_SILENCE_S = 2.5
#: The server drops a request after this time; a silent server is detected earlier.
_EXPIRES_NS = 30_000_000_000
#: Cost of a filter for each message, in messages read without a filter.
_FILTER_COST = 8


class Pull:
    """A consumer that is read up to a sequence.

    All requests share one subscription.  The request of a message does not matter; the messages
    still expected are counted for all requests together.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        first: int,
        last: int,
        subjects: tuple[str, ...] = (),
    ) -> None:
        """Create the consumer for ``subjects``, or for more if a filter is not worthwhile."""
        self._connection = connection
        self._stream = stream
        self._last = last
        reader = _reader(connection, stream, first, subjects)
        self._name = reader.name
        self._sid, self._inbox = connection.new_inbox_tree()
        #: Last received sequence.
        self._at = first - 1
        #: Number of received messages.
        self._delivered = 0
        #: Number of messages that open requests may still return.
        self._expected = 0
        self._requests = 0
        self._bytes_max = _REQUEST_BYTES
        #: False when it has no more messages.
        self.is_good = reader.pending > 0

    def some(self) -> list[Messages]:
        """Some messages up to the last; empty if the consumer has no more.

        Raises:
            DisconnectedError: as any step under ``Connection.retry_while_unavailable``; create
                another consumer then.
        """
        while self.is_good:
            self._ask()
            batch = self._received()
            is_status = batch.is_status
            data = batch.where(~is_status) if is_status.any() else batch
            self._expected -= len(data)
            for at in np.flatnonzero(is_status):
                self._ended(batch.header[int(at)].as_py(), bool(len(data)))
            if not len(data):
                continue
            got, pending = messages.of_consumer(self._stream, self._name, self._delivered, data)
            self._delivered += len(got)
            self._at = int(got.sequence[-1])
            # No message is pending after the last one: the rest of the range is deleted.
            self.is_good = self._at < self._last and pending > 0
            part = got.take(got.sequence <= self._last)
            return [part] if len(part) else []
        return []

    def _ask(self) -> None:
        """Keep requests open until they cover the range."""
        while self._expected <= _ASK_AT:
            batch = min(_REQUEST_MESSAGES, self._last - self._at - self._expected)
            if batch <= 0:
                return
            self._requests += 1
            query = {"batch": batch, "max_bytes": self._bytes_max, "expires": _EXPIRES_NS}
            self._connection.send(
                frames.publish(
                    self._connection.api(f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}"),
                    json.dumps(query).encode(),
                    reply=f"{self._inbox}.{self._requests}",
                )
            )
            self._expected += batch

    def _received(self) -> frames.Frames:
        connection = self._connection
        while True:
            # Many small parses cost more than one large one.
            connection.gather(_PARSE_BYTES, _PAUSE_S)
            batch = connection.take_frames()
            if len(batch):
                return batch
            connection.receive(time.monotonic() + _SILENCE_S)

    def _ended(self, header: bytes, has_data: bool) -> None:
        """Process the status that ends a request early."""
        said = frames.status(header)
        assert said is not None
        code, text = said
        left = header_values(pa.array([header]), "Nats-Pending-Messages")[0].as_py()
        # Messages that are not known to be in flight are requested again; some may then be surplus.
        self._expected = max(0, self._expected - int(left)) if left else 0
        if code == 409 and text.startswith("Message Size") and not has_data:
            # One message may be larger than the requested size.
            self._bytes_max *= 4
        elif code == 503 or (code == 409 and not text.startswith(jetstream.SERVED)):
            # The consumer was deleted, or its leader changed: create another.
            raise DisconnectedError(f"{code} {text}")
        elif code not in (404, 408, 409):
            raise RefusedError(f"the server refused to read: {code} {text}")

    def close(self) -> None:
        """Delete the consumer; messages in flight must not be mistaken for others."""
        try:
            self._connection.unsubscribe(self._sid)
            jetstream.delete_reader(self._connection, self._stream, self._name)
        except (DisconnectedError, OSError):
            self._connection.close()


def _reader(
    connection: Connection, stream: str, first: int, subjects: tuple[str, ...]
) -> jetstream.ReadConsumer:
    """Create the cheapest consumer that reads ``subjects``."""
    if not subjects:
        return jetstream.create_reader(connection, stream, first)
    filtered = jetstream.create_reader(connection, stream, first, subjects)
    info = jetstream.stream_infos(connection, [stream])[stream]
    if filtered.pending * _FILTER_COST < min(info.messages, info.last - first + 1):
        return filtered
    jetstream.delete_reader(connection, stream, filtered.name)
    return jetstream.create_reader(connection, stream, first)
