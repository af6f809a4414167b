"""RabbitMQ in and out, with a server: declarations, confirms, repeats by message id, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from mesh.connect.contract import Record, UnavailableError
from mesh.receiver.types.arrivals import Arrivals
from mesh.receiver.types.rabbitmq_sink import RabbitSink
from mesh.testing.connectors import Scenario, Stage, conform
from tests.support.doors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
SOURCE = (
    "@source(type='rabbitmq', uri='{uri}', exchange.name='{app}-in', queue.name='{app}-q',"
    " routing.key='k', @map(type='json'))"
)
SINK = (
    "@sink(type='rabbitmq', uri='{uri}', exchange.name='{app}-out', exchange.type='topic',"
    " routing.key='n.{{n}}', headers=\"'a:b'\", @map(type='json', envelope='none'))"
)


def app(uri: str, *, source: bool = False, sink: bool = False) -> str:
    found = APP.replace("SOURCE", SOURCE if source else "").replace("SINK", SINK if sink else "")
    return found.replace("{uri}", uri)


async def numbers(stage: Stage) -> list[int]:
    return [event["n"] for event in await stage.events("S")]


@pytest.mark.nats
@pytest.mark.extended
async def test_messages_with_an_id_are_stored_once(
    nats_server: NatsServer, rabbitmq: str, tmp_path: Path
) -> None:
    async def send(stage: Stage) -> None:
        connection = await aio_pika.connect(rabbitmq)
        async with connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(f"{stage.spec.name}-in")
            queue = await channel.declare_queue(f"{stage.spec.name}-q")
            await queue.bind(exchange, "k")
            for n in range(5):
                body = b"x" if n == 2 else b'{"n":%d}' % n
                await exchange.publish(aio_pika.Message(body, message_id=f"id-{n}"), "k")

    async def stored(stage: Stage) -> Any:
        return await numbers(stage), [entry["data"] for entry in await stage.errors()]

    use = Scenario(
        app(rabbitmq, source=True), "receiver-S", send, stored,
        lambda found: len(found[0]) + len(found[1]) >= 5,
    )  # fmt: skip
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"after publish", "before committed", "after committed"} <= set(moments)


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

        use = Scenario(
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
        await stage.until("the others", lambda: instance._counts()["rows_out"] == 2)


def test_properties_of_a_message() -> None:
    sink = RabbitSink()
    sink._options, sink._type = {"user.id": "u", "content.encoding": "gzip"}, "text/csv"
    record = Record("key", b"x", {"app.id": "a-1", "timestamp": "1500", "priority": "7"})
    found = sink._message(aio_pika, record)
    assert (found.user_id, found.content_encoding, found.app_id) == ("u", "gzip", "a-1")
    assert found.timestamp.timestamp() == 1.5
    assert (found.priority, found.message_id, found.content_type) == (7, "key", "text/csv")
    assert "invalid literal" in sink._message(aio_pika, Record("k", b"x", {"timestamp": "now"}))


async def test_arrivals_are_acknowledged_up_to_the_stored_batch_and_a_loss_ends_the_wait() -> None:
    arrived: Arrivals[int] = Arrivals()
    for number in range(5):
        arrived.put(number)
    assert await arrived.take(1, 2, 0) == [0, 1]
    assert await arrived.take(2, 2, 0) == [2, 3]
    assert arrived.stored(1) == [0, 1]
    assert arrived.stored(1) == []
    assert await arrived.take(3, 2, 0) == [4]
    assert await arrived.take(4, 2, 0) == []
    assert arrived.stored(4) == [2, 3, 4]
    arrived.fail("gone")
    with pytest.raises(UnavailableError, match="gone"):
        await arrived.take(5, 2, 10)
