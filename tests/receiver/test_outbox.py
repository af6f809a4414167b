"""Sinks as outboxes: order, positions, destinations that are away, refused events, fencing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from mesh.errors import MeshError
from mesh.jetstream import failed
from mesh.model.cluster import InstanceState
from tests.support.connectors import staged
from tests.support.sink_apps import APP, SINK, SPREAD, endpoints, events, numbers

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def test_events_arrive_once_in_order_with_keys(nats_server: NatsServer) -> None:
    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        await stage.publish("T", *events(0, 30))
        stage.start("sink-T")
        await stage.until("30 events", lambda: len(end.bodies) == 30)
        assert numbers(end) == list(range(30))
        assert end.keys[0] == "Out/T/inc/1.0"
        assert end.heads[0]["content-type"] == "application/json"
        await stage.publish("T", *events(30, 40))
        await stage.until("10 more", lambda: len(end.bodies) == 40)
        # A successor continues after the stored position.
        await stage.running[0].stop()
        await stage.publish("T", *events(40, 50))
        end.heads.clear()
        stage.start("sink-T", epoch=2)
        await stage.until("the last", lambda: len(end.bodies) == 50)
        assert numbers(end) == list(range(50))
        assert len(end.heads) == 10


async def test_a_destination_that_is_away_gets_what_it_missed(nats_server: NatsServer) -> None:
    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        instance = stage.start("sink-T")
        await stage.until_running(instance)
        await end.close()
        await stage.publish("T", *events(0, 5))

        def waits() -> bool:
            connector = stage.reports[-1].connectors[0] if stage.reports[-1].connectors else None
            return connector is not None and connector.state is InstanceState.RETRYING

        await stage.until("waits", waits)
        said = stage.reports[-1]
        assert said.state is InstanceState.RUNNING
        assert said.connectors[0].endpoint == end.url
        assert said.connectors[0].error
        assert said.connectors[0].retry_at_ms
        await end.open()
        await stage.until("5 events", lambda: len(end.bodies) == 5)
        assert numbers(end) == list(range(5))


async def test_refused_events_go_to_the_error_stream(nats_server: NatsServer) -> None:
    async with endpoints() as (end,):
        end.statuses = [200, 422]
        async with staged(nats_server, APP.format(SINK.format(end.url))) as stage:
            await stage.publish("T", *events(0, 3))
            stage.start("sink-T")
            await stage.until("2 events", lambda: len(end.bodies) == 2)
            (entry,) = await stage.until("the entry", stage.errors)
            assert entry["reason"] == "answered 422: no"
            assert entry["connector"] == "sink http"
            assert (entry["stream"], entry["sequence"], entry["index"]) == ("T", 2, 0)
            assert entry["data"] == '{"event":{"k":"k1","n":1}}'
            assert entry["attempts"] == 1


async def test_on_error_store_records_and_continues(nats_server: NatsServer) -> None:
    sink = SINK.replace("@map", "on.error='STORE', @map")

    async with endpoints() as (end,):
        await end.close()
        async with staged(nats_server, APP.format(sink.format(end.url))) as stage:
            await stage.publish("T", *events(0, 3))
            stage.start("sink-T")

            async def stored() -> bool:
                return len(await stage.errors()) == 3

            await stage.until("3 entries", stored)
            await end.open()
            await stage.publish("T", *events(3, 5))
            await stage.until("2 events", lambda: len(end.bodies) == 2)
            assert numbers(end) == [3, 4]


async def test_a_replaced_instance_ends(nats_server: NatsServer) -> None:
    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        old = stage.start("sink-T")
        await stage.until_running(old)
        new = stage.start("sink-T", epoch=2)
        await stage.until_running(new)
        await stage.publish("T", *events(0, 5))

        def replaced() -> bool:
            return any(r.epoch == 1 and r.newer_epoch == 2 for r in stage.reports)

        await stage.until("the old one has ended", replaced)
        await stage.until("5 events", lambda: len(end.bodies) == 5)
        assert numbers(end) == list(range(5))


async def test_a_reference_that_is_missing_is_named(nats_server: NatsServer) -> None:
    sink = "@sink(type='http', ref='nowhere', publisher.url='http://h/', @map(type='json'))"

    async with staged(nats_server, APP.format(sink)) as stage:
        stage.start("sink-T")
        await stage.until(
            "the reason", lambda: any('"nowhere"' in (r.error or "") for r in stage.reports)
        )


async def test_skipped_and_earlier_messages_are_not_sent(nats_server: NatsServer) -> None:
    from mesh.model.cluster import Skip

    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        await stage.publish("T", *events(0, 10))
        stage.start("sink-T", start={"mesh-Out-T": 2}, skips=(Skip("mesh-Out-T", 5, 8),))
        await stage.until("5 events", lambda: len(end.bodies) == 5)
        assert numbers(end) == [2, 3, 4, 8, 9]


async def test_a_sink_that_was_added_again_skips_what_was_stored_without_it(
    nats_server: NatsServer,
) -> None:
    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        await stage.publish("T", *events(0, 3))
        first = stage.start("sink-T")
        await stage.until("3 events", lambda: len(end.bodies) == 3)
        await first.stop()
        await stage.publish("T", *events(3, 6))
        info = await stage.js.stream_info("mesh-Out-T")
        groups = tuple(
            replace(g, starts={"mesh-Out-T": info.state.last_seq}) for g in stage.spec.groups
        )
        stage.spec = replace(stage.spec, groups=groups)
        stage.start("sink-T", epoch=2)
        await stage.publish("T", *events(6, 8))
        await stage.until("2 events", lambda: len(end.bodies) == 5)
        assert numbers(end) == [0, 1, 2, 6, 7]


@pytest.mark.slow
async def test_events_that_cant_be_read_are_recorded_by_a_sink_alone(
    nats_server: NatsServer,
) -> None:
    text = (
        "@App:name('Out') define stream S (n int); @sink(type='log') define stream T (n int);"
        "from S select n insert into T;"
    )

    async with staged(nats_server, text) as stage:
        stage.start("sink-T")
        await stage.publish("T", {"n": "x"}, {"n": 1})

        async def recorded() -> bool:
            return len(await stage.errors()) == 1

        await stage.until("the entry", recorded)
        await stage.until("the other", lambda: stage.reports[-1].events_out == 1)


async def test_a_refused_payload_is_replayed_to_its_destination_alone(
    nats_server: NatsServer,
) -> None:
    async with endpoints(2) as (one, other):
        other.statuses = [200, 422]
        spread = SPREAD.format("broadcast", "", one.url, other.url)
        async with staged(nats_server, APP.format(spread)) as stage:
            await stage.publish("T", *events(0, 3))
            instance = stage.start("sink-T")
            (entry,) = await stage.until("the entry", stage.errors)
            assert entry["connector"] == "sink http 2"
            assert orjson.loads(entry["event"]) == {"k": "k1", "n": 1}
            await stage.until("2 events", lambda: len(other.bodies) == 2)
            await stage.until("3 events", lambda: len(one.bodies) == 3)
            entry["id"] = 7
            other.statuses = [409]
            with pytest.raises(MeshError) as refused:
                await failed.send(stage.client, "Out", entry, None)
            assert refused.value.code == "MESH-A422"
            await failed.send(stage.client, "Out", entry, None)
            assert numbers(other) == [0, 2, 1]
            assert numbers(one) == [0, 1, 2]
            assert other.keys[-1] == one.keys[1] == "Out/T/inc/2.0"
            await instance.stop()
            with pytest.raises(MeshError, match="can't be replayed to sink http 2 now"):
                await failed.send(stage.client, "Out", entry, None)
