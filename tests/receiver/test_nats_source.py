"""Source ``nats``: streams and subjects of other servers, properties, logins, permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Batch, Context, NodeAccess, UnavailableError
from mesh.jetstream.connection import close, connect
from mesh.plan.build import plan
from mesh.plan.reads import reads_of, with_reads
from mesh.receiver.types.nats_source import NatsSource
from mesh.settings import NatsSettings
from mesh.testing.connectors import staged
from tests.support.nats_apps import APP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

PATHS = "@attributes(k='k', n='n', subject='trp:subject', of='trp:{}')"


def source(url: str, options: str, trp: str = "origin") -> str:
    given = f"server.urls='{url}', " if url else ""
    return f"@source(type='nats', {given}{options}, @map(type='json', {PATHS.format(trp)}))"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of others, with a login."""
    from mesh.jetstream import server

    arguments = ["--user", "u", "--pass", "hunter2"]
    running = server.start(tmp_path / "other", arguments=arguments)
    yield running
    running.stop()


async def next_batch(source: NatsSource) -> Batch:
    while (batch := await source.read()) is None:
        continue
    return batch


async def count(stage: Any, stream: str, number: int) -> bool:
    return len(await stage.events(stream)) >= number


@pytest.mark.slow
async def test_a_stream_gives_properties_and_continues_after_its_position(
    nats_server: NatsServer,
) -> None:
    text = APP.format(source("", "stream='IN', destination='in.>'", "sequenceNumber"), "")
    async with staged(nats_server.url, text) as stage:
        await stage.js.add_stream(name="IN", subjects=["in.>", "x"])
        await stage.js.publish("in.a", b'{"k":"a","n":1}')
        await stage.js.publish("x", b'{"k":"x","n":9}')
        first = stage.start("receiver-S")
        await stage.until("1 event", lambda: count(stage, "S", 1))
        await first.stop()
        await stage.js.publish("in.b.c", b'{"k":"b","n":2}')
        stage.start("receiver-S", epoch=2)
        await stage.until("2 events", lambda: count(stage, "S", 2))
        assert await stage.events("S") == [
            {"k": "a", "n": 1, "subject": "in.a", "of": "1"},
            {"k": "b", "n": 2, "subject": "in.b.c", "of": "3"},
        ]


async def test_a_message_has_one_name_however_reads_are_cut(nats_server: NatsServer) -> None:
    """The host names the record of a message that can't be read by it, and so records it once."""

    client = await connect(NatsSettings(url=nats_server.url), "test")
    js = client.jetstream()
    await js.add_stream(name="CUT", subjects=["cut"])
    options = {"server.urls": nats_server.url, "stream": "CUT", "destination": "cut"}

    async def read(cuts: list[int]) -> list[str]:
        source, found, position = NatsSource(), list[str](), None
        for cut in cuts:
            while len(found) < cut:
                if (await js.stream_info("CUT")).state.last_seq < cut:
                    await js.publish("cut", b"x")
                    continue
                await source.open(Context("a", "S", options), position)
                while (batch := await source.read()) is None:
                    continue
                assert batch.names is not None
                found += batch.names
                position = batch.position
                await source.close()
        return found

    try:
        first = await read([1, 3, 4])
        assert await read([4]) == first
        assert len(set(first)) == 4
    finally:
        await close(client)


@pytest.mark.slow
async def test_a_stream_that_was_made_again_is_read_from_its_beginning(
    nats_server: NatsServer,
) -> None:
    text = APP.format(source("", "stream='IN'"), "")
    async with staged(nats_server.url, text) as stage:
        await stage.js.add_stream(name="IN", subjects=["in"])
        for number in (1, 2):
            await stage.js.publish("in", b'{"k":"a","n":%d}' % number, headers={"Origin": "h"})
        first = stage.start("receiver-S")
        await stage.until("2 events", lambda: count(stage, "S", 2))
        await first.stop()
        await stage.js.delete_stream("IN")
        await stage.js.add_stream(name="IN", subjects=["in"])
        await stage.js.publish("in", b'{"k":"a","n":3}', headers={"Origin": "h"})
        stage.start("receiver-S", epoch=2)
        await stage.until("the third", lambda: count(stage, "S", 3))
        assert [e["n"] for e in await stage.events("S")] == [1, 2, 3]
        assert {e["of"] for e in await stage.events("S")} == {"h"}


