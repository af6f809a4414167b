"""A server that loses the end of all its streams with its power, under running instances."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from mesh.spark.shared_query.work import ADMITTED, FAILED, WORK
from tests.support.power import Power
from tests.support.shared_query import begun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.fixture
def power(nats_server: NatsServer) -> Iterator[Power]:
    made = Power(nats_server)
    yield made
    made.end()


def worked(hand: Hand) -> None:
    """Run batches until nothing is left."""
    while told := hand.step(0.3):
        assert {kind for kind, _ in told} == {WORK}


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
