"""A shared query whose slots are threads of the test's process."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from mesh.clock import SystemClock
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.spark.instance_context import InstanceContext, InstanceOptions
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.instance import SharedInstance
from mesh.spark.shared_query.query import SharedQuery
from mesh.spark.shared_query.slot import Slot, SlotOptions
from tests.support.shared_query import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.spark.shared_query.slot_network import SlotListener
    from mesh.spark.shared_query.slots import SlotLink
    from mesh.spark.task_states import TaskStore
    from tests.support.shared_query import Hand

APP = """@App:name('A')
define stream Numbers (n int);
define stream Keyed (k string, n int);
@dist(execGroup='sums')
from Numbers#window.length(3) select sum(n) as total insert into Sums;
@dist(execGroup='keyed', parallel='2')
partition with (k of Keyed) begin
  from Keyed select k, sum(n) as total insert into Totals;
end;
"""


class Running:
    """What Spark would return for a query, whose tasks are threads."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.stopped = threading.Event()
        self.error: Exception | None = None

    def awaitTermination(self, timeout_s: float) -> bool:
        ended = self.stopped.wait(min(timeout_s, 0.02))
        if self.error is not None:
            raise self.error
        return ended

    def stop(self) -> None:
        for one in self.slots:
            one.thread.join(5)
        self.stopped.set()


class QueryWithoutSpark(SharedQuery):
    """A shared query whose slots are threads of this process."""

    def __init__(self, directory: Path, hand: Hand, **given: Any) -> None:
        super().__init__(
            None,  # type: ignore[arg-type]
            directory,
            SystemClock(),
            nats=hand.nats,
            slot_count=lambda: 2,
            **given,
            retry_s=0.0,
        )
        self.hand = hand
        self.runs: list[Running] = []

    @property
    def is_supervised(self) -> bool:
        """Whether the query would be started again if it ended."""
        return self._thread.is_alive()

    @property
    def links(self) -> list[SlotLink]:
        """The slots that serve now."""
        assert self._slots is not None
        return list(self._slots.links)

    @property
    def is_slot_lost(self) -> bool:
        """Whether a slot has ended, or all have."""
        return self._slots is None or self._slots.is_lost

    def pause(self) -> None:
        """Let the slots work for a moment; the end of the query ends it."""
        self._ending.wait(0.01)

    def _start(self, run: Path, count: int, listener: SlotListener) -> Any:
        for number in range(2):
            (run / str(number)).mkdir()
        self.runs.append(
            Running(
                [
                    Slot(
                        SlotOptions(
                            listener.address,
                            str(run / str(number)),
                            self.hand.known,
                            listener.secret,
                        )
                    )
                    for number in range(count)
                ]
            )
        )
        return self.runs[-1]


class Mesh:
    """The instances of the app, and what they reported."""

    def __init__(
        self,
        directory: Path,
        hand: Hand,
        shared: QueryWithoutSpark,
        task_store: TaskStore | None = None,
    ) -> None:
        self.task_store = task_store
        self.spec = plan(APP).spec
        self.hand = hand
        self.shared = shared
        self.directory = directory
        self.told: dict[str, list[InstanceStatus]] = {}
        self.changed = threading.Condition()
        self.stores = {group.name: Snapshots(task_store) for group in self.spec.groups}

    def start(self, group_name: str) -> SharedInstance:
        (group,) = (g for g in self.spec.groups if g.name == group_name)
        told = self.told.setdefault(group_name, [])

        def report(status: InstanceStatus) -> None:
            with self.changed:
                told.append(status)
                self.changed.notify_all()

        options = InstanceOptions(
            "w", self.hand.nats, 1000, 0.2, 0.0, 1.0, 10.0, task_store=self.task_store
        )
        name = group.instances[0]
        assignment = Assignment(name, "A", group.name, 1, "w", "i", epoch=1, lease_revision=0)
        one = SharedInstance(
            self.shared,
            InstanceContext(
                InstanceIO(group, assignment),
                options,
                self.directory / group.name,
                self.stores[group.name],
                report,
                SystemClock(),
            ),
        )
        one.start()
        return one

    def until(self, group: str, wanted: Callable[[list[InstanceStatus]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: wanted(self.told[group]), 30)

    def runs(self, group: str) -> None:
        self.until(group, lambda told: bool(told) and told[-1].state is InstanceState.RUNNING)

    def publish(self, stream: str, *events: dict[str, Any]) -> None:
        calls = [(f"mesh.A.{stream}", json.dumps(event).encode()) for event in events]
        broker = self.hand.broker
        broker.retry_while_unavailable("publishing", lambda: broker.requests(calls))

    def rows(self, stream: str, count: int) -> list[list[Any]]:
        """The events of a stream, as soon as there are so many."""
        while len(found := self.hand.rows("A", stream)) < count:
            self.shared.pause()
        return found
