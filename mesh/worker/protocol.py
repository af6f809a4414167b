"""Protocol between a worker's agent and its Spark session: one JSON object per line.

The agent writes commands to the session's standard input; the session writes reports to its
standard output (its logs go to standard error).  End of file on standard input ends the session.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import orjson

from mesh.errors import MeshError
from mesh.model import codec
from mesh.model.app import GroupSpec
from mesh.model.cluster import Assignment, InstanceStatus, Standby, StandbyStatus
from mesh.settings import Settings


class Replies:
    """Standard output, reserved for replies: all other prints go to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, reply: Reply) -> None:
        """Write one reply; from any thread."""
        with self._lock:
            self._out.write(to_line(reply))


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Configuration of a session, as JSON by ``mesh.model.codec``."""

    worker: str
    #: Directory in which each session makes one for state and Spark's scratch files.
    directory: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Run this instance; an older epoch of it in the same session is stopped first."""

    assignment: Assignment
    group: GroupSpec


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Stop this instance, if it runs in ``epoch`` or an older one; a ``STOPPED`` report follows."""

    instance: str
    epoch: int
    #: Whether the instance may delay its end to reach a point where its next owner can continue.
    settle: bool = False
    #: Whether the app, or its source or sink, was removed: what that has created elsewhere goes.
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class HoldState:
    """Keep a copy of this instance's shared state on this worker; ``Held`` reports follow."""

    standby: Standby
    group: GroupSpec


@dataclass(frozen=True, slots=True)
class ReleaseState:
    """Drop the copy, unless the instance was started here and uses it."""

    instance: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is warm and accepts commands."""

    spark_version: str
    started_in_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """An instance's state changed, or a second has passed since its last report."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class StandbyReport:
    """The copy of an instance's state that a standby holds has changed."""

    status: StandbyStatus


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the session's JVM and of Spark, for the worker's metrics."""

    values: Mapping[str, float]


Command = StartInstance | StopInstance | HoldState | ReleaseState
Reply = Ready | Report | StandbyReport | Figures

_KINDS: dict[str, type[Command | Reply]] = {
    kind.__name__: kind for kind in (*get_args(Command), *get_args(Reply))
}


def to_line(message: Command | Reply) -> bytes:
    """One line, with its newline."""
    return codec.encode({"type": type(message).__name__, "value": message}) + b"\n"


def from_line(line: bytes) -> Command | Reply:
    """The message of one line; MESH-C101 for an invalid line."""
    try:
        values = orjson.loads(line)
        kind = _KINDS[values["type"]]
        value = orjson.dumps(values["value"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise MeshError(
            "MESH-C101", "line between agent and session can't be read", detail=f"{line[:200]!r}."
        ) from error
    return codec.decode(kind, value)


def config_line(config: SessionConfig) -> bytes:
    """The first line of a session's input.

    The settings hold passwords.  All users can see a process's arguments, and the functions of apps
    its environment: that of its start stays in ``/proc`` when a variable is removed.
    """
    return codec.encode(config) + b"\n"


def read_config(descriptor: int = 0) -> SessionConfig:
    """The configuration at the begin of an input, of which nothing more is read."""
    line = bytearray()
    while not line.endswith(b"\n"):
        # One byte each: the commands that follow are for another reader.
        read = os.read(descriptor, 1)
        if not read:
            break
        line += read
    return codec.decode(SessionConfig, bytes(line))
