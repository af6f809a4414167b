"""Sink ``kafka`` with a broker: exactly once, keys, numbers, headers, refusals."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Context, Record, UnavailableError
from mesh.receiver.types.kafka_sink import KafkaSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged
from tests.support.kafka_apps import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.kafka import Kafka

pytestmark = pytest.mark.nats


@pytest.mark.slow
def test_a_topic_is_written_exactly_once(
    nats_server: NatsServer, kafka: Kafka, tmp_path: Path
) -> None:
    async def send(stage: Stage) -> None:
        await stage.publish("T", {"n": 0}, {"n": 1})
        await stage.publish("T", {"n": 2}, {"n": 3}, {"n": 4})

    async def written(stage: Stage) -> list[int]:
        found = await asyncio.to_thread(kafka.records, f"Out{stage.spec.name}")
        return [json.loads(payload)["n"] for _, _, payload in found]

    kafka.create(*(f"OutRun{number}" for number in range(40)))
    use = ConnectorScenario(
        app(kafka, "Out{app}", sink=""), "sink-T", send, written, lambda found: len(found) >= 5
    )
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after write", "after store a position"} <= set(moments)


async def test_topics_keys_partitions_and_numbers_of_a_sink(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("even", "odd", partitions=3)
    more = ", key='k-{{n}}', sequence.id='q'"
    text = app(kafka, "{{k}}", sink=more).replace("T (n int)", "T (n int, k string)")
    text = text.replace("select n", "select n, 'even' as k")

    def _count(*topics: str) -> int:
        return sum(len(kafka.records(topic, 3)) for topic in topics)

    async with staged(nats_server, text.replace("{app}", "Keys")) as stage:
        stage.start("sink-T")
        for n in range(4):
            await stage.publish("T", {"n": n, "k": "odd" if n % 2 else "even"})
        await stage.until("all", lambda: _count("even", "odd") == 4)
    found = kafka.records("even", 3) + kafka.records("odd", 3)
    assert {key for _, key, _ in found} == {b"k-0", b"k-1", b"k-2", b"k-3"}
    heads = sorted(payload.partition(b"~")[0] for _, _, payload in found)
    assert heads == [b"q:1", b"q:2", b"q:3", b"q:4"]


async def test_headers_of_records_are_properties_and_a_sink_sends_them(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("heads", "heads-out")
    text = app(kafka, "heads", source="", sink=", headers=\"'x-kind:{{kind}}','y:1'\"")
    text = text.replace("(n int)", "(n int, kind string)").replace("select n", "select n, kind")
    text = text.replace("topic='heads'", "topic='heads-out', key='k{{n}}'")
    mapped = "@map(type='json', @attributes(n='n', kind='trp:X-Kind'))"
    text = text.replace("@map(type='json')", mapped, 1)
    headers: list[Any] = [{"x-kind": "ä"}, {"x-kind": None}, {}, {"x-kind": b"b", "other": b"\xff"}]
    for number, one in enumerate(headers):
        await asyncio.to_thread(kafka.send, "heads", b'{"n":%d}' % number, headers=one)
    async with staged(nats_server, text.replace("{app}", "Heads")) as stage:
        stage.start("receiver-S")

        async def two() -> bool:
            return len(await stage.errors()) == 2 and len(await stage.events("S")) == 2

        await stage.until("two with and two without", two)
        assert await stage.events("S") == [{"n": 0, "kind": "ä"}, {"n": 3, "kind": "b"}]
        assert {one["reason"] for one in await stage.errors()} == {'attribute "kind" is missing'}
        stage.start("sink-T")
        await stage.publish("T", {"n": 1, "kind": "ö"}, {"n": 2, "kind": ""})
        await stage.until("both", lambda: len(kafka.records("heads-out")) == 2)
    found: list[Any] = [one.headers() for one in kafka.messages("heads-out")]
    assert found == [[("x-kind", "ö".encode()), ("y", b"1")], [("x-kind", b""), ("y", b"1")]]


async def test_topics_and_partitions_that_an_event_names_wrongly_are_refused(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("named")
    more = ", partition.no='{{n}}', key='{{k}}'"
    text = app(kafka, "{{t}}", sink=more).replace("T (n int)", "T (n int, t string, k string)")
    text = text.replace("select n", "select n, 'named' as t, 'k' as k").replace("{app}", "Named")
    good = {"n": 0, "t": "named", "k": "k"}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"k": ""}, "is empty"),
        ({"t": "a/b"}, '"__" at its beginning'),
        ({"t": ".."}, "name of a topic"),
        ({"t": "x" * 250}, "name of a topic"),
        ({"n": -1}, "number of a partition"),
        ({"n": 7}, "has no partition 7"),
    ]
    async with staged(nats_server, text) as stage:
        await stage.publish("T", good, *({**good, **one} for one, _ in bad), good)
        stage.start("sink-T")
        await stage.until("the good ones", lambda: len(kafka.records("named")) == 2)

        async def refused() -> list[str]:
            reasons = [one["reason"] for one in await stage.errors()]
            return reasons if len(reasons) == len(bad) else []

        reasons = await stage.until("the others", refused)
    ends = [end for _, end in bad]
    assert [end for end, reason in zip(ends, reasons, strict=True) if reason.endswith(end)] == ends


async def test_a_record_that_is_too_large_is_recorded_and_the_others_are_written(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("small")
    more = ", optional.configuration='message.max.bytes:2000'"
    text = app(kafka, "small", sink=more).replace("T (n int)", "T (n string)")
    text = text.replace("select n", "select 'x' as n").replace("{app}", "Small")

    async with staged(nats_server, text) as stage:
        await stage.publish("T", {"n": "a"}, {"n": "b" * 3000}, {"n": "c"})
        stage.start("sink-T")
        (entry,) = await stage.until("the large one", stage.errors)
        assert "too large" in entry["reason"]
        await stage.until("the others", lambda: len(kafka.records("small")) == 2)
    assert [json.loads(p)["n"] for _, _, p in kafka.records("small")] == ["a", "c"]


async def test_a_check_of_a_sink_does_not_fence_the_one_that_runs(kafka: Kafka) -> None:
    kafka.create("checked")
    options = {"bootstrap.servers": kafka.servers, "topic": "checked"}
    context = Context("a", "s", options, producer="one", epoch=1)

    sink = KafkaSink()
    try:
        await sink.open(context, None)
        await KafkaSink().check(context)
        await sink.write([Record("k", b"x", sequence=4)])
        missing = Context("a", "s", options | {"topic": "nowhere"})
        with pytest.raises(UnavailableError, match="nowhere"):
            await KafkaSink().check(missing)
    finally:
        await sink.close()
    assert [payload for _, _, payload in kafka.records("checked")] == [b"x"]
