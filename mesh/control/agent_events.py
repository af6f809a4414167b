"""Phases of an agent, the events that its state responds to, and its instructions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.control.journal import JournalEntry
from mesh.control.standby import Hold, Release
from mesh.control.worker_reconcile import Start, Stop

if TYPE_CHECKING:
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import Assignment, InstanceStatus, NodeRecord


class Membership(StrEnum):
    """Whether the cluster counts on this worker."""

    #: Waits until its name is free.
    CLAIMING = "claiming"
    MEMBER = "member"
    #: No heartbeat was stored for a term; everything is stopped.
    OUT = "out"
    #: A heartbeat was stored after that; the view is still older than that heartbeat.
    REJOINING = "rejoining"
    #: Another process has the name.
    REJECTED = "rejected"
    #: The instances were handed over, or it waited long enough.
    LEFT = "left"


class SessionPhase(StrEnum):
    """The Spark session."""

    STARTING = "starting"
    READY = "ready"
    #: It was killed, and its end was not seen yet.
    KILLED = "killed"


class HeartbeatPhase(StrEnum):
    """The heartbeat under way."""

    RESTING = "resting"
    WRITING = "writing"
    #: A write was refused; the stored record is being read.
    READING = "reading"


@dataclass(frozen=True, slots=True)
class Stopping:
    """An instance that the session has to stop."""

    assignment: Assignment
    since_s: float
    #: Whether the session may spend time on draining, so that the next owner needs no replay.
    settle: bool
    #: The session has reported it, and the report is not written yet.
    has_answered: bool = False


@dataclass(frozen=True, slots=True)
class AgentView:
    """The cluster as an agent knows it at one moment."""

    #: Its ``now_s`` is the time of the event.
    snapshot: ClusterSnapshot
    #: Revision of the worker's own record in the view, of a deletion too; 0 for none.
    record_revision: int
    #: Wall clock, for reports.
    wall_ms: int = 0
    #: Whether the process that wrote the worker's record is known to have ended; matters only while
    #: the name is claimed.
    holder_has_ended: bool = False


# --- events


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The view has news."""


@dataclass(frozen=True, slots=True)
class TimeReached:
    """The clock has reached ``AgentState.wake_s``."""


@dataclass(frozen=True, slots=True)
class HeartbeatStored:
    """The server has stored the heartbeat under this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class HeartbeatConflicted:
    """The server has refused the heartbeat: the record has another revision."""


@dataclass(frozen=True, slots=True)
class HeartbeatFailed:
    """A heartbeat, or the read after a refused one, had no answer in time."""

    #: Whether the server has answered that the records have no leader: servers elect another.
    is_leaderless: bool = False


@dataclass(frozen=True, slots=True)
class RecordRead:
    """The worker's record as the server has it."""

    revision: int
    #: None when it was deleted.
    record: NodeRecord | None
    #: Whether the process that wrote it is known to have ended.
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class SessionReady:
    """The session is warm."""

    started_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session's process has ended."""


@dataclass(frozen=True, slots=True)
class InstanceReported:
    """The session reports an instance."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class ReportWritten:
    """The write of a report has ended; if the server has stored it, it is in the view."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class WorkerStopRequested:
    """The worker is to hand over its instances and to end."""


Event = (
    ViewChanged
    | TimeReached
    | HeartbeatStored
    | HeartbeatConflicted
    | HeartbeatFailed
    | RecordRead
    | SessionReady
    | SessionEnded
    | InstanceReported
    | ReportWritten
    | WorkerStopRequested
)

# --- instructions; those to the session are ``Start``, ``Stop``, ``Hold`` and ``Release``


@dataclass(frozen=True, slots=True)
class WriteHeartbeat:
    """Write the worker's record if it is still at ``revision``.

    ``HeartbeatStored``, ``HeartbeatConflicted`` or, after ``limit_s``, ``HeartbeatFailed`` follows.
    """

    record: NodeRecord
    revision: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the worker's record.

    ``RecordRead`` or, after ``limit_s``, ``HeartbeatFailed`` follows.
    """

    limit_s: float


@dataclass(frozen=True, slots=True)
class WriteReport:
    """Write this report; ``ReportWritten`` follows in any case."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class StartSession:
    """Start another session; ``SessionReady`` follows."""


@dataclass(frozen=True, slots=True)
class KillSession:
    """Kill the session; ``SessionEnded`` follows."""

    #: Instances that it did not stop before the deadline.
    stuck: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """End with an error: another process has this worker's name."""

    pid: int
    #: Whether this worker had the name before.
    was_member: bool


@dataclass(frozen=True, slots=True)
class LeaveCluster:
    """Stop the session, delete the worker's record, and end."""

    #: Whether all instances that other workers can accept were taken over.
    was_in_time: bool


#: An ``Entry`` is for the journal.
Instruction = (
    WriteHeartbeat
    | ReadRecord
    | WriteReport
    | Start
    | Stop
    | Hold
    | Release
    | StartSession
    | KillSession
    | Reject
    | LeaveCluster
    | JournalEntry
)
