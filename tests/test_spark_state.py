"""State on the local disk: found at its position, piece by piece, and no longer than needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.operators.base import State
from mesh.spark.state import MANIFESTS_KEPT, LocalState, Manifest, Position

if TYPE_CHECKING:
    from pathlib import Path


def position(sequence: int) -> Position:
    return Position.of({"s": {"sequence": sequence, "time_ms": sequence * 10}}, ["s"])


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


def test_old_manifests_and_their_pieces_go(tmp_path: Path) -> None:
    local = LocalState(tmp_path / "0")
    for n in range(10):
        local.save(position(n), {}, State({f"w/{n}": piece(n), "kept": piece(0)}))
    assert len(list(local.directory.glob("*.manifest"))) == MANIFESTS_KEPT
    assert len(list(local.directory.glob("*.arrow"))) == MANIFESTS_KEPT + 1
    newest = local.manifest(position(9))
    assert newest is not None
    assert local.load(newest).pieces["w/9"] == piece(9)


def test_a_manifest_of_another_format_is_refused() -> None:
    data = Manifest(position(1), {}, {}, ()).to_bytes().replace(b'"version":1', b'"version":2')
    with pytest.raises(MeshError) as caught:
        Manifest.from_bytes(data)
    assert caught.value.code == "MESH-S101"
