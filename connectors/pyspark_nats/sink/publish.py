"""Publisher of a task: exactly once in atomic batches with a marker, or at least once by acks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_nats.sink.at_least_once import AtLeastOncePublisher
from pyspark_nats.sink.exactly_once import ExactlyOncePublisher
from pyspark_nats.sink.markers import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.sink_options import SinkOptions


class _Path(Protocol):
    @property
    def pairs(self) -> tuple[tuple[str, str], ...]: ...

    def add(self, rows: pa.RecordBatch) -> None: ...

    def begin_run(self, since_ms: int) -> None: ...

    def send(self) -> bool: ...

    def finish(self) -> None: ...


class RowPublisher:
    """Publishes the rows of one task; a producer's rows must be in the order of positions."""

    def __init__(
        self,
        connection: Connection,
        options: SinkOptions,
        origin: Origin | None = None,
        *,
        is_long_lived: bool = False,
        input_ms: Callable[[str], int] | None = None,
    ) -> None:
        """Publish over a connection.

        Args:
            connection: to a server.
            options: of the sink.
            origin: the task.
            is_long_lived: whether later tasks of its producers run in this thread, as a rule: then
                rows are published in ingest batches, where the stream takes them.
            input_ms: the server's time before which no input of a producer's rows was stored, ms
                since 1970, and 0 if unknown; for inputs that may be made again.
        """
        self.atomic = ExactlyOncePublisher(
            connection,
            options,
            origin or Origin(),
            is_long_lived=is_long_lived,
            input_ms=input_ms,
        )
        self._path: _Path = (
            self.atomic if options.is_exact else AtLeastOncePublisher(connection, options)
        )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (stream, producer) pairs with markers that were written so far."""
        return self._path.pairs

    def add(self, batch: pa.RecordBatch) -> None:
        """Publish ``batch``, columns as ``messages_out.SCHEMA``, in the order of its rows.

        Some rows may wait for later ones, and some may be in flight; all of them are published when
        ``finish`` returns.

        Raises:
            StaleWriterError: a writer with a newer epoch has written a marker.
            OrderError: positions do not grow, or another partition writes for the same producer.
            DivergedError: a replayed batch differs from the published one.
            DataLossError: rows are published already, but of an earlier input of ``input_ms``.
            RefusedError: the server rejects the rows; UnavailableError: it remained unavailable.
        """
        if batch.num_rows:
            self._path.add(batch)

    def begin_run(self, since_ms: int) -> None:
        """Add rows of a further run from now on.

        Args:
            since_ms: see ``Origin.since_ms``.
        """
        self._path.begin_run(since_ms)

    def send(self) -> bool:
        """Return when everything is sent; errors as for ``add``.

        Returns:
            Whether everything is acknowledged.  Otherwise it is kept here until ``finish`` has
            found it stored, or published it again; rows of further runs may be added before that.
            If ``is_waiting``, ``proceed`` has to be called soon.
        """
        return self._path.send()

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for an answer of the server since ``send``."""
        return self._path is self.atomic and self.atomic.is_waiting

    def proceed(self) -> None:
        """Wait for that answer, and send it; errors as for ``add``.

        Several publishers of a thread that sent before any of them proceeds wait together.
        """
        self.atomic.proceed()

    def finish(self) -> None:
        """Return when everything is acknowledged; errors as for ``add``.

        If positions are counted, this ends the batch: it is whole, and accepts no more rows.
        """
        self._path.finish()

    def write(self, batch: pa.RecordBatch) -> None:
        """``add`` and ``finish``."""
        self.add(batch)
        self.finish()

    def out(self, pair: tuple[str, str], first: int) -> int:
        """The position up to which a (stream, producer) is published; -1 for none.

        Raises:
            DataLossError: the row of position ``first`` is published, but of an earlier input.
        """
        return self.atomic.out(pair, first)

    def expect(self, pair: tuple[str, str]) -> None:
        """Register a (stream, producer) for this batch, even if it has no rows.

        If positions are counted, ``finish`` then records that it has none, so that another driver
        with rows is refused.  If some are already published, ``finish`` raises DivergedError.
        """
        self.atomic.expect(pair)


def prepare_finish(publishers: Collection[RowPublisher]) -> None:
    """Do what ``finish`` of each publisher would wait for, at once for several of one thread.

    Two answers of the server are then awaited for all of them, and not for each.  ``finish`` has to
    be called for each afterwards; it raises the errors.
    """
    steps = ExactlyOncePublisher.ask, ExactlyOncePublisher.mark
    # After a failure, as of the connection, each of the others would wait as long.
    _ = all(step(one.atomic) for step in steps for one in publishers if one._path is one.atomic)
