"""Sources of gRPC with a real client: calls, streams, answers, and what strangers send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.model.cluster import InstanceState
from mesh.receiver.grpc_server import GrpcLimits, GrpcServers
from mesh.receiver.types.grpc_source import _tls as tls_of
from mesh.testing.connectors import ConnectorScenario, conform, staged
from tests.support.certificates import Authority
from tests.support.grpc_apps import APP, ROWS, SERVICE
from tests.support.grpc_ends import call, event, status

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

pytestmark = pytest.mark.nats

CONSUME = f"@source(type='grpc', receiver.url='grpc://127.0.0.1:0/{SERVICE}/consume'"


def source(text: str, app: str = "Calls") -> str:
    return APP.replace("{app}", app).replace("SINK", "").replace("SOURCE", text)


async def endpoint_of(stage: Stage, group: str = "receiver-S") -> str:
    return (await stage.until_running(stage.start(group))).connectors[0].endpoint


async def have(stage: Stage, *numbers: int, stream: str = "S") -> None:
    async def stored() -> bool:
        return [row["n"] for row in await stage.events(stream)] == list(numbers)

    await stage.until(f"{numbers}", stored)


async def test_a_call_is_answered_once_its_events_are_stored(nats_server: NatsServer) -> None:
    text = source(f"{CONSUME}, @map(type='json'))")
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        assert await call(endpoint, event('{"n":1}')) == b""
        assert [row["n"] for row in await stage.events("S")] == [1]
        assert (await status(endpoint, event('{"n":"x"}')))[0] == "INVALID_ARGUMENT"
        assert await status(endpoint, b"\xff") == (
            "INVALID_ARGUMENT", "the message is no Event"
        )  # fmt: skip
        assert (await status(endpoint.replace("consume", "other"), b""))[0] == "UNIMPLEMENTED"
        assert [row["n"] for row in await stage.events("S")] == [1]


async def test_a_stream_of_messages_is_stored_in_its_order(nats_server: NatsServer) -> None:
    text = source(f"{CONSUME}, max.concurrent='7', @map(type='json'))")
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        lines = [event(json.dumps({"n": n})) for n in range(200)]
        assert await call(endpoint, *lines) == b""
        assert [row["n"] for row in await stage.events("S")] == list(range(200))
        # Two streams share the places.
        await asyncio.gather(call(endpoint, *lines[:99]), call(endpoint, *lines[99:]))
        assert len(await stage.events("S")) == 400
        code, details = await status(endpoint, *lines[:3], event("{"), event('{"n":9}'))
        assert code == "INVALID_ARGUMENT"
        assert details.startswith("after 3 stored messages: ")


async def test_a_stream_that_goes_on_hears_of_a_refusal_at_once(nats_server: NatsServer) -> None:
    text = source(f"{CONSUME}, @map(type='json'))")
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        where, _, method = endpoint.removeprefix("grpc://").partition("/")
        async with grpc.aio.insecure_channel(where) as channel:
            stream = channel.stream_unary(f"/{method}")()
            await stream.write(event('{"n":1}'))
            await have(stage, 1)
            await stream.write(event("no JSON"))
            with pytest.raises(grpc.aio.AioRpcError, match="after 1 stored messages"):
                await stream
            # One that goes on when the source stops is told to come again.
            other = channel.stream_unary(f"/{method}")()
            await other.write(event('{"n":2}'))
            await have(stage, 1, 2)
            await stage.running[0].stop()
            with pytest.raises(grpc.aio.AioRpcError, match="the source stops"):
                await other


async def test_a_key_of_a_stream_is_that_of_each_message(nats_server: NatsServer) -> None:
    text = source(f"{CONSUME}, @map(type='json'))")
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        lines = [event(json.dumps({"n": n})) for n in range(3)]
        for _ in range(2):
            await call(endpoint, *lines, metadata=[("idempotency-key", "k")])
        await call(endpoint, lines[0], metadata=[("idempotency-key", "k")])
        await call(endpoint, event('{"n":7}', {"Idempotency-Key": "k"}))
        await call(endpoint, event('{"n":8}', {"Idempotency-Key": "other"}))
        # No place in a stream has the key of another call.
        await call(endpoint, event('{"n":9}'), metadata=[("idempotency-key", "k.1")])
        # An empty one is none.
        await call(endpoint, event('{"n":10}'), metadata=[("idempotency-key", "")])
        await call(endpoint, event('{"n":11}', {"Idempotency-Key": ""}))
        await have(stage, 0, 1, 2, 8, 9, 10, 11)


async def test_headers_and_metadata_are_properties(nats_server: NatsServer) -> None:
    attributes = "@attributes(n='n', a='trp:X-A', b='trp:b')"
    text = source(f"{CONSUME}, @map(type='json', {attributes}))").replace(
        "S (n int)", "S (n int, a string, b string)"
    )
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        message = event('{"n":1}', {"B": "of the event"})
        await call(endpoint, message, metadata=[("x-a", "1"), ("x-a", "2"), ("b", "lost")])
        assert await stage.events("S") == [{"n": 1, "a": "1, 2", "b": "of the event"}]


async def test_an_own_service_has_its_own_messages(nats_server: NatsServer) -> None:
    proto = 'syntax="proto3"; package p; message Q { int32 n = 3; } message R { string s = 1; }'
    text = source(
        "@source(type='grpc', receiver.url='grpc://127.0.0.1:0/p.Own/Take', "
        f'@map(type="protobuf", proto="""{proto}""", message="p.Q"))'
    )
    async with staged(nats_server.url, text) as stage:
        endpoint = await endpoint_of(stage)
        assert await call(endpoint, b"\x18\x07") == b""
        assert await stage.events("S") == [{"n": 7}]


async def test_sources_share_a_port_and_no_method(nats_server: NatsServer) -> None:
    port = free_port()
    text = (
        "@App:name('Two') "
        f"@source(type='grpc', receiver.url='grpc://127.0.0.1:{port}/p.A/B', @map(type='json')) "
        f"@source(type='grpc', receiver.url='grpc://127.0.0.1:{port}/p.A/C', @map(type='json')) "
        "define stream S (n int); from S select n insert into T;"
    )
    async with staged(nats_server.url, text) as stage:
        groups = [group.name for group in stage.spec.groups if group.name.startswith("receiver")]
        one, other = [await endpoint_of(stage, group) for group in groups]
        await call(one, b'{"n":1}')
        await call(other, b'{"n":2}')
        await have(stage, 1, 2)
        await stage.running[0].stop()
        assert (await status(one, b'{"n":3}'))[0] == "UNIMPLEMENTED"
        await call(other, b'{"n":3}')
        await stage.running[1].stop()
        assert (await status(other, b'{"n":3}'))[0] == "UNAVAILABLE"


async def test_a_port_that_is_taken_is_said(nats_server: NatsServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"grpc://127.0.0.1:{taken.getsockname()[1]}/p.A/B"
        text = source(f"@source(type='grpc', receiver.url='{url}', @map(type='json'))")
        async with staged(nats_server.url, text) as stage:
            stage.start("receiver-S")

            def said() -> bool:
                return any("can't listen on" in (r.error or "") for r in stage.reports)

            await stage.until("the reason", said)


@pytest.mark.slow
async def test_hostile_calls_cost_only_themselves(nats_server: NatsServer) -> None:
    text = source(f"{CONSUME}, max.inbound.message.size='1000', @map(type='json'))")
    access = NodeAccess(listen=("127.0.0.1:0-65535",), connections_max=4, body_timeout_s=0.2)
    async with staged(nats_server.url, text, access) as stage:
        endpoint = await endpoint_of(stage)
        where, _, method = endpoint.removeprefix("grpc://").partition("/")
        assert (await status(endpoint, event("x" * 2000)))[0] == "RESOURCE_EXHAUSTED"
        assert (await status(endpoint, event("1"), metadata=[("x", "y" * 20_000)]))[0] in (
            "RESOURCE_EXHAUSTED", "INTERNAL"
        )  # fmt: skip
        # Not by chance, as the library does it between two limits.
        for _ in range(12):
            large = await status(endpoint, event("1"), metadata=[("x", "y" * 8200)])
            assert large[0] == "RESOURCE_EXHAUSTED"
            assert "exceeds hard limit" in large[1]
        async with grpc.aio.insecure_channel(where) as channel:
            silent = [channel.stream_unary(f"/{method}")() for _ in range(2)]
            for one in silent:
                await one.wait_for_connection()
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await silent[0]
            assert found.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await call(endpoint, event('{"n":1}'))
        await have(stage, 1)
        async with contextlib.AsyncExitStack() as stack:
            # Each channel has a connection of its own.
            alone = [("grpc.use_local_subchannel_pool", 1)]
            made = [grpc.aio.insecure_channel(where, alone) for _ in range(6)]
            channels = [await stack.enter_async_context(one) for one in made]
            ready = [asyncio.create_task(one.channel_ready()) for one in channels]
            done, waiting = await asyncio.wait(ready, timeout=1.0)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            # One that has just ended may still count.
            assert 0 < len(done) <= 4


async def test_both_sides_show_certificates(nats_server: NatsServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, client = authority.issue("server", hosts=("127.0.0.1",)), authority.issue("client")
    trusted = f"tls.ca='{authority.cert}'"
    url = f"grpc://127.0.0.1:{free_port()}/{SERVICE}/consume"
    text = (
        f"@App:name('Both') @source(type='grpc', receiver.url='{url}', enable.ssl='true', "
        f"mutual.auth.enabled='true', {trusted}, tls.cert='{own.cert}', tls.key='{own.key}', "
        "@map(type='json')) define stream S (n int); "
        f"@sink(type='grpc', publisher.url='{url}', {trusted}, tls.cert='{client.cert}', "
        f"tls.key='{client.key}', @map(type='json')) define stream T (n int); "
        "from S select n insert into U;"
    )
    access = NodeAccess((str(tmp_path),), ("127.0.0.1:0-65535",))
    async with staged(nats_server.url, text, access) as stage:
        endpoint = await endpoint_of(stage)
        await stage.publish("T", {"n": 1})
        stage.start("sink-T")
        await have(stage, 1)
        assert (await status(endpoint, event('{"n":2}')))[0] == "UNAVAILABLE"
        nobody = grpc.ssl_channel_credentials(authority.cert.read_bytes())
        assert (await status(endpoint, event('{"n":2}'), credentials=nobody))[0] == "UNAVAILABLE"
        (tmp_path / "strange").mkdir()
        strange = Authority(tmp_path / "strange").issue("client")
        stranger = grpc.ssl_channel_credentials(
            authority.cert.read_bytes(), strange.key.read_bytes(), strange.cert.read_bytes()
        )
        assert (await status(endpoint, event('{"n":2}'), credentials=stranger))[0] == "UNAVAILABLE"
        assert len(await stage.events("S")) == 1


async def test_no_source_has_less_tls_than_its_options_say(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server", hosts=("127.0.0.1",))
    own = {"tls.cert": str(issued.cert), "tls.key": str(issued.key)}
    shown = {**own, "mutual.auth.enabled": True, "tls.ca": str(authority.cert)}
    for options, what in (
        ({"mutual.auth.enabled": True}, "certificate"),
        ({"mutual.auth.enabled": True, **own}, "authority"),
    ):
        with pytest.raises(MeshError, match=what) as raised:
            tls_of(options)
        assert raised.value.code == "MESH-C131"
    limits, servers = GrpcLimits(1000, 1000, NodeAccess()), GrpcServers()

    async def answer(messages: Any, context: Any) -> bytes:
        return b""

    for first in ({}, own):
        port = await servers.open("127.0.0.1", 0, "/a", answer, limits, tls_of(first))
        with pytest.raises(MeshError, match="and this source wants it with a") as raised:
            await servers.open("127.0.0.1", port, "/b", answer, limits, tls_of(shown))
        assert raised.value.code == "MESH-C133"
        await servers.open("127.0.0.1", port, "/b", answer, limits, tls_of(first))
        await servers.close("127.0.0.1", port, "/a", 0)
        await servers.close("127.0.0.1", port, "/b", 0)


SERVED = f"""@App:name('Served')
@source(type='grpc-service', source.id='1', receiver.url='grpc://127.0.0.1:0/{SERVICE}/process',
        service.timeout='MS', @map(type='json', @attributes(id='trp:message.id', n='n')))
