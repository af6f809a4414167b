"""``lengthBatch`` of a single instance without readers of expired events: arithmetic, no loop.

Every n rows are a batch, and emitted rows are forgotten; so row numbers alone determine where
batches end.  The output is that of ``tumbling.length_batch_loop``: for each batch a reset, then its
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import CURRENT, RESET, WHOLE, EventBatch
from mesh.operators.windows import window_loop as m
from mesh.operators.windows.row_refs import RowRefs

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from mesh.operators.base import Kinds, Longs


@dataclass(slots=True)
class CountBatches:
    """The rows of the batch that is not full: those from the one numbered ``head`` on.

    ``size``: rows in a batch, more than 0.
    """

    size: int
    head: int

    def run(self, base: int, count: int) -> EndedBatches:
        """Add ``count`` rows, numbered from ``base`` on; the batches that end."""
        head = self.head
        ends = (base + count - head) // self.size
        self.head += ends * self.size
        return EndedBatches(self.size, head, ends, base)


@dataclass(frozen=True, slots=True)
class EndedBatches:
    """A number of batches of ``size`` rows from the row ``head`` on, which end in one run.

    ``base``: the number of the row of the run's first event.
    """

    size: int
    head: int
    batches: int
    base: int

    @property
    def last(self) -> Longs:
        """For each batch, the index in the run of the event that ends it."""
        return np.arange(1, self.batches + 1) * self.size + (self.head - self.base - 1)

    def chunks(self, events: EventBatch, pieces: Longs, before: Longs) -> tuple[Longs, Longs]:
        """Order, clock and path of each batch, int64[3, m], and numbers for equal triples."""
        last = self.last
        out = np.empty((m.OUT_ROWS, self.batches), dtype=np.int64)
        out[m.O_ORDER] = events.order.take(last)
        out[m.O_CLOCK] = events.clock_ms.take(last)
        out[m.O_PATH] = events.path.take(last)
        out[m.O_PIECE] = pieces
        chunk = np.empty(self.batches, dtype=np.int64)
        m.number_chunks(out, self.batches, before, chunk)
        return out[[m.O_ORDER, m.O_CLOCK, m.O_PATH]], chunk

    def lines(
        self,
        causes: Longs,
        chunk: Longs,
        take: Callable[[Longs], tuple[Longs, pa.RecordBatch]],
    ) -> RowRefs:
        """The output as row references.

        ``causes``, ``chunk``: the result of ``chunks``; ``take``: looks up rows.
        """
        size, batches = self.size, self.batches
        shape = (batches, size + 1)
        row = np.arange(batches * size).reshape(batches, size) + self.head
        rows = np.empty(shape, dtype=np.int64)
        rows[:, 1:] = row
        # The row of a reset is ignored.
        rows[:, 0] = row[:, -1]
        kind: Kinds = np.full(shape, CURRENT, dtype=np.int8)
        kind[:, 0] = RESET
        of_line = np.repeat(np.arange(batches), size + 1)

        def going(at: Longs) -> EventBatch:
            of = of_line.take(at)
            time_ms, attributes = take(rows.reshape(-1).take(at))
            order, clock_ms, path = (cause.take(of) for cause in causes)
            return EventBatch(
                time_ms,
                clock_ms,
                order,
                path,
                chunk.take(of),
                np.full(len(at), CURRENT, dtype=np.int8),
                np.full(len(at), WHOLE, dtype=np.int64),
                attributes,
            )

        instance = np.full(len(of_line), WHOLE, dtype=np.int64)
        return RowRefs(rows.reshape(-1), kind.reshape(-1), going, instance, of_line)
