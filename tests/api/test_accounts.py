"""Secrets at the API: names are listed, values are not."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import httpx

from mesh.api.auth import Access
from mesh.api.routes import make_app
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.settings import NatsSettings
from tests.support.api import FakeService
from tests.support.secret_apps import VALUE, key_file

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

__all__ = ("key_file",)


async def test_the_api_lists_names_and_answers_no_value(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answers = [
                await http.put("/secrets/db", content=VALUE, params={"apps": "Shop*, Till"}),
                await http.get("/secrets"),
                await http.put("/secrets/db", content=VALUE, params={"apps": "a b"}),
                await http.put("/secrets/..%2Fdb", content=VALUE),
                await http.put("/secrets/A", content=VALUE),
                await http.put("/secrets/db", content=b""),
                await http.delete("/secrets/db"),
                await http.delete("/secrets/db"),
            ]
    finally:
        await close(client)
    assert [one.status_code for one in answers] == [200, 200, 400, 404, 400, 400, 200, 404]
    assert answers[1].json() == [{"name": "db", "apps": "Shop*,Till"}]
    assert not any(VALUE in one.text for one in answers)


async def test_a_server_that_does_not_answer_is_told(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(timeout=0.2), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            nats_server.process.send_signal(signal.SIGSTOP)
            paused = await http.put("/secrets/db", content=VALUE)
            nats_server.process.send_signal(signal.SIGCONT)
    finally:
        nats_server.process.send_signal(signal.SIGCONT)
        await close(client)
    assert paused.status_code == 503
    assert paused.headers["Retry-After"] == "1"
    assert paused.json()["code"] == "MESH-A503"
