"""The host killed as a process while events flow, for a connector of each family of transports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiomqtt
import httpx
import pytest
import websockets.asyncio.server
from nats.js.errors import NotFoundError

from mesh.connect.contract import Context
from mesh.jetstream.server import free_port
from mesh.model import names
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.processes.signals import end
from mesh.receiver.tcp_server import message_of
from mesh.receiver.types.mqtt import client_of
from mesh.settings import NatsSettings, ReceiverSettings, Settings
from mesh.worker.protocol import SessionConfig, StartInstance
from tests.receiver.test_host import Session
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

pytestmark = pytest.mark.nats

APP = """@App:name('Killed')
define stream {other} (n int);
@{role}({options}) define stream {own} (n int);
from S select n insert into T;
"""
KILLS: Final = 2
#: Number of the events before the first one that counts, and of the last one.
EARLY, LAST = -1, 1 << 30
LOST = (OSError, httpx.HTTPError, aiomqtt.MqttError)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of numbers through a source or sink."""

    options: str
    #: Opens a connection; the function sends a number, and raises one of ``LOST`` where it fails.
    connect: Callable[[Stage], AbstractAsyncContextManager[Callable[[int], Awaitable[None]]]]
    #: Numbers at a sink's other side; None for a source.
    arrived: list[int] | None = None
    #: Whether the sender knows what it has to send again.
    is_acknowledged: bool = True
    #: Whether a number may come twice.
    may_repeat: bool = False

    def text(self) -> str:
        if self.arrived is None:
            return APP.format(role="source", own="S", other="T", options=self.options)
        return APP.format(role="sink", own="T", other="S", options=self.options)

    @property
    def group(self) -> str:
        return "receiver-S" if self.arrived is None else "sink-T"

    async def numbers(self, stage: Stage) -> list[int]:
        if self.arrived is not None:
            return self.arrived
        return [row["n"] for row in await stage.events("S")]

    async def last(self, stage: Stage) -> int | None:
        """The last number; None if there is none."""
        if self.arrived is not None:
            return self.arrived[-1] if self.arrived else None
        try:
            message = await stage.js.get_last_msg("mesh-Killed-S", names.subject("Killed", "S"))
        except NotFoundError:
            return None
        return int(json.loads((message.data or b"").rpartition(b"\n")[2])["n"])

    def check(self, found: list[int], sent: int) -> None:
        """Fail unless the numbers are what the connector promises of those below ``sent``."""
        found = [n for n in found if n != EARLY]
        found = list(dict.fromkeys(found)) if self.may_repeat else found[: found.index(LAST) + 1]
        if self.is_acknowledged:
            assert found == [*range(sent), LAST]
        else:
            assert found == sorted(set(found))


@asynccontextmanager
async def http_way(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Way]:
    url = f"http://127.0.0.1:{free_port()}/in"

    @asynccontextmanager
    async def connect(_: Stage) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        async with httpx.AsyncClient() as client:

            async def send(n: int) -> None:
                head = {"Idempotency-Key": str(n)}
                answer = await client.post(url, json={"event": {"n": n}}, headers=head)
                answer.raise_for_status()

            yield send

    yield Way(f"type='http', receiver.url='{url}', @map(type='json')", connect)


@asynccontextmanager
async def tcp_way(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Way]:
    port = free_port()

    @asynccontextmanager
    async def connect(stage: Stage) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send(n: int) -> None:
            writer.write(message_of("s", "Killed", struct.pack(">iqi", 1, 1, n)))
            await writer.drain()
            await stage.client.flush()

        try:
            yield send
        finally:
            writer.close()

    options = f"type='tcp', context='Killed', host='127.0.0.1', port='{port}', @map(type='binary')"
    yield Way(options, connect, is_acknowledged=False)


