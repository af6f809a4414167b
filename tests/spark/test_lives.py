"""An instance that is killed again and again before its output is confirmed.

Whatever was decided while the events came, such as which of two inputs is read first, a further
life that reads all of them at once has to make the same output.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Final

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark import partition_task
from pyspark_nats.sink import marker_cache
from tests.support.shared_query import Hand, Instances, Snapshots, admitted

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

APP: Final = """@App:name('{name}')
define stream Numbers (n int);
define stream Others (n int);
"""
GROUPS: Final = {
    "a join": """
        @dist(execGroup='g')
        from Numbers#window.length(99) as a join Others#window.length(99) as b on a.n == b.n
        select a.n as n, count() as total insert into Out;
        """,
    "a pattern": """
        @dist(execGroup='g')
        from every a=Numbers -> b=Others select a.n as first, b.n as second insert into Out;
        """,
    "timers": """
        @dist(execGroup='g')
        from Numbers#window.timeBatch(30 millisec) select n, sum(n) as total insert into Out;
        @dist(execGroup='g')
        from Others#window.time(20 millisec) select n, sum(n) as total
        insert expired events into Out;
        """,
    "functions": """
        @dist(execGroup='g')
        from Numbers[math:rand() > 0.3]#window.length(2)
        select n, UUID() as id, currentTimeMillis() as now, eventTimestamp() as own
        insert into Out;
        @dist(execGroup='g')
        from Others[math:rand() > 0.3]#window.timeBatch(30 millisec)
        select n, UUID() as id, currentTimeMillis() as now, eventTimestamp() as own
        insert into Out;
        """,
}
EVENTS: Final = 40


class Lives:
    """The instance of an app, in one life after the other."""

    def __init__(self, hand: Hand, app: str) -> None:
        self.hand, self.app = hand, app
        admitted(hand, Instances(hand, "C", app=app))
        self._epoch = 1

    def publish(self, stream: str, n: int) -> None:
        call = (f"mesh.C.{stream}", json.dumps({"n": n}).encode())
        broker = self.hand.broker
        broker.retry_while_unavailable("publishing", lambda: broker.requests([call]))

    def kill(self) -> int:
        """End a life, and begin the next one without a snapshot; parts with unconfirmed output."""
        served, planner = self.hand.serving.served, self.hand.serving.planner
        count = 0
        for name in list(served):
            planner.remove(name)
            count += sum(part.publisher is not None for part in served.pop(name).values())
        marker_cache.clear()
        partition_task.LIVE_STATES.clear()
        self._epoch += 1
        stores = {"g": Snapshots()}
        life = Instances(self.hand, "C", stores, epoch=self._epoch, app=self.app)
        life.by_group["g"].start()
        self._until(lambda: "g" in life.statuses and life.told("g") is InstanceState.RUNNING)
        return count

    def rows(self, count: int) -> list[list[object]]:
        """The output, once it has at least so many rows."""
        self._until(lambda: len(self.hand.rows("C", "Out")) >= count)
        return self.hand.rows("C", "Out")

    def _until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(100):
            self.hand.step(0.1)
            if is_so():
                return
        raise AssertionError("it did not become so")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", GROUPS)
def test_kills_before_the_confirmation_change_no_output(hand: Hand, group: str) -> None:
    hand.serving.confirm_s = 3600.0
    lives = Lives(hand, APP + GROUPS[group])
    chance = random.Random(group)
    left = {"Numbers": list(range(EVENTS)), "Others": list(range(EVENTS))}
    unconfirmed = 0
    while any(left.values()):
        stream = chance.choice([name for name, numbers in left.items() if numbers])
        for _ in range(min(chance.choice([1, 1, 2, 3]), len(left[stream]))):
            lives.publish(stream, left[stream].pop(0))
        hand.step(chance.choice([0.0, 0.02, 0.05]))
        if chance.random() < 0.15:
            unconfirmed += lives.kill()
            hand.serving.report_s = 3600.0
    assert unconfirmed
    out = lives.rows(EVENTS // 2)
    # Without output and markers, the next life makes all of it in one go.
    hand.ask(("$JS.API.STREAM.PURGE.mesh-C-Out", b""))
    lives.kill()
    # Timers may not have had their turn before.
    assert lives.rows(len(out))[: len(out)] == out
