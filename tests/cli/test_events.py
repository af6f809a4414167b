"""`mesh tap` says so when its server ends or refuses, in place of waiting without end."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner, Result

from mesh.cli.commands import app
from mesh.cli.events import _tap
from mesh.cli.output import Output
from mesh.client import ClientContext, taps
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from tests.support.api import OPEN, FakeService, served

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
    at = ClientContext(nats=nats_server.url)
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
async def test_a_line_as_json_has_a_time(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    stream, subject = names.js_stream("Shop", "Orders"), names.subject("Shop", "Orders")
    try:
        await client.jetstream().add_stream(name=stream, subjects=[subject])
        headers = {names.EVENT_TIME_HEADER: "1700000000000"}
        await client.jetstream().publish(subject, b'{"n": 1}', headers=headers)
        await client.jetstream().publish(subject, b'{"n": 2}')
        stored = await client.jetstream().get_msg(stream, 2)
    finally:
        await close(client)
    await _tap(ClientContext(nats=nats_server.url), "Shop", "Orders", 2, True, Output.JSON)
    first, second = map(orjson.loads, capsys.readouterr().out.splitlines())
    assert (first["time_ms"], first["event"]) == (1_700_000_000_000, {"n": 1})
    assert stored.time is not None
    assert second["time_ms"] == int(stored.time.timestamp() * 1000)


@pytest.mark.nats
async def test_a_file_for_a_stream_that_is_not_there_is_one_error(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    at = ClientContext(nats=nats_server.url)
    with pytest.raises(MeshError, match="not deployed") as raised:
        await taps.publish(at, "Shop", "Orders", iter([b"{}"] * 1000), "")
    assert raised.value.code == "MESH-A404"
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.nats
async def test_a_refused_event_ends_a_file_and_the_stored_ones_are_counted(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    stream, subject = names.js_stream("Shop", "Orders"), names.subject("Shop", "Orders")
    try:
        await client.jetstream().add_stream(
            name=stream, subjects=[subject], max_msgs=100, discard="new"
        )
    finally:
        await close(client)
    with pytest.raises(MeshError, match="not accepted") as raised:
        await taps.publish(
            ClientContext(nats=nats_server.url), "Shop", "Orders", iter([b"{}"] * 5000), ""
        )
    assert "100 events stored before." in str(raised.value.detail)
    gc.collect()
    assert "never retrieved" not in caplog.text


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
        await _tap(ClientContext(nats=nats_server.url), "Shop", "Orders", 1, True, Output.TEXT)
    assert raised.value.code == "MESH-N110"


def run(*arguments: str) -> Result:
    async def scene() -> Result:
        async with served(FakeService(), OPEN) as api:
            given = ["query", *arguments, "--server", api.url]
            return await asyncio.to_thread(lambda: CliRunner().invoke(app, given))

    return asyncio.run(scene())


ASKED = ("Shop", "from T", "--min-position", "mesh-Shop-S=7")


@pytest.mark.slow
def test_an_answer_is_a_table_json_or_csv() -> None:
    table = run(*ASKED)
    assert table.exit_code == 0
    assert table.output.split()[:4] == ["c0", "c1", "c2", "c3"]
    assert '{"mesh-Shop-S":7}' in table.output
    values = json.loads(run(*ASKED, "--output", "json").output)
    assert values["records"] == [["Shop", "from T", {"mesh-Shop-S": 7}, False]]
    lines = run("Shop", "from T", "--output", "csv", "--partial").output.splitlines()
    assert lines == ["c0,c1,c2,c3", "Shop,from T,{},true"]


@pytest.mark.parametrize("position", ["7", "=7", "s=", "s=x"])
def test_a_position_names_a_stream_and_a_sequence(position: str) -> None:
    assert run("Shop", "from T", "--min-position", position).exit_code == 2


def test_a_part_that_is_away_is_an_error() -> None:
    away = run("Shop", "from Away")
    assert away.exit_code == 1
    assert "MESH-A503" in away.output
