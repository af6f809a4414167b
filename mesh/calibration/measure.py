"""Calibration of an app: its groups on a server of their own, and their states."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh import scratch
from mesh.calibration.groups import GroupCalibration, computing, input_channels
from mesh.calibration.states import state_cost
from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.language.parser import parse_app
from mesh.language.syntax import find
from mesh.model.app import GroupKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.app import AppSpec
    from mesh.model.cost import CalibrationTask, GroupCost

#: Events of the run that compiles and warms up, which is not counted.
_WARM: Final = 2_000
#: Runs that count; the faster one of a group does, since other load makes it slower.
_RUNS: Final = 2
#: Time that the groups may need in one of them, seconds.
_RUN_S: Final = 8.0


def calibrate(task: CalibrationTask) -> tuple[GroupCost, ...]:
    """The costs of an app's groups, measured on this machine in some seconds.

    Raises:
        MeshError: MESH-C170 for an app that can't be calibrated; MESH-N100 to MESH-N102 without a
            nats-server.
    """
    check(task.spec)
    with scratch.directory("calibration") as directory:
        nats = server.start(directory / "nats")
        measured = GroupCalibration(task, nats.url, nats.process.pid, directory)
        try:
            few = min(_WARM, task.events)
            measured.costs(few, f"{task.spec.name}0")
            events = affordable(measured.costs(few, f"{task.spec.name}1"), task.events)
            runs = [
                measured.costs(events, f"{task.spec.name}{number}")
                for number in range(2, _RUNS + 2)
            ]
        finally:
            measured.close()
            nats.stop()
    costs = [max(of_group, key=lambda one: one.rate) for of_group in zip(*runs, strict=True)]
    return tuple(_with_state(task, cost) for cost in costs)


def check(spec: AppSpec) -> None:
    """Refuse an app that has effects outside, or no input: MESH-C170."""
    reason = ""
    tree = parse_app(spec.text)
    stored = [d for d in tree.definitions if find(getattr(d, "annotations", ()), "store")]
    if stored:
        reason = "It has tables in a database, which a measurement would write."
    elif not input_channels(spec):
        reason = "None of its groups reads events from outside."
    if reason:
        raise MeshError("MESH-C170", f'app "{spec.name}" can\'t be calibrated', detail=reason)


def affordable(costs: Sequence[GroupCost], events_max: int) -> int:
    """Events of a run that does not take longer than it may, by the rates of a short one."""
    event_s = sum(one.messages / one.rate for one in costs if one.rate > 0)
    return events_max if event_s <= 0 else max(1, min(events_max, int(_RUN_S / event_s)))


def _with_state(task: CalibrationTask, cost: GroupCost) -> GroupCost:
    group = next(g for g in computing(task.spec) if g.name == cost.group)
    if not group.stateful or group.kind is not GroupKind.QUERIES:
        return cost
    events = sum(task.rates.get(c.stream.name, 0.0) for c in input_channels(task.spec))
    rate = max(events * cost.events, 1.0)
    return replace(cost, state=state_cost(group, rate, task.keys))