@asynccontextmanager
async def mqtt_way(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Way]:
    url = request.getfixturevalue("mosquitto")

    @asynccontextmanager
    async def connect(_: Stage) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        async with client_of(Context("a", "s", {"url": url}), "sender-of-killed") as client:

            async def send(n: int) -> None:
                await client.publish("killed/in", json.dumps({"n": n}), qos=1)

            yield send

    options = f"type='mqtt', url='{url}', topic='killed/in', @map(type='json')"
    yield Way(options, connect, may_repeat=True)


@asynccontextmanager
async def file_way(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Way]:
    path = directory / "in" / "numbers.csv"
    path.parent.mkdir()

    @asynccontextmanager
    async def connect(stage: Stage) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        with path.open("a", buffering=1) as file:

            async def send(n: int) -> None:
                file.write(f"{n}\n")
                await stage.client.flush()

            yield send

    given = f"type='file', dir.uri='{path.parent}', file.polling.interval='20'"
    yield Way(f"{given}, @map(type='csv')", connect)


@asynccontextmanager
async def websocket_way(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Way]:
    arrived: list[int] = []

    async def serve(connection: Any) -> None:
        with suppress(websockets.exceptions.ConnectionClosed):
            while True:
                arrived.append(json.loads(await connection.recv())["event"]["n"])

    @asynccontextmanager
    async def connect(stage: Stage) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        async def send(n: int) -> None:
            await stage.publish("T", {"n": n})

        yield send

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        (port,) = {one.getsockname()[1] for one in server.sockets}
        options = f"type='websocket', url='ws://127.0.0.1:{port}/', @map(type='json')"
        yield Way(options, connect, arrived, may_repeat=True)


async def send_all(way: Way, stage: Stage, enough: asyncio.Event) -> int:
    """Send numbers until there are enough, and then the last one; how many."""
    n, count = EARLY, 0
    while True:
        with suppress(*LOST):
            async with way.connect(stage) as send:
                while True:
                    await send(n)
                    if n == LAST and (way.is_acknowledged or await way.last(stage) == LAST):
                        return count
                    if n == EARLY:
                        n = 0 if await way.last(stage) is not None else EARLY
                    elif n != LAST:
                        n, count = (LAST if enough.is_set() else n + 1), n + 1
        if not way.is_acknowledged and 0 <= n < LAST:
            # It may have arrived.
            n, count = n + 1, count + 1
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("way", [http_way, tcp_way, mqtt_way, file_way, websocket_way])
async def test_what_a_connector_promises_holds_when_its_host_is_killed(
    nats_server: NatsServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    way: Callable[[pytest.FixtureRequest, Path], AbstractAsyncContextManager[Way]],
) -> None:
    receiver = ReceiverSettings(file_roots=str(tmp_path), egress="127.0.0.1:1-65535")
    settings = Settings(nats=NatsSettings(url=nats_server.url), receiver=receiver)
    children = Session(SessionConfig("w1", str(tmp_path / "w1"), settings))
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(way(request, tmp_path))
        stage = await stack.enter_async_context(staged(nats_server, one.text()))
        spec = plan(one.text()).spec
        group = spec.group(one.group)
        assert group is not None
        await children.start()
        assignment = Assignment(group.instances[0], spec.name, one.group, 1, "inc", "w1", 1, 1)
        children.send(StartInstance(assignment, group))
        enough = asyncio.Event()
        sending = asyncio.create_task(send_all(one, stage, enough))

        async def more(than: int) -> int:
            last = await one.last(stage)
            return last if last is not None and last > than else 0

        try:
            seen = 0
            for _ in range(KILLS):
                seen = await stage.until("more numbers", partial(more, seen + 10))
                os.kill(children.host_pid, signal.SIGKILL)
                # Messages that the broker had got may be stored since.
                seen = max(seen, await one.last(stage) or 0)
            await stage.until("more numbers", partial(more, seen + 10))
            enough.set()
            count = await sending
            await stage.until("the last number", partial(more, LAST - 1))
            one.check(await one.numbers(stage), count)
        finally:
            await end([sending])
            await children.stop()
