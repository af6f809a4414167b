"""The history of an app: the order to the process that runs it, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.model.app import AppSpec


@dataclass(frozen=True, slots=True)
class HistoryInput:
    """The past events of one input stream."""

    stream: str
    #: As the user wrote it: a file or directory, or the address of a table in a database.
    path: str
    #: Column with the times of events.
    time: str
    #: The last sequence of the stream that the events include, or the time before which they are
    #: read; None if they end before the first message of the stream.
    until: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """The order to run past events through the groups of an app."""

    spec: AppSpec
    incarnation: str
    inputs: tuple[HistoryInput, ...]
    #: Execution groups through which they run, each after its writers; see ``mesh.plan.history``.
    groups: tuple[str, ...]
    #: Directory outside of which no file is read.
    root: str
    #: By stream: rows of this time and later are left to the live stream, milliseconds since 1970.
    before_ms: Mapping[str, int]
    #: By JetStream stream: the last sequence that the past events include; 0 for others.
    cuts: Mapping[str, int]
    #: Where states are written.
    directory: str


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The state of one part of a group after the history; files in ``HistoryTask.directory``."""

    group: str
    part: str
    #: JSON, as an instance stores it.
    manifest: str
    #: Piece to file.
    pieces: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """A line of the process: its progress, and at last the result or the error."""

    #: Rows that were run, and all rows of the inputs; 0 where that is not known.
    rows: int = 0
    of: int = 0
    rows_per_s: float = 0.0
    #: Rows left to the live stream.
    later: int = 0
    #: Events that left groups, and events on which a query failed.
    emitted: int = 0
    failed: int = 0
    is_done: bool = False
    states: tuple[HistoryState, ...] = ()
    #: As ``MeshError.to_values``; None without an error.
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Result of a deploy with history."""

    app: str
    streams: tuple[str, ...]
    rows: int
    later: int
    emitted: int
    failed: int
    seconds: float
    #: By JetStream stream: the last sequence that the history includes; live groups read on after
    #: it.
    cuts: Mapping[str, int] = field(default_factory=dict)
    #: Groups that begin with the state of the history.
    groups: tuple[str, ...] = ()
