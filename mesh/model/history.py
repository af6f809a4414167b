"""The history of an app: the order to the process that runs it, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.model.app import AppSpec
from mesh.model.values import JsonMapping


@dataclass(frozen=True, slots=True)
class HistoryInput:
    """The past events of one input stream."""

    stream: str
    #: As the user wrote it: a file or directory, or the address of a table or of a stream.
    path: str
    #: Column with the times of events; empty for those of a stream's messages.
    time: str
    #: The last sequence of the stream that the events include, or the time before which they are
    #: read; None if they end before the first message of the stream.
    until: str | None = None


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
class HistoryCheckpoint:
    """A history that was run up to a place: what another process needs to continue from there."""

    #: Digest of the app, its inputs and their contents; another one is of another history.
    mark: str
    rows: int
    later: int
    emitted: int
    failed: int
    #: Of each input: where its reader is, and the highest time of the rows that were run.
    places: tuple[int, ...]
    known_ms: tuple[int, ...]
    #: By group and stream: the time up to which the group knows the stream.
    known: Mapping[str, Mapping[str, int]]
    #: By group, part and stream: the number of its events so far.
    seen: Mapping[str, Mapping[str, Mapping[str, int]]]
    #: Of all groups, also of those without state.
    states: tuple[HistoryState, ...]
    unreadable: int = 0


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
    #: Where an earlier process came to; the files of its states are in ``directory``.
    checkpoint: HistoryCheckpoint | None = None
    #: Interval of checkpoints, seconds.
    checkpoint_s: float = 30.0
    #: Connection to NATS, as options of the connector; empty if no input is a stream.
    nats: Mapping[str, str] = field(default_factory=dict)


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
    #: Events that can't be read.
    unreadable: int = 0
    states: tuple[HistoryState, ...] = ()
    #: Rows that an interrupted run of the same history had run already.
    resumed: int = 0
    #: Where the process has come to; None in most reports.
    checkpoint: HistoryCheckpoint | None = None
    #: As ``MeshError.to_values``; None without an error.
    error: JsonMapping | None = None


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
    #: Rows of these that an interrupted run of the same history had run already.
    resumed: int = 0
    #: By JetStream stream: the last sequence that the history includes; live groups read on after
    #: it.
    cuts: Mapping[str, int] = field(default_factory=dict)
    #: Groups that begin with the state of the history.
    groups: tuple[str, ...] = ()
    #: Events of a stream that can't be read.
    unreadable: int = 0
