"""The demo's app over its year of weather: its output in NATS equals the reference engine's.

Also with a worker or a Spark session killed half-way: no row lost or duplicate, row by row.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import nkeys  # type: ignore[import-untyped]  # it ships none
import pytest

from mesh.jetstream.connection import login
from mesh.testing import weather
from tests.support.paths import ROOT
from tests.support.scenes import Kill, calm, killed
from tests.support.secured import PUBLISHER, READER
from tools import expectations
from tools.cluster import MeshClusterView

if TYPE_CHECKING:
    from mesh.settings import NatsSettings

APP = (ROOT / "examples" / "temperature.siddhi").read_text()

#: Publishes that wait for their acknowledgement at a time.
WINDOW = 500
#: A busy machine may take longer than the client waits by itself, seconds.
ACK_S = 30

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

Fault = Callable[[MeshClusterView, str], Awaitable[None]]
Ready = Callable[[], Awaitable[None]]


@cache
def expected() -> expectations.Expectations:
    """Read when a test asks for it: each process of the tests imports this file."""
    return expectations.load(ROOT / "tests" / "cases" / "temperature")


def named(name: str) -> str:
    return APP.replace("@App:name('Temperature')", f"@App:name('{name}')")


async def publish_year(view: MeshClusterView, app: str) -> None:
    """The whole year, as a client that waits for acknowledgements now and then."""
    subject = f"mesh.{app}.TempStream"
    events = list(weather.load().events())
    for start in range(0, len(events), WINDOW):
        await asyncio.gather(
            *(
                view.js.publish(
                    subject,
                    json.dumps(row).encode(),
                    ACK_S,
                    headers={"Mesh-Timestamp": str(time_ms)},
                )
                for time_ms, row in events[start : start + WINDOW]
            )
        )


async def year(
    view: MeshClusterView, app: str, fault: Fault | None = None, ready: Ready | None = None
) -> None:
    """Deploy, publish the year, break something half-way, and compare every row.

    Args:
        view: of the cluster.
        app: its name.
        fault: the fault to inject half-way, while events arrive.
        ready: waits until the fault is allowed, before the first event.
    """
    await view.service.deploy(named(app))
    await view.until_running(app)
    if ready is not None:
        await ready()

    async def counts() -> dict[str, int]:
        return {
            stream: await view.count(f"mesh-{app}-{stream}", f"mesh.{app}.{stream}")
            for stream in expectations.STREAMS
        }

    publishing = asyncio.create_task(publish_year(view, app))
    if fault is not None:

        async def half_way() -> bool:
            return (await counts())["AlertStream"] > len(expected().rows["AlertStream"]) // 4

        await view.until("half-way", half_way)
        await fault(view, app)
    await publishing

    async def complete() -> bool:
        found = await counts()
        return all(found[s] >= len(expected().rows[s]) for s in expectations.STREAMS)

    await view.until(f"all rows of {app}", complete)

    def caught_up() -> bool:
        snapshot = view.view.snapshot()
        mine = [s.value for s in snapshot.statuses if s.value.app == app]
        return all(s.behind == 0 and s.state == "running" for s in mine)

    await view.until("nothing behind", caught_up)
    for stream in expectations.STREAMS:
        messages = await view.messages(f"mesh-{app}-{stream}", f"mesh.{app}.{stream}")
        rows: list[dict[str, Any]] = [json.loads(m.data) for m in messages]
        # Two instances write HighTempStream, so its order is not given.
        ordered = stream != "HighTempStream"
        assert expected().differences(stream, rows, ordered=ordered) == []
    await view.service.undeploy(app)


def worker_of(view: MeshClusterView, instance: str) -> str:
    placed = {a.value.instance: a.value.worker for a in view.view.snapshot().assignments}
    return placed[instance]


async def kill_session(view: MeshClusterView, app: str) -> None:
    view.cluster.kill_session(worker_of(view, f"{app}-group-1-1"))


@pytest.mark.extended
@calm
async def test_the_year_is_the_reference_engines(view: MeshClusterView) -> None:
    await year(view, "Year")


@killed
async def test_the_year_with_a_worker_killed(view: MeshClusterView, kill: Kill) -> None:
    async def kill_worker(view: MeshClusterView, app: str) -> None:
        victim = worker_of(view, f"{app}-group-1-1")
        await kill.happens(victim=victim)
        await view.until("moved", lambda: worker_of(view, f"{app}-group-1-1") != victim)

    # The others wait for it: events of the year arrive all the time.
    await year(view, "YearLessAWorker", kill_worker, kill.others)


@pytest.mark.extended
def test_the_year_with_a_session_killed(play: Callable[..., None]) -> None:
    play(lambda view: year(view, "YearLessASession", kill_session))


@calm
async def test_events_that_cannot_be_read_are_told_and_the_rest_goes_on(
    view: MeshClusterView,
) -> None:
    sent = [
        b'{"deviceID": 1, "roomNo": 105, "temp": 50.0}',
        b"no json",
        b'{"deviceID": 1, "temp": 51.0}',
        b'{"deviceID": 1, "roomNo": "105", "temp": 52.0}',
        b'{"deviceID": 1, "roomNo": 105, "temp": 53.0, "humidity": 7}',
        b'{"deviceID": 1, "roomNo": 105, "temp": null}',
        b'{"deviceID": 1, "roomNo": 105, "temp": 60.0}',
    ]
    await view.service.deploy(named("Bad"))
    await view.until_running("Bad")
    for payload in sent:
        await view.js.publish("mesh.Bad.TempStream", payload)

    async def rows(stream: str) -> list[Any]:
        messages = await view.messages(f"mesh-Bad-{stream}", f"mesh.Bad.{stream}")
        return [json.loads(m.data) for m in messages]

    async def high() -> bool:
        return len(await rows("HighTempStream")) >= 3

    await view.until("readable rows", high)
    found = sorted(row["temp"] for row in await rows("HighTempStream"))
    assert found == [50.0, 53.0, 60.0]

    async def told() -> list[dict[str, Any]] | None:
        errors = await view.service.events.failed("Bad", 10)
        return errors if len(errors) >= 3 else None

    errors = await view.until("errors", told)
    assert [e["sequence"] for e in errors] == [2, 3, 4]
    assert [e["data"] for e in errors] == [p.decode() for p in sent[1:4]]
    assert "JSON" in errors[0]["reason"]
    assert 'attribute "roomNo" is missing' in errors[1]["reason"]
    assert "roomNo" in errors[2]["reason"]
    assert "int" in errors[2]["reason"]
    await view.service.undeploy("Bad")


class PlainClient:
    """The NATS protocol by hand: a client without knowledge of mesh or JetStream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, settings: NatsSettings) -> PlainClient:
        address = urlsplit(settings.url.partition(",")[0])
        client = cls(*await asyncio.open_connection(address.hostname, address.port))
        said = json.loads((await client.reader.readline()).removeprefix(b"INFO "))
        given: dict[str, Any] = {"verbose": False, "headers": True}
        options = login(settings)
        if "tls" in options:
            await client.writer.start_tls(options["tls"], server_hostname=address.hostname)
        if "nkeys_seed_str" in options:
            key = nkeys.from_seed(options["nkeys_seed_str"].encode())
            signed = base64.b64encode(key.sign(said["nonce"].encode())).decode()
            given |= {"nkey": key.public_key.decode(), "sig": signed}
        client.writer.write(b"CONNECT " + json.dumps(given).encode() + b"\r\nPING\r\n")
        assert await client.reader.readline() == b"PONG\r\n"
        return client

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def subscribe(self, subject: str) -> None:
        self.writer.write(f"SUB {subject} 1\r\nPING\r\n".encode())
        assert await self.reader.readline() == b"PONG\r\n"

    def publish(self, subject: str, payload: bytes) -> None:
        self.writer.write(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")

    async def next_payload(self) -> bytes:
        while True:
            words = (await self.reader.readline()).split()
            if words[0] == b"PING":
                self.writer.write(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                data = await self.reader.readexactly(int(words[-1]) + 2)
                header = int(words[-2]) if words[0] == b"HMSG" else 0
                return data[header:-2]


@calm
async def test_a_plain_client_publishes_and_reads(view: MeshClusterView) -> None:
    await view.service.deploy(named("Plain"))
    await view.until_running("Plain")
    client = await PlainClient.connect(view.cluster.settings(READER))
    await client.subscribe("mesh.Plain.AlertStream")
    publisher = await PlainClient.connect(view.cluster.settings(PUBLISHER))
    publisher.publish("mesh.Plain.TempStream", b'{"deviceID":1,"roomNo":7,"temp":20}')
    publisher.publish("mesh.Plain.TempStream", b'{"deviceID":1,"roomNo":7,"temp":26.5}')
    async with asyncio.timeout(60):
        alert = json.loads(await client.next_payload())
    await client.close()
    await publisher.close()
    assert alert == {"roomNo": 7, "initialTemp": 20.0, "finalTemp": 26.5}
    await view.service.undeploy("Plain")
