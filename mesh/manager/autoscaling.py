"""Scaling of groups by their load, while this manager leads: the shell of the autoscaler.

    flows of instances, states of apps ──▶ loads ──▶ Autoscaler.step ──▶ scale, and the story

With ``manager.autoscale: false`` the story tells what would have been done.
"""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from mesh.control.autoscale import SAMPLE_S, Autoscaler, GroupLoad, ScaleChange
from mesh.control.journal import JournalEntry
from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.plan.groups import sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mesh.clock import Clock
    from mesh.control.lifecycle import AppStatus
    from mesh.manager.rates import Flow
    from mesh.manager.service import ManagerService
    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord


@dataclass(eq=False, repr=False)
class Autoscaling:
    """The autoscaler of one manager."""

    #: Has the loads, and scales; it receives the numbers that are needed.
    _service: ManagerService
    _note: Callable[[JournalEntry], None]
    _clock: Clock
    _: KW_ONLY
    #: Whether it scales, rather than telling what it would do.
    acts: bool
    _scaler: Autoscaler = field(default_factory=Autoscaler)

    async def run(self, leads: Callable[[], bool]) -> None:
        """Sample and scale while ``leads()``, without end."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            if leads():
                await self.step()
            else:
                self._scaler, self._service.targets = Autoscaler(), {}

    async def step(self) -> None:
        """Take one sample of all groups, and perform or tell the change that follows."""
        loads = loads_of(*self._service.loads())
        change = self._scaler.step(self._clock.monotonic_s(), loads)
        self._service.targets = {one.key: self._scaler.target(one) for one in loads if one.sizes}
        if change is None:
            return
        if self.acts:
            try:
                await self._service.scale(change.app, change.group, change.target)
            except MeshError as error:
                self._note(_entry(change, f"{error}", "did not scale"))
                return
        self._note(_entry(change, change.reason, "scaled" if self.acts else "would scale"))


def _entry(change: ScaleChange, cause: str, did: str) -> JournalEntry:
    text = f"{did} group {change.group} from {change.parallel} to {change.target} by load"
    return JournalEntry(text, cause, by="autoscaler", app=change.app)


def loads_of(
    records: Iterable[AppRecord], statuses: Iterable[AppStatus], flow: Callable[[str], Flow]
) -> list[GroupLoad]:
    """A sample of every group.

    Args:
        records: the desired states of all apps.
        statuses: their states; an app without one is not settled.
        flow: the present flow of an instance.
    """
    by_app = {status.app: status for status in statuses}
    specs = {record.spec.name: record.spec for record in records}
    readers = _readers(specs.values())
    loads = []
    for name, spec in specs.items():
        status = by_app.get(name)
        runs = status is not None and status.state is AppState.RUNNING
        for group in spec.groups:
            flows = [flow(instance) for instance in group.instances]
            loads.append(
                GroupLoad(
                    name,
                    group.name,
                    group.parallel,
                    sizes_of(spec, group),
                    sum(one.messages for one in flows),
                    sum(one.backlog for one in flows),
                    runs,
                    tuple(readers.get((name, group.name), ())),
                )
            )
    return loads


def _readers(specs: Iterable[AppSpec]) -> Mapping[tuple[str, str], list[tuple[str, str]]]:
    """By group, the groups of its app that read what it writes."""
    return {
        (spec.name, group.name): [
            (spec.name, other.name)
            for other in spec.groups
            if {i.channel.id for i in other.inputs} & {c.id for c in group.outputs}
        ]
        for spec in specs
        for group in spec.groups
    }
