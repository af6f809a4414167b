"""Local state of one partition: files that a batch writes and the next one reads, in any process.

A directory holds pieces (Arrow files, never changed once written) and manifests, one for each of
the last few positions.  A manifest has an input position, the state there, and the names of its
pieces.  A batch loads the manifest of its start position, so a batch that Spark runs again finds
the earlier state.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.ipc

from mesh.errors import MeshError
from mesh.model.values import JsonObject
from mesh.operators.base import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: Incremented when the meaning of a manifest or of a piece changes.
FORMAT_VERSION = 1
#: A batch may run again from the previous position; the uploader may be one position further back.
MANIFESTS_MAX = 4
#: File in the directory of a part that began without a state.
NEW = "new"


@dataclass(frozen=True, slots=True)
class InputPosition:
    """Input position of a partition, for each JetStream stream in name order."""

    #: (JetStream stream, last sequence read, broker's time in ms up to which it is complete).
    streams: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, offsets: Mapping[str, Mapping[str, int]], streams: Iterable[str]) -> InputPosition:
        """The part of a Spark offset for ``streams``."""
        return cls(
            tuple((s, offsets[s]["sequence"], offsets[s]["time_ms"]) for s in sorted(streams))
        )

    @property
    def offsets(self) -> dict[str, dict[str, int]]:
        """The position in the form of the source's offsets."""
        return {s: {"sequence": n, "time_ms": t} for s, n, t in self.streams}

    @property
    def name(self) -> str:
        """A file name for the position."""
        return hashlib.sha256(orjson.dumps(self.streams)).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state at a position, with the names of its pieces instead of the pieces."""

    position: InputPosition
    #: Data of the host: the clock of each input stream.
    clocks: JsonObject
    scalars: JsonObject
    pieces: tuple[str, ...]
    #: SiddhiQL of the group that wrote the state; empty on the local disk, where it is the present
    #: one.
    text: str = ""
    #: Last sequence in the state, for JetStream streams in which it is ahead of ``position``: it
    #: was restored together with partitions that are not as far in them.
    ahead: Mapping[str, int] = field(default_factory=dict)
    #: Number of state resets of the group when it wrote this.
    resets: int = 0
    #: Last sequence and its time (ns) of each JetStream stream at that moment, as far as known: the
    #: source compares them (``pyspark_nats.source.ranges``).
    newest: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def position_of(self) -> InputPosition:
        """The sequences that the state really includes."""
        return InputPosition(
            tuple((s, max(n, self.ahead.get(s, 0)), t) for s, n, t in self.position.streams)
        )

    @property
    def starts(self) -> dict[str, dict[str, int]]:
        """The offsets from which the source continues."""
        offsets = self.position_of.offsets
        for stream in offsets.keys() & self.newest.keys():
            newest, newest_ns = self.newest[stream]
            offsets[stream] |= {"newest": newest, "newest_ns": newest_ns}
        return offsets

    def to_bytes(self) -> bytes:
        """JSON, with the format's version."""
        return orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "position": self.position.streams,
                "clocks": self.clocks,
                "scalars": self.scalars,
                "pieces": self.pieces,
                "text": self.text,
                "ahead": self.ahead,
                "resets": self.resets,
                "newest": self.newest,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """A manifest from its JSON; MESH-S101 for another version."""
        values = orjson.loads(data)
        if values["version"] != FORMAT_VERSION:
            raise MeshError(
                "MESH-S101",
                f"snapshot has format {values['version']}, this version reads {FORMAT_VERSION}",
                hint="Run the version that wrote it, or undeploy and deploy the app.",
            )
        return cls(
            InputPosition(tuple((s, n, t) for s, n, t in values["position"])),
            values["clocks"],
            values["scalars"],
            tuple(values["pieces"]),
            values.get("text", ""),
            values.get("ahead", {}),
            values.get("resets", 0),
            {s: (n, t) for s, (n, t) in values.get("newest", {}).items()},
        )


def newest_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, int]]:
    """``Manifest.newest`` by the source's offsets."""
    return {s: (at["newest"], at["newest_ns"]) for s, at in offsets.items() if "newest" in at}


