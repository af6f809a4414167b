"""Start positions of an app in existing streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from mesh.errors import MeshError
from mesh.jetstream.stream_positions import skipped_positions
from mesh.manager.manager import running
from mesh.model.begin import EARLIEST, StartPosition, StartPositionKind, parse_start_position
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.plan.edits import with_start_positions
from mesh.settings import ManagerSettings, NatsSettings, Settings
from mesh.spark.drain import start_offsets
from mesh.spark.instance_io import InstanceIO

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

APP = """@App:name('A')
@source(type='nats', stream='FEED', destination='feed.>') define stream S (a int);
define stream R (k string, a int);
@dist(execGroup='one') from S select a insert into T;
@dist(execGroup='two') from T#window.length(2) select sum(a) as s insert into U;
@dist(execGroup='three', parallel='2') from R select k, sum(a) as s group by k insert into V;
"""


def test_what_comes_from_outside_is_what_no_group_fills() -> None:
    assert sorted(plan(APP).spec.external_streams) == ["FEED", "mesh-A-R"]


def test_only_those_who_read_a_stream_begin_in_it() -> None:
    spec = with_start_positions(plan(APP).spec, {"FEED": 7, "mesh-A-R": 3})
    begins = {group.name: dict(group.starts) for group in spec.groups if group.starts}
    assert begins == {"one": {"FEED": 7}, "partition-R-k": {"mesh-A-R": 3}}
    group = spec.group("one")
    assert group is not None
    assignment = Assignment("A-one-1", "A", "one", 1, "i", "w", 1, 1)
    assert start_offsets(InstanceIO(group, assignment), {}) == {
        "FEED": {"sequence": 7, "time_ms": 0}
    }


async def test_a_beginning_is_a_sequence_of_each_stream(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    for name in ("FULL", "EMPTY"):
        await js.add_stream(name=name, subjects=[f"{name}.>"])
    for n in range(10):
        await js.publish("FULL.x", b"%d" % n)
    await js.purge_stream("FULL", seq=3)
    streams = ("FULL", "EMPTY", "MISSING")

    async def at(begin: StartPosition) -> dict[str, int]:
        return await skipped_positions(client, streams, begin)

    assert await at(EARLIEST) == {}
    assert await at(StartPosition(StartPositionKind.LATEST)) == {"FULL": 10}
    assert await at(parse_start_position("5")) == {"FULL": 4}
    # What is there no more, and what isn't there yet.
    assert await at(parse_start_position("1")) == {"FULL": 2}
    assert await at(parse_start_position("99")) == {"FULL": 10}
    assert await at(parse_start_position("2001-01-01T00:00:00Z")) == {"FULL": 2}
    assert await at(parse_start_position("2100-01-01T00:00:00Z")) == {"FULL": 10}
    # The server's nanoseconds end in 2262, and would wrap around to the first message.
    assert await at(parse_start_position("9999-12-31T00:00:00Z")) == {"FULL": 10}
    await client.close()


async def test_a_time_that_nats_can_not_look_up_is_not_the_end(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a server starts; it can't be made to answer so at a given moment."""

    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    await js.add_stream(name="FULL", subjects=["FULL.>"])
    await js.publish("FULL.x", b"")
    request = client.request

    async def away(subject: str, *given: Any, **named: Any) -> Any:
        if "MSG.GET" not in subject:
            return await request(subject, *given, **named)
        return Msg(client, data=b'{"error":{"code":503,"err_code":10008,"description":"away"}}')

    monkeypatch.setattr(client, "request", away)
    with pytest.raises(ServiceUnavailableError):
        await skipped_positions(client, ["FULL"], parse_start_position("2001-01-01T00:00:00Z"))
    await client.close()


async def test_a_running_app_goes_on_from_where_it_is(nats_server: NatsServer) -> None:
    text = "@App:name('B') define stream S (a int); from S select a insert into T;"

    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.update(text, begin=StartPosition(StartPositionKind.LATEST))
        await manager.journal.stored()
        told = [entry.text for entry in await service.story("B")]
        assert "deployed app B, 1 instances, to read from latest" in told
        changed = text.replace("a insert", "a + 1 as a insert")
        with pytest.raises(MeshError) as refused:
            await service.update(changed, begin=parse_start_position("4"))
        assert refused.value.code == "MESH-A409"
