"""NATS of ``mesh dev``: its users."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.cli import dev_state, local_nats
from mesh.client import ClientContext, wire
from mesh.errors import MeshError
from mesh.jetstream import server

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.nats
def test_nats_of_mesh_dev_takes_its_users_only(tmp_path: Path) -> None:
    keys = local_nats.make(tmp_path / "nats", dev_state.DevState())
    nats = server.start(tmp_path / "nats", arguments=["-c", str(keys.configuration)])
    for path in (keys.configuration, *keys.seeds.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    passwords = keys.passwords
    right = ClientContext(
        nats=nats.url,
        nats_user="operator",
        nats_password=passwords["operator"],
        nats_inbox_prefix="_INBOX.operator",
    )

    async def connect(at: ClientContext) -> None:
        async with wire.connected(at) as client:
            await client.flush()

    try:
        # Other users of the machine see the arguments.
        assert not any(password in str(nats.process.args) for password in passwords.values())
        asyncio.run(connect(right))
        # The URLs that it prints are enough for any client.
        for name in (local_nats.PUBLISHER, local_nats.READER):
            asyncio.run(connect(ClientContext(nats=keys.url(name, nats.url))))
        for wrong in (replace(right, nats_user=""), replace(right, nats_password="x")):
            detail = ""
            # The server closes the connection, and that may overtake what it says before.
            while "reset" in detail or not detail:
                with pytest.raises(MeshError, match="N110") as error:
                    asyncio.run(connect(wrong))
                detail = str(error.value.detail)
            assert "Authorization" in detail
    finally:
        nats.stop()