class LocalState:
    """The state directory of one partition of one instance."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self,
        position: InputPosition,
        clocks: JsonObject,
        state: State,
        ahead: Mapping[str, int] | None = None,
    ) -> None:
        """Write missing pieces, then the manifest; then remove old files."""
        self.put_pieces(state)
        pieces = tuple(state.pieces)
        manifest = Manifest(position, clocks, dict(state.scalars), pieces, ahead=ahead or {})
        self.put_manifest(manifest)
        self.drop_old()

    def put_pieces(self, state: State) -> None:
        """Write missing pieces."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, batch in state.pieces.items():
            path = self.piece_path(name)
            if not path.exists():
                _write_atomically(path, batch_bytes(batch))

    def put_manifest(self, manifest: Manifest) -> None:
        """Write a manifest whose pieces all exist."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(self._manifest_path(manifest.position), manifest.to_bytes())

    def put_restored(self, manifest: Manifest) -> None:
        """Write the manifest of an uploaded snapshot whose pieces all exist."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(self._restored_path, manifest.to_bytes())

    def put_new(self) -> None:
        """Record that there is no snapshot: the state is empty until a batch saves one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / NEW).touch()

    def newest(self) -> Manifest | None:
        """The manifest that was written last, for readers; its pieces may be dropped meanwhile.

        Raises:
            FileNotFoundError: none yet, and the instance has not begun without a state.
        """
        manifests = [(path.stat().st_mtime_ns, path) for path in self.directory.glob("*.manifest")]
        if manifests:
            return Manifest.from_bytes(max(manifests)[1].read_bytes())
        (self.directory / NEW).stat()
        return None

    def restored(self, start: InputPosition) -> Manifest | None:
        """Manifest of the uploaded snapshot, if a batch from ``start`` reads all later input.

        The batch reads more than that if another partition of the instance is at a lower position
        in a stream that all of them read.
        """
        try:
            manifest = Manifest.from_bytes(self._restored_path.read_bytes())
        except FileNotFoundError:
            return None
        return restored_at(manifest, start)

    def manifest(self, position: InputPosition) -> Manifest | None:
        """The manifest of exactly this position."""
        try:
            return Manifest.from_bytes(self._manifest_path(position).read_bytes())
        except FileNotFoundError:
            return None

    def load(self, manifest: Manifest) -> State:
        """The state that a manifest describes; pieces are mapped, not read."""
        return State(
            {name: read_batch(self.piece_path(name)) for name in manifest.pieces}, manifest.scalars
        )

    def pieces_of(self, manifest: Manifest) -> dict[str, Path]:
        """The file of each piece of a manifest."""
        return {name: self.piece_path(name) for name in manifest.pieces}

    def is_empty(self) -> bool:
        """Whether no state has been saved here."""
        return next(self.directory.glob("*.manifest"), None) is None

    def has_run(self) -> bool:
        """Whether a batch has saved a state here."""
        return any(path != self._restored_path for path in self.directory.glob("*.manifest"))

    def piece_path(self, name: str) -> Path:
        """Path of the piece called ``name``."""
        return self.directory / f"{quote(name, safe='')}.arrow"

    @property
    def _restored_path(self) -> Path:
        return self.directory / "restored.manifest"

    def _manifest_path(self, position: InputPosition) -> Path:
        return self.directory / f"{position.name}.manifest"

    def drop_old(self) -> None:
        """Remove all but the last few manifests, and the pieces that none of them names."""
        newest_first = sorted(
            self.directory.glob("*.manifest"), key=lambda p: p.stat().st_mtime_ns, reverse=True
        )
        for path in newest_first[MANIFESTS_MAX:]:
            path.unlink(missing_ok=True)
        if len(newest_first) <= MANIFESTS_MAX:
            return
        used = {
            self.piece_path(name)
            for path in newest_first[:MANIFESTS_MAX]
            for name in Manifest.from_bytes(path.read_bytes()).pieces
        }
        for path in self.directory.glob("*.arrow"):
            if path not in used:
                path.unlink(missing_ok=True)


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def restored_at(manifest: Manifest, start: InputPosition) -> Manifest | None:
    """``manifest`` for a batch from ``start``; None if that batch lacks input after it."""
    reached = {stream: sequence for stream, sequence, _ in manifest.position_of.streams}
    if any(sequence > reached.get(stream, -1) for stream, sequence, _ in start.streams):
        return None
    return replace(manifest, position=start, ahead=reached)


def batch_bytes(batch: pa.RecordBatch) -> bytes:
    """A piece as an Arrow file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_batch(path: Path) -> pa.RecordBatch:
    """A piece from its file, which is mapped."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return reader.get_batch(0)
