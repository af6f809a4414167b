"""The snapshot of an earlier text, taken over by the one that a group has now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.cluster import Assignment
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark import snapshot_migration
from mesh.spark.instance_io import InputPosition, InstanceIO, LocalState, Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.model.app import GroupSpec
    from mesh.operators.base import State

HEAD = "@App:name('A') define stream S (a int); define stream R (b int); "
SUM = "from S select sum(a) as t insert into T; "
LAST = "from S#window.length(2) select a, count() as n insert into U; "
OTHER = "from R select b insert into V; "
PLACES = {"mesh-A-S": {"sequence": 3, "time_ms": 1003}}


def group(text: str) -> GroupSpec:
    (found,) = plan(HEAD + text).spec.groups
    return found


class Forgets:
    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, part: str) -> None:
        self.forgotten.append(part)


def executor(spec: GroupSpec) -> Executor:
    return Executor(bind_group(spec), [c.stream.name for c in spec.outputs])


def run(at: Executor, first: int, *values: int) -> list[tuple[str, int, int]]:
    count = len(values)
    sequence = np.arange(first, first + count)
    rows = pa.RecordBatch.from_pydict({"a": pa.array(values, pa.int32())})
    found: list[tuple[int, str, Any]] = []
    events = InputRun("S", sequence, 1000 + sequence, rows)
    for out in at.run([events], dict.fromkeys(at.input_schemas, 1000 + first + count)):
        last = out.rows.column(out.rows.num_columns - 1).to_pylist()
        found += zip(out.position.tolist(), [out.stream] * len(last), last, strict=True)
    return [(stream, position, value) for position, stream, value in sorted(found)]


def stored(directory: Path, spec: GroupSpec, state: State) -> bytes:
    """A snapshot of ``spec`` at ``PLACES``, its pieces in ``directory``."""
    local = LocalState(directory)
    local.put_pieces(state)
    clocks = {"S": (1003, False, True)}
    position = InputPosition.of(PLACES, PLACES)
    made = Manifest(position, clocks, dict(state.scalars), tuple(state.pieces))
    return snapshot_migration.sign_manifest(made, spec).to_bytes()


def wired(spec: GroupSpec) -> InstanceIO:
    return InstanceIO(spec, Assignment(spec.instances[0], "A", spec.name, 1, "i", "w", 1, 0))


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_changed_group_goes_on_from_what_the_earlier_text_stored(
    tmp_path: Path, is_reset: bool
) -> None:
    old = group(SUM + LAST)
    first = executor(old)
    assert run(first, 1, 1, 2, 3)[-1] == ("U", 6, 2)
    data = stored(tmp_path / "0", old, first.snapshot())

    new = group(LAST + OTHER + SUM.replace("T;", "T2;") + LAST.replace("U", "U2") + SUM)
    new = replace(new, resets=int(is_reset), starts={"mesh-A-R": 9})
    local, store = LocalState(tmp_path / "0"), Forgets()
    manifest = snapshot_migration.adopt_manifest(wired(new), 0, local, data, store)
    assert store.forgotten == ["0"]
    assert manifest.position_of.offsets == PLACES | {"mesh-A-R": {"sequence": 9, "time_ms": 0}}
    assert manifest.clocks == {"S": [1003, False, True]}
    second = executor(new)
    second.restore(local.load(manifest))
    # The first event after the edit: known queries continue, new ones begin, positions grow.
    made = run(second, 4, 4)
    found = {stream: value for stream, _, value in made}
    assert min(position for _, position, _ in made) == 7
    assert found == (
        {"U": 1, "T2": 4, "U2": 1, "T": 4} if is_reset else {"U": 2, "T2": 4, "U2": 1, "T": 10}
    )

    # The next start, before it has stored anything, or after.
    again = snapshot_migration.sign_manifest(manifest, new).to_bytes()
    assert snapshot_migration.adopt_manifest(wired(new), 0, local, again, store).to_bytes() == again
    assert len(store.forgotten) == 1


def test_a_group_that_begins_or_ends_to_keep_state_keeps_its_place(tmp_path: Path) -> None:
    plain, counts = group("from S select a insert into T;"), group(SUM)
    position = InputPosition.of(PLACES, PLACES)
    data = snapshot_migration.sign_manifest(Manifest(position, {}, {}, ()), plain).to_bytes()
    local = LocalState(tmp_path / "0")
    manifest = snapshot_migration.adopt_manifest(wired(counts), 0, local, data, Forgets())
    assert manifest.position == position
    first = executor(counts)
    first.restore(local.load(manifest))
    assert run(first, 4, 4) == [("T", 1, 4)]
    data = stored(tmp_path / "0", counts, first.snapshot())
    manifest = snapshot_migration.adopt_manifest(wired(plain), 0, local, data, Forgets())
    assert (manifest.position, manifest.pieces) == (position, ())


def test_producers_of_rows_that_are_numbered_anew_are_others() -> None:
    spec = group("from S select a insert into T;")
    assert wired(spec).producer("0") == "i-default-0"
    assert wired(replace(spec, edit=3)).producer("0") == "i-default~3-0"
