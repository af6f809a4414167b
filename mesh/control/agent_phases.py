"""Phases of an agent, its session, its heartbeat and its instances; see ``agent_state``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mesh.model.cluster import Assignment


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
