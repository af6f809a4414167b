"""Managers inside of which something fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mesh.settings import ManagerSettings, NatsSettings, Settings, StateSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager


def text(app: str) -> str:
    return f"@App:name('{app}') define stream S (a int); from S[a > 1] select a insert into T;"


def settings_of(nats: NatsServer, store: str = "jetstream") -> Settings:
    return Settings(
        nats=NatsSettings(url=nats.url),
        manager=ManagerSettings(id="m1"),
        state=StateSettings(store=store),
    )


async def until(manager: Manager, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            version = manager.view.version
            if not holds():
                await manager.view.changed(version, 0.2)
