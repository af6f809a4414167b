"""NATS as an operator sees it: what is close to a limit is first, and names are for who may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js import api

from mesh.errors import MeshError
from mesh.manager.nats_state import (
    NatsState,
    app_of,
    consumers_of,
    nats_state,
    servers_of,
    stream_of,
)
from mesh.model import names

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def info(name: str, size: int = 0, most: int = -1, *copies: tuple[str, int, bool, bool]) -> Any:
    return {
        "config": {"name": name, "max_bytes": most, "max_age": 0, "num_replicas": 1 + len(copies)},
        "state": {"bytes": size, "messages": 3, "consumer_count": 1},
        "cluster": {
            "leader": "n1",
            "replicas": [
                {"name": server, "lag": lag, "current": is_current, "offline": is_offline}
                for server, lag, is_current, is_offline in copies
            ],
        },
    }


CALM = info("mesh-Shop-Orders", 100, -1, ("n2", 0, True, False))
FULL = info("mesh-Shop-errors-", 95, 100)
LATE = info("mesh-Bank-Bookings", 5, -1, ("n2", 40, False, False), ("n3", 0, False, True))
OWN = info("KV_mesh_control", 10)
FOREIGN = info("invoices", 20)


def state(*infos: Any) -> NatsState:
    streams = sorted(map(stream_of, infos), key=lambda one: (*one.rank, one.name))
    return NatsState("2.12", tuple(servers_of(streams)), (), tuple(streams), 0, 0)


def test_streams_that_are_late_or_nearly_full_come_first() -> None:
    found = state(CALM, FULL, LATE, OWN)
    assert [one.name for one in found.streams] == [
        "mesh-Bank-Bookings", "mesh-Shop-errors-", "mesh-Shop-Orders", "KV_mesh_control",
    ]  # fmt: skip
    assert (found.streams[0].lag, found.streams[0].late) == (40, ("n2", "n3"))
    told = [(one.name, one.leads, one.holds, one.late, one.is_offline) for one in found.servers]
    assert told == [("n3", 0, 1, 1, True), ("n2", 0, 2, 1, False), ("n1", 4, 4, 0, False)]


def test_a_user_of_some_apps_sees_no_name_of_another() -> None:
    found = state(CALM, FULL, LATE, OWN, FOREIGN).of(lambda app: app == "Shop", False)
    assert {one.name for one in found.streams} == {
        "mesh-Shop-Orders", "mesh-Shop-errors-", "KV_mesh_control",
    }  # fmt: skip
    assert (found.others, found.other_bytes) == (2, 25)
    assert state(LATE, FOREIGN).of(lambda app: False, True).others == 0


@pytest.mark.parametrize(
    ("stream", "app"),
    [
        (names.js_stream("Shop", "Orders"), "Shop"),
        (names.keyed_js_stream("a-b", "Orders", "item", 3), "a-b"),
        (names.error_js_stream("a-b"), "a-b"),
        (names.TOPICS, ""),
        (names.HISTORY_STREAM, ""),
        ("KV_mesh_apps", ""),
        ("invoices", ""),
    ],
)
def test_the_app_of_a_stream(stream: str, app: str) -> None:
    assert app_of(stream) == app


@pytest.mark.nats
async def test_a_server_tells_its_use_streams_and_consumers(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    await js.add_stream(name="invoices", subjects=["invoices.>"], max_bytes=10_000)
    for _ in range(8):
        await js.publish("invoices.new", b"x" * 1000)
    await js.add_consumer("invoices", api.ConsumerConfig(durable_name="ledger"))
    found = await nats_state(client)
    (stream,) = found.streams
    assert (stream.name, stream.messages, stream.consumers) == ("invoices", 8, 1)
    assert stream.ratio > 0.8
    uses = {use.name: use for use in found.uses}
    assert uses["Streams"].used == 1
    assert uses["Disk"].used == stream.bytes
    (consumer,) = await consumers_of(client, "invoices")
    assert (consumer.name, consumer.pending, consumer.is_durable) == ("ledger", 8, True)
    with pytest.raises(MeshError, match="MESH-A404"):
        await consumers_of(client, "nothing")
    await client.close()
