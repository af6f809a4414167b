"""Snapshots and reports of a cluster, and samples made of them."""

from __future__ import annotations

from typing import Any

from mesh.clock import SystemClock
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.manager.telemetry import STORED
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    NodeMetrics,
    NodeRecord,
    NodeRole,
)
from mesh.plan.build import plan

SPEC = plan(
    "@App:name('Shop') define stream S (a int);"
    "@dist(execGroup='one', parallel='2') from S[a > 1] select a insert into T;"
).spec


def snapshot(*reports: InstanceStatus, now_s: float = 0.0, **more: Any) -> ClusterSnapshot:
    """The assignments of these reports, and the reports, as just received."""
    return ClusterSnapshot(
        now_s,
        apps=(Revisioned(AppRecord(SPEC, "i", 0, **more), 1, 0.0),),
        assignments=tuple(
            Revisioned(Assignment(r.instance, r.app, "one", 1, "i", r.worker, r.epoch, 1), 1, 0.0)
            for r in reports
        ),
        statuses=tuple(Revisioned(r, 1, now_s) for r in reports),
        nodes=(
            Revisioned(
                NodeRecord("w1", NodeRole.WORKER, "x", "", 1, metrics=NodeMetrics(50.0)), 1, 0.0
            ),
        ),
    )


def report(at_s: float, messages: int, behind: int = 0, epoch: int = 5, **more: Any) -> Any:
    values = {"instance": "Shop-one-1", "worker": "w1", "events_in": messages, **more}
    return InstanceStatus(
        app="Shop",
        epoch=epoch,
        state=InstanceState.RUNNING,
        at_ms=round(at_s * 1000),
        messages_in=messages,
        behind=behind,
        **values,
    )


class Moment(SystemClock):
    """A clock that stands."""

    now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def flow_row(events: float, fast: float = 0.0, slow: float = 0.0) -> list[float]:
    """A row of an app: ``fast`` events of less than a millisecond, ``slow`` ones of 0.5 to 1 s."""
    row = dict.fromkeys(STORED["app"], 0.0)
    return list((row | {"events_in": events, "latency_0": fast, "latency_9": slow}).values())
