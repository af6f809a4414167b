"""Outputs that are purged while their instances run."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyspark_nats.protocol.connection import Connection
from tests.support.shared_query import begun

if TYPE_CHECKING:
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120), pytest.mark.slow]

OUTPUTS = ("Large", "Sums")
PURGES = 40


def test_outputs_that_are_purged_under_load_have_each_row_once(hand: Hand) -> None:
    app = begun(hand, "A")
    held: dict[str, list[list[str]]] = {name: [] for name in OUTPUTS}
    done = threading.Event()

    def purge(broker: Connection) -> None:
        for name, found in held.items():
            call = f"$JS.API.STREAM.INFO.mesh-A-{name}", b""
            last = json.loads(broker.requests([call])[0].data)["state"]["last_seq"]
            found.append([str(row) for row in other.rows("A", name)])
            query = json.dumps({"seq": last + 1}).encode()
            broker.requests([(f"$JS.API.STREAM.PURGE.mesh-A-{name}", query)])

    class Other(type(hand)):  # type: ignore[misc]
        """Reads over another connection."""

        def __init__(self) -> None:
            self.broker = Connection(hand.known)

    other = Other()

    def purge_often() -> None:
        for _ in range(PURGES):
            other.broker.retry_while_unavailable("purging", lambda: purge(other.broker))
        done.set()

    thread = threading.Thread(target=purge_often)
    thread.start()
    numbers = 0
    while not done.is_set():
        hand.publish("A", *range(numbers + 1, numbers + 6))
        numbers += 5
        hand.step(0.05)
    thread.join()
    while hand.step(0.3):
        pass
    purge(other.broker)
    other.broker.close()
    assert all(status.error is None for status in app.statuses.values())
    wanted = {
        "Large": {str([n * 10]) for n in range(2, numbers + 1)},
        "Sums": {str([sum(range(max(1, n - 2), n + 1))]) for n in range(1, numbers + 1)},
    }
    for name, rows in wanted.items():
        assert {row for some in held[name] for row in some} == rows
        doubled = [row for some in held[name] for row, count in Counter(some).items() if count > 1]
        assert doubled == []
