"""What flows between operators, and what an operator is.

No I/O, no clock, no Spark: time comes with the events and with ``on_time``.  A group's operators are driven
by ``executor.Executor``, one for each virtual partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Events:
    """A run of events of one stream, as columns of one length n.

    ``time_ms``: int64[n], each event's own timestamp.
    ``clock_ms``: int64[n], the time it was when the event came; never falls, and may be later than
    the event's own time.
    ``order``: int64[n], the place in the executor's total order of what caused it (an input row or a
    timer); never falls.  Rows of several runs are put in sequence by (order, query position).
    ``expired``: bool[n], whether it leaves a window rather than enters.
    ``rows``: the attributes, in the stream's schema.
    """

    time_ms: npt.NDArray[np.int64]
    clock_ms: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    expired: npt.NDArray[np.bool_]
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class State:
    """An operator's state as named pieces.

    A piece that changed has another name (a counter in it), so a host stores only names that it has
    not stored, and drops those that are no longer listed.  ``scalars`` holds small JSON values and
    is stored whole each time.
    """

    pieces: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    scalars: Mapping[str, object] = field(default_factory=dict)


class Operator(Protocol):
    """A step of a query that keeps state: window, pattern, aggregation.

    Calls come in the order of time.  ``on_time`` says that it is now ``now_ms`` and no event with an
    earlier clock will follow; it fires the timers due at or before it, each at its own time.
    """

    def on_batch(self, events: Events) -> Events:
        """Take events, in order, and return what they caused, in order."""
        ...

    def on_time(self, now_ms: int, order: int) -> Events:
        """Fire the timers due by ``now_ms``; what they cause has place ``order``."""
        ...

    def next_time(self) -> int | None:
        """When the earliest timer is due, milliseconds since 1970; None without one."""
        ...

    def snapshot(self) -> State:
        """The whole state; later calls don't change what was returned."""
        ...

    def restore(self, state: State) -> None:
        """Take the place of the operator that ``state`` was a snapshot of."""
        ...
