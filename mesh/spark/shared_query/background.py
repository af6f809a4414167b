"""Publication of a large run's output while its slot computes the next run of the same part.

The server stores a batch while this process decodes and computes another, so that neither waits
for the other.  All of it belongs to one part.  Small runs of other parts are published meanwhile,
over a connection of their own.  A large run of another part waits first; so do a small run of the
same part and its report.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyspark_nats.sink.publish import RowPublisher

#: Messages, or bytes of their payloads, of a run from which on a thread publishes its output.  To
#: hand over a smaller one costs more than it saves.
LARGE_RUN: Final = 2_000
LARGE_RUN_BYTES: Final = 1 << 20

#: Member and part.
Owner = tuple[str, str]


class BackgroundPublisher:
    """A thread that publishes the output of one run at a time; called by one thread."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._pool: ThreadPoolExecutor | None = None
        self._run: Future[None] | None = None
        #: Owner of the output under way; None for none.
        self.owner: Owner | None = None

    def publish(
        self,
        owner: Owner,
        publisher: RowPublisher,
        output: Sequence[pa.RecordBatch],
        published: Callable[[], None],
    ) -> None:
        """Have the output of a run published next, and wait until the earlier one has been.

        Args:
            owner: the member and part that it belongs to.
            publisher: to its streams.
            output: its rows.
            published: called by the thread once everything is acknowledged.

        Raises:
            ConnectorError: of the earlier run; this one is not published then.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "publisher")
        earlier, self.owner = self._run, owner
        # It is handed over before the wait, so that the thread has work meanwhile.
        self._run = self._pool.submit(_publish, earlier, publisher, output, published)
        if earlier is not None:
            earlier.result()

    def wait(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            ConnectorError: as ``RowPublisher.add``.
        """
        run, self._run, self.owner = self._run, None, None
        if run is not None:
            run.result()

    def drop(self, member: str) -> None:
        """Wait for the output of a member that has failed, whatever becomes of it."""
        if self.owner is not None and self.owner[0] == member:
            run, self._run, self.owner = self._run, None, None
            if run is not None:
                run.exception()

    def close(self) -> None:
        """End the thread, which finishes what is under way."""
        if self._pool is not None:
            self._pool.shutdown()


def _publish(
    earlier: Future[None] | None,
    publisher: RowPublisher,
    output: Sequence[pa.RecordBatch],
    published: Callable[[], None],
) -> None:
    if earlier is not None:
        earlier.result()
    for rows in output:
        publisher.add(rows)
    publisher.finish()
    published()
