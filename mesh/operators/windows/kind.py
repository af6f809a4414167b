"""Description of a kind of window, and the interface of a window's operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mesh.operators.base import Stateful

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mesh.functions.catalogue import Signature
    from mesh.operators.base import EventBatch, Longs, Timeline
    from mesh.plan.bound import Window

    Maker = Callable[[Window, "WindowContext"], "WindowOperator"]


class WindowOperator(Stateful, Protocol):
    """A window of a query, with a readable content.

    Calls are in the order of time; an empty run of events lets time pass.
    """

    #: True if the reference engine marks its output chunks as batches.
    is_batch: bool

    def process(self, events: EventBatch, timeline: Timeline) -> EventBatch:
        """Process events, in order, and timers; the output that they cause, in order.

        Timers due by ``timeline.now_ms`` fire, each at its own time.
        """
        ...

    def next_time(self) -> int | None:
        """Time of the earliest timer; None without one."""
        ...

    def content(self, instance: int) -> tuple[pa.RecordBatch, Longs]:
        """The rows that a join finds, in the engine's order, and their times."""
        ...

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        ...


@dataclass(frozen=True, slots=True)
class WindowContext:
    """The use that a query makes of a window; fields as the arguments of ``make_window``."""

    schema: pa.Schema
    timer_path: int
    expired: bool
    used: Sequence[str | None]
    late: bool
    is_batch: bool


@dataclass(frozen=True, slots=True)
class TickOrder:
    """Order of the window's timers and the ticks of an output rate at one instant.

    Only for windows with a first argument that is the time after which an event leaves.
    """

    #: Events may leave before they are due, so arrivals have to be remembered.
    may_leave_early: bool = False
    #: Also for snapshots.  Elsewhere a snapshot is taken at the latest when an event of its time
    #: arrives, and an event that leaves a sliding window is one.
    with_snapshots: bool = False
    #: The argument that delays expiry; None without one.
    latency_argument: int | None = None


def _never(window: Window) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class WindowKind:
    """One kind of window."""

    #: Its entry in the catalogue.
    signature: Signature
    make: Maker
    #: The reference engine marks the chunks that it emits as batches.
    is_batch: bool = False
    has_timers: bool = False
    #: Its first event sets a timer that then fires every so often, with or without events.
    is_periodic: bool = False
    #: Each event is emitted, as a current one, when it arrives.
    emits_on_arrival: bool = False
    #: Its content is its output as current and not yet as expired, oldest first.
    holds_what_it_emits: bool = False
    #: Rows expire with the time of their arrival once the other side of a join has read them.
    keeps_arrival_time: bool = False
    #: A reset has the time of the first event of its batch.
    resets_at_batch_time: bool = False
    #: Without a reader of expired events joins find no rows in it, and no batch's end is announced.
    holds_only_for_expired: bool = False
    #: Without a reader of expired events aggregates do not get those either.
    expires_untracked: bool = False
    #: Whether a selector may refer to rows of such a window by number: see ``late_selection``.
    can_select_late: Callable[[Window], bool] = _never
    #: None where ticks of an output rate need no ordering.
    tick_order: TickOrder | None = None

    @property
    def name(self) -> str:
        """Its name in SiddhiQL."""
        return self.signature.name
