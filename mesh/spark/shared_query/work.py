"""Work items of a slot, and the outcomes that it reports to the session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.cluster import ElementCounts
    from mesh.spark.shared_query.members import InputPartition, Member, Offsets
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import StreamRange

#: Kinds of work items and outcomes: input of a part, or the report that a part was admitted, that a
#: member was removed, or that it failed.
WORK: Final = "work"
ADMITTED: Final = "admitted"
REMOVED: Final = "removed"
FAILED: Final = "failed"

#: Prefix of a failure because a member's stream does not answer, though the server does.
UNANSWERED: Final = "no answer from a stream"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A range of a part's input to process now, or a change of the membership to report."""

    kind: str
    member: Member
    #: None if the item concerns the whole member.
    part: InputPartition | None = None
    ranges: tuple[StreamRange, ...] = ()
    #: The position of the part afterwards.
    ends: Offsets | None = None
    #: Messages that are known to wait after that.
    behind: int = 0
    #: The messages of the range, if they have been read.
    messages: Messages | None = None
    #: The server's clock when the part was admitted, ms since 1970.
    began_ms: int | None = None
    #: Failure of an item that failed before there was work.
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Report on a part, or on a member, since the last one.

    The state of a part with state is stored in its directory at ``ends``, and the output of all
    input up to ``ends`` is published.
    """

    kind: str
    instance: str
    generation: int
    part: str = ""
    ends: Offsets | None = None
    #: Messages read, their events, events published and recorded as errors since the last report.
    messages: int = 0
    events_in: int = 0
    events_out: int = 0
    errors: int = 0
    #: The last sequence that has come of each stream, whether or not it was the part's.
    read: Mapping[str, int] = field(default_factory=dict)
    #: Runs since the last report, and the time that they took together, milliseconds.
    runs: int = 0
    took_ms: float = 0.0
    #: The runs by duration, and the events by latency (``mesh.model.histogram``), since then.
    batches: tuple[int, ...] = ()
    latencies: tuple[int, ...] = ()
    latencies_sum_s: float = 0.0
    #: Of the part's elements; events since the last report, rows now.
    elements: tuple[ElementCounts, ...] = ()
    failure: str | None = None
