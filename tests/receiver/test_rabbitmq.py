"""RabbitMQ in and out, with a server: declarations, confirms, repeats by message id, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from mesh.connect.contract import Record, UnavailableError
from mesh.receiver.types.arrivals import Arrivals
from mesh.receiver.types.rabbitmq_sink import RabbitSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged

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

    use = ConnectorScenario(
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
        await stage.until("the others", lambda: instance._counts()["events_out"] == 2)


@pytest.mark.nats
@pytest.mark.extended
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dead-letter-exchange": "dead", "x-message-ttl": 3_600_000},
        {"x-queue-type": "quorum"},
        {"x-max-length": 100, "x-max-priority": 5},
    ],
    ids=["dead-letters", "quorum", "bounds"],
)
async def test_a_queue_that_exists_with_arguments_is_read(
    nats_server: NatsServer, rabbitmq: str, arguments: dict[str, Any]
) -> None:
    name = f"There{len(str(arguments))}"
    text = app(rabbitmq, source=True).replace("{app}", name)
    text = text.replace("routing.key=", "exchange.type='topic', routing.key=")
    connection = await aio_pika.connect(rabbitmq)
    async with connection, staged(nats_server, text) as stage:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(f"{name}-in", "topic", durable=True)
        queue = await channel.declare_queue(f"{name}-q", durable=True, arguments=arguments)
        await queue.bind(exchange, "k")
        await stage.until_running(stage.start("receiver-S"))
        await exchange.publish(aio_pika.Message(b'{"n":7}'), "k")
        await stage.until("its event", lambda: numbers(stage))


@pytest.mark.nats
@pytest.mark.extended
async def test_a_queue_that_is_deleted_is_declared_and_read_again(
    nats_server: NatsServer, rabbitmq: str
) -> None:
    text = app(rabbitmq, source=True).replace("{app}", "Gone")
    connection = await aio_pika.connect(rabbitmq)
    async with connection, staged(nats_server, text) as stage:
        await stage.until_running(stage.start("receiver-S"))
        channel = await connection.channel()
        await channel.queue_delete("Gone-q")
        await stage.until("it is told", lambda: "deleted" in str([r.error for r in stage.reports]))
        exchange = await channel.get_exchange("Gone-in")

        async def is_read() -> bool:
            await exchange.publish(aio_pika.Message(b'{"n":7}'), "k")
            return bool(await numbers(stage))

        await stage.until("it reads", is_read)


@pytest.mark.nats
@pytest.mark.extended
async def test_a_stream_is_declared_read_from_its_beginning_and_continued(
    nats_server: NatsServer, rabbitmq: str
) -> None:
    arguments = "queue.args=\"'x-queue-type:stream'\", queue.durable.enabled='true', routing.key="
    text = app(rabbitmq, source=True).replace("{app}", "Log").replace("routing.key=", arguments)
    connection = await aio_pika.connect(rabbitmq)
    async with connection, staged(nats_server, text) as stage:
        channel = await connection.channel()
        queue = await channel.declare_queue(
            "Log-q", durable=True, arguments={"x-queue-type": "stream"}
        )
        for n in range(3):
            await channel.default_exchange.publish(aio_pika.Message(b'{"n":%d}' % n), queue.name)
        first = stage.start("receiver-S")

        async def have(*expected: int) -> bool:
            return await numbers(stage) == list(expected)

        await stage.until("all", lambda: have(0, 1, 2))
        await first.stop()
        await channel.default_exchange.publish(aio_pika.Message(b'{"n":3}'), queue.name)
        # The stream still has all of them.
        stage.start("receiver-S", epoch=2)
        await stage.until("the next one", lambda: have(0, 1, 2, 3))


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
