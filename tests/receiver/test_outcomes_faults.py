"""Failed events of sources and sinks: fault stream, error stream, log; as the reference engine.

Its answers were taken from a sink of its own that fails (siddhi-core 5.1.7): an event that can't be
sent is tried twice and follows ``on.error``; one that the destination refuses goes to the fault
stream whatever ``on.error`` says; without ``@OnError(action='STREAM')`` both are logged.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.functions.objects import from_binary
from mesh.plan.build import plan
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.connectors import Endpoint, staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
define stream S (k string, n int);
{ON_ERROR}
@sink(type='http', publisher.url='{url}', {option} @map(type='json'))
define stream T (k string, n int);
define stream F (k string, n int, _error object);
@dist(execGroup='main') from S select k, n insert into T;
{reader}
"""
STREAM = "@OnError(action='STREAM')"
READER = "@dist(execGroup='faults') from !T select k, n, _error insert into F;"
SOURCE = """@App:name('In')
@OnError(action='STREAM')
@source(type='file', file.uri='{path}', {option} @map(type='csv'))
define stream S (n int);
@dist(execGroup='main') from S select n insert into T;
@dist(execGroup='faults') from !S select n, _error insert into F;
"""


def app(url: str, option: str = "", stream: str = STREAM, reader: str = READER) -> str:
    text = APP.replace("{ON_ERROR}", stream).replace("{reader}", reader).replace("{url}", url)
    return text.replace("{option}", option)


async def faults(stage: Stage, stream: str) -> list[tuple[Any, ...]]:
    """Values of the events of a fault stream."""
    found = []
    channel = next(c for c in stage.spec.channels if c.stream.name == stream)
    for data in await stage.messages(channel.js_stream(), channel.subject()):
        for rows in pa.ipc.open_stream(io.BytesIO(data)):
            columns = [column.to_pylist() for column in rows.columns[:-1]]
            errors = [(one.kind, one.text) for one in from_binary(rows.column("_error"))]
            found += list(zip(*columns, errors, strict=True))
    return found


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """An endpoint that has a port and is closed."""
    end = Endpoint()
    await end.open()
    await end.close()
    try:
        yield end
    finally:
        with contextlib.suppress(KeyError):
            await end.close()


AWAY = "io.siddhi.core.exception.ConnectionUnavailableException"


async def test_events_that_can_not_be_sent_are_events_of_the_fault_stream(
    nats_server: NatsServer,
) -> None:
    async with endpoint() as end:
        text = app(end.url, "on.error='STREAM',").replace("{app}", "Away")
        async with staged(nats_server, text) as stage:
            headers = {"Mesh-Timestamp": "1500"}
            await stage.js.publish("mesh.Away.T", b'{"k":"a","n":1}', headers=headers)
            await stage.publish("T", {"k": "b", "n": 2})
            stage.start("sink-T")

            async def both() -> list[tuple[Any, ...]]:
                found = await faults(stage, "!T")
                return found if len(found) == 2 else []

            found = await stage.until("two faults", both)
            assert [one[:2] for one in found] == [("a", 1), ("b", 2)]
            assert {one[2][0] for one in found} == {AWAY}
            assert all(one[2][1] for one in found)
            channel = next(c for c in stage.spec.channels if c.stream.name == "!T")
            first = await stage.js.get_msg(channel.js_stream(), 1)
            assert (first.headers or {})["Mesh-Timestamp"] == "1500"
            assert await stage.errors() == []
            # It continues with what arrives once the destination is back.
            await end.open()
            await stage.publish("T", {"k": "c", "n": 3})
            await stage.until("the third", lambda: end.bodies)
            assert [body["event"]["n"] for body in end.bodies] == [3]


@pytest.mark.parametrize(
    ("option", "stream", "reader", "is_fault"),
    [
        ("", STREAM, READER, True),
        ("on.error='LOG',", STREAM, READER, True),
        ("on.error='STORE',", STREAM, READER, False),
        ("on.error='STREAM',", "", "", False),
    ],
)
async def test_refused_events_go_to_the_fault_stream_that_is_read(
    nats_server: NatsServer, option: str, stream: str, reader: str, is_fault: bool
) -> None:
    async with endpoint() as end:
        end.statuses = [422]
        await end.open()
        text = app(end.url, option, stream, reader).replace("{app}", "Refused")
        async with staged(nats_server, text) as stage:
            await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
            stage.start("sink-T")
            await stage.until("the second", lambda: end.bodies)
            if is_fault:
                found = await stage.until("the fault", lambda: faults(stage, "!T"))
                assert found == [("a", 1, ("java.lang.RuntimeException", "answered 422: no"))]
                assert await stage.errors() == []
            else:
                (entry,) = await stage.until("the entry", stage.errors)
                assert entry["reason"] == "answered 422: no"
                assert orjson.loads(entry["event"]) == {"k": "a", "n": 1}


@pytest.mark.slow
@pytest.mark.parametrize("on_error", ["STREAM", "LOG", ""])
async def test_payloads_that_can_not_be_read(
    nats_server: NatsServer, tmp_path: Path, on_error: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1\nx\n2\n")
    option = f"on.error='{on_error}'," if on_error else ""
    text = SOURCE.format(path=path, option=option)
    reason = 'attribute "n" is "x", not an int'

    access = NodeAccess((str(tmp_path),), ())
    async with staged(nats_server, text, access) as stage:
        stage.start("receiver-S")

        async def both() -> bool:
            return len(await stage.events("S")) == 2

        await stage.until("two events", both)
        if on_error == "STREAM":
            found = await stage.until("the fault", lambda: faults(stage, "!S"))
            assert found == [(None, ("java.lang.RuntimeException", reason))]
        elif on_error == "":
            await stage.until("the entry", stage.errors)
        entries = [entry["reason"] for entry in await stage.errors()]
        assert entries == ([reason] if on_error == "" else [])


def test_a_group_that_reads_both_has_the_failures_of_its_own_queries_only() -> None:
    both = (
        "@dist(execGroup='main') from !T select k, n insert into F2;"
        "@dist(execGroup='main') from T select k insert into G;"
    )
    spec = plan(app("http://h/", reader=both).replace("{app}", "Both")).spec
    sink = spec.group("sink-T")
    assert sink is not None
    assert sink.outputs == ()
    with pytest.raises(MeshError) as caught:
        plan(app("http://h/", "on.error='STREAM',", reader=both).replace("{app}", "Both"))
    assert caught.value.code == "MESH-P900"
    assert "!T" in caught.value.message


def test_retry_is_an_action_of_stores_only() -> None:
    with pytest.raises(MeshError) as caught:
        plan(app("http://h/", "on.error='RETRY',").replace("{app}", "Retry"))
    assert caught.value.code == "MESH-L224"


@pytest.mark.extended
async def test_a_fault_is_recorded_once_wherever_the_host_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with endpoint() as end:

        async def publish(stage: Stage) -> None:
            await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})

        async def failed(stage: Stage) -> list[int]:
            return [one[1] for one in await faults(stage, "!T")]

        text = app(end.url, "on.error='STREAM',")
        use = ConnectorScenario(text, "sink-T", publish, failed, lambda found: len(found) >= 2)
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"before publish with an ack", "after publish with an ack"} <= set(moments)
