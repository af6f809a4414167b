"""Calibration of an app: its groups on a server of their own, and the states of these.

The state of a group depends on its number of keys: its operators run over random events of few of
them.  The events of a key come as often as they will with all keys, so a time window of a key holds
as much.  Two numbers of keys are run until the state no longer grows; their difference gives the
bytes of a key.  A state that still grows then, as that of a long window does, gives the bytes of an
event instead.

What-if: rates and keys in, needs out; the call of a manager's process as well.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil

from mesh.calibration.groups import GroupCalibration, Sampler, computing, hints_of, input_channels
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import server
from mesh.language.parser import parse_app
from mesh.language.syntax import find
from mesh.model.app import GroupKind
from mesh.model.cost import CalibrationTask, StateCost
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.capacity import capacity
from mesh.spark.live_partition import LivePartition, StreamClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.calibration.groups import Hints
    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cost import GroupCost
    from mesh.model.values import JsonObject
    from mesh.plan.capacity import Capacity


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

#: Events of the input that each run has.
EVENTS: Final = 200_000
KEYS_MAX: Final = 1_000_000_000


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


def answer(
    spec: AppSpec,
    at_rate: Sequence[str],
    keys: int,
    samples: Mapping[str, Sequence[str]],
    cores: int = 0,
    running: Mapping[str, float] | None = None,
    events: int = 0,
) -> JsonObject:
    """The needs of an app, as JSON values of ``Capacity`` with ``notes``.

    Args:
        spec: its plan.
        at_rate: ``50000`` for each input stream, ``Orders=2000`` for one of them.
        keys: different values of each key.
        samples: by stream, events as JSON objects from which rows are drawn.
        cores: of a worker; 0 for those of this machine.
        running: by group, the messages a second of one busy instance where the app runs.
        events: of the input, in each run; 0 for the usual number.

    Raises:
        MeshError: MESH-C170 for an app that can't be calibrated; MESH-C171 for rates or keys that
            can't be used.
    """
    check(spec)
    if not 1 <= keys <= KEYS_MAX:
        raise MeshError("MESH-C171", f"the number of keys is 1 to {KEYS_MAX:,}, not {keys:,}")
    rates = rates_of([channel.stream.name for channel in input_channels(spec)], at_rate)
    task_samples = {stream: tuple(ones) for stream, ones in samples.items()}
    costs = calibrate(CalibrationTask(spec, events or EVENTS, keys, rates, task_samples))
    actuals = [_as_running(cost, (running or {}).get(cost.group)) for cost in costs]
    needs = capacity(spec, actuals, sum(rates.values()), keys, cores or psutil.cpu_count() or 1)
    return {**asdict(needs), "notes": notes(needs, is_random=not samples)}


def rates_of(streams: Sequence[str], at_rate: Sequence[str]) -> dict[str, float]:
    """Events a second of each input stream; MESH-C171 for what is no rate of them."""
    rates: dict[str, float] = {}
    for one in at_rate:
        name, _, number = one.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = math.nan
        if not 0 < rate < math.inf or (name and name not in streams):
            raise MeshError(
                "MESH-C171",
                f'"{one}" is no rate',
                detail=f"Input streams are: {', '.join(streams)}.",
                hint="Write 50000 for each of them, or STREAM=50000 for one.",
            )
        # A stream that is named keeps its own rate.
        rates = {**rates, name: rate} if name else dict.fromkeys(streams, rate) | rates
    if set(rates) != set(streams):
        missing = ", ".join(s for s in streams if s not in rates)
        raise MeshError("MESH-C171", f"no rate of {missing}")
    return rates


def _as_running(cost: GroupCost, rate: float | None) -> GroupCost:
    return cost if rate is None else replace(cost, rate=rate, source="running")


def notes(needs: Capacity, *, is_random: bool) -> list[str]:
    """Sentences about what the figures do not say."""
    said = []
    if not needs.is_enough:
        said.append(
            f"group {needs.first} can't have enough instances for {needs.rate:,.0f} events a second"
        )
    silent = [
        one.group for one in needs.groups if one.events and one.rows and not any(one.rows.values())
    ]
    if silent:
        said.append(
            f"{', '.join(silent)} emitted nothing, so the groups after it are not measured: give "
            "events of yours"
        )
    if is_random:
        said.append("events were random: a share of rows that is not that of yours changes all")
    said += [
        f"the state of group {one.group} was still growing, and its text names no time that ends it"
        for one in needs.groups
        if one.event_bytes and one.state_bytes is None
    ]
    return said
