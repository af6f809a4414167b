"""Queries in tens: the common part of the measurements of starts and of idling."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.connector import receipts
from bench.connector.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from bench.connector.harness import Bench

_START_S = 60.0


class Queries:
    """Streaming queries from a JetStream stream each to a sink written in Python."""

    def __init__(self, bench: Bench, prefix: str) -> None:
        self._bench = bench
        self._prefix = prefix
        self._names: list[str] = []
        self.running: list[StreamingQuery] = []
        bench.quick_spark.dataSource.register(receipts.ReceiptsDataSource)

    def prepare(self, count: int) -> None:
        """Make ``count`` streams with one message each."""
        for number in range(count):
            name = f"{self._prefix}{number}"
            self._bench.create_stream(name, f"bench.{name}")
            self._names.append(name)
            with Wire(self._bench.server.port) as wire:
                data = b'{"id": 0, "sent_ns": %d}' % time.time_ns()
                wire.send(b"PUB bench.%s %d\r\n%s\r\n" % (name.encode(), len(data), data))
                wire.call("INFO")

    def load(self, number: int) -> DataFrame:
        """The table of one stream; Spark creates the data source here."""
        return load(self._bench, self._names[number], f"bench.{self._names[number]}")

    def start(self, number: int, rows: DataFrame) -> float:
        """Start a query; returns the seconds from its start to its first row in the sink.

        Raises:
            RuntimeError: there was no row, or the query failed.
        """
        path = self._path(number)
        started_s = time.perf_counter()
        query = start(rows, path)
        self.running.append(query)
        while not len(receipts.read(path)):
            if time.perf_counter() - started_s > _START_S:
                raise RuntimeError(f"no row within {_START_S:g} s")
            failure = query.exception()
            if failure is not None:
                raise failure
            time.sleep(0.005)
        # By the sink's clock, so the interval of polling doesn't count.
        received_ns = int(receipts.read(path)[0, 1])
        return time.perf_counter() - started_s - (time.time_ns() - received_ns) / 1e9

    def stop(self) -> None:
        """Stop the queries and delete their streams."""
        for query in self.running:
            query.stop()
        for name in self._names:
            self._bench.delete_stream(name)

    def _path(self, number: int) -> Path:
        return self._bench.directory / f"{self._names[number]}.receipts"


def load(bench: Bench, stream: str, subject: str) -> DataFrame:
    """The table of one stream of events with the time at which each was sent."""
    given = {"servers": bench.url, "stream": stream, "subject": subject, "format": "json"}
    reader = bench.quick_spark.readStream.format("nats").options(**given)
    return reader.schema("id long, sent_ns long").load()


def start(rows: DataFrame, path: Path) -> StreamingQuery:
    """Start the query that notes into ``path`` when rows arrive; its sink is registered."""
    given = {"path": str(path), "checkpointLocation": str(path.with_suffix(".checkpoint"))}
    return rows.writeStream.format("receipts").options(**given).start()


@contextmanager
def queries(bench: Bench, prefix: str, count: int) -> Iterator[Queries]:
    """``count`` streams of a message each, and the queries that are started on them."""
    made = Queries(bench, prefix)
    try:
        made.prepare(count)
        yield made
    finally:
        made.stop()
