"""States of stateful instances whose tasks run on other machines than the session.

On one machine a task stores its state in a directory that the next task and the session read
(``LocalState``).  On a Spark cluster they have no directory in common, so tasks store the pieces
where all of them reach, and one *record* for each part names the last manifests of the run:

    task ─pieces─▶ piece store ◀─pieces─ task on another executor
      └─record (compare-and-set)─▶ bucket ◀─ session: shares the snapshot, reads the next timer

The session begins a run with a new record.  A task of another run finds it, and ends.  A manifest
is never replaced: of two attempts of one task, the second drops what it has stored.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from mesh.errors import MeshError
from mesh.operators.base import State
from mesh.spark.instance_io import InputPosition, Manifest, batch_bytes, read_batch, restored_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.values import JsonObject
    from mesh.spark.instance_io import InstanceIO

#: A batch may run again from the previous position, and the session may be one further back.
_MANIFESTS_MAX: Final = 3
#: Most names of dropped pieces that wait for their deletion; the leader's sweep finds the others.
_DROPPED: Final = 500
#: Parts whose last state a process knows.
_CACHE_MAX: Final = 1024


class ConflictError(Exception):
    """A record was written by another task since it was read."""


class TaskStore(Protocol):
    """Store that the session and all tasks reach.  It pickles; its calls block."""

    def read(self, key: str) -> tuple[bytes, int] | None:
        """A record and its revision; None if there is none."""
        ...

    def write(self, key: str, data: bytes, revision: int) -> int:
        """Store a record if it still has ``revision``, 0 for none; returns the new revision.

        Raises:
            ConflictError: it has another.
        """
        ...

    def put(self, pieces: Mapping[str, bytes]) -> None:
        """Store pieces; no two have the same name."""
        ...

    def fetch(self, paths: Mapping[str, Path]) -> None:
        """Copy pieces, by name, to local files; FileNotFoundError for a missing one."""
        ...


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest, and the stored name of each of its pieces."""

    manifest: Manifest
    objects: Mapping[str, str]

    def to_json(self) -> JsonObject:
        """JSON values."""
        values = orjson.loads(self.manifest.to_bytes())
        return {"manifest": values, "objects": dict(self.objects)}

    @classmethod
    def of(cls, values: Any) -> StoredManifest:
        """From JSON values."""
        return cls(Manifest.from_bytes(orjson.dumps(values["manifest"])), values["objects"])


