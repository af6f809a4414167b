"""Kafka in and out, with a broker: exactly once, offsets, keys, sequence numbers, refusals."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.clock import SystemClock
from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.errors import MeshError
from mesh.receiver.types.kafka import first_offsets, numbered, settings, without_repeats
from mesh.receiver.types.kafka_sink import KafkaSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.kafka import Kafka

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
SOURCE = (
    "@source(type='kafka', bootstrap.servers='{servers}', topic.list='TOPIC', group.id='g',"
    " threading.option='single.thread'MORE, @map(type='json'))"
)
SINK = (
    "@sink(type='kafka', bootstrap.servers='{servers}', topic='TOPIC'MORE,"
    " @map(type='json', envelope='none'))"
)


def app(kafka: Kafka, topic: str, *, source: str | None = None, sink: str | None = None) -> str:
    """The app with the source or sink of a topic, and further options."""
    found = APP.replace("SOURCE", "" if source is None else SOURCE.replace("MORE", source))
    found = found.replace("SINK", "" if sink is None else SINK.replace("MORE", sink))
    return found.replace("TOPIC", topic).replace("{servers}", kafka.servers)


async def numbers(stage: Stage) -> list[int]:
    return [event["n"] for event in await stage.events("S")]


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


def test_settings_that_run_commands_are_refused_and_those_of_java_left_out() -> None:
    own = {"bootstrap.servers": "h:1"}

    def given(*pairs: tuple[str, str], egress: tuple[str, ...] | None = None) -> dict[str, Any]:
        options = own | {"optional.configuration": list(pairs)}
        return settings(Context("a", "s", options, NodeAccess(egress=egress)), {})

    found = given(("max.poll.records", "1"), ("acks", "1"))
    assert "max.poll.records" not in found
    assert found["acks"] == "1"
    for name in ("sasl.kerberos.kinit.cmd", "plugin.library.paths", "transactional.id"):
        with pytest.raises(ValueError, match=name):
            given((name, "x"))
    with pytest.raises(MeshError, match="not open"):
        given(("ssl.ca.location", "/etc/passwd"))
    with pytest.raises(MeshError, match="may not connect to h:1"):
        given(egress=("*:9092",))
    assert given(egress=("h:1",))


def test_numbers_and_offsets_as_options_write_them() -> None:
    assert first_offsets("t=100, u=5") == {"t": 100, "u": 5}
    with pytest.raises(ValueError, match="is a list such as"):
        first_offsets("t")
    assert numbered(b"a:b:12~x~y") == ("a:b", 12, b"x~y")
    assert numbered(b"a~x") is None
    last = {"a": 4}
    assert without_repeats([b"a:4~x", b"a:5~y", b"b:0~z", b"plain"], last) == [
        None, b"y", b"z", b"plain",
    ]  # fmt: skip
    assert last == {"a": 5, "b": 0}


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
