"""Partitions of a batch, and messages that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.errors import DataLossError, RefusedError
from tests.support.reading import looking_end, partitions

pytestmark = pytest.mark.nats


def test_loss_is_named_or_accepted(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    broker.call("STREAM.PURGE.S", seq=6)
    now_ms = broker.info("S").time_ms
    start, end = ({"S": {"sequence": n, "time_ms": now_ms}} for n in (2, 8))
    with pytest.raises(DataLossError, match="does not hold sequences 3 to 5 any more"):
        partitions(broker, start, end)
    accepted = partitions(broker, start, end, failOnDataLoss="false")
    assert (accepted.start, accepted.end) == (5, 8)
    broker.call("STREAM.DELETE.S")
    broker.create("S")
    broker.publish("ev.S", *"0123456789")
    with pytest.raises(DataLossError, match="deleted and made again"):
        partitions(broker, start, end)
    accepted = partitions(broker, start, {"S": looking_end(broker)}, failOnDataLoss="false")
    assert (accepted.start, accepted.end) == (0, 10)
    broker.call("STREAM.DELETE.S")
    with pytest.raises(RefusedError, match='stream "S" does not exist'):
        partitions(broker, start, end)