@dataclass(frozen=True, slots=True)
class StateRecord:
    """The states of one part in one run."""

    epoch: int
    #: Random: of all sessions and starts, this one.
    run: str
    #: The snapshot that the run began from; None if it began without a state.
    restored: StoredManifest | None = None
    #: The last manifests of tasks, oldest first.
    manifests: tuple[StoredManifest, ...] = ()
    #: Stored pieces that no manifest here names any more.
    dropped: tuple[str, ...] = ()
    #: Time of the next timer in the last state; None without one.
    wakeup_ms: int | None = None

    @property
    def named(self) -> set[str]:
        """The stored pieces that manifests of the record name."""
        all_of_it = (*self.manifests, *([self.restored] if self.restored else []))
        return {stored for one in all_of_it for stored in one.objects.values()}

    def at(self, position: InputPosition) -> StoredManifest | None:
        """The manifest of a task at exactly this position."""
        return next((one for one in self.manifests if one.manifest.position == position), None)

    def adding(self, new: StoredManifest, wakeup_ms: int | None) -> StateRecord:
        """The record with the next manifest; the oldest is dropped."""
        manifests = (*self.manifests, new)[-_MANIFESTS_MAX:]
        # The restored one serves until the run can repeat no batch from it.
        restored = self.restored if len(manifests) < _MANIFESTS_MAX else None
        changed = replace(self, manifests=manifests, restored=restored, wakeup_ms=wakeup_ms)
        gone = self.named - changed.named
        return replace(changed, dropped=(*self.dropped, *sorted(gone))[-_DROPPED:])

    def to_bytes(self) -> bytes:
        """JSON; ``objects`` has what the leader's sweep must leave."""
        return orjson.dumps(
            {
                "epoch": self.epoch,
                "run": self.run,
                "restored": self.restored.to_json() if self.restored else None,
                "kept": [one.to_json() for one in self.manifests],
                "dropped": self.dropped,
                "wakeup_ms": self.wakeup_ms,
                "objects": {str(n): name for n, name in enumerate(sorted(self.named))},
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> StateRecord:
        """A record from its JSON."""
        values = orjson.loads(data)
        return cls(
            values["epoch"],
            values["run"],
            StoredManifest.of(values["restored"]) if values["restored"] else None,
            tuple(map(StoredManifest.of, values["kept"])),
            tuple(values["dropped"]),
            values["wakeup_ms"],
        )


@dataclass(frozen=True, slots=True)
class TaskStates:
    """The states of one run of an instance; pickled to its tasks."""

    store: TaskStore
    incarnation: str
    group: str
    epoch: int
    run: str

    @classmethod
    def begin(cls, io: InstanceIO, store: TaskStore) -> TaskStates:
        """States of a new run of an instance."""
        assignment = io.assignment
        run = secrets.token_hex(6)
        return cls(store, assignment.app_incarnation, io.group.name, assignment.epoch, run)

    def of(self, part: str) -> RemoteState:
        """The states of one part (``InstanceIO.part``)."""
        return RemoteState(self, part)


@dataclass(slots=True)
class _CachedState:
    """The state of one part that this process has stored or fetched last."""

    position: InputPosition
    objects: Mapping[str, str]


#: By run and part; a lost entry costs one more transfer of the state.
CACHED_STATES: OrderedDict[tuple[str, str], _CachedState] = OrderedDict()
#: Records as last read or written in this process, with their revisions.
RECORDS: OrderedDict[tuple[str, str], tuple[StateRecord, int]] = OrderedDict()


@dataclass(slots=True)
class RemoteState:
    """The states of one part; the interface of ``LocalState``."""

    states: TaskStates
    part: str
    #: The manifest that was asked for last; ``load`` fetches its pieces.
    current: StoredManifest | None = field(default=None)

    # --- the session's side

    def begin(self, manifest: Manifest | None, pieces: Mapping[str, Path | str]) -> set[str]:
        """Write the first record of the run; afterwards tasks of earlier runs end.

        Args:
            manifest: of the restored snapshot; None to begin without a state.
            pieces: of the manifest: local files, or names of pieces that are stored already.

        Returns:
            Stored pieces of the run before, which this one does not need.

        Raises:
            MeshError: MESH-S110, a newer epoch has begun.
        """
        files = {name: path for name, path in pieces.items() if isinstance(path, Path)}
        added = self._new_names(files)
        self.states.store.put({added[name]: path.read_bytes() for name, path in files.items()})
        objects = {name: piece for name, piece in pieces.items() if isinstance(piece, str)} | added
        restored = StoredManifest(manifest, objects) if manifest is not None else None
        record = StateRecord(self.states.epoch, self.states.run, restored)
        while True:
            earlier = self.states.store.read(self._key)
            before = StateRecord.from_bytes(earlier[0]) if earlier else None
            if before is not None and before.epoch > self.states.epoch:
                raise MeshError(
                    "MESH-S110",
                    f"state of {self._key} belongs to a newer writer, of epoch {before.epoch}",
                    detail="The instance was placed again while this worker was cut off."
                    " [MESH-S110]",
                )
            try:
                self.states.store.write(self._key, record.to_bytes(), earlier[1] if earlier else 0)
            except ConflictError:
                continue
            old = before.named | set(before.dropped) if before is not None else set()
            return old - record.named

    def manifest(self, position: InputPosition) -> Manifest | None:
        """The manifest of exactly this position."""
        self.current = self.record(position).at(position)
        return self.current.manifest if self.current is not None else None

    def restored(self, start: InputPosition) -> Manifest | None:
        """See ``LocalState.restored``."""
        self.current = self.record().restored
        return restored_at(self.current.manifest, start) if self.current is not None else None

    def pieces_of(self, _: Manifest) -> Mapping[str, str]:
        """The stored names of the pieces of the manifest that was returned last."""
        assert self.current is not None
        return self.current.objects

    def is_empty(self) -> bool:
        """Whether the run began without a state, and no task has stored one."""
        record = self.record()
        return record.restored is None and not record.manifests

    def has_run(self) -> bool:
        """Whether a task has stored a state."""
        return bool(self.record().manifests)

    def dropped(self) -> set[str]:
        """Stored pieces that no manifest of the run names any more."""
        record = self.record()
        return set(record.dropped) - record.named

    def wakeup_ms(self) -> int | None:
        """Time of the next timer in the last stored state; None without one."""
        return self.record().wakeup_ms

    # --- the tasks' side

    def is_live(self, position: InputPosition) -> bool:
        """Whether this process has stored the state at ``position``, as others find it."""
        entry = CACHED_STATES.get(self._id)
        return entry is not None and entry.position == position

    def load(self, manifest: Manifest) -> State:
        """The state of the manifest that was returned last; its pieces are fetched.

        Raises:
            MeshError: MESH-S100, a piece is not there any more.
        """
        assert self.current is not None
        objects = self.current.objects
        with tempfile.TemporaryDirectory(prefix="mesh-state-") as directory:
            paths = {name: Path(directory, str(n)) for n, name in enumerate(manifest.pieces)}
            try:
                self.states.store.fetch({objects[name]: path for name, path in paths.items()})
            except FileNotFoundError as error:
                raise _missing(self._key, f"Piece {error} is not stored") from error
            # The files are mapped, and vanish when the last array does.
            pieces = {name: read_batch(path) for name, path in paths.items()}
        self._remember(_CachedState(manifest.position, dict(objects)))
        return State(pieces, manifest.scalars)

    def save(
        self,
        position: InputPosition,
        clocks: JsonObject,
        state: State,
        ahead: Mapping[str, int] | None = None,
        wakeup_ms: int | None = None,
    ) -> None:
        """Store the missing pieces, then the record with the next manifest."""
        before = CACHED_STATES.get(self._id)
        previous = before.objects if before is not None else {}
        added = self._new_names(name for name in state.pieces if name not in previous)
        self.states.store.put({n: batch_bytes(state.pieces[name]) for name, n in added.items()})
        objects = {name: added.get(name) or previous[name] for name in state.pieces}
        pieces = tuple(state.pieces)
        manifest = Manifest(position, clocks, dict(state.scalars), pieces, ahead=ahead or {})
        if self._add(StoredManifest(manifest, objects), wakeup_ms):
            self._remember(_CachedState(position, objects))
        else:
            CACHED_STATES.pop(self._id, None)

    def _add(self, new: StoredManifest, wakeup_ms: int | None) -> bool:
        """Add a manifest to the record; False if another attempt of the task has done so."""
        record, revision = RECORDS.get(self._id) or self._read()
        while True:
            position = new.manifest.position
            earlier = record.at(position)
            if earlier is not None and earlier.objects == new.objects:
                return True
            if earlier is None:
                changed = record.adding(new, wakeup_ms)
            else:
                mine = set(new.objects.values()) - record.named
                changed = replace(record, dropped=(*record.dropped, *sorted(mine))[-_DROPPED:])
            try:
                revision = self.states.store.write(self._key, changed.to_bytes(), revision)
            except ConflictError:
                record, revision = self._read()
                continue
            _put(RECORDS, self._id, (changed, revision))
            return earlier is None

    # --- both

    @property
    def _key(self) -> str:
        return f"{self.states.incarnation}.{self.states.group}.{self.part}"

    @property
    def _id(self) -> tuple[str, str]:
        return self.states.run, self._key

    def _new_names(self, pieces: Any) -> dict[str, str]:
        """Names for pieces that nothing stored before has."""
        states = self.states
        token = f"{states.epoch}-{states.run}{secrets.token_hex(4)}"
        prefix = f"{states.incarnation}/{states.group}/{self.part}/{token}"
        return {name: f"{prefix}/{name}" for name in pieces}

    def record(self, position: InputPosition | None = None) -> StateRecord:
        """The record of the part; one that this process knows will do if it has ``position``."""
        cached = RECORDS.get(self._id)
        if position is not None and cached is not None and cached[0].at(position) is not None:
            return cached[0]
        return self._read()[0]

    def _read(self) -> tuple[StateRecord, int]:
        entry = self.states.store.read(self._key)
        record = StateRecord.from_bytes(entry[0]) if entry is not None else None
        if entry is None or record is None or record.run != self.states.run:
            raise _missing(self._key, "Another run of the instance has begun")
        _put(RECORDS, self._id, (record, entry[1]))
        return record, entry[1]

    def _remember(self, entry: _CachedState) -> None:
        _put(CACHED_STATES, self._id, entry)


def _put(cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > _CACHE_MAX:
        cache.popitem(last=False)


def _missing(key: str, why: str) -> MeshError:
    return MeshError(
        "MESH-S100",
        f"state of {key} at this position is missing",
        detail=f"{why}.",
        hint="The instance restarts from its last shared snapshot by itself.",
    )
