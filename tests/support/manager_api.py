"""A manager with its REST API and directory, in a thread of the test."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from typing import TYPE_CHECKING

import anyio

from mesh.api import users
from mesh.api.server import ApiServer, listen
from mesh.jetstream.audit import Audit
from mesh.jetstream.directory import Directory
from mesh.manager.manager import running
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@contextlib.contextmanager
def manager_api(nats_server: NatsServer, directory: Path) -> Iterator[str]:
    """The URL of a manager whose users file has ``ada``, who may all, with the password ``pw``."""
    file = directory / "users"
    users.add(file, "ada", "pw")
    manager = ManagerSettings(
        id="m1", port=0, users_file=str(file), requests_per_s=0.0,
        history_dir=str(directory / "history"),
    )  # fmt: skip
    whole = Settings(nats=NatsSettings(url=nats_server.url), manager=manager)
    found: concurrent.futures.Future[str] = concurrent.futures.Future()
    ended = threading.Event()

    async def serve() -> None:
        async with running(whole) as (_, service), anyio.create_task_group() as tasks:
            known, audit = Directory(service.client.jetstream()), Audit(service.client)
            tasks.start_soon(known.follow)
            tasks.start_soon(audit.follow)
            await known.ready()
            server = ApiServer(service, manager, listen(manager), directory=known, audit=audit)
            tasks.start_soon(server.run)
            found.set_result(server.url)
            await asyncio.to_thread(ended.wait)
            server.stop()
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield found.result(60)
    finally:
        ended.set()
        thread.join(30)
