"""The cluster as all pages of one second see it: read once, however many pages are open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.manager.rates import Flow
from mesh.model.access import Permission, current

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mesh.clock import Clock
    from mesh.control.lifecycle import AppStatus
    from mesh.manager.nodes import NodeView
    from mesh.manager.overview import Overview
    from mesh.manager.service import ManagerService
    from mesh.manager.telemetry import LastMinute
    from mesh.model.access import Identity

#: Age at which a view is read again.
FRESH_S: Final = 0.9
#: Values of NATS that are kept, by what was asked.
CACHED_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """The views of one moment."""

    at_ms: int
    apps: dict[str, AppStatus]
    nodes: tuple[NodeView, ...]
    #: The manager that answers; empty for a dashboard of its own.
    manager: str
    overview: Overview
    #: By app.
    flows: dict[str, Flow]
    #: The flow of an instance.
    flow: Callable[[str], Flow]
    #: The last minute of an app, a group or an instance: of its kind and name.
    recent: Callable[[str, str], LastMinute]

    def of(self, identity: Identity | None) -> Seen:
        """The apps that a user may see; None is the process itself, which sees all."""
        if identity is None or identity.may(Permission.APPS_VIEW, None):
            return self
        apps = {a: one for a, one in self.apps.items() if identity.may(Permission.APPS_VIEW, a)}
        flows = {app: flow for app, flow in self.flows.items() if app in apps}
        return replace(self, apps=apps, overview=self.overview.of(apps), flows=flows)

    def flow_of(self, app: str) -> Flow:
        """The flow of an app; of one without instances there is none."""
        return self.flows.get(app, Flow())

    def app(self, name: str) -> AppStatus:
        """The status of an app; MESH-A404."""
        status = self.apps.get(name)
        if status is None:
            raise MeshError("MESH-A404", f'app "{name}" is not deployed')
        return status


class Board:
    """Reads the views of a manager, at most once in ``FRESH_S``."""

    def __init__(self, service: ManagerService, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self._seen: tuple[float, Seen] | None = None
        self._turn = asyncio.Lock()
        self._cache: dict[object, tuple[float, object]] = {}

    async def see(self) -> Seen:
        """The cluster now, as the user of the request may see it."""
        return (await self.see_all()).of(current.get())

    async def see_all(self) -> Seen:
        """The cluster now; for values that are kept for all users."""
        async with self._turn:
            now_s = self.clock.monotonic_s()
            if self._seen is not None and now_s - self._seen[0] < FRESH_S:
                return self._seen[1]
            seen = await self._look()
            self._seen = now_s, seen
            return seen

    def forget(self) -> None:
        """Have the next page read everything again, after a change."""
        self._seen = None
        self._cache.clear()

    async def cached(self, key: object, age_s: float, ask: Callable[[], Awaitable[object]]) -> Any:
        """The value of ``ask``, or the one of an earlier page if that is not older than that."""
        now_s = self.clock.monotonic_s()
        entry = self._cache.get(key)
        if entry is not None and now_s - entry[0] < age_s:
            return entry[1]
        value = await ask()
        self._cache.pop(key, None)
        self._cache[key] = now_s, value
        while len(self._cache) > CACHED_MAX:
            del self._cache[next(iter(self._cache))]
        return value

    async def _look(self) -> Seen:
        service = self.service
        apps = await service.apps()
        nodes = await service.nodes()
        leads = await service.leadership()
        return Seen(
            at_ms=self.clock.wall_ms(),
            apps={app.app: app for app in apps},
            nodes=tuple(nodes),
            manager=leads.manager,
            overview=await service.overview_of(apps, nodes),
            flows=await service.flows(),
            flow=service.telemetry.rates.flow,
            recent=service.telemetry.recent,
        )
