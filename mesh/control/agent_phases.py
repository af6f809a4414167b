"""Phases of an agent: its membership, its session, its heartbeat; see ``agent_state``."""

from __future__ import annotations

from enum import StrEnum


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
