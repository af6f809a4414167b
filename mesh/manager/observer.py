"""The service of a manager without a manager: it sees the cluster, and leads nothing."""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.jetstream import channels
from mesh.jetstream.connection import close, connect
from mesh.jetstream.history_store import MetricsHistoryStore
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.manager.service import ManagerService
from mesh.manager.supervision import Restarting, supervised

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.settings import Settings


@asynccontextmanager
async def observing(settings: Settings) -> AsyncIterator[ManagerService]:
    """A service on a view of its own.

    Raises:
        MeshError: MESH-N1* when NATS can't be reached.
    """
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as ends:
        client = await connect(settings.nats, "mesh dashboard")
        ends.push_async_callback(close, client)
        await channels.ensure_buckets(client.jetstream(), settings.channels)
        view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
        ends.push_async_callback(view.stop)
        await view.start()
        journal = Journal(client, "dashboard", clock)
        journal.start()
        ends.push_async_callback(journal.stop)
        service = ManagerService(client, view, settings, clock, notes=journal)
        # Questions of NATS clients are answered by managers.
        ends.push_async_callback(service.queries.stop)
        stored = MetricsHistoryStore(client, settings.channels.replicas, 0)
        keeper = partial(service.telemetry.keep, stored, lambda: False)
        works = {
            one.name: one
            for one in (
                Restarting("history", service.telemetry.run), Restarting("stored history", keeper)
            )
        }  # fmt: skip
        async with supervised(works, {**view.tasks, **journal.tasks}):
            yield service
