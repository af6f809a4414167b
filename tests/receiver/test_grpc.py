"""Sources and sinks of gRPC with a real client and a real server."""

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
from tests.support.grpc_ends import Failure, call, event, grpc_end, payload_of, status

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

pytestmark = pytest.mark.nats

SERVICE = "org.wso2.grpc.EventService"
APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
ROWS = [{"n": n} for n in range(4)]
CONSUME = f"@source(type='grpc', receiver.url='grpc://127.0.0.1:0/{SERVICE}/consume'"


def source(text: str, app: str = "Calls") -> str:
    return APP.replace("{app}", app).replace("SINK", "").replace("SOURCE", text)


def sink(text: str, app: str = "Calls") -> str:
    return APP.replace("{app}", app).replace("SOURCE", "").replace("SINK", text)


async def endpoint_of(stage: Stage, group: str = "receiver-S") -> str:
    return (await stage.until_running(stage.start(group))).connectors[0].endpoint


async def have(stage: Stage, *numbers: int, stream: str = "S") -> None:
    async def stored() -> bool:
        return [row["n"] for row in await stage.events(stream)] == list(numbers)

    await stage.until(f"{numbers}", stored)


# --- sources


async def test_an_event_has_the_bytes_of_the_original() -> None:
    assert event("ab") == b"\x0a\x02ab"
    assert event("a", {"k": "v"}) == b"\x0a\x01a\x12\x06\x0a\x01k\x12\x01v"


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
        await have(stage, 0, 1, 2, 8, 9)


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


# --- sinks


async def test_payloads_are_called_in_order_with_headers_and_metadata(
    nats_server: NatsServer,
) -> None:
    async with grpc_end() as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/{SERVICE}/consume', "
            "headers=\"'of:{{n}}'\", sequence='fraud', metadata=\"'X-N:{{n}}'\", "
            "@map(type='json', @payload('{{n}}')))"
        )
        async with staged(nats_server.url, text) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            await stage.until("4 calls", lambda: len(end.calls) == 4)
            assert [one.method for one in end.calls] == [f"/{SERVICE}/consume"] * 4
            assert [one.message for one in end.calls] == [
                event(str(n), {"of": str(n), "sequence": "fraud"}) for n in range(4)
            ]
            assert [one.metadata["x-n"] for one in end.calls] == ["0", "1", "2", "3"]
            assert len({one.metadata["idempotency-key"] for one in end.calls}) == 4


@pytest.mark.parametrize(
    ("failure", "is_final"),
    [
        (Failure(grpc.StatusCode.UNAVAILABLE), False),
        (Failure(grpc.StatusCode.UNAVAILABLE, metadata=[("grpc-retry-pushback-ms", "1")]), False),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED), False),
        (Failure(grpc.StatusCode.UNKNOWN), False),
        (Failure(grpc.StatusCode.INTERNAL), False),
        (Failure(grpc.StatusCode.INVALID_ARGUMENT), True),
        (Failure(grpc.StatusCode.UNIMPLEMENTED), True),
        (Failure(grpc.StatusCode.PERMISSION_DENIED), True),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max"), True),
    ],
    ids=str,
)
async def test_a_status_refuses_an_event_or_has_it_sent_again(
    nats_server: NatsServer, failure: Failure, is_final: bool
) -> None:
    failures = [failure, failure]

    def answer(message: bytes) -> bytes | Failure:
        is_bad = message == b'{"n":1}' and (is_final or failures)
        return (failure if is_final else failures.pop()) if is_bad else b""

    async with grpc_end(answer) as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/p.A/B', "
            "@map(type='json', envelope='none'))"
        )
        async with staged(nats_server.url, text) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            expected = [0, 2, 3] if is_final else [0, 1, 2, 3]
            await stage.until("the calls", lambda: len(end.calls) == len(expected))
            assert [json.loads(one.message)["n"] for one in end.calls] == expected
            if is_final:
                (entry,) = await stage.until("the bad one", stage.errors)
                assert entry["reason"] == f"answered {failure.code.name}: {failure.details}"
            else:
                assert await stage.errors() == []


async def test_metadata_that_no_server_takes_refuses_its_event(nats_server: NatsServer) -> None:
    async with grpc_end() as end:
        url = f"grpc://127.0.0.1:{end.port}/p.A/B"
        text = sink(
            f"@sink(type='grpc', publisher.url='{url}', metadata=\"'{{{{k}}}}:{{{{v}}}}'\", "
            "@map(type='json', envelope='none', @payload('{{v}}')))"
        ).replace("T (n int)", "T (k string, v string)")
        text = text.replace("select n insert into T", "select 'k' as k, 'v' as v insert into T")
        async with staged(nats_server.url, text) as stage:
            named = ("user-agent", "te", "content-type", "content-length", "k" * 257)
            rows = [*((name, "x") for name in named), ("k", "v" * 20_000), ("k", "last")]
            await stage.publish("T", *({"k": k, "v": v} for k, v in rows))
            stage.start("sink-T")
            await stage.until("the last call", lambda: len(end.calls) == 1)
            assert end.calls[0].metadata["k"] == "last"
            reasons = [entry["reason"] for entry in await stage.errors()]
            assert len(reasons) == 6
            assert sum("metadata size exceeds hard limit" in one for one in reasons) == 1


