"""Names of what an instance reads and writes.

State on the local disk: found at its position, piece by piece, and no longer than needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.operators.base import State
from mesh.spark.instance_io import MANIFESTS_MAX, InputPosition, LocalState, Manifest
from tests.support.local_states import io

if TYPE_CHECKING:
    from pathlib import Path


def test_snapshots_of_a_partition_have_one_name_whoever_owns_it() -> None:
    assert [io(i).part(p) for i in (1, 2) for p in io(i).partitions] == list("0213")


def position(sequence: int) -> InputPosition:
    return InputPosition.of({"s": {"sequence": sequence, "time_ms": sequence * 10}}, ["s"])


def piece(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


def test_state_is_found_at_its_position_only(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    assert local.is_empty()
    state = State({"w/1": piece(1, 2), "w/2": piece()}, {"count": 3})
    local.save(position(5), {"S": [7, True]}, state)

    manifest = local.manifest(position(5))
    assert manifest is not None
    assert manifest.clocks == {"S": [7, True]}
    loaded = local.load(manifest)
    assert dict(loaded.pieces) == dict(state.pieces)
    assert loaded.scalars == state.scalars
    assert local.manifest(position(6)) is None
    assert not local.is_empty()


def test_a_batch_that_runs_again_finds_the_state_before_it(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    local.save(position(1), {}, State({"w/1": piece(1)}))
    local.save(position(2), {}, State({"w/2": piece(1, 2)}))
    before = local.manifest(position(1))
    assert before is not None
    assert local.load(before).pieces["w/1"] == piece(1)


def test_a_full_disk_keeps_the_state_before_and_has_room_for_the_next_one(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    local.save(position(1), {}, State({"w/1": piece(1)}))
    state = State({"w/2": piece(*range(1000))})
    path = local.piece_path("w/2")
    path.with_name(f"{path.name}.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*w%2F2\.arrow'"):
        local.save(position(2), {}, state)
    assert not list(local.directory.glob("*.tmp"))
    assert local.manifest(position(2)) is None
    before = local.manifest(position(1))
    assert before is not None
    assert local.load(before).pieces["w/1"] == piece(1)
    local.save(position(2), {}, state)
    assert local.manifest(position(2)) is not None


def test_old_manifests_and_their_pieces_go(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    for n in range(10):
        local.save(position(n), {}, State({f"w/{n}": piece(n), "kept": piece(0)}))
    assert len(list(local.directory.glob("*.manifest"))) == MANIFESTS_MAX
    assert len(list(local.directory.glob("*.arrow"))) == MANIFESTS_MAX + 1
    newest = local.manifest(position(9))
    assert newest is not None
    assert local.load(newest).pieces["w/9"] == piece(9)


def test_a_manifest_of_another_format_is_refused() -> None:
    data = Manifest(position(1), {}, {}, ()).to_bytes().replace(b'"version":1', b'"version":2')
    with pytest.raises(MeshError) as caught:
        Manifest.from_bytes(data)
    assert caught.value.code == "MESH-S101"


def test_a_restored_state_serves_batches_that_begin_at_it_or_before(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    local.put_restored(Manifest(position(5), {}, {}, ()))
    at, before = local.restored(position(5)), local.restored(position(3))
    assert at is not None
    assert before is not None
    assert at.position_of == position(5)
    assert (before.position, dict(before.ahead)) == (position(3), {"s": 5})
    assert local.restored(position(6)) is None


def test_a_reader_finds_the_state_that_was_stored_last_or_that_there_is_none(
    tmp_path: Path,
) -> None:
    local = LocalState(tmp_path / "0")
    with pytest.raises(FileNotFoundError):
        local.newest()
    local.put_new()
    assert local.newest() is None
    assert local.is_empty()
    for number in (1, 2, 3):
        local.save(position(number), {}, State({"w/1": piece(number)}))
        # Two manifests of one tick of the file system's clock have no order.
        for path in local.directory.glob("*.manifest"):
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    newest = local.newest()
    assert newest is not None
    assert newest.position == position(3)
