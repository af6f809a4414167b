"""Sources while JetStream has no room: nothing is accepted unless it is stored, and all later."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import httpx
import pytest
from nats.js.errors import APIError

from mesh.connect.contract import NodeAccess
from mesh.jetstream import server
from mesh.testing.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats

SERVER = "jetstream: {max_file_store: 100MB}"
ACCOUNT = """no_auth_user: a
accounts: {A: {jetstream: {max_file: 100MB}, users: [
  {user: a, password: a}, {user: connector, password: of-connector}
]}}
"""
APP = """@App:name('Full')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
define stream S (n int);
@source(type='file', dir.uri='IN', file.polling.interval='50', @map(type='json'))
define stream F (n int);
from S select n insert into T; from F select n insert into U;
"""


def event(n: int) -> str:
    return json.dumps({"event": {"n": n}})


@pytest.mark.slow
@pytest.mark.parametrize("limit", [SERVER, ACCOUNT], ids=["server", "account"])
async def test_events_wait_for_room_and_each_is_stored_once(tmp_path: Path, limit: str) -> None:
    (tmp_path / "nats.conf").write_text(limit)
    inbox = tmp_path / "in"
    inbox.mkdir()
    running = server.start(tmp_path / "nats", arguments=["-c", str(tmp_path / "nats.conf")])
    access = NodeAccess((str(tmp_path),), listen=("127.0.0.1:0-65535",))
    text = APP.replace("IN", str(inbox))
    try:
        async with staged(running.url, text, access) as stage, httpx.AsyncClient() as client:
            status = await stage.until_running(stage.start("receiver-S"))
            url = status.connectors[0].endpoint
            await stage.until_running(stage.start("receiver-F"))
            assert (await client.post(url, content=event(1))).status_code == 200
            js = stage.client.jetstream()
            await js.add_stream(name="filler", subjects=["filler"])
            for size in (1_000_000, 1_000, 1):
                with contextlib.suppress(APIError):
                    while True:
                        await js.publish("filler", bytes(size))
            refused = await client.post(url, content=event(2))
            assert refused.status_code == 503
            assert "JetStream has no room" in refused.json()["reason"]
            lines = "".join(f"{event(n)}\n" for n in range(5))
            await asyncio.to_thread((inbox / "a.json").write_text, lines)

            def says_what_to_do() -> bool:
                errors = [one.error or "" for one in stage.reports if "receiver-F" in one.instance]
                return any("raise max_file_store" in error for error in errors)

            await stage.until("the remedy", says_what_to_do)
            await js.purge_stream("filler")

            async def all_stored() -> bool:
                return [row["n"] for row in await stage.events("F")] == list(range(5))

            await stage.until("the lines", all_stored)
            assert (await client.post(url, content=event(3))).status_code == 200
            assert [row["n"] for row in await stage.events("S")] == [1, 3]
    finally:
        running.stop()
