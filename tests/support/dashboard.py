"""A manager with its pages, and workers of which only the records are there.

Heartbeats and reports are those that agents write, so a page can't distinguish them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import nats

from mesh.api.oidc import make_provider
from mesh.api.server import ApiServer, listen
from mesh.clock import SystemClock
from mesh.dashboard.server import Front, make_pages
from mesh.jetstream import kv
from mesh.jetstream.audit import Audit
from mesh.jetstream.directory import Directory
from mesh.jetstream.sessions import UserSessions
from mesh.manager.manager import running
from mesh.model import codec, names
from mesh.model.cluster import (
    InstanceState,
    InstanceStatus,
    NodeMetrics,
    NodeRecord,
    NodeRole,
)
from mesh.processes.signals import end
from mesh.settings import ManagerSettings, NatsSettings, OidcSettings, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService
    from mesh.model.cluster import Assignment

BEAT_S = 0.3


@dataclass
class Site:
    """A manager that serves its pages, and the records of workers."""

    manager: Manager
    service: ManagerService
    url: str
    client: Client
    directory: Directory
    sessions: UserSessions
    #: Values of the reports of instances, by instance; others run and count.
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    _beats: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def js(self) -> JetStreamContext:
        return self.client.jetstream()

    def start_worker(self, name: str, **metrics: float) -> None:
        """Send heartbeats and reports of a worker until it is killed."""
        self._beats[name] = asyncio.create_task(self._work(name, metrics))

    async def kill_worker(self, name: str) -> None:
        """Send no more of them."""
        await end([self._beats.pop(name)])

    async def end(self) -> None:
        for name in list(self._beats):
            await self.kill_worker(name)

    async def until_running(self, app: str) -> None:
        found = await self.service.wait_running(app, 60)
        assert found.state == "running", found

    async def _work(self, name: str, metrics: dict[str, float]) -> None:
        load: dict[str, Any] = {
            "cpu_percent": 23.0, "process_cpu_percent": 31.0, "memory_bytes": 812_000_000,
            "memory_percent": 41.0, "load_1m": 0.7, **metrics,
        }  # fmt: skip
        record = NodeRecord(
            name,
            NodeRole.WORKER,
            f"i-{name}",
            "",
            0,
            pid=4242,
            ready=True,
            metrics=NodeMetrics(**load),
        )
        beat = 0
        while True:
            beat += 1
            await self._put(
                names.CONTROL_BUCKET,
                names.node_key(NodeRole.WORKER, name),
                replace(record, beat=beat),
            )
            for seen in self.service._view.snapshot().assignments:
                if seen.value.worker == name:
                    await self._report(seen.value, beat)
            await asyncio.sleep(BEAT_S)

    async def _report(self, one: Assignment, beat: int) -> None:
        is_over = one.stop or one.until is not None
        state = InstanceState.STOPPED if is_over else InstanceState.RUNNING
        status = InstanceStatus(
            one.instance, one.app, one.worker, one.epoch, state, SystemClock().wall_ms(),
            messages_in=beat * 120, events_in=beat * 120, events_out=beat * 40, behind=3,
            batch_ms_p50=12.5, settled=is_over, position=dict(one.until or {}),
        )  # fmt: skip
        if not is_over:
            status = replace(status, **self.states.get(one.instance, {}))
        await self._put(names.STATUS_BUCKET, names.status_key(one.instance), status)

    async def _put(self, bucket: str, key: str, record: Any) -> None:
        await kv.put(self.js, bucket, key, codec.encode(record))


@asynccontextmanager
async def site(
    server: NatsServer, oidc: OidcSettings | None = None, **settings: Any
) -> AsyncIterator[Site]:
    """A manager and its pages on a free port; users are those of ``settings`` and ``oidc``."""
    made = ManagerSettings(**{"id": "m1", "port": 0, "anonymous": True, **settings})
    whole = Settings(nats=NatsSettings(url=server.url), manager=made)
    async with running(whole) as (manager, service):
        clock = SystemClock()
        js = service.client.jetstream()
        directory, audit = Directory(js), Audit(service.client)
        sessions = UserSessions(js, clock)
        following = [asyncio.create_task(one.follow()) for one in (directory, audit)]
        await directory.ready()
        api = ApiServer(
            service, made, listen(made),
            lambda app, connector: Front(app, make_pages(service, connector, clock)),
            directory=directory, audit=audit, sessions=sessions,
            provider=make_provider(oidc, clock) if oidc is not None else None,
        )  # fmt: skip
        manager.presence.address = api.url.partition("//")[2]
        serving = asyncio.create_task(api.run())
        client = await nats.connect(server.url)
        found = Site(manager, service, api.url, client, directory, sessions)
        try:
            yield found
        finally:
            await found.end()
            await client.close()
            api.stop()
            await serving
            await end(following)
