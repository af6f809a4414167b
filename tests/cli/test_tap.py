"""`mesh tap` says so when its server ends or refuses, in place of waiting without end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.cli.context import Context
from mesh.cli.events import _tap
from mesh.cli.output import Output
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
@pytest.mark.parametrize("from_start", [False, True])
async def test_a_server_that_ends_ends_a_tap(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str], from_start: bool
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    stream, subject = names.js_stream("Shop", "Orders"), names.subject("Shop", "Orders")
    await client.jetstream().add_stream(name=stream, subjects=[subject])
    at = Context(nats=nats_server.url)
    tapping = asyncio.create_task(_tap(at, "Shop", "Orders", 0, from_start, Output.TEXT))
    try:
        # Live messages are seen by whoever listens when they come.
        while not capsys.readouterr().out:
            await client.publish(subject, b'{"n": 1}')
            await client.flush()
    finally:
        await close(client)
    nats_server.stop()
    with pytest.raises(MeshError, match=r"ended the connection|gives no events") as raised:
        await asyncio.wait_for(tapping, 30)
    assert raised.value.code == "MESH-N110"


@pytest.mark.nats
async def test_a_refusal_of_the_server_is_told(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        # A stream of this kind has no consumers without acks.
        await client.jetstream().add_stream(
            name=names.js_stream("Shop", "Orders"),
            subjects=[names.subject("Shop", "Orders")],
            retention="workqueue",
        )
    finally:
        await close(client)
    with pytest.raises(MeshError, match="gives no events") as raised:
        await _tap(Context(nats=nats_server.url), "Shop", "Orders", 1, True, Output.TEXT)
    assert raised.value.code == "MESH-N110"
