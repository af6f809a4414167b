"""What-if: rates and keys in, needs out; the call of a manager's process as well."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import psutil

from mesh.calibration.groups import input_channels
from mesh.calibration.measure import calibrate, check
from mesh.errors import MeshError
from mesh.model.cost import CalibrationTask
from mesh.plan.capacity import capacity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.app import AppSpec
    from mesh.model.cost import GroupCost
    from mesh.model.values import JsonObject
    from mesh.plan.capacity import Capacity

#: Events of the input that each run has.
EVENTS: Final = 200_000
KEYS_MAX: Final = 1_000_000_000


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
