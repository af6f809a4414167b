"""Publisher of a task: exactly once in atomic batches with a marker, or at least once by acks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_nats.sink.at_least_once import AtLeastOncePublisher
from pyspark_nats.sink.exactly_once import ExactlyOncePublisher
from pyspark_nats.sink.origin import Origin

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.sink_options import SinkOptions


class _Path(Protocol):
    @property
    def pairs(self) -> tuple[tuple[str, str], ...]: ...

    def add(self, rows: pa.RecordBatch) -> None: ...

    def finish(self) -> None: ...


class Publisher:
    """Publishes the rows of one task; a producer's rows must be in the order of positions."""

    def __init__(
        self, connection: Connection, options: SinkOptions, origin: Origin | None = None
    ) -> None:
        self._atomic = ExactlyOncePublisher(connection, options, origin or Origin())
        self._path: _Path = (
            self._atomic if options.is_exact else AtLeastOncePublisher(connection, options)
        )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (stream, producer) pairs that have markers and were written so far."""
        return self._path.pairs

    def add(self, batch: pa.RecordBatch) -> None:
        """Publish ``batch``, columns as ``messages_out.SCHEMA``, in the order of its rows.

        Some of it may wait to go out with what comes next, and some may be on its way; all of it is
        out when ``finish`` returns.

        Raises:
            StaleWriterError: a writer with a newer epoch was here.
            OrderError: positions do not grow, or another partition writes for the same producer.
            DivergedError: a batch that is run again is not the one that is out.
            RefusedError: the server does not take the rows; UnavailableError: it stayed away.
        """
        if batch.num_rows:
            self._path.add(batch)

    def finish(self) -> None:
        """Return when everything is acknowledged; errors as for ``add``.

        When positions are counted, this ends the batch: it is whole, and takes no more rows.
        """
        self._path.finish()

    def write(self, batch: pa.RecordBatch) -> None:
        """``add`` and ``finish``."""
        self.add(batch)
        self.finish()

    def out(self, pair: tuple[str, str]) -> int:
        """The position up to which a (stream, producer) is published; -1 for none."""
        return self._atomic.out(pair)

    def expect(self, pair: tuple[str, str]) -> None:
        """Register a (stream, producer) for this batch, even if it has no rows.

        ``finish`` then writes down that it has none, when positions are counted, so that another
        driver that has some is refused; DivergedError there when some are out.
        """
        self._atomic.expect(pair)
