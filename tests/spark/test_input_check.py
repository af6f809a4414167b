"""A server that loses the end of all its streams with its power, under running instances."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark import drain
from mesh.spark.shared_query.members import ADMITTED, FAILED, WORK
from pyspark_nats.sink import marker_cache
from tests.support.power import Power
from tests.support.shared_query import Instances, Snapshots, begun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.restarts, pytest.mark.timeout(60)]


@pytest.fixture
def power(nats_server: NatsServer) -> Iterator[Power]:
    made = Power(nats_server)
    yield made
    made.end()


def worked(hand: Hand) -> None:
    """Run batches until nothing is left."""
    while told := hand.step(0.3):
        assert {kind for kind, _ in told} == {WORK}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("again", [1, 6])
def test_output_is_that_of_the_events_left_and_each_loss_is_told(
    power: Power, hand: Hand, again: int
) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2, 3)
    worked(hand)
    power.save()
    kept = {name: copy.deepcopy(store.kept) for name, store in app.stores.items()}
    hand.publish("A", 4, 5, 6)
    worked(hand)
    power.fail()
    for name, store in app.stores.items():
        store.kept = copy.deepcopy(kept[name])
    numbers = list(range(10, 10 + again))
    hand.publish("A", *numbers)
    told: list[tuple[str, str]] = []
    failed: dict[str, str] = {}
    for _ in range(60):
        told += hand.step(0.1)
        for name, one in app.by_group.items():
            one.tick(1e12)
            status = app.statuses[name]
            if status.error:
                failed[name] = status.error
    assert {kind for kind, _ in told} <= {WORK, FAILED, ADMITTED}
    assert failed.keys() == {"sums", "large", "late"}
    assert all("PYSPARK-NATS-DATA-LOSS" in error for error in failed.values()), failed
    left = [1, 2, 3, *numbers]
    assert hand.rows("A", "Large") == [[n * 10] for n in left if n > 1]
    assert hand.rows("A", "Sums") == [
        [sum(left[max(0, n - 3) : n])] for n in range(1, len(left) + 1)
    ]
    assert hand.rows("A", "Late") == [[n] for n in left]


@pytest.mark.slow
@pytest.mark.parametrize("again", [1, 9])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_events_whose_output_is_published_are_not_skipped_silently(
    power: Power, hand: Hand, monkeypatch: pytest.MonkeyPatch, again: int, is_confirmed: bool
) -> None:
    # One server has one clock.
    monkeypatch.setattr(drain, "CLOCKS_MS", 0)
    app = begun(hand, "A")
    hand.publish("A", 1, 2, 3)
    worked(hand)
    power.save()
    if not is_confirmed:
        # As if the process were killed before the marker of the rows that follow.
        hand.serving.confirm_s = 3600.0
        hand.report_at(1e12)
    hand.publish("A", 4, 5, 6, 7)
    worked(hand)
    hand.until_rows("A", "Large", 6)
    unconfirmed = [
        part.member.name
        for parts in hand.serving.served.values()
        for part in parts.values()
        if part.publisher is not None
    ]
    assert ("A-large-1" in unconfirmed) is not is_confirmed
    # The server has the output, and neither its input nor the snapshots.
    power.fail("mesh-A-Numbers")
    marker_cache.clear()
    stores = {name: Snapshots() for name in app.stores}
    hand.publish("A", *range(10, 10 + again))
    later = Instances(hand, "A", stores, epoch=2)
    large = later.by_group["large"]
    large.start()
    hand.until_idle()
    while later.statuses["large"].state is not InstanceState.RETRYING:
        hand.step(0.05)
    error = str(later.statuses["large"].error)
    assert "PYSPARK-NATS-DATA-LOSS" in error
    lost = "lost messages and used their sequences again"
    assert (lost if again == 9 else "does not hold sequences 5 to 7 any more") in error
