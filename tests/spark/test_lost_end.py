"""Instances whose channel lost its end, and has other messages at the sequences that were read."""

from __future__ import annotations

import json

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.local_state import Manifest, Position, newest_of
from mesh.spark.shared_query.work import FAILED, REMOVED, WORK
from tests.support.shared_query import Hand, Instances, begun

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
        assert values["newest"]["mesh-A-Numbers"][0] == 2
        # As if message 2 had been lost, and another one stored in its place.
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
    offsets = {"S": {"sequence": 5, "time_ms": 7, "newest": 6, "newest_ns": 8}}
    made = Manifest(Position.of(offsets, offsets), {}, {}, (), newest=newest_of(offsets))
    assert Manifest.from_bytes(made.to_bytes()).starts == offsets
    earlier = json.loads(made.to_bytes())
    del earlier["newest"]
    starts = Manifest.from_bytes(json.dumps(earlier).encode()).starts
    assert starts == {"S": {"sequence": 5, "time_ms": 7}}
