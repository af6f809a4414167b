"""Sink ``rabbitmq`` with a server: repeats by message id, properties, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from mesh.connect.contract import Record
from mesh.receiver.types.rabbitmq import RabbitSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged
from tests.support.rabbitmq_apps import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
@pytest.mark.extended
async def test_repeats_of_a_sink_have_the_message_id_of_the_first(
    nats_server: NatsServer, rabbitmq: str, tmp_path: Path
) -> None:
    found: dict[str, dict[str, bytes]] = {}
    queues: dict[str, Any] = {}

    connection = await aio_pika.connect(rabbitmq)
    async with connection:
        channel = await connection.channel()

        async def send(stage: Stage) -> None:
            name = stage.spec.name
            exchange = await channel.declare_exchange(f"{name}-out", "topic")
            queues[name] = await channel.declare_queue(f"{name}-all")
            await queues[name].bind(exchange, "n.*")
            await stage.publish("T", *({"n": n} for n in range(3)))

        async def arrived(stage: Stage) -> list[bytes]:
            known = found.setdefault(stage.spec.name, {})
            queue = queues.get(stage.spec.name)
            while queue is not None:
                message = await queue.get(no_ack=True, fail=False)
                if message is None:
                    break
                assert message.headers == {"a": "b"}
                assert message.delivery_mode == 2
                assert known.setdefault(message.message_id, message.body) == message.body
            return sorted(known.values())

        use = ConnectorScenario(
            app(rabbitmq, sink=True), "sink-T", send, arrived, lambda found: len(found) >= 3
        )
        assert await conform(nats_server.url, use, tmp_path)


@pytest.mark.nats
@pytest.mark.extended
async def test_a_priority_that_is_none_is_recorded(nats_server: NatsServer, rabbitmq: str) -> None:
    text = app(rabbitmq, sink=True).replace("{app}", "Bad")
    text = text.replace("routing.key=", "priority='{{n}}', routing.key=")
    async with staged(nats_server, text) as stage:
        await stage.publish("T", {"n": 1}, {"n": 256}, {"n": 2})
        instance = stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert "priority" in entry["reason"]
        await stage.until("the others", lambda: instance.status().events_out == 2)


@pytest.mark.nats
@pytest.mark.extended
async def test_an_answer_that_ends_the_channel_costs_its_message(
    nats_server: NatsServer, rabbitmq: str
) -> None:
    # The server compares the user with the login, and ends the channel with all that is under way.
    text = (
        app(rabbitmq, sink=True)
        .replace("{app}", "User")
        .replace("T (n int)", "T (n int, u string)")
    )
    text = text.replace("select n", "select n, '' as u")
    text = text.replace("routing.key=", "user.id='{{u}}', routing.key=")
    connection = await aio_pika.connect(rabbitmq)
    async with connection, staged(nats_server, text) as stage:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("User-out", "topic")
        queue = await channel.declare_queue("User-all")
        await queue.bind(exchange, "#")
        users = ["guest", "", "nobody", "guest"]
        await stage.publish("T", *({"n": n, "u": user} for n, user in enumerate(users)))
        stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert "user" in entry["reason"].lower()
        assert entry["options"]["user.id"] == "nobody"
        await stage.until("the others", lambda: stage.reports[-1].events_out == 3)


def test_properties_of_a_message() -> None:
    sink = RabbitSink()
    sink.options, sink.content_type = {"user.id": "u", "content.encoding": "gzip"}, "text/csv"
    record = Record("key", b"x", {"app.id": "a-1", "timestamp": "1500", "priority": "7"})
    found = sink.message(aio_pika, record)
    assert (found.user_id, found.content_encoding, found.app_id) == ("u", "gzip", "a-1")
    assert found.timestamp.timestamp() == 1.5
    assert (found.priority, found.message_id, found.content_type) == (7, "key", "text/csv")
    assert "invalid literal" in sink.message(aio_pika, Record("k", b"x", {"timestamp": "now"}))


@pytest.mark.nats
@pytest.mark.extended
async def test_headers_larger_than_a_frame_are_those_of_one_event(
    nats_server: NatsServer, rabbitmq: str
) -> None:
    text = (
        "@App:name('Large') define stream S (k string); "
        f"@sink(type='rabbitmq', uri='{rabbitmq}', exchange.name='large', exchange.type='topic', "
        "routing.key='a', headers=\"'K:{{k}}'\", @map(type='json')) "
        "define stream T (k string); from S select k insert into T;"
    )
    async with staged(nats_server, text) as stage:
        await stage.publish("T", {"k": "a"}, {"k": "x" * 200_000}, {"k": "b"})
        instance = stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert "frame" in entry["reason"]
        await stage.until("the others", lambda: instance.status().events_out == 2)
