"""Taps and publishing through NATS, also where an event loop runs already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh import client
from mesh.jetstream.connection import close, connect
from mesh.model import codec, names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture
def at(nats_server: NatsServer) -> client.ClientContext:
    """A context with the stream Orders of the app Shop."""

    async def make() -> None:
        nats = await connect(NatsSettings(url=nats_server.url), "test")
        subjects = [names.subject("Shop", "Orders")]
        await nats.jetstream().add_stream(name=names.js_stream("Shop", "Orders"), subjects=subjects)
        await close(nats)

    asyncio.run(make())
    return client.ClientContext(server="http://127.0.0.1:9", nats=nats_server.url)


async def test_a_tap_that_is_entered_misses_no_event(at: client.ClientContext) -> None:
    async with client.AsyncClient(at) as mesh, mesh.tap("Shop", "Orders") as events:
        assert await mesh.publish("Shop", "Orders", [{"n": n} for n in range(3)]) == 3
        found = await events.take(3, timeout_s=20)
        with pytest.raises(TimeoutError, match="0 of 1"):
            await events.take(1, timeout_s=0.01)
    assert [one.event for one in found] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert {one.subject for one in found} == {"mesh.Shop.Orders"}


async def test_a_tap_that_blocks_works_beside_a_loop_and_begins_with_the_oldest(
    at: client.ClientContext,
) -> None:
    # As in a notebook, whose cells run in a loop.
    with client.Client(at) as mesh:
        mesh.publish("Shop", "Orders", [{"n": 1, "ms": 5}, {"n": 2, "ms": 6}], time="ms")
        with mesh.tap("Shop", "Orders", from_start=True) as events:
            first, second = events.take(2, timeout_s=20)
            with pytest.raises(TimeoutError, match="0 of 1"):
                events.take(1, timeout_s=0.01)
    assert (first.event["n"], first.sequence, first.time_ms) == (1, 1, 5)
    assert (second.event["n"], second.sequence, second.time_ms) == (2, 2, 6)


async def test_what_a_tap_can_not_do_is_an_error_where_it_is_entered(
    at: client.ClientContext,
) -> None:
    with client.Client(at) as mesh:
        with pytest.raises(client.MeshError) as raised, mesh.tap("Shop", "no stream"):
            pass
        assert raised.value.code == "MESH-U121"
        with pytest.raises(client.MeshError) as raised, mesh.tap("Shop", "!Orders"):
            pass
        assert str(raised.value.hint).startswith("Streams with ! and # stay inside")
    with client.Client(client.ClientContext(server="http://127.0.0.1:9")) as mesh:
        with pytest.raises(client.MeshError) as raised, mesh.tap("Shop", "Orders"):
            pass
        assert raised.value.code == "MESH-U111"


async def test_a_stream_that_a_deployed_app_has_not_is_refused_and_others_are_named(
    at: client.ClientContext,
) -> None:
    text = "@App:name('Shop') define stream Orders (n int); from Orders select n insert into Found;"
    record = AppRecord(plan(text).spec, "i1", 0)
    nats = await connect(NatsSettings(url=at.nats), "test")
    bucket = await nats.jetstream().create_key_value(bucket=names.APPS_BUCKET)
    await bucket.put(names.app_key("Shop"), codec.encode(record))
    await close(nats)
    async with client.AsyncClient(at) as mesh:
        with pytest.raises(client.MeshError) as raised:
            async with mesh.tap("Shop", "Fund"):
                pass
    assert (raised.value.code, raised.value.hint) == ("MESH-N111", 'Did you mean "Found"?')
    assert str(raised.value.detail).endswith("Channels: Found, Orders.")


async def test_another_mesh_than_the_process_s_is_refused(at: client.ClientContext) -> None:
    other = client.ClientContext(server=at.server, nats=at.nats, mesh="other")
    with (
        client.Client(other) as mesh,
        pytest.raises(client.MeshError) as raised,
        mesh.tap("Shop", "Orders"),
    ):
        pass
    assert raised.value.code == "MESH-U105"


def test_one_event_in_place_of_several_and_a_value_that_json_has_not_are_refused(
    at: client.ClientContext,
) -> None:
    with client.Client(at) as mesh:
        with pytest.raises(TypeError, match="iterable of events"):
            mesh.publish("Shop", "Orders", {"n": 1})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match=r"no JSON object: .* set; 1 event stored"):
            mesh.publish("Shop", "Orders", [{"n": 1}, {"n": {2}}])
