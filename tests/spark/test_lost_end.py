"""Instances whose channel lost its end, and has other messages at the sequences that were read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from mesh.operators.executor import Executor
from mesh.plan.bind.apps import bind_group
from mesh.spark.dedicated_query.instance import DedicatedInstance
from mesh.spark.instance_io import InputPosition, LocalState, Manifest, newest_of
from mesh.spark.shared_query.members import FAILED, REMOVED, WORK
from pyspark_nats.errors import DataLossError
from pyspark_nats.source import offsets
from pyspark_nats.source.source_options import source_options
from tests.support.shared_query import Hand, Instances, begun

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.mark.parametrize("group", ["sums", "large"])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_snapshot_of_other_messages_is_data_loss(hand: Hand, group: str, is_other: bool) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until(WORK, group)
    app.by_group[group].stop()
    hand.until(REMOVED, group)
    app.by_group[group].join()
    kept = app.stores[group].kept
    for part, (manifest, pieces) in kept.items():
        values = json.loads(manifest)
        # Both messages, or the first alone if they were read in two runs.
        assert values["newest"]["mesh-A-Numbers"][0] in {1, 2}
        # As if that message had been lost, and another one stored in its place.
        values["newest"]["mesh-A-Numbers"][1] -= 5 * 10**9 * is_other
        kept[part] = json.dumps(values).encode(), pieces
    hand.publish("A", 3)
    again = Instances(hand, "A", app.stores)
    again.by_group[group].start()
    hand.until(FAILED if is_other else WORK, group)
    if is_other:
        status = again.statuses[group]
        assert status.state is InstanceState.RETRYING
        assert "used their sequences again" in str(status.error)


def test_a_manifest_of_an_earlier_version_is_read() -> None:
    found = {"S": {"sequence": 5, "time_ms": 7, "newest": 6, "newest_ns": 8}}
    made = Manifest(InputPosition.of(found, found), {}, {}, (), newest=newest_of(found))
    assert Manifest.from_bytes(made.to_bytes()).starts == found
    earlier = json.loads(made.to_bytes())
    del earlier["newest"]
    starts = Manifest.from_bytes(json.dumps(earlier).encode()).starts
    assert starts == {"S": {"sequence": 5, "time_ms": 7}}


@pytest.mark.parametrize("group", ["sums", "large"])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_dedicated_query_compares_the_newest_message_at_its_start(
    hand: Hand, tmp_path: Path, group: str, is_other: bool
) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until(WORK, group)
    context = app.by_group[group].context
    given = {**hand.nats, "stream": "mesh-A-Numbers"}
    read = offsets.StreamWatch(source_options(given), hand.broker)
    ends = read.latest(read.initial(), None)
    ends["mesh-A-Numbers"]["newest_ns"] -= 5 * 10**9 * is_other
    dedicated = DedicatedInstance(None, context)  # type: ignore[arg-type]
    run = tmp_path / "run"
    (run / "0").mkdir(parents=True)
    if group == "sums":
        position = InputPosition.of(ends, ends)
        LocalState(run / "0").save(
            position, {}, Executor(bind_group(context.io.group), []).snapshot()
        )
    assert dedicated._share(ends, run, None) is not None
    restored = dedicated._restore(tmp_path / "again")
    assert restored.restored == {0}
    again = offsets.StreamWatch(
        source_options({**given, "startingOffsets": json.dumps(restored.offsets)}), hand.broker
    )
    hand.publish("A", 3)
    if is_other:
        with pytest.raises(DataLossError, match="used their sequences again"):
            again.latest(again.initial(), None)
    else:
        assert again.latest(again.initial(), None)["mesh-A-Numbers"]["sequence"] == 3
