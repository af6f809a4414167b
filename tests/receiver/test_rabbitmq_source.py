"""Source ``rabbitmq`` with a server: keys, queues that exist or are deleted, streams, bounds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from mesh.connect.contract import UnavailableError
from mesh.plan.build import plan
from mesh.receiver.types.arrivals import Arrivals
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged
from tests.support.rabbitmq_apps import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


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
async def test_a_queue_of_its_own_has_one_binding_and_goes_with_the_source(
    nats_server: NatsServer, rabbitmq: str
) -> None:
    text = app(rabbitmq, source=True).replace("{app}", "Own")
    text = re.sub(r"queue\.name='[^']*',?\s*", "", text)
    assert "queue.name" not in text
    connection = await aio_pika.connect(rabbitmq)
    async with connection, staged(nats_server, text) as stage:
        first = stage.start("receiver-S")
        await stage.until_running(first)
        channel = await connection.channel()
        exchange = await channel.get_exchange("Own-in")
        await exchange.publish(aio_pika.Message(b'{"n":1}'), "k")
        await stage.until("its event", lambda: numbers(stage))
        await first.stop()
        stage.spec = plan(text.replace("routing.key='k'", "routing.key='other'")).spec
        second = stage.start("receiver-S", epoch=2)
        await stage.until_running(second)
        await exchange.publish(aio_pika.Message(b'{"n":2}'), "k")
        await exchange.publish(aio_pika.Message(b'{"n":3}'), "other")

        async def has_come() -> bool:
            return 3 in await numbers(stage)

        await stage.until("that of the new key", has_come)
        assert await numbers(stage) == [1, 3]
        await second.stop(is_removed=True)
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue("Own.S", passive=True)


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
