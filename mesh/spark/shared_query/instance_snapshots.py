"""Positions and snapshots of one instance's parts in the shared query."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mesh.spark import drain, snapshot_migration
from mesh.spark.drain import check_input, start_offsets, with_newest
from mesh.spark.instance_io import InputPosition, LocalState, Manifest, newest_of
from mesh.spark.part_states import PARTS_AT_ONCE, mirror, restore_parts, state_of
from mesh.spark.shared_query import members
from mesh.spark.task_states import RemoteState, TaskStates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.spark.instance_context import InstanceContext
    from mesh.spark.shared_query.members import Offsets


class InstanceSnapshots:
    """The parts of one instance; thread-safe."""

    def __init__(self, context: InstanceContext) -> None:
        self._io = context.io
        self._store = context.store
        self._nats = context.options.nats
        self._task_store = context.options.task_store
        #: The states of this run, if its slots are on other machines.
        self.states: TaskStates | None = None
        self._keys = members.partition_keys(context.io)
        #: Guards the following fields; never held while waiting.
        self._lock = threading.Lock()
        self._run = context.directory
        #: The position of each admitted part.
        self._at: dict[str, Offsets] = {}
        self._shared: dict[str, Offsets] = {}
        #: By partition: bytes of its last stored state.
        self._sizes: dict[int, int] = {}
        #: Held while a snapshot is stored.
        self._sharing = threading.Lock()

    # --- positions

    def begin(self, run: Path) -> None:
        """Forget all positions; the state will be in ``run``, a new directory."""
        run.mkdir(parents=True)
        remote = self._task_store if self._io.group.stateful else None
        with self._lock:
            self.states = TaskStates.begin(self._io, remote) if remote is not None else None
            self._run = run
            self._at, self._shared = {}, {}

    def admitted(self, key: str, at: Offsets) -> bool:
        """Record that a part is admitted; whether all are."""
        with self._lock:
            self._at[key] = at
            # The stored snapshot has this position, or there is nothing to store.
            self._shared.setdefault(key, at)
            return self._is_whole

    def moved(self, key: str, at: Offsets) -> None:
        """Record the new position of a part."""
        with self._lock:
            self._at[key] = at

    @property
    def state_bytes(self) -> int:
        """Size of the state, as it was stored last."""
        with self._lock:
            return sum(self._sizes.values())

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to store."""
        with self._lock:
            return self._at != self._shared

    @property
    def _is_whole(self) -> bool:
        return len(self._at) == len(self._keys)

    def starts(self) -> tuple[dict[str, Offsets], frozenset[str]]:
        """The present positions as starts in the same run, and the parts with state there."""
        with self._lock:
            starts, run = dict(self._at), self._run
        if not self._io.group.stateful:
            return starts, frozenset(starts)
        return starts, frozenset(k for k in starts if not self._state(run, k).is_empty())

    def _state(self, run: Path, key: str) -> LocalState | RemoteState:
        return state_of(self._io, run, int(key), self.states)

    # --- stored snapshots

    def restore(self) -> tuple[dict[str, Offsets], frozenset[str]]:
        """Restore the snapshots; the start positions, and the parts with restored state."""
        run = self._run
        if not self._io.group.stateful:
            data = self._store.restore(self._io.part(0), lambda name: run / name)
            reached, newest = {}, dict[str, dict[str, int]]()
            if data is not None:
                manifest = snapshot_migration.adopt_manifest(
                    self._io, 0, LocalState(run), data, self._store
                )
                reached, newest = {0: manifest.position_of}, manifest.starts
            position = with_newest(start_offsets(self._io, reached), [newest])
            check_input(self._io, position, self._nats)
            begin = {key: {key: position[key]} for key in self._keys if key in position}
            return begin, frozenset(begin)
        manifests = restore_parts(self._io, run, map(int, self._keys), self._store, self.states)
        starts = {str(number): manifest.starts for number, manifest in manifests.items()}
        restored = frozenset(starts)
        begun = start_offsets(self._io, {})
        nowhere = {"sequence": 0, "time_ms": 0}
        for key, streams in self._keys.items():
            if key not in restored and any(stream in begun for stream in streams):
                starts[key] = {stream: begun.get(stream, nowhere) for stream in streams}
        return starts, restored

    def share(self) -> bool:
        """Store the snapshots of changed parts; whether all are stored.

        Only positions that a batch has reported are stored: their output is published.
        """
        with self._sharing:
            self._share()
        return not self.is_dirty

    def _share(self) -> None:
        with self._lock:
            moved = {k: at for k, at in self._at.items() if at != self._shared.get(k)}
            whole = dict(self._at) if self._is_whole else None
            run = self._run
        if not self._io.group.stateful:
            if moved and whole is not None:
                offsets = _shared_streams(whole)
                place = Manifest(InputPosition.of(offsets, offsets), {}, {}, ())
                self._save(0, LocalState(run), replace(place, newest=newest_of(offsets)))
                self._note(whole)
            return
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            for _ in pool.map(partial(self._share_part, run), moved, moved.values()):
                pass

    def _share_part(self, run: Path, key: str, at: Offsets) -> None:
        local = self._state(run, key)
        manifest = local.manifest(InputPosition.of(at, self._keys[key]))
        # None: later batches have dropped it, or there was none; the next tick finds a newer one.
        if manifest is not None:
            with suppress(FileNotFoundError):
                self._save(int(key), local, replace(manifest, newest=newest_of(at)))
                self._note({key: at})

    def _save(self, partition: int, local: LocalState | RemoteState, manifest: Manifest) -> None:
        self._store.save(
            self._io.part(partition),
            snapshot_migration.sign_manifest(manifest, self._io.group).to_bytes(),
            local.pieces_of(manifest),
        )
        if isinstance(local, RemoteState):
            self._store.discard(local.part, local.dropped())
            mirror(LocalState(self._run / str(partition)), local, manifest)
            return
        size = sum(path.stat().st_size for path in local.pieces_of(manifest).values())
        with self._lock:
            self._sizes[partition] = size

    def _note(self, shared: dict[str, Offsets]) -> None:
        with self._lock:
            self._shared |= shared

    # --- draining

    def drained(self) -> Mapping[str, int] | None:
        """The drained position by JetStream stream; None if output stems from later input.

        No work of the instance runs, and its state is stored.

        Raises:
            ConnectorError: a newer instance has written a marker, or NATS did not answer.
        """
        with self._lock:
            whole = dict(self._at) if self._is_whole else None
            run = self._run
        if whole is None or not _is_even(whole):
            return None
        places = (
            {int(key): at for key, at in whole.items()}
            if self._io.group.stateful
            else {0: _shared_streams(whole)}
        )
        if not drain.has_no_output_beyond(self._io, run, places, self._nats, self.states):
            return None
        return {stream: one["sequence"] for stream, one in _shared_streams(whole).items()}

    def required_until(self) -> dict[str, int] | None:
        """The sequences up to which the parts must read to drain, by JetStream stream.

        Empty if the parts are at different positions; None if there is nothing more to read.
        """
        with self._lock:
            whole = dict(self._at)
        if not _is_even(whole):
            return {}
        # A killed predecessor may have read further, but not past the end of the streams.
        together = _shared_streams(whole)
        ends = self._store.ends(together)
        is_more = any(ends.get(s, 0) > one["sequence"] for s, one in together.items())
        return ends if is_more else None


def _shared_streams(whole: Mapping[str, Offsets]) -> Offsets:
    return {stream: one for at in whole.values() for stream, one in at.items()}


def _is_even(whole: Mapping[str, Offsets]) -> bool:
    """Whether all partitions that read a stream are at the same position in it."""
    together = _shared_streams(whole)
    return all(
        one["sequence"] == together[stream]["sequence"]
        for at in whole.values()
        for stream, one in at.items()
    )
