"""Backup of an app: desired state, snapshots of its groups, and positions of its channels.

A backup holds copies, so it outlives the snapshots that were copied, and the app.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.model.cluster import AppRecord


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """Description of a backup, readable without the backup."""

    app: str
    #: Names it, and grows with time: ``20261121T213307-482``, UTC with milliseconds.
    revision: str
    #: When it was asked for, milliseconds since 1970.
    at_ms: int
    by: str
    snapshots: int
    #: Of the pieces.
    bytes: int


@dataclass(frozen=True, slots=True)
class PartBackup:
    """The snapshot of one part of a group."""

    group: str
    part: str
    #: JSON, as the host wrote it.
    manifest: str
    #: Piece to the name under which the backup's copy is stored.
    objects: dict[str, str]


@dataclass(frozen=True, slots=True)
class StreamCut:
    """State of one of the app's JetStream streams just after its snapshots had been read.

    Every event that a snapshot has consumed or emitted is at or before the cut.
    """

    js_stream: str
    #: When the stream was made, milliseconds since 1970: another one of its name is not it.
    created_ms: int
    #: Its last sequence.
    sequence: int
    #: Producer, without the app's incarnation, to the payload of its marker at the cut.
    markers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Backup:
    """The whole of it."""

    revision: str
    record: AppRecord
    parts: tuple[PartBackup, ...]
    cuts: tuple[StreamCut, ...]


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Result of a restore."""

    app: str
    revision: str
    #: Whether events stored since the backup are read again; otherwise the app skips them.
    replays: bool
    #: Messages that are read again, of all channels together.
    behind: int
    snapshots: int
