"""Reads of tables in databases that are repeated: an executor's runs, with the rows that they read.

A run that looks anything up is one *read run*: up to how many of the merged events it went, up to
which time, and the rows that came.  They are written before the output of the run leaves.  After a
failure the same events come again, perhaps cut in another way.  Then they are cut as they were, and
tables have the rows of each read run and ask no database.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from mesh.model.lookup import ReadRun
from mesh.operators.dataflow.merge import ranked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from mesh.operators.dataflow.merge import MergedRun


class Repeated(Protocol):
    """Rows of a table in a database, of which those that a run has read can be found again."""

    @property
    def read_name(self) -> str:
        """Its name in read runs."""
        ...

    def take_reads(self) -> pa.RecordBatch | None:
        """The rows that came since the last call; None if none were asked for."""
        ...

    def repeat(self, rows: pa.RecordBatch | None, *, continues: bool) -> None:
        """Have the rows of an earlier run at hand, and ask for no others from now on."""
        ...

    def ask_again(self) -> None:
        """Ask the database again: no earlier run is left."""
        ...


class Replay:
    """Cuts merged events at the ends of earlier read runs, and gives tables their rows."""

    def __init__(self, tables: Sequence[Repeated]) -> None:
        self._tables = tables
        self._runs: deque[ReadRun] = deque()
        self._has_begun = False
        #: Whether the present run has repeated another one to its end.
        self._has_repeated = False
        #: Merged events and changes that were handed out.
        self.taken = 0
        #: The number of the last read run.
        self.number = 0

    def repeat(self, runs: Iterable[ReadRun]) -> None:
        """Repeat these read runs, the first ones after the present state.

        The first one begins at once: a state of its middle has rows that a new run would forget.
        """
        self._runs.extend(run for run in runs if run.number > self.number)
        self._begin()

    def _begin(self) -> None:
        """Give tables the rows of the first read run, unless they have them."""
        if self._runs and not self._has_begun:
            self._has_begun = True
            run = self._runs[0]
            for table in self._tables:
                table.repeat(run.rows.get(table.read_name), continues=run.continues)

    def parts(
        self, ready: list[MergedRun], watermark_ms: int
    ) -> Iterator[tuple[list[MergedRun], int]]:
        """The events up to the end of each earlier read run, and its time; then the others."""
        self._has_repeated = bool(self._runs)
        while self._runs:
            run = self._runs[0]
            self._begin()
            count = sum(len(one.index) for one in ready)
            rest = run.until - self.taken
            if count < rest or (count == rest and watermark_ms < run.known_ms):
                self.taken += count
                yield ready, watermark_ms
                return
            self.taken = run.until
            yield ranked(ready, 0, rest), run.known_ms
            self.number = run.number
            self._runs.popleft()
            self._has_begun = False
            if not self._runs:
                for table in self._tables:
                    table.ask_again()
            ready = ranked(ready, rest, count)
        self.taken += sum(len(one.index) for one in ready)
        yield ready, watermark_ms

    def read(self, watermark_ms: int, *, continues: bool, writes: bool) -> ReadRun | None:
        """The read run that has just ended; None if nothing was looked up, and not ``writes``."""
        reads = [table.take_reads() for table in self._tables]
        if self._runs or (not writes and all(one is None for one in reads)):
            return None
        self.number += 1
        named = zip(self._tables, reads, strict=True)
        rows = {table.read_name: one for table, one in named if one is not None}
        return ReadRun(self.number, self.taken, watermark_ms, continues or self._has_repeated, rows)