define stream S (id string, n int);
@sink(type='grpc-service-response', source.id='1', message.id='{{{{id}}}}',
      headers="'x-n:ü{{{{n}}}}'", @map(type='json', @payload('{{{{n}}}}')))
define stream T (id string, n int);
from S select id, n insert into T;
"""


async def test_a_call_is_answered_with_the_event_of_its_id(nats_server: NatsServer) -> None:
    async with staged(nats_server.url, SERVED.replace("MS", "20000")) as stage:
        endpoint = await endpoint_of(stage)
        await stage.until_running(stage.start("sink-T"))
        asking = [
            asyncio.create_task(call(endpoint, event(json.dumps({"n": n})))) for n in range(3)
        ]

        async def stored() -> bool:
            return len(await stage.events("S")) == 3

        await stage.until("3 events", stored)
        # The query group of a worker.
        for row in reversed(await stage.events("S")):
            await stage.publish("T", {**row, "n": row["n"] + 10})
        answers = await asyncio.gather(*asking)
        assert answers == [event(str(n), {"x-n": f"ü{n}"}) for n in (10, 11, 12)]
        assert (await status(endpoint, event("{")))[0] == "INVALID_ARGUMENT"
        assert await status(endpoint, event('{"n":1}'), event('{"n":2}')) == (
            "INVALID_ARGUMENT", "the method takes one message a call"
        )  # fmt: skip
        where, _, method = endpoint.removeprefix("grpc://").partition("/")
        async with grpc.aio.insecure_channel(where) as channel:
            # A stream without an end is read no further.
            stream = channel.stream_unary(f"/{method}")(timeout=10)
            await stream.write(event('{"n":1}'))
            await stream.write(event('{"n":2}'))
            with pytest.raises(grpc.aio.AioRpcError, match="one message a call"):
                await stream


async def test_a_call_without_an_answer_ends_in_time(nats_server: NatsServer) -> None:
    async with staged(nats_server.url, SERVED.replace("MS", "50")) as stage:
        endpoint = await endpoint_of(stage)
        assert await status(endpoint, event('{"n":1}')) == (
            "DEADLINE_EXCEEDED", "no answer in time"
        )  # fmt: skip


async def test_calls_with_a_key_are_stored_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = source(f"{CONSUME}, @map(type='json'))", "{app}")

    async def send(stage: Stage) -> None:
        for row in ROWS[:2]:
            await stage.until("an answer", partial(answered, stage, [row]))
        await stage.until("an answer", partial(answered, stage, ROWS[2:]))

    async def answered(stage: Stage, rows: list[dict[str, int]]) -> bool:
        connectors = [d for r in stage.reports[-1:] for d in r.connectors]
        if not connectors or connectors[0].state is not InstanceState.RUNNING:
            return False
        key = [("idempotency-key", f"k{rows[0]['n']}")]
        lines = [event(json.dumps(row)) for row in rows]
        return await status(connectors[0].endpoint, *lines, metadata=key, timeout_s=2.0) == (
            "OK",
            "",
        )

    async def stored(stage: Stage) -> list[int]:
        return sorted(row["n"] for row in await stage.events("S"))

    use = ConnectorScenario(text, "receiver-S", send, stored, lambda found: len(found) >= len(ROWS))
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before publish", "after publish"} <= set(moments)
