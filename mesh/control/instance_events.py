"""Events of an instance's life cycle, and its instructions; see ``instance_lifecycle``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.control.isolation import IsolationReason
    from mesh.model.cluster import InstanceStatus


# --- events


@dataclass(frozen=True, slots=True)
class Started:
    """The instance is to run."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The instance is to end; ``drains`` if it may first reach a point where others continue."""

    drains: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """``Restore`` is done."""


@dataclass(frozen=True, slots=True)
class Up:
    """All of its input is being read."""


@dataclass(frozen=True, slots=True)
class Left:
    """It reads no more: ``Leave`` is done, or it has reached ``until``."""


@dataclass(frozen=True, slots=True)
class Settled:
    """``Settle`` is done; the drained position by JetStream stream, None if it did not drain."""

    position: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Some output stems from later input.

    ``until`` is where to read to, by JetStream stream; None if there is nothing more to read.
    """

    until: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The present activity has failed, and has ended."""

    reason: str
    #: It failed for lack of an answer, after a timeout.
    has_waited: bool = False
    #: A stream did not answer, though the server did.
    is_unanswered: bool = False
    #: It was at work when the query of many instances failed.
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class QueryLost:
    """The query that ran it has ended, and not because of this instance."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A newer epoch has taken over; ``has_ended`` if it reads no more."""

    reason: str
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class IsolatedReported:
    """Report of its dedicated query; the last one says ``STOPPED``."""

    status: InstanceStatus


Event = (
    Started
    | StopRequested
    | Restored
    | Up
    | Left
    | Settled
    | Unsettled
    | Failed
    | QueryLost
    | Replaced
    | Ticked
    | IsolatedReported
)


# --- instructions


@dataclass(frozen=True, slots=True)
class Restore:
    """Fetch the last snapshot; answer ``Restored``."""


@dataclass(frozen=True, slots=True)
class Run:
    """Read and process input; answer ``Up``, and ``Left`` when ``until`` is reached.

    ``continues`` if it was ``Unsettled``: from its present position, not from the snapshot's.
    """

    until: Mapping[str, int] | None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """Read no more; answer ``Left``, and ``at_once`` without waiting for a common position."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Store the state; answer ``Settled``.

    If it ``drains``, compare its position with its output first, and answer ``Unsettled`` if there
    is output beyond it.
    """

    drains: bool


@dataclass(frozen=True, slots=True)
class Isolate:
    """Run it in a dedicated query; answer with that query's reports."""

    why: IsolationReason


@dataclass(frozen=True, slots=True)
class StopIsolated:
    """Stop its dedicated query."""

    drains: bool


@dataclass(frozen=True, slots=True)
class Relay:
    """Report what its dedicated query reported."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class ReportState:
    """Report the state, error, drained position and rest, as they are now."""


@dataclass(frozen=True, slots=True)
class End:
    """Delete what only this run needed, and report ``STOPPED``."""


Instruction = Restore | Run | Leave | Settle | Isolate | StopIsolated | Relay | ReportState | End
