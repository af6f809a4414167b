"""Backups of a cluster that made none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import backups
from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
async def test_an_app_of_a_cluster_without_backups_has_none(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "reader")
    try:
        assert await backups.list_backups(client, "Shop") == []
    finally:
        await close(client)
