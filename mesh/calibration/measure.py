"""Calibration of an app: its groups on a server of their own, and the states of these.

The state of a group depends on its number of keys: its operators run over random events of few of
them.  The events of a key come as often as they will with all keys, so a time window of a key holds
as much.  Two numbers of keys are run until the state no longer grows; their difference gives the
bytes of a key.  A state that still grows then, as that of a long window does, gives the bytes of an
event instead.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.calibration.groups import GroupCalibration, computing, input_channels
from mesh.calibration.sample import Sampler, hints_of
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import server
from mesh.language.parser import parse_app
from mesh.language.syntax import find
from mesh.model.app import GroupKind
from mesh.model.cost import StateCost
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.group import bind_group
from mesh.spark.live_partition import LivePartition
from mesh.spark.stream_clock import StreamClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.calibration.sample import Hints
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cost import CalibrationTask, GroupCost

#: Events of the run that compiles and warms up, which is not counted.
_WARM: Final = 2_000
#: Runs that count; the faster one of a group does, since other load makes it slower.
_RUNS: Final = 2
#: Time that the groups may need in one of them, seconds.
_RUN_S: Final = 8.0
#: Of states: numbers of keys that are compared, and rows of a round.
_FEW: Final = 100
_MORE: Final = 200
_ROWS: Final = 5_000
#: Rounds over which growth is seen, and the part of the state that is none.
_ROUNDS: Final = 4
_STEADY: Final = 0.02
#: Of one number of keys.
_EVENTS_MAX: Final = 400_000
_TIME_MAX_S: Final = 4.0
_START_MS: Final = 1_800_000_000_000


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


def state_cost(group: GroupSpec, rate: float, keys: int) -> StateCost:
    """The state of one group with state.

    Args:
        group: of the plan; without tables in databases.
        rate: events that it reads in a second, of all keys.
        keys: of all events.
    """
    hints = hints_of(group.text)
    few, more = min(_FEW, max(1, keys // 2)), min(_MORE, keys)
    less = _grown_state(group, hints, rate * few / keys, few)
    if more <= few:
        return StateCost(base_bytes=less[0], event_bytes=less[1], longest_s=hints.longest_s)
    most = _grown_state(group, hints, rate * more / keys, more)
    key_bytes = max(0.0, (most[0] - less[0]) / (more - few))
    if most[1] > 0:
        # It holds events, whatever their keys.
        return StateCost(event_bytes=most[1], longest_s=hints.longest_s)
    return StateCost(key_bytes, max(0.0, less[0] - few * key_bytes), 0.0, hints.longest_s)


def _grown_state(group: GroupSpec, hints: Hints, rate: float, keys: int) -> tuple[float, float]:
    """Bytes of the state with so many keys, and those that each further event adds."""
    executor = Executor(
        bind_group(group), [*dict.fromkeys(c.stream.name for c in group.outputs), FAILED]
    )
    streams = {i.channel.stream.name: i.channel.stream for i in group.inputs}
    samplers = {
        name: Sampler(schema, hints, keys, seed=number)
        for number, (name, schema) in enumerate(streams.items())
    }
    partition = LivePartition(executor, {name: StreamClock() for name in streams})
    sizes, done, ends_s = [0], 0, time.monotonic() + _TIME_MAX_S
    while done < _EVENTS_MAX and time.monotonic() < ends_s:
        runs = []
        for name, sampler in samplers.items():
            sequence = np.arange(done, done + _ROWS, dtype=np.int64)
            time_ms = _START_MS + (sequence * 1000.0 * len(streams) / rate).astype(np.int64)
            partition.clocks[name].take(time_ms, last_has_time=True)
            runs.append(InputRun(name, sequence, time_ms, sampler.rows(_ROWS)))
        executor.run(runs, partition.times(), is_by_events=True)
        done += _ROWS
        sizes.append(_stored_bytes(executor))
        if len(sizes) > 2 * _ROUNDS and _growth(sizes) <= _STEADY * sizes[-1]:
            return float(sizes[-1]), 0.0
    return float(sizes[-1]), _growth(sizes) / (_ROUNDS * _ROWS * len(streams))


def _growth(sizes: list[int]) -> float:
    # The mean of some rounds: pieces are written when they are full.
    late, early = sizes[-_ROUNDS:], sizes[-2 * _ROUNDS : -_ROUNDS] or [0]
    return max(0.0, sum(late) / len(late) - sum(early) / len(early))


def _stored_bytes(executor: Executor) -> int:
    """Bytes of an executor's state as it is stored."""
    return sum(piece.nbytes for piece in executor.snapshot().pieces.values())
