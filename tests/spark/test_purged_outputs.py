"""Outputs that are purged while their instances run."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.shared_query import begun

if TYPE_CHECKING:
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

OUTPUTS = ("Large", "Sums")
ROUNDS = 24


def test_outputs_that_are_purged_under_load_have_each_row_once(hand: Hand) -> None:
    app = begun(hand, "A")
    held: dict[str, list[list[str]]] = {name: [] for name in OUTPUTS}

    def purge() -> None:
        for name, found in held.items():
            info = json.loads(hand.ask((f"$JS.API.STREAM.INFO.mesh-A-{name}", b"")))
            rows = [str(row) for row in hand.rows("A", name)]
            query = json.dumps({"seq": info["state"]["last_seq"] + 1}).encode()
            hand.ask((f"$JS.API.STREAM.PURGE.mesh-A-{name}", query))
            found.append(rows)

    numbers = list(range(1, ROUNDS * 12 + 1))
    for at in range(ROUNDS):
        # Between the runs of a round, or between rounds; rows may be on their way.
        hand.before_run = purge if at % 2 else None
        hand.publish("A", *numbers[at * 12 : at * 12 + 12])
        hand.step(0.3)
        if at % 4 == 0:
            purge()
    hand.before_run = None
    while hand.step(0.3):
        pass
    purge()
    assert all(status.error is None for status in app.statuses.values())
    wanted = {
        "Large": [str([n * 10]) for n in numbers if n > 1],
        "Sums": [str([sum(numbers[max(0, n - 3) : n])]) for n in range(1, len(numbers) + 1)],
    }
    for name, rows in wanted.items():
        assert {row for some in held[name] for row in some} == set(rows)
        doubled = [row for some in held[name] for row, count in Counter(some).items() if count > 1]
        assert doubled == []
