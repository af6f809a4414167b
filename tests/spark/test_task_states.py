"""States that tasks store where the tasks of other machines find them, with a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.jetstream import task_store
from mesh.jetstream.task_store import JetStreamTaskStore
from mesh.operators.base import State
from mesh.spark import task_states
from mesh.spark.instance_io import InputPosition, LocalState
from mesh.spark.part_states import mirror
from mesh.spark.task_states import RemoteState, TaskStates
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def at(sequence: int) -> InputPosition:
    return InputPosition((("S", sequence, 10 * sequence),))


def piece(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(values)})


def states(store: JetStreamTaskStore, run: str, epoch: int = 1) -> RemoteState:
    return TaskStates(store, "i", "g", epoch, run).of("0")


def elsewhere() -> None:
    """From here on this process knows no more than one on another machine."""
    task_states.CACHED_STATES.clear()
    task_states.RECORDS.clear()


def load(state: RemoteState, position: InputPosition) -> dict[str, list[Any]]:
    manifest = state.manifest(position)
    assert manifest is not None
    loaded = state.load(manifest)
    return {name: batch.column("n").to_pylist() for name, batch in loaded.pieces.items()}


@pytest.fixture(params=["jetstream", "directory"])
def store(
    request: pytest.FixtureRequest, hand: Hand, tmp_path: Path
) -> Iterator[JetStreamTaskStore]:
    hand.make_state_buckets()
    where = str(tmp_path / "pieces") if request.param == "directory" else "jetstream"
    yield JetStreamTaskStore(connection_options(hand.nats), where)
    elsewhere()
    task_store.close_idle()


def test_what_one_task_stores_another_one_loads_and_adds_to(store: JetStreamTaskStore) -> None:
    state = states(store, "r1")
    assert state.begin(None, {}) == set()
    assert state.is_empty()
    state.save(at(1), {}, State({"a": piece(1), "b": piece(2)}, {"x": 1}), wakeup_ms=500)
    elsewhere()
    other = states(store, "r1")
    assert not other.is_live(at(1))
    assert load(other, at(1)) == {"a": [1], "b": [2]}
    assert other.is_live(at(1))
    assert other.wakeup_ms() == 500
    other.save(at(2), {}, State({"b": piece(2), "c": piece(3)}, {"x": 2}))
    assert load(state, at(2)) == {"b": [2], "c": [3]}
    assert load(state, at(1)) == {"a": [1], "b": [2]}


def test_of_two_attempts_of_a_task_the_second_leaves_the_state_of_the_first(
    store: JetStreamTaskStore,
) -> None:
    state = states(store, "r1")
    state.begin(None, {})
    state.save(at(1), {}, State({"a": piece(1)}, {}))
    elsewhere()
    second = states(store, "r1")
    second.save(at(1), {}, State({"a": piece(9)}, {}))
    # Its process must not go on from what nobody finds.
    assert not second.is_live(at(1))
    assert load(second, at(1)) == {"a": [1]}
    (gone,) = second.dropped()
    assert gone not in second.record().named


def test_old_pieces_are_dropped_when_no_manifest_names_them(store: JetStreamTaskStore) -> None:
    state = states(store, "r1")
    state.begin(None, {})
    for n in range(1, 6):
        state.save(at(n), {}, State({f"p{n}": piece(n)}, {}))
    assert state.manifest(at(2)) is None
    assert load(state, at(3)) == {"p3": [3]}
    assert sorted(name.rpartition("/")[2] for name in state.dropped()) == ["p1", "p2"]


def test_a_run_begins_from_files_and_from_stored_pieces(
    store: JetStreamTaskStore, tmp_path: Path
) -> None:
    first = states(store, "r1")
    first.begin(None, {})
    first.save(at(7), {}, State({"a": piece(1)}, {}))
    manifest = first.manifest(at(7))
    assert manifest is not None
    (stored,) = first.pieces_of(manifest).values()
    local = LocalState(tmp_path / "local")
    local.put_pieces(State({"a": piece(1)}, {}))
    for given in ({"a": stored}, local.pieces_of(manifest)):
        run = states(store, f"from-{len(str(given))}", epoch=2)
        old = run.begin(manifest, given)
        assert stored not in old or given != {"a": stored}
        elsewhere()
        restored = run.restored(at(5))
        assert restored is not None
        assert restored.ahead == {"S": 7}
        assert run.load(restored).pieces["a"].column("n").to_pylist() == [1]
        assert run.restored(at(9)) is None


def test_a_task_of_an_earlier_run_ends(store: JetStreamTaskStore) -> None:
    old = states(store, "r1")
    old.begin(None, {})
    old.save(at(1), {}, State({"a": piece(1)}, {}))
    states(store, "r2").begin(None, {})
    with pytest.raises(MeshError, match="MESH-S100") as caught:
        old.save(at(2), {}, State({"a": piece(1)}, {}))
    assert caught.value.detail == "Another run of the instance has begun."
    states(store, "r3", epoch=5).begin(None, {})
    with pytest.raises(MeshError, match=r"epoch 5 .*MESH-S110"):
        states(store, "r4", epoch=4).begin(None, {})


def test_a_piece_that_is_gone_is_an_error_and_no_gap(store: JetStreamTaskStore) -> None:
    state = states(store, "r1")
    state.begin(None, {})
    state.save(at(1), {}, State({"a": piece(1)}, {}))
    manifest = state.manifest(at(1))
    assert manifest is not None
    assert state.current is not None
    state.current = task_states.StoredManifest(manifest, {"a": "i/g/0/never-stored"})
    with pytest.raises(MeshError, match="MESH-S100"):
        state.load(manifest)


def test_the_session_has_a_copy_for_questions(store: JetStreamTaskStore, tmp_path: Path) -> None:
    state = states(store, "r1")
    state.begin(None, {})
    local = LocalState(tmp_path / "0")
    for n in (1, 2):
        state.save(at(n), {}, State({"a": piece(1), f"p{n}": piece(n)}, {"n": n}))
        manifest = state.manifest(at(n))
        assert manifest is not None
        mirror(local, state, manifest)
    newest = local.newest()
    assert newest is not None
    assert newest.scalars == {"n": 2}
    assert sorted(local.load(newest).pieces) == ["a", "p2"]
