"""The state of a part, on the session's disk or where tasks of other machines store it.

Callers that are the same for both ask here; a run has ``TaskStates`` if its tasks are elsewhere.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from mesh.files.whole_files import replacing
from mesh.spark import snapshot_migration
from mesh.spark.instance_io import LocalState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mesh.spark.instance_context import SnapshotStore
    from mesh.spark.instance_io import InstanceIO, Manifest
    from mesh.spark.task_states import RemoteState, TaskStates

#: Parts that are restored or stored at once: most of it is waiting for answers.
PARTS_AT_ONCE: Final = 4


def state_of(
    io: InstanceIO, directory: Path, partition: int, states: TaskStates | None
) -> LocalState | RemoteState:
    """The states of a virtual partition, in the run's directory or where tasks store them."""
    if states is None:
        return LocalState(directory / str(partition))
    return states.of(io.part(partition))


def restore_parts(
    io: InstanceIO,
    directory: Path,
    partitions: Iterable[int],
    store: SnapshotStore,
    states: TaskStates | None,
) -> dict[int, Manifest]:
    """Restore the last snapshots of virtual partitions into the directory of a run.

    Args:
        io: of the instance.
        directory: of the run; each partition gets a new directory there.
        partitions: the partitions.
        store: has the snapshots.
        states: of the run, if its tasks are elsewhere.

    Returns:
        The manifests by partition, migrated to the present text; none where there is no snapshot.
    """

    def restore(partition: int) -> Manifest | None:
        local = LocalState(directory / str(partition))
        local.directory.mkdir(parents=True)
        manifest = None
        data = store.restore(io.part(partition), local.piece_path)
        if data is None:
            local.put_new()
        else:
            manifest = snapshot_migration.adopt_manifest(io, partition, local, data, store)
            local.put_restored(manifest)
        if states is not None:
            _begin_part(io, partition, local, manifest, states, store)
        return manifest

    numbers = tuple(partitions)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        results = zip(numbers, pool.map(restore, numbers), strict=True)
        return {number: manifest for number, manifest in results if manifest is not None}


def _begin_part(
    io: InstanceIO,
    partition: int,
    local: LocalState,
    manifest: Manifest | None,
    states: TaskStates,
    store: SnapshotStore,
) -> None:
    """Begin a run of a partition, whose tasks are elsewhere, from what was restored here."""
    part = io.part(partition)
    objects = store.stored(part)
    names = manifest.pieces if manifest is not None else ()
    # A migration has written pieces that are stored nowhere.
    pieces = {name: objects.get(name) or local.piece_path(name) for name in names}
    store.discard(part, states.of(part).begin(manifest, pieces))


def mirror(local: LocalState, remote: RemoteState, manifest: Manifest) -> None:
    """Copy a shared state to the session's directory, where on-demand queries read it.

    Args:
        local: the directory.
        remote: its states, of which ``manifest`` is the one returned last.
        manifest: the shared one.
    """
    local.directory.mkdir(parents=True, exist_ok=True)
    missing = {
        stored: path
        for name, stored in remote.pieces_of(manifest).items()
        if not (path := local.piece_path(name)).exists()
    }
    remote.states.store.fetch(missing)
    local.put_manifest(manifest)
    local.drop_old()


def write_wakeups(io: InstanceIO, directory: Path, states: TaskStates) -> None:
    """Write the times of the next timers where the query's planner reads them.

    Args:
        io: of the instance.
        directory: of the run; has a directory ``wakeup``.
        states: the stored states.
    """
    for partition in io.partitions:
        due_ms = states.of(io.part(partition)).wakeup_ms()
        path = directory / "wakeup" / str(partition)
        if due_ms is None:
            path.unlink(missing_ok=True)
            continue
        with replacing(path, path.with_name(f".{path.name}")) as file:
            file.write(str(due_ms).encode())
