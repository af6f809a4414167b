"""MQTT in and out, with mosquitto: sessions, acknowledgements after the store, keys, refusals."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiomqtt
import pytest

from mesh.connect.contract import Batch, Context, Record, UnavailableError
from mesh.plan.build import plan
from mesh.receiver.types.mqtt import MqttSink, MqttSource, client_of
from tests.support.connectors import staged
from tests.support.mosquitto import broker

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
@source(type='mqtt', url='{url}', topic='{app}/in/+', client.id='{app}-in',
        @map(type='json', @attributes(n='n', place='trp:topic')))
define stream S (n int, place string);
@sink(type='mqtt', url='{url}', topic='{app}/out/{{n}}', @map(type='json', envelope='none'))
define stream T (n int, place string);
from S select n, place insert into T;
"""


def app(name: str, url: str) -> str:
    return APP.replace("{app}", name).replace("{url}", url)


def client(url: str, **more: Any) -> aiomqtt.Client:
    return client_of(Context("a", "s", {"url": url}), more.pop("name", "test"), **more)


async def numbers(stage: Stage) -> list[int]:
    return [event["n"] for event in await stage.events("S")]


@pytest.mark.slow
async def test_messages_are_kept_while_the_source_is_away_and_acknowledged_once_they_are_stored(
    nats_server: NatsServer, mosquitto: str
) -> None:
    async with staged(nats_server, app("Away", mosquitto)) as stage:
        first = stage.start("receiver-S")
        await stage.until_running(first)
        async with client(mosquitto) as other:
            await other.publish("Away/in/a", b'{"n":1}', qos=1)
            await other.publish("Away/in/a", b"x", qos=1)
            await stage.until("the first", lambda: numbers(stage))
            (refused,) = await stage.until("the refused one", stage.errors)
            assert refused["data"] == "x"
            await first.stop()
            await other.publish("Away/in/b", b'{"n":2}', qos=1)
        await stage.until_running(stage.start("receiver-S", epoch=2))

        async def both() -> bool:
            return await numbers(stage) == [1, 2]

        await stage.until("the second", both)
        assert [event["place"] for event in await stage.events("S")] == [
            "Away/in/a",
            "Away/in/b",
        ]


async def test_a_flood_that_is_not_stored_takes_a_bounded_part_of_the_memory(
    mosquitto: str,
) -> None:
    source, options = MqttSource(), {"url": mosquitto, "topic": "Flood/in"}
    await source.open(Context("Flood", "S", options), None)
    source.arrived.bytes_max = 3 << 20
    try:
        async with client(mosquitto, name="flood") as other:
            # As long as batches are stored, any number of bytes may come.
            for n in range(5):
                await other.publish("Flood/in", bytes(1 << 20))
                batch = await anext_batch(source)
                assert [len(one) for one in batch.payloads] == [1 << 20], n
                await source.committed(batch.position)
            for _ in range(9):
                await other.publish("Flood/in", bytes(1 << 20))
            with pytest.raises(UnavailableError, match="more than 3 MB have come"):
                await until_it_fails(source)
        assert source.arrived.unstored_bytes <= 3 << 20
    finally:
        await source.close()


async def until_it_fails(source: MqttSource) -> None:
    while True:
        await source.read()


async def anext_batch(source: MqttSource) -> Batch:
    while True:
        batch = await source.read()
        if batch is not None:
            return batch


async def test_a_message_that_was_not_stored_is_delivered_again(
    nats_server: NatsServer, mosquitto: str
) -> None:
    async with staged(nats_server, app("Again", mosquitto)) as stage:
        first = stage.start("receiver-S")
        await stage.until_running(first)
        nats_server.process.kill()
        nats_server.process.wait()
        async with client(mosquitto) as other:
            await other.publish("Again/in/a", b'{"n":1}', qos=1)
        # The host ends before the broker is back.
        await first.abandon()
    async with client(mosquitto, name="Again-in", clean_session=False) as later:
        await later.subscribe("Again/in/+", qos=1)
        message = await asyncio.wait_for(anext(aiter(later.messages)), 60)
        assert message.payload == b'{"n":1}'


@pytest.mark.slow
async def test_a_retained_message_is_delivered_once_in_a_session(
    nats_server: NatsServer, mosquitto: str
) -> None:
    text = app("Kept", mosquitto).replace("client.id", "quality.of.service='1', client.id")
    async with staged(nats_server, text) as stage, client(mosquitto) as other:

        async def sent(n: int, topic: str = "a") -> None:
            await other.publish(f"Kept/in/{topic}", b'{"n":%d}' % n, qos=1, retain=True)

        async def stored(*expected: int) -> None:
            async def are() -> bool:
                return await numbers(stage) == list(expected)

            await stage.until("them", are)

        await sent(1)
        first = stage.start("receiver-S")
        await stage.until_running(first)
        await stored(1)
        await first.stop()
        # It comes from the session, and not as a retained one as well.
        await sent(2)
        second = stage.start("receiver-S", epoch=2)
        await stage.until_running(second)
        await sent(3, "b")
        await stored(1, 2, 3)
        await second.stop()
        # Other topics are subscribed to, and no longer the earlier ones.
        stage.spec = plan(text.replace("topic='Kept/in/+'", "topic='Kept/more'")).spec
        third = stage.start("receiver-S", epoch=3)
        await stage.until_running(third)
        await sent(9)
        await other.publish("Kept/more", b'{"n":4}', qos=1)
        await stored(1, 2, 3, 4)
        # A source that is removed leaves no session for which messages are kept.
        await third.stop(is_removed=True)
        async with client(mosquitto, name="Kept-in", clean_session=False) as later:
            await other.publish("Kept/more", b'{"n":5}', qos=1)
            await later.subscribe("Kept/last", qos=1)
            await other.publish("Kept/last", b'{"n":6}', qos=1)
            message = await asyncio.wait_for(anext(aiter(later.messages)), 60)
            assert message.payload == b'{"n":6}'


