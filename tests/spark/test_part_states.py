"""Parts of an instance, restored side by side."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark import part_states
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState, Manifest
from tests.support.shared_query import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYED = """@App:name('A')
define stream S (k string);
@dist(execGroup='counts', parallel='2')
partition with (k of S) begin from S select k, count() as n insert into T; end;
"""


class Asked(Snapshots):
    """A store whose answers wait for as many questions as may be open."""

    def __init__(self) -> None:
        super().__init__()
        self._questions = threading.Barrier(part_states.PARTS_AT_ONCE, timeout=30)

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        self._questions.wait()
        return super().restore(part, piece_path)


class Lost(Asked):
    """The snapshot of each partition is damaged."""

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        super().restore(part, piece_path)
        raise MeshError("MESH-S103", f"snapshot of {part} is damaged")


@pytest.fixture
def io() -> InstanceIO:
    spec = plan(KEYED).spec.group("counts")
    assert spec is not None
    return InstanceIO(spec, Assignment(spec.instances[0], "A", spec.name, 1, "i", "w", 1, 0))


def test_partitions_are_restored_side_by_side(io: InstanceIO, tmp_path: Path) -> None:
    numbers = io.partitions
    assert len(numbers) == part_states.PARTS_AT_ONCE
    store = Asked()
    kept = {n: Manifest(InputPosition(((f"stream of {n}", 7, 0),)), {}, {}, ()) for n in (2, 6)}
    store.kept = {io.part(n): (manifest.to_bytes(), {}) for n, manifest in kept.items()}
    found = part_states.restore_parts(io, tmp_path, numbers, store, None)
    assert found == kept
    # The others begin without a state, which readers of the directory can tell from "not yet".
    for number in set(numbers) - found.keys():
        assert LocalState(tmp_path / str(number)).newest() is None


def test_a_partition_that_can_not_be_restored_fails_the_instance(
    io: InstanceIO, tmp_path: Path
) -> None:
    with pytest.raises(MeshError, match="damaged"):
        part_states.restore_parts(io, tmp_path, io.partitions, Lost(), None)
