"""The steps of a streaming query without Spark, so that a fault can be tested in a second.

It plans batches by the source's reader, as Spark would, and writes their rows by the sink's
publisher.  ``stored`` checks the outcome by plain requests, and shares no code with either.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import connection_options, jetstream
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.sink import messages_out, publish, sink_options
from pyspark_nats.source import rows, source_options
from pyspark_nats.source.reader import NatsStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.protocol.connection import Reply
    from tests.support.broker import Broker

#: Maximum time that the relay may be without a server or a leader.
TIMEOUT_S = "40"
#: Requests under way at a time when a stream is read.
_LOOKS = 500


class Message(NamedTuple):
    """A message as the stream's leader holds it."""

    sequence: int
    subject: str
    data: bytes


def stored(broker: Broker, stream: str) -> list[Message]:
    """Everything in a stream, in order, read one by one from its leader."""
    last = int(broker.call(f"STREAM.INFO.{stream}")["state"]["last_seq"])
    found: list[Message] = []
    for first in range(1, last + 1, _LOOKS):
        sequences = range(first, min(last, first + _LOOKS - 1) + 1)
        calls = [
            (f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps({"seq": sequence}).encode())
            for sequence in sequences
        ]

        def look(calls: list[tuple[str, bytes]] = calls) -> list[Message]:
            return list(filter(None, map(_message, broker.connection.requests(calls))))

        found += broker.connection.retry_while_unavailable("looking", look)
    return found


def _message(reply: Reply) -> Message | None:
    """The message of an answer; ``None`` for a gap, as a replaced marker leaves one."""
    try:
        message = reply.json()["message"]
    except RefusedError as error:
        if error.err_code != jetstream.NO_MESSAGE:
            raise
        return None
    return Message(
        int(message["seq"]), message["subject"], base64.b64decode(message.get("data", ""))
    )


def payloads(broker: Broker, stream: str) -> list[bytes]:
    """The rows in a stream, in order, without markers."""
    return [m.data for m in stored(broker, stream) if m.subject == f"ev.{stream}"]


class Relay:
    """Copies stream IN to stream OUT exactly once, in a thread of its own, until it is ended."""

    def __init__(self, servers: str, *, batch_rows: int = 100) -> None:
        self._given = {"servers": servers, "timeoutS": TIMEOUT_S}
        self._batch_rows = batch_rows
        self._ending = threading.Event()
        self._error: BaseException | None = None
        #: Batches written so far; ``_moved`` is notified of each further one, and of its end.
        self.batches = 0
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it still copies."""
        return self._thread.is_alive()

    def wait_for(self, more: int, what: str, timeout_s: float = 40.0) -> None:
        """Wait until it has written ``more`` batches; raises the error that ended it."""
        wanted = self.batches + more
        with self._moved:
            done = self._moved.wait_for(
                lambda: self.batches >= wanted or self._error is not None, timeout_s
            )
        assert done, f"not within {timeout_s:g} s: {what}"
        if self._error is not None:
            raise self._error

    def finish(self, timeout_s: float = 60.0) -> None:
        """Make it copy the rest, and wait for that; raises the error that ended it.

        ``timeout_s`` is the longest that one batch may take: all take long on a busy machine.
        """
        self._ending.set()
        before = -1
        while self._thread.is_alive() and self.batches > before:
            before = self.batches
            self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"the relay hangs after {self.batches} batches"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        given = sink_options.sink_options({**self._given, "stream": "OUT", "subject": "ev.OUT"})
        try:
            with Connection(given.connection) as connection:
                self._copy(publish.RowPublisher(connection, given))
        except BaseException as error:
            with self._moved:
                self._error = error
                self._moved.notify_all()
        finally:
            # The source's tasks keep their connection in their thread; this thread ends.
            shared(connection_options.connection_options(self._given)).close()

    def _copy(self, publisher: publish.RowPublisher) -> None:
        source = stream_reader(
            stream="IN", idleWaitMs="50", maxOffsetsPerTrigger=str(self._batch_rows), **self._given
        )
        try:
            at, limit = source.initialOffset(), source.getDefaultReadLimit()
            while True:
                is_last_look = self._ending.is_set()
                end = source.latestOffset(at, limit)
                if end == at and is_last_look:
                    return
                for batch in batch_rows(source, at, end):
                    publisher.write(positioned(batch))
                with self._moved:
                    self.batches += end != at
                    self._moved.notify_all()
                at = end
        finally:
            source.stop()


def stream_reader(**given: str) -> NatsStreamReader:
    """The source's reader as Spark gets it, in the raw form."""
    return NatsStreamReader(source_options.source_options(given), from_arrow_schema(rows.RAW))


def batch_rows(source: NatsStreamReader, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
    """The rows between two offsets, partition after partition."""
    for partition in source.partitions(start, end):
        yield from source.read(partition)


def positioned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the source for the publisher, their sequence being their position."""
    columns = {
        "data": batch.column("data"),
        "producer": pa.array(["relay"] * batch.num_rows, pa.string()),
        "position": batch.column("sequence"),
    }
    return messages_out.with_schema_columns(
        pa.record_batch(columns), stream="OUT", subject="ev.OUT", producer="", first_position=0
    )
