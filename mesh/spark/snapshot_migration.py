"""Migration of a snapshot from an earlier text of a group to the present one.

A snapshot contains the text that wrote it.  If the app's text has changed since, the changed groups
have drained first (``mesh.control.group_revisions``).  So the new text continues from the last
snapshot of the previous one, by ``mesh.operators.state_migration``.  The migration is repeated at
each start until the new text has stored its own snapshot.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.spark.instance_io import InputPosition, LocalState, Manifest

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec
    from mesh.operators.base import State
    from mesh.spark.instance_io import InstanceIO


class PieceRemover(Protocol):
    """The part of a ``SnapshotStore`` that a migration needs."""

    def forget(self, part: str) -> None:
        """Treat no piece of ``part`` as stored any more."""
        ...


def sign_manifest(manifest: Manifest, group: GroupSpec) -> Manifest:
    """``manifest`` with the text of ``group``, ready to be stored."""
    return replace(manifest, text=group.text, resets=group.resets)


def adopt_manifest(
    io: InstanceIO, partition: int, local: LocalState, data: bytes, store: PieceRemover
) -> Manifest:
    """The manifest from which the group continues, migrated if another text wrote it.

    Args:
        io: of the instance that restores it.
        partition: the snapshot's virtual partition.
        local: the directory of its pieces, also of those written by the migration.
        data: the manifest as it was stored.
        store: the store that held it.
    """
    manifest, group = Manifest.from_bytes(data), io.group
    if manifest.text in ("", group.text) and manifest.resets == group.resets:
        return manifest
    store.forget(io.part(partition))
    reached = manifest.position_of.offsets
    streams = io.input_streams(partition)
    begun = {s: {"sequence": group.starts.get(s, 0), "time_ms": 0} for s in streams}
    position = InputPosition.of(begun | reached, streams)
    if not group.stateful:
        return sign_manifest(Manifest(position, {}, {}, ()), group)
    state = _state(local, manifest, group)
    names = {one.channel.stream.name for one in streams.values()}
    clocks = {name: clock for name, clock in manifest.clocks.items() if name in names}
    pieces = tuple(state.pieces)
    _replace(local, state)
    return sign_manifest(Manifest(position, clocks, dict(state.scalars), pieces), group)


def _state(local: LocalState, manifest: Manifest, group: GroupSpec) -> State:
    # Few sessions migrate a state, and the operators are large.
    from mesh.operators.executor import Executor
    from mesh.operators.state_migration import remap

    after = bind(parse(group.text))
    if not manifest.scalars:
        # The earlier text kept no state.
        return Executor(after, ()).snapshot()
    before = bind(parse(manifest.text)) if manifest.text else after
    keeps = manifest.resets == group.resets
    return remap(local.load(manifest), before, after, keeps=keeps)


def _replace(local: LocalState, state: State) -> None:
    """Replace all pieces in ``local`` by those of ``state``.

    A name may denote another piece than before; the old pieces are mapped until they are written.
    """
    beside = LocalState(local.directory.with_name(f"{local.directory.name}-next"))
    beside.put_pieces(state)
    shutil.rmtree(local.directory, ignore_errors=True)
    beside.directory.rename(local.directory)
