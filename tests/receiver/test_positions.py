"""Sources with several instances: parts divided by a rule, moved with their positions, fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.cluster import InstanceState
from mesh.plan.build import plan
from mesh.plan.groups import scaled
from mesh.receiver.positions import (
    EventLines,
    PositionStore,
    TakenOverError,
    changed,
    changes_of,
    token_of,
)
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
    return sorted(one.status().events_out for one in instances)


async def numbers(stage: Stage) -> list[int]:
    return sorted(event["n"] for event in await stage.events("S"))


async def _are(stage: Stage, expected: list[int]) -> bool:
    found = await numbers(stage)
    assert len(found) <= len(expected), found
    return found == expected


def send(kafka: Kafka, topic: str, values: range) -> None:
    for n in values:
        kafka.send(topic, orjson.dumps({"n": n}), partition=n % PARTITIONS)


@pytest.mark.slow
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
            return all(one.status().state is InstanceState.STOPPED for one in first)

        await stage.until("they end", ended)
        await stage.until("counts", lambda: sum(counts_of(second)) == 20)
        assert {one.status().newer_epoch >> 32 for one in first} == {2}


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


_leaves = st.integers() | st.text() | st.lists(st.integers() | st.none()) | st.none()
_objects = st.recursive(
    st.dictionaries(st.text(max_size=2), _leaves),
    lambda inner: st.dictionaries(st.text(max_size=2), inner | _leaves),
    max_leaves=8,
)


@given(_objects, _objects)
def test_changes_make_the_later_values_of_the_earlier_ones(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = changes_of(before, after)
    assert patch is None or changed(before, patch) == after
    assert changes_of(before, before) == {}


def test_a_value_that_becomes_null_has_no_patch() -> None:
    assert changes_of({"a": 1}, {"a": None}) is None
    assert changes_of({"a": {"b": 1}}, {"a": {"b": None}}) is None
    assert changes_of({"a": None}, {"a": None, "b": 1}) == {"b": 1}
    assert changes_of({"a": 1}, {"b": {}}) == {"a": None, "b": {}}


@pytest.mark.slow
async def test_a_large_position_costs_its_changes(nats_server: NatsServer) -> None:
    async with staged(nats_server, APP.format(app="Large", servers="none:1")) as stage:
        js_stream, subject = names.js_stream("Large", "S"), names.subject("Large", "S")

        def store(epoch: int) -> PositionStore:
            return PositionStore(stage.client, js_stream, "receiver-S-source", "inc", epoch)

        async def size() -> int:
            return int((await stage.js.stream_info(js_stream)).state.bytes)

        files = {f"/in/{n:04}": [n, 1, 2] for n in range(1000)}
        one = store(1)
        at = await one.take_over()
        at = await one.write(at, 0, {"files": files})
        first = await size()
        for number in range(1, 300):
            # The source changes its own object, and a file goes at times.
            files[f"/in/{number:04}"][1] += 1
            if number % 50 == 0:
                del files[f"/in/{number - 1:04}"]
            event = EventLines(b'{"n":1}')
            at = await one.write(at, number, {"files": files}, subject, [event])
            assert at.number == number
            if number % 60 == 0:
                # An instance that begins now has all of it.
                assert (await store(1).read()).values == {"files": files}
        # One marker with all values has 20 kB: 300 of them had 6 MB, and 256 stay.
        assert await size() < 8 * first
        assert len(await stage.events("S")) == 299
        two = store(2)
        at = await two.take_over()
        assert (at.number, at.values) == (299, {"files": files})
        with pytest.raises(TakenOverError):
            await one.read()
        # Without the message that the others build on nothing is read twice, or passed over.
        files["/in/new"] = [1, 1, 1]
        after = await two.write(at, 300, {"files": files})
        await stage.js.delete_msg(js_stream, at.sequence)
        with pytest.raises(MeshError, match="MESH-N113") as lost:
            await store(2).read()
        assert str(at.sequence) in str(lost.value.detail)
        assert (await two.renew(after)).is_current
        assert (await store(2).read()).values == {"files": files}


async def test_a_small_position_is_stored_whole(nats_server: NatsServer) -> None:
    async with staged(nats_server, APP.format(app="Small", servers="none:1")) as stage:
        js_stream = names.js_stream("Small", "S")
        store = PositionStore(stage.client, js_stream, "receiver-S-source", "inc", 1)
        at = await store.take_over()
        for number in range(3):
            at = await store.write(at, number, {"number": number})
        marker = await stage.js.get_last_msg(js_stream, f"{names.marker_subject(js_stream)}.>")
        assert orjson.loads(marker.data or b"")["source"] == {"number": 2}


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
