"""Sources with several instances: parts divided by a rule, moved with their positions, fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.errors import MeshError
from mesh.model.cluster import InstanceState
from mesh.plan.build import plan
from mesh.plan.groups import scaled
from mesh.receiver.positions import token_of
from mesh.receiver.types import kafka_source
from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from mesh.receiver.instance import ConnectorInstance
    from mesh.testing.connectors import Stage
    from tests.support.kafka import Kafka

pytestmark = pytest.mark.nats

PARTITIONS = 5
APP = """@App:name('{app}')
@source(type='kafka', bootstrap.servers='{servers}', topic.list='{app}', group.id='g',
        @dist(parallel='2'), @map(type='json'))
define stream S (n int);
from S select n insert into T;
"""


def started(stage: Stage, count: int, *, form: int) -> list[ConnectorInstance]:
    """All instances of a form of the group with ``count`` of them."""
    stage.spec = scaled(stage.spec, "receiver-S", count)
    group = stage.spec.group("receiver-S")
    assert group is not None
    # Reports of two forms differ by their epoch.
    return [
        stage.start("receiver-S", form, instance=name, index=index, form=form)
        for index, name in enumerate(group.instances, 1)
    ]


def counts_of(instances: list[ConnectorInstance]) -> list[int]:
    """Stored events of each, counted once the broker has answered."""
    return sorted(one._counts()["events_out"] for one in instances)


async def numbers(stage: Stage) -> list[int]:
    return sorted(event["n"] for event in await stage.events("S"))


async def _are(stage: Stage, expected: list[int]) -> bool:
    found = await numbers(stage)
    assert len(found) <= len(expected), found
    return found == expected


def send(kafka: Kafka, topic: str, values: range) -> None:
    for n in values:
        kafka.send(topic, orjson.dumps({"n": n}), partition=n % PARTITIONS)


async def test_partitions_move_with_their_positions_and_earlier_owners_are_fenced(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("Shared", partitions=PARTITIONS)

    text = APP.format(app="Shared", servers=kafka.servers)
    async with staged(nats_server, text) as stage:
        await asyncio.to_thread(send, kafka, "Shared", range(20))
        first = started(stage, 2, form=1)
        await stage.until("20 events", lambda: _are(stage, list(range(20))))
        # Each partition has four of them: three partitions here, two there.
        await stage.until("counts", lambda: counts_of(first) == [8, 12])
        # The earlier instances run on, as on a worker that was cut off.
        second = started(stage, 3, form=2)
        for one in second:
            await stage.until_running(one)
        await asyncio.to_thread(send, kafka, "Shared", range(20, 40))
        await stage.until("40 events", lambda: _are(stage, list(range(40))))

        def ended() -> bool:
            return all(one._state is InstanceState.STOPPED for one in first)

        await stage.until("they end", ended)
        await stage.until("counts", lambda: sum(counts_of(second)) == 20)
        assert {one._newer_epoch >> 32 for one in first} == {2}


async def test_a_partition_that_is_new_is_read_by_one_instance(
    nats_server: NatsServer, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    kafka.create("Grows", partitions=1)
    monkeypatch.setattr(kafka_source, "_LOOK_S", 0.1)

    text = APP.format(app="Grows", servers=kafka.servers)
    async with staged(nats_server, text) as stage:
        running = started(stage, 2, form=1)
        await asyncio.to_thread(kafka.send, "Grows", b'{"n":0}')
        await stage.until("an event", lambda: _are(stage, [0]))
        admin = AdminClient(kafka.own)
        made = admin.create_partitions([NewPartitions("Grows", 2)])
        await asyncio.to_thread(made["Grows"].result, 10)
        await asyncio.to_thread(kafka.send, "Grows", b'{"n":1}', partition=1)
        await asyncio.to_thread(kafka.send, "Grows", b'{"n":2}')
        await stage.until("all", lambda: _are(stage, [0, 1, 2]))
        await stage.until("counts", lambda: counts_of(running) == [1, 2])
        assert {r.restarts for r in stage.reports} == {0}


async def test_a_position_of_all_partitions_is_divided(
    nats_server: NatsServer, kafka: Kafka
) -> None:
    kafka.create("Whole", partitions=2)
    for n in range(4):
        kafka.send("Whole", orjson.dumps({"n": n}), partition=n % 2)

    text = APP.format(app="Whole", servers=kafka.servers)
    async with staged(nats_server, text) as stage:
        # As versions without parts have stored it.
        found: dict[str, Any] = {"position": 3, "epoch": 7, "incarnation": "inc"}
        found["source"] = {"offsets": {"Whole": {"0": 1, "1": 2}}}
        subject = "mesh._marker.mesh-Whole-S.receiver-S-source"
        await stage.js.publish(subject, orjson.dumps(found))
        started(stage, 2, form=1)
        await stage.until("the rest", lambda: _are(stage, [2]))


def test_names_of_parts_are_tokens_of_subjects() -> None:
    assert token_of("a-b_C/3") == "a-b_C=2f3"
    assert token_of("a.b/0") != token_of("a=2eb/0")


def test_only_sources_that_can_be_shared_are_scaled() -> None:
    spec = plan(APP.format(app="Scale", servers="h:1")).spec
    assert [g.parallel for g in scaled(spec, "receiver-S", 4).groups if g.connectors] == [4]
    text = APP.replace("type='kafka', bootstrap.servers='{servers}', topic.list='{app}'", "{0}")
    text = text.replace("group.id='g',", "").replace("@dist(parallel='2'),", "")
    one = plan(text.format("type='file', file.uri='/x'", app="Scale")).spec
    with pytest.raises(MeshError, match="can't have 2 instances"):
        scaled(one, "receiver-S", 2)