async def test_a_server_that_comes_back_gets_what_it_missed(nats_server: NatsServer) -> None:
    async with grpc_end() as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/{SERVICE}', "
            "@map(type='json'))"
        )
        async with staged(nats_server.url, text) as stage:
            await end.close()
            await stage.publish("T", *ROWS[:2])
            stage.start("sink-T")

            def is_away() -> bool:
                return any(
                    connector.state is InstanceState.RETRYING
                    for r in stage.reports
                    for connector in r.connectors
                )

            await stage.until("it is away", is_away)
            await end.open()
            await stage.until("2 calls", lambda: len(end.calls) == 2)
            await end.close()
            await stage.publish("T", *ROWS[2:])
            await end.open()
            await stage.until("4 calls", lambda: len(end.calls) == 4)
            found = [json.loads(payload_of(one.message))["event"]["n"] for one in end.calls]
            assert found == [0, 1, 2, 3]


# --- answers

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


CALLED = """@App:name('{app}')
@source(type='grpc-call-response', sink.id='{app}', @map(type='json',
        @attributes(n='$.n', of='trp:n', x='trp:x-of')))
define stream S (n int, of string, x string);
@sink(type='grpc-call', sink.id='{app}', publisher.url='grpc://127.0.0.1:PORT/SERVICE',
      @map(type='json', envelope='none'))
define stream T (n int);
from S select n insert into Out;
"""


async def test_answers_become_events_with_the_attributes_of_their_calls(
    nats_server: NatsServer,
) -> None:
    def answer(message: bytes) -> bytes | Failure:
        n = json.loads(payload_of(message))["n"]
        if n == 1:
            return Failure(grpc.StatusCode.NOT_FOUND)
        return b"\xff" if n == 2 else event(json.dumps({"n": n * 2}))

    async with grpc_end(answer) as end:
        text = CALLED.replace("PORT", str(end.port)).replace("SERVICE", SERVICE)
        async with staged(nats_server.url, text.replace("{app}", "Call")) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            # Without the source the answer has no place: the sink waits.
            await stage.until("a call", lambda: end.calls)
            assert await stage.events("S") == []
            await stage.until_running(stage.start("receiver-S"))

            async def whole() -> bool:
                return len(await stage.events("S")) == 2

            await stage.until("2 answers", whole)
            assert await stage.events("S") == [
                {"n": n * 2, "of": str(n), "x": "the end"} for n in (0, 3)
            ]
            assert [entry["reason"] for entry in await stage.errors()] == [
                "answered NOT_FOUND: no",
                "the answer can't be read: the message is no Event",
            ]
            assert {one.method for one in end.calls} == {f"/{SERVICE}/process"}


# --- a host that is killed


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


async def test_calls_of_a_sink_are_repeated_with_their_key_only(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with grpc_end() as end:
        url = f"grpc://127.0.0.1:{end.port}/{SERVICE}/consume"
        text = sink(f"@sink(type='grpc', publisher.url='{url}', @map(type='json'))", "{app}")

        async def send(stage: Stage) -> None:
            await stage.publish("T", *ROWS)

        async def arrived(stage: Stage) -> list[str]:
            found: dict[str, str] = {}
            for one in list(end.calls):
                key, payload = one.metadata["idempotency-key"], payload_of(one.message)
                if key.startswith(f"{stage.spec.name}/"):
                    assert found.setdefault(key, payload) == payload
            return list(found.values())

        use = ConnectorScenario(
            text, "sink-T", send, arrived, lambda found: len(found) >= len(ROWS)
        )
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"before write", "after write"} <= set(moments)


@pytest.mark.extended
@pytest.mark.parametrize("group", ["sink-T", "receiver-S"])
async def test_answers_of_repeated_calls_are_stored_once(
    nats_server: NatsServer, tmp_path: Path, group: str
) -> None:
    other = "receiver-S" if group == "sink-T" else "sink-T"

    async def send(stage: Stage) -> None:
        # The other end runs calmly, beside the one that is killed.
        calm = stage.environment
        stage.environment = stage.calm
        try:
            await stage.until_running(stage.start(other))
        finally:
            stage.environment = calm
        await stage.publish("T", *ROWS)

    async def stored(stage: Stage) -> list[Any]:
        return sorted(row["n"] for row in await stage.events("S"))

    async with grpc_end(lambda message: message) as end:
        text = CALLED.replace("PORT", str(end.port)).replace("SERVICE", SERVICE)
        use = ConnectorScenario(text, group, send, stored, lambda found: len(found) >= len(ROWS))
        assert await conform(nats_server.url, use, tmp_path)