async def test_a_stream_that_is_made_again_between_two_reads_is_told(
    nats_server: NatsServer,
) -> None:
    """The reader does not see that it was away, and would skip as many messages as it has read."""
    client = await connect(NatsSettings(url=nats_server.url), "test")
    js, source = client.jetstream(), NatsSource()
    options = {"server.urls": nats_server.url, "stream": "QUICK", "destination": "quick"}
    try:
        await js.add_stream(name="QUICK", subjects=["quick"])
        await js.publish("quick", b"1")
        await source.open(Context("a", "S", options), None)
        batch = await next_batch(source)
        await js.delete_stream("QUICK")
        await js.add_stream(name="QUICK", subjects=["quick"])
        for payload in (b"2", b"3"):
            await js.publish("quick", payload)
        with pytest.raises(UnavailableError, match="was made again"):
            await next_batch(source)
        await source.close()
        await source.open(Context("a", "S", options), batch.position)
        assert (await next_batch(source)).payloads[0] == b"2"
    finally:
        await source.close()
        await close(client)


@pytest.mark.slow
async def test_core_subjects_of_a_server_with_a_login_by_reference(
    nats_server: NatsServer, other: NatsServer
) -> None:
    references = {"vault": {"username": "u", "password": "hunter2"}}

    text = APP.format(source(other.url, "ref='vault', destination='in.*'"), "")
    login = NatsSettings(url=other.url, user="u", password="hunter2")
    client = await connect(login, "test")
    try:
        async with staged(nats_server.url, text, references=references) as stage:
            await stage.until_running(stage.start("receiver-S"))
            for n in (1, 2):
                payload = b'{"k":"a","n":%d}' % n
                await client.publish("in.a", payload, headers={"Origin": "h"})
            await client.publish("in.a.b", b"{}")
            await stage.until("2 events", lambda: count(stage, "S", 2))
            last = {"k": "a", "n": 2, "subject": "in.a", "of": "h"}
            assert (await stage.events("S"))[-1] == last
            assert "hunter2" not in repr(stage.reports)
        async with staged(nats_server.url, text, references={"vault": {}}) as stage:
            stage.start("receiver-S")

            def refused() -> bool:
                said = [f"{r.error}" for r in stage.reports]
                return any("Authorization" in one for one in said)

            await stage.until("the reason", refused)
    finally:
        await close(client)


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["mesh-Victim-Ein", "mesh-Victim-errors-"])
async def test_a_stream_of_the_mesh_is_read_with_permission_only(
    nats_server: NatsServer, stream: str
) -> None:
    text = APP.format(source("", f"stream='{stream}'", "sequenceNumber"), "")
    async with staged(nats_server.url, text) as stage:
        await stage.js.add_stream(name=stream, subjects=["in"])
        await stage.js.publish("in", b'{"k":"a","n":1}')
        refused = stage.start("receiver-S")

        def is_refused() -> bool:
            return any("MESH-C135" in (one.error or "") for one in stage.reports)

        await stage.until("the reason", is_refused)
        await refused.stop()
        assert await stage.events("S") == []
        stage.spec = with_reads(stage.spec, reads_of(stage.spec))
        stage.start("receiver-S", 2)
        await stage.until("the event", lambda: count(stage, "S", 1))


async def test_a_file_of_the_node_is_named_by_a_reference_only(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    text = APP.format(source("nats://h:1", "creds='/etc/passwd', destination='a'"), "")
    async with staged(nats_server.url, text, NodeAccess((str(tmp_path),))) as stage:
        stage.start("receiver-S")
        await stage.until(
            "the reason", lambda: any("is not open" in (r.error or "") for r in stage.reports)
        )


def test_a_stream_without_a_mapper_is_read_by_the_query_group_itself() -> None:
    text = APP.replace(", subject string, of string", "")
    native = plan(text.format("@source(type='nats', stream='IN')", "")).spec
    assert [g.name for g in native.groups] == ["default"]
    for given in ("stream='IN', @map(type='csv')", "destination='a'", "stream='I', ref='r'"):
        spec = plan(text.format(f"@source(type='nats', {given})", "")).spec
        assert [g.connectors for g in spec.groups] == [(), ("source nats",)]
    two = "@source(type='nats', stream='A') @source(type='nats', stream='B')"
    spec = plan(text.format(two, "")).spec
    assert [g.name for g in spec.groups] == ["default", "receiver-S", "receiver-S-2"]
