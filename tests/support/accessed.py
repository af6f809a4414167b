"""Routes with their permissions, and directories of users."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from starlette.routing import Route

from mesh.api.auth import OPEN_PATHS, Access
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import Directory
from mesh.settings import NatsSettings
from tests.support.api_users import app_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.server import NatsServer


def routes() -> list[str]:
    found = []
    for one in app_of(Access(None)).routes:
        assert isinstance(one, Route), f"{one} is no route with a permission"
        if one.path_format not in OPEN_PATHS:
            found += [f"{m} {one.path_format}" for m in sorted((one.methods or set()) - {"HEAD"})]
    return found


@asynccontextmanager
async def directories(nats_server: NatsServer, count: int) -> AsyncIterator[list[Directory]]:
    """Directories of several managers."""
    client = await connect(NatsSettings(nats_server.url), "test")
    made = [Directory(client.jetstream()) for _ in range(count)]
    try:
        async with anyio.create_task_group() as tasks:
            for one in made:
                await one.start()
                tasks.start_soon(one.follow)
                await one.ready()
            yield made
            tasks.cancel_scope.cancel()
    finally:
        await close(client)
