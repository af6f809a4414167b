"""Inputs that follow those of another JetStream domain, and are promoted when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from nats.js.api import PubAck
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import datacenters, server
from mesh.jetstream.channels import ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.plan.build import plan
from mesh.settings import ChannelSettings, NatsSettings
from tests.support.load import until
from tests.support.paths import ROOT
from tests.support.slow_link import SlowLink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client

APP = (ROOT / "conf" / "two-nodes" / "counts.siddhi").read_text("utf-8")
SPEC = plan(APP).spec
INPUT = names.js_stream("Counts", "Numbers")
SUBJECT = names.subject("Counts", "Numbers")
CHANNELS = ChannelSettings()
ACCOUNTS = "accounts { MESH { jetstream: enabled, users: [{ user: m, password: m }] } }\n"


def start(directory: Path, name: str, leaf: str, **variables: str) -> server.NatsServer:
    """A server with its file of conf/two-datacenters, at a free port."""
    text = (ROOT / "conf" / "two-datacenters" / f"{name}.conf").read_text("utf-8")
    text = text.replace("include nats/accounts.conf", ACCOUNTS + "no_auth_user: m")
    text = text.replace("listen: 0.0.0.0:4222\n", "").replace(f'store_dir: "{name}", ', "")
    text = text.replace("0.0.0.0:7422", leaf)
    for variable, value in variables.items():
        text = text.replace(f"${variable}", value)
    directory.mkdir()
    (directory / "nats.conf").write_text(text)
    return server.start(directory, arguments=["-c", str(directory / "nats.conf")])


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[server.NatsServer, server.NatsServer]]:
    """East, and west behind a slow connection."""
    port = server.free_port()
    with SlowLink("127.0.0.1", port, 0.02) as link:
        east = start(tmp_path / "e", "east", f"127.0.0.1:{port}", LEAF_PASSWORD="p")
        url = f'"nats-leaf://west:p@127.0.0.1:{link.port}"'
        west = start(tmp_path / "w", "west", "", LEAF_URL=url)
        yield east, west
        west.stop()
        east.stop()


async def publish(client: Client, first: int, count: int) -> PubAck:
    """The acknowledgement of the last one."""
    found = PubAck(INPUT, 0)
    for number in range(first, first + count):
        headers = {"Nats-Msg-Id": str(number)}
        found = await client.jetstream().publish(SUBJECT, b'{"n": %d}' % number, headers=headers)
    return found


async def until_here(client: Client, sequence: int) -> None:
    async def is_here() -> bool:
        return (await datacenters.followed(client, SPEC))[0].last_sequence >= sequence

    await until(is_here, 0.02)


@pytest.mark.slow
def test_a_mirror_is_promoted_with_the_sequences_that_it_has(
    sites: tuple[server.NatsServer, server.NatsServer],
) -> None:
    asyncio.run(_promoted(*sites))


async def _promoted(east: server.NatsServer, west: server.NatsServer) -> None:
    there = await connect(NatsSettings(url=east.url), "there")
    here = await connect(NatsSettings(url=west.url), "here")
    try:
        await ensure_channels(there, SPEC, CHANNELS)
        await publish(there, 0, 20)
        (found,) = await datacenters.follow(here, SPEC, "east", CHANNELS)
        assert (found.name, found.domain) == (INPUT, "east")
        await until_here(here, 20)
        # Again: it says how far it is, and the app's other streams are made beside it.
        (found,) = await datacenters.follow(here, SPEC, "east", CHANNELS)
        assert (found.last_sequence, found.lag) == (20, 0)
        await ensure_channels(here, SPEC, CHANNELS)
        # A mirror takes no event: the publisher is refused.
        with pytest.raises(Exception, match="no response from stream"):
            await publish(here, 20, 1)
        await close(there)
        east.stop()
        (found,) = await datacenters.promote(here, SPEC, CHANNELS)
        assert (found.domain, found.last_sequence) == ("", 20)
        await publish(here, 20, 5)
        info = await here.request(f"$JS.API.STREAM.INFO.{INPUT}", b"", timeout=5)
        values = json.loads(info.data)
        assert values["state"]["last_seq"] == 25
        assert values["config"]["allow_atomic"]
        assert SUBJECT in values["config"]["subjects"]
        message = await here.jetstream().get_msg(INPUT, 25)
        assert message.data == b'{"n": 24}'
        # Ids of messages that were mirrored are known after the next start of the server only.
        assert not (await publish(here, 19, 1)).duplicate
        # Once more changes nothing.
        assert (await datacenters.promote(here, SPEC, CHANNELS))[0].last_sequence == 26
        with pytest.raises(MeshError) as refused:
            await datacenters.follow(here, SPEC, "east", CHANNELS)
        assert refused.value.code == "MESH-N125"
    finally:
        await close(here)
    west.stop()
    again = server.start(west.directory, arguments=["-c", str(west.directory / "nats.conf")])
    here = await connect(NatsSettings(url=again.url), "here")
    try:
        assert (await publish(here, 18, 1)).duplicate
    finally:
        await close(here)
        again.stop()


@pytest.mark.slow
def test_an_input_that_was_made_again_is_told(
    sites: tuple[server.NatsServer, server.NatsServer],
) -> None:
    asyncio.run(_made_again(*sites))


async def _made_again(east: server.NatsServer, west: server.NatsServer) -> None:
    there = await connect(NatsSettings(url=east.url), "there")
    here = await connect(NatsSettings(url=west.url), "here")
    try:
        await again(there, 5)
        await until_connected(here)
        # As many events, fewer and more: the mirror has those of the former stream.  It is made
        # again, as an undeploy does, also by an earlier version: without a note.
        for count, is_noted in ((5, True), (3, True), (8, False)):
            before = (await follow(here)).origin
            assert before is not None
            await until_here(here, before.last_sequence)
            if not is_noted:
                config = (await datacenters._info(here, INPUT) or {})["config"]
                await datacenters._call(here, "STREAM.UPDATE", config | {"metadata": {}})
            assert (await follow(here)).lag == 0
            await again(there, count)
            with pytest.raises(MeshError, match="MESH-N126") as told:
                await follow(here)
            assert "made again" in told.value.message
            assert f"and the stream at {count}." in (told.value.detail or "")
            await here.jetstream().delete_stream(INPUT)
        await follow(here)
        await there.jetstream().delete_stream(INPUT)
        assert (await follow(here)).origin == datacenters.MirrorOrigin()
        east.stop()
        assert (await follow(here)).origin is None
    finally:
        await close(here)
        await close(there)


@pytest.mark.thorough
def test_an_input_that_is_made_after_its_mirror_is_followed(
    sites: tuple[server.NatsServer, server.NatsServer],
) -> None:
    asyncio.run(_made_after(*sites))


async def _made_after(east: server.NatsServer, west: server.NatsServer) -> None:
    there = await connect(NatsSettings(url=east.url), "there")
    here = await connect(NatsSettings(url=west.url), "here")
    try:
        await until_connected(here)
        await follow(here)
        # And again while nothing is mirrored.
        for count in (0, 5):
            await again(there, count)
            await follow(here)
        # The mirror looks for its origin every ten seconds.
        await until_here(here, 5)
        assert (await follow(here)).lag == 0
    finally:
        await close(here)
        await close(there)


async def follow(here: Client) -> datacenters.FollowedStream:
    return (await datacenters.follow(here, SPEC, "east", CHANNELS))[0]


async def again(there: Client, count: int) -> None:
    """Make the input again, with some events."""
    with contextlib.suppress(NotFoundError):
        await there.jetstream().delete_stream(INPUT)
    await ensure_channels(there, SPEC, CHANNELS)
    await publish(there, 0, count)


async def until_connected(here: Client) -> None:
    async def is_answered() -> bool:
        return await datacenters._origin(here, "east", INPUT) is not None

    await until(is_answered, 0.02)


def test_events_of_a_mesh_do_not_reach_the_other(
    sites: tuple[server.NatsServer, server.NatsServer],
) -> None:
    asyncio.run(_apart(*sites))


async def _apart(east: server.NatsServer, west: server.NatsServer) -> None:
    there = await connect(NatsSettings(url=east.url), "there")
    here = await connect(NatsSettings(url=west.url), "here")
    heard: list[str] = []

    async def hear(message: object) -> None:
        heard.append(str(message))

    try:
        for subject in ("mesh.>", "$KV.>", "passes"):
            await here.subscribe(subject, cb=hear)
        await here.flush()
        async with asyncio.timeout(20):
            # What is not the mesh's passes, later: all before it had its time.
            while not heard:
                await there.publish("mesh.Counts.Numbers", b"{}")
                await there.publish("$KV.mesh_control.lease", b"{}")
                await there.publish("passes", b"")
                await asyncio.sleep(0.05)
        assert {"passes" in one for one in heard} == {True}
    finally:
        await close(here)
        await close(there)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("@source(type='http')", ""),
        ("", "@sink(type='log')"),
        ("@source(type='nats', stream='o')", ""),
    ],
)
def test_an_app_that_receives_or_sends_is_refused(source: str, sink: str) -> None:
    text = (
        f"@App:name('A') {source} define stream S (n int); {sink} define stream T (n int); "
        "from S select n insert into T;"
    )
    with pytest.raises(MeshError) as refused:
        datacenters.inputs_of(plan(text).spec)
    assert refused.value.code == "MESH-N124"


def test_inputs_are_the_streams_that_no_group_writes() -> None:
    assert datacenters.inputs_of(SPEC) == {INPUT: SUBJECT}
    text = (
        "@App:name('K') define stream S (k string, n int); "
        "@dist(execGroup='a', parallel='2') partition with (k of S) begin "
        "from S select k, n insert into T; end;"
    )
    assert datacenters.inputs_of(plan(text).spec) == {"mesh-K-S": "mesh.K.S"}