async def test_payloads_are_published_with_their_key_and_what_can_not_be_is_recorded(
    nats_server: NatsServer, mosquitto: str
) -> None:
    text = app("Out", mosquitto).replace("out/{{n}}", "out/{{place}}")
    async with (
        staged(nats_server, text) as stage,
        client(mosquitto, protocol=aiomqtt.ProtocolVersion.V5) as other,
    ):
        await other.subscribe("Out/out/#", qos=1)
        places = ["a", "#", *(str(n) for n in range(300))]
        await stage.publish("T", *({"n": 1, "place": place} for place in places))
        stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert "level of a topic" in entry["reason"]
        messages = aiter(other.messages)
        found = [await asyncio.wait_for(anext(messages), 60) for _ in range(301)]
        assert {str(m.topic) for m in found} == {f"Out/out/{p}" for p in places if p != "#"}
        assert json.loads(bytes(found[0].payload)) == {"n": 1, "place": "a"}
        properties: list[Any] = [message.properties for message in found]
        keys = {one.UserProperty[0] for one in properties}
        assert len(keys) == 301
        assert {name for name, _ in keys} == {"key"}


@pytest.mark.slow
async def test_the_retain_flag_is_an_option_and_a_property(
    nats_server: NatsServer, mosquitto: str
) -> None:
    text = app("Kept", mosquitto).replace("{{n}}'", "a', message.retain='{{place}}'")
    text = text.replace("trp:topic", "trp:retain").replace("Kept/in/+", "Kept/out/a")
    async with staged(nats_server, text) as stage:
        await stage.publish("T", *({"n": n, "place": place} for n, place in enumerate(
            ("false", "true", "perhaps"))))  # fmt: skip
        stage.start("sink-T")
        (entry,) = await stage.until("the refused one", stage.errors)
        assert 'option "message.retain" is true or false' in entry["reason"]
        await stage.until("both", lambda: stage.reports[-1].events_out == 2)
        stage.start("receiver-S")
        # The broker has kept one, and a reader that comes later gets it with its flag.
        await stage.until("the kept one", lambda: numbers(stage))
        assert await stage.events("S") == [{"n": 1, "place": "true"}]


async def test_a_topic_that_the_broker_refuses_is_told(tmp_path: Path) -> None:
    with broker(tmp_path, readable="open/+") as url:
        own = {"url": url, "client.id": "c"}
        source = MqttSource()
        try:
            with pytest.raises(UnavailableError, match='refuses the topic "closed/#"'):
                await source.open(Context("a", "s", {**own, "topic": "open/+, closed/#"}), None)
        finally:
            await source.close()
        try:
            await source.open(Context("a", "s", {**own, "topic": "open/+"}), None)
        finally:
            await source.close()


@pytest.mark.parametrize(
    ("version", "limit", "reason"),
    [
        ("5", "message_size_limit 1000", "too large for the broker"),
        ("5", "max_packet_size 1000", "the broker takes 1000"),
        ("3.1.1", "max_packet_size 1000", "too large for the broker"),
    ],
)
async def test_a_message_above_a_limit_of_the_broker_is_refused_alone(
    tmp_path: Path, version: str, limit: str, reason: str
) -> None:
    with broker(tmp_path, more=f"{limit}\n") as url:
        options = {"url": url, "topic": "t", "mqtt.version": version}
        outcomes: list[str | None] = []
        left = [Record("1", b"a"), Record("2", b"x" * 2000), Record("3", b"b" * 900)]
        sink = MqttSink()
        for _ in range(10):
            await sink.open(Context("A", "T", options, instance="A-1"), None)
            try:
                outcomes += await sink.write(left)
                left = []
            except UnavailableError as error:
                # As the outbox does: it opens the sink again for what has no outcome.
                done = error.outcomes
                outcomes += [done[at] for at in sorted(done)]
                left = [one for at, one in enumerate(left) if at not in done]
            finally:
                await sink.close()
            if not left:
                break
    assert not left
    (refused,) = [one for one in outcomes if one is not None]
    assert reason in refused
    assert len(outcomes) == 3


def test_a_broker_that_is_away_is_waited_for_and_another_kind_of_url_refused() -> None:
    with pytest.raises(ValueError, match="tcp://host"):
        client_of(Context("a", "s", {"url": "http://h"}), "x")


async def test_a_check_leaves_the_client_that_runs_connected(mosquitto: str) -> None:
    context = Context("a", "s", {"url": mosquitto, "client.id": "one", "topic": "t"})
    async with client(mosquitto, name="one") as running:
        await running.subscribe("t", qos=1)
        await MqttSource().check(context)
        await MqttSink().check(context)
        await running.publish("t", b"x", qos=1)
        message = await asyncio.wait_for(anext(aiter(running.messages)), 60)
        assert message.payload == b"x"
