"""Source ``kafka`` with a broker: exactly once, offsets, sequence numbers, what is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.clock import SystemClock
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged
from tests.support.kafka_apps import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.kafka import Kafka

pytestmark = pytest.mark.nats


async def numbers(stage: Stage) -> list[int]:
    return [event["n"] for event in await stage.events("S")]


@pytest.mark.slow
def test_a_topic_is_read_exactly_once(
    nats_server: NatsServer, kafka: Kafka, tmp_path: Path
) -> None:
    async def send(stage: Stage) -> None:
        await asyncio.to_thread(kafka.send, stage.spec.name, b'{"n":2}', b"x", b'{"n":3}')
        await asyncio.to_thread(kafka.send, stage.spec.name, b'{"n":4}', partition=1)

    async def stored(stage: Stage) -> Any:
        bad = [entry["data"] for entry in await stage.errors()]
        return sorted(await numbers(stage)), bad

    # More than there are moments, however the records are divided.
    kafka.create(*(f"Run{number}" for number in range(80)), partitions=2)
    for number in range(80):
        kafka.send(f"Run{number}", b'{"n":0}', b'{"n":1}')
    use = ConnectorScenario(
        app(kafka, "{app}", source=""), "receiver-S", send, stored,
        lambda found: len(found[0]) + len(found[1]) >= 6,
    )  # fmt: skip
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before read", "after store a position", "after committed"} <= set(moments)


async def test_offsets_partitions_properties_and_numbers(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("many", partitions=2)
    kafka.send("many", b'a:1~{"n":1}', b'a:2~{"n":2}', b'a:2~{"n":2}', b'{"n":3}', key="k")
    kafka.send("many", b'{"n":9}', partition=1)
    more = ", partition.no.list='0', topic.offsets.map='many=1', seq.enabled='true'"
    text = app(kafka, "many", source=more).replace(
        "S (n int)", "S (n int, place long, k string, seen long)"
    )
    text = text.replace(
        "@map(type='json')",
        "@map(type='json', @attributes(n='n', place='trp:offset', k='trp:key', "
        "seen='trp:event.timestamp'))",
    )
    began_ms = SystemClock().wall_ms()

    async def _have(stage: Stage, count: int) -> bool:
        return len(await stage.events("S")) >= count

    async with staged(nats_server, text.replace("{app}", "Many")) as stage:
        stage.start("receiver-S")
        await stage.until("2 events", lambda: _have(stage, 2))
        found = await stage.events("S")
        assert all(began_ms <= event.pop("seen") <= SystemClock().wall_ms() for event in found)
        assert found == [
            {"n": 2, "place": 1, "k": "k"}, {"n": 3, "place": 3, "k": "k"},
        ]  # fmt: skip


async def test_a_missing_topic_and_a_broker_that_is_away_are_waited_for(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    text = app(kafka, "later", source="").replace("{app}", "Later")

    async with staged(nats_server, text) as stage:
        stage.start("receiver-S")
        await stage.until("it waits", lambda: "later" in str([r.error for r in stage.reports]))
        kafka.create("later")
        kafka.send("later", b'{"n":1}')
        await stage.until("it reads", lambda: numbers(stage))


async def test_a_topic_that_lacks_what_comes_next_is_told(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    """A topic that was made again, or whose records are deleted, has no record there."""
    kafka.create("short")
    kafka.send("short", b'{"n":1}', b'{"n":2}')
    further = ", topic.offsets.map='short=7'"
    text = app(kafka, "short", source=further).replace("{app}", "Short")
    async with staged(nats_server, text) as stage:
        stage.start("receiver-S")
        reason = "at offset 7"
        await stage.until("it waits", lambda: reason in str([r.error for r in stage.reports]))
    further += """, optional.configuration="'auto.offset.reset:earliest'\""""
    text = app(kafka, "short", source=further).replace("{app}", "ShortOn")
    async with staged(nats_server, text) as stage:
        stage.start("receiver-S")
        await stage.until("it reads", lambda: numbers(stage))
        assert await numbers(stage) == [1, 2]
