"""Reports of a batch's tasks to the query's planner: amount read and time taken.

Spark gives a source written in Python no metrics of its own, and its tasks run in other processes,
maybe on other machines.  All of them are connected to NATS, so each task publishes one message to
an inbox of the planner at its end.  A lost report affects only the query's progress.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_nats.errors import ConnectorError
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection, DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.source.messages import Messages


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Recipient of the reports of one batch."""

    subject: str
    #: Distinguishes its reports from those of earlier batches.
    batch: int


@dataclass(slots=True)
class Fetched:
    """Amount that a task, or all tasks of a batch, received from the server."""

    messages: int = 0
    #: Payload bytes.
    bytes: int = 0
    #: Of the slowest task.
    fetch_ms: float = 0.0

    def counting(self, parts: Iterator[Messages], now_s: Callable[[], float]) -> Iterator[Messages]:
        """The same ``parts``, counted, with the time of fetching them."""
        while True:
            before_s = now_s()
            part = next(parts, None)
            self.fetch_ms += (now_s() - before_s) * 1000
            if part is None:
                return
            self.messages += len(part)
            self.bytes += part.data.nbytes
            yield part

    def add(self, other: Fetched) -> None:
        """Add another task's amount."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.fetch_ms = max(self.fetch_ms, other.fetch_ms)


def send(connection: Connection, address: ReportAddress, fetched: Fetched) -> None:
    """Send the report to the planner; does not wait, and ignores failures."""
    values = {
        "batch": address.batch,
        "messages": fetched.messages,
        "bytes": fetched.bytes,
        "fetch_ms": round(fetched.fetch_ms, 3),
    }
    try:
        connection.send(frames.publish(address.subject, json.dumps(values).encode()))
    except (DisconnectedError, OSError):
        connection.close()


class Inbox:
    """The planner's side: a connection only for reports."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._connection = Connection(options)
        self._subject = ""
        self._batch = 0
        self._total = Fetched()

    def address(self) -> ReportAddress | None:
        """The address for reports of the next batch; None if the server is unreachable."""
        self.collect()
        self._batch += 1
        self._total = Fetched()
        if not self._connection.is_open:
            try:
                _, self._subject = self._connection.retry_while_unavailable(
                    "listening to tasks", self._connection.new_inbox
                )
            except ConnectorError:
                return None
        return ReportAddress(self._subject, self._batch)

    def collect(self, now_s: Callable[[], float] = time.monotonic) -> Fetched:
        """The sum of the reports of the newest batch so far."""
        try:
            while self._connection.is_open and self._connection.is_readable():
                self._connection.receive(now_s() + 1)
                # One by one: they are few, and the first Arrow array of a process costs 0.2 s.
                while (frame := self._connection.next_frame()) is not None:
                    self._count(frame[3])
        except (DisconnectedError, OSError):
            self._connection.close()
        return self._total

    def _count(self, payload: bytes) -> None:
        report = json.loads(payload)
        if report.pop("batch") == self._batch:
            self._total.add(Fetched(**report))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
