"""The conformance kit on connectors that are not exact: repeats only, each with its key."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiomqtt
import pytest

from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.in_memory import subject_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.receiver.test_email_sink import Mailbox, mailbox
from tests.receiver.test_mqtt import client

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

__all__ = ("mailbox",)

pytestmark = pytest.mark.nats

SINK = """@App:name('{app}')
define stream S (n int);
@sink(TYPE) define stream T (n int);
from S select n insert into T;
"""
ROWS = [{"n": n} for n in range(4)]


async def publish(stage: Stage) -> None:
    await stage.publish("T", *ROWS[:2])
    await stage.publish("T", *ROWS[2:])


def whole(found: Any) -> bool:
    return len(found) >= len(ROWS)


@pytest.mark.extended
def test_a_stream_of_others_gets_each_event_once(nats_server: NatsServer, tmp_path: Path) -> None:
    sink = f"type='nats', server.urls='{nats_server.url}', destination='out.{{app}}.{{{{n}}}}'"
    text = SINK.replace("TYPE", f"{sink}, @map(type='json', envelope='none')")

    async def send(stage: Stage) -> None:
        name = stage.spec.name
        await stage.js.add_stream(name=f"Out{name}", subjects=[f"out.{name}.*"])
        await publish(stage)

    async def stored(stage: Stage) -> list[Any]:
        name = stage.spec.name
        names = {one.config.name for one in await stage.js.streams_info()}
        if f"Out{name}" not in names:
            return []
        return [json.loads(one) for one in await stage.messages(f"Out{name}", f"out.{name}.*")]

    use = ConnectorScenario(text, "sink-T", send, stored, whole)
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after write", "after store a position"} <= set(moments)


@pytest.mark.extended
def test_a_topic_gets_each_event_once(nats_server: NatsServer, tmp_path: Path) -> None:
    text = SINK.replace("TYPE", "type='inMemory', topic='to {app}', @map(type='json')")

    async def stored(stage: Stage) -> list[Any]:
        subject = subject_of(f"to {stage.spec.name}")
        try:
            js_stream = await stage.js.find_stream_name_by_subject(subject)
        except Exception:
            return []
        return [json.loads(one)["event"] for one in await stage.messages(js_stream, subject)]

    use = ConnectorScenario(text, "sink-T", publish, stored, whole)
    assert asyncio.run(conform(nats_server.url, use, tmp_path))


@pytest.mark.extended
async def test_repeats_over_mqtt_have_the_key_of_the_first(
    nats_server: NatsServer, mosquitto: str, tmp_path: Path
) -> None:
    sink = f"type='mqtt', url='{mosquitto}', topic='repeats/{{app}}'"
    text = SINK.replace("TYPE", f"{sink}, @map(type='json', envelope='none')")
    found: dict[str, dict[str, bytes]] = {}

    async def listen(other: aiomqtt.Client) -> None:
        async for message in other.messages:
            properties: Any = message.properties
            ((name, key),) = properties.UserProperty
            assert name == "key"
            own = found.setdefault(str(message.topic).partition("/")[2], {})
            assert own.setdefault(key, bytes(message.payload)) == message.payload

    async def arrived(stage: Stage) -> list[Any]:
        return [json.loads(one) for one in found.get(stage.spec.name, {}).values()]

    async with client(mosquitto, protocol=aiomqtt.ProtocolVersion.V5) as other:
        await other.subscribe("repeats/#", qos=1)
        listening = asyncio.create_task(listen(other))
        use = ConnectorScenario(text, "sink-T", publish, arrived, whole)
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"before write", "after write"} <= set(moments)
        listening.cancel()


@pytest.mark.extended
def test_repeats_of_a_mail_have_its_message_id(
    nats_server: NatsServer, mailbox: tuple[Mailbox, int], tmp_path: Path
) -> None:
    handler, port = mailbox
    text = SINK.replace(
        "TYPE",
        f"type='email', host='127.0.0.1', port='{port}', ssl.enable='false', auth='false',"
        " address='mesh@example.org', to='all@example.org', subject='{app}',"
        " @map(type='text', @payload('{{n}}'))",
    )

    async def arrived(stage: Stage) -> list[str]:
        own: dict[str, str] = {}
        for _, message in list(handler.found):
            if message["Subject"] == stage.spec.name:
                said = message.get_content().strip()
                assert own.setdefault(message["Message-ID"], said) == said
        return list(own.values())

    use = ConnectorScenario(text, "sink-T", publish, arrived, whole)
    assert asyncio.run(conform(nats_server.url, use, tmp_path))


@pytest.mark.extended
@pytest.mark.parametrize("group", ["sink-T", "receiver-S"])
async def test_answers_of_repeated_calls_are_stored_once(
    nats_server: NatsServer, tmp_path: Path, group: str
) -> None:
    text = """@App:name('{app}')
    @source(type='http-call-response', sink.id='{app}', @map(type='json'))
    define stream S (n int);
    @sink(type='http-call', sink.id='{app}', publisher.url='URL', @map(type='json'))
    define stream T (n int);
    from S select n insert into Out;
    """
    other = "receiver-S" if group == "sink-T" else "sink-T"

    async def send(stage: Stage) -> None:
        # The other end runs calmly, beside the one that is killed.
        calm = stage.environment
        stage.environment = stage.calm
        try:
            await stage.until_running(stage.start(other))
        finally:
            stage.environment = calm
        await publish(stage)

    async def stored(stage: Stage) -> list[int]:
        return sorted(event["n"] for event in await stage.events("S"))

    servers = HttpServers()

    async def answer(request: Request) -> Response:
        return Response(200, await request.body(1000) or b"")

    port = await servers.open("127.0.0.1", 0, "/", answer)
    try:
        own = text.replace("URL", f"http://127.0.0.1:{port}/")
        use = ConnectorScenario(own, group, send, stored, whole)
        assert await conform(nats_server.url, use, tmp_path)
    finally:
        await servers.close("127.0.0.1", port, "/")
