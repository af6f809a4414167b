"""A stage for sources and sinks: an app's channels on a server, and instances of the host."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mesh.clock import SystemClock
from mesh.connect.contract import Access
from mesh.control.retries import Retries
from mesh.jetstream.channels import ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.plan.build import plan
from mesh.receiver.host import instance_of
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.instance import Environment
from mesh.settings import ChannelSettings, NatsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from mesh.receiver.instance import DoorInstance

DEADLINE_S = 30.0


class Stage:
    """One app's channels, and instances that a test starts and stops."""

    def __init__(self, client: Client, spec: AppSpec, access: Access) -> None:
        self.client, self.js, self.spec = client, client.jetstream(), spec
        self.reports: list[InstanceStatus] = []
        self.running: list[DoorInstance] = []
        self.environment = Environment(
            client,
            SystemClock(),
            "w1",
            access,
            lambda: {"vault": {"basic.auth.username": "u", "basic.auth.password": "hunter2"}},
            lambda: Retries(0.05, 0.2),
            self.reports.append,
        )

    def start(self, group: str, epoch: int = 1, **changes: Any) -> DoorInstance:
        """Start the only instance of a group."""
        found = self.spec.group(group)
        assert found is not None, [g.name for g in self.spec.groups]
        assignment = Assignment(
            found.instances[0], self.spec.name, group, 1, "inc", "w1", epoch, lease_revision=1
        )
        instance = instance_of(self.environment, found, replace(assignment, **changes))
        self.running.append(instance)
        instance.start()
        return instance

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The value of a condition, once it is true."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    found = condition()
                    if asyncio.iscoroutine(found):
                        found = await found
                    if found:
                        return found
                    await asyncio.sleep(0.01)
        except TimeoutError:
            last = {r.instance: (r.state, r.error, r.doors) for r in self.reports}
            raise AssertionError(f"{what}: {last}") from None

    async def until_running(self, instance: DoorInstance) -> InstanceStatus:
        """The first report that it and its doors run."""

        def report() -> InstanceStatus | None:
            return next(
                (
                    r
                    for r in self.reports
                    if (r.instance, r.epoch)
                    == (instance.assignment.instance, instance.assignment.epoch)
                    and r.state is InstanceState.RUNNING
                    and all(d.state is InstanceState.RUNNING for d in r.doors)
                ),
                None,
            )

        return await self.until("running", report)  # type: ignore[no-any-return]  # it is true

    async def publish(self, stream: str, *events: dict[str, Any]) -> None:
        """Publish events to a stream of the app."""
        for event in events:
            await self.js.publish(names.subject(self.spec.name, stream), json.dumps(event).encode())

    async def messages(self, js_stream: str, subject: str) -> list[bytes]:
        """The payloads of all messages of a subject, in order."""
        found: list[bytes] = []
        sequence = 1
        while True:
            try:
                message = await self.js.get_msg(js_stream, sequence, subject=subject, next=True)
            except Exception:
                return found
            found.append(message.data or b"")
            sequence = (message.seq or 0) + 1

    async def events(self, stream: str) -> list[dict[str, Any]]:
        """The events of a channel."""
        name = self.spec.name
        payloads = await self.messages(names.js_stream(name, stream), names.subject(name, stream))
        return [json.loads(line) for payload in payloads for line in payload.split(b"\n")]

    async def errors(self) -> list[dict[str, Any]]:
        """The entries of the error stream."""
        name = self.spec.name
        return [
            json.loads(entry)
            for entry in await self.messages(names.error_js_stream(name), names.error_subject(name))
        ]


@asynccontextmanager
async def staged(
    server: NatsServer, text: str, access: Access | None = None
) -> AsyncIterator[Stage]:
    """A stage for the app ``text``."""
    client = await connect(NatsSettings(url=server.url), "test")
    spec = plan(text).spec
    await ensure_channels(client, spec, ChannelSettings())
    stage = Stage(client, spec, access or Access(listen=("127.0.0.1:0-65535",)))
    try:
        yield stage
    finally:
        for instance in stage.running:
            await instance.stop()
        await close(client)


class Endpoint:
    """An HTTP server of a test, which can be closed and opened again on its port."""

    def __init__(self) -> None:
        self.servers = HttpServers()
        self.port = 0
        self.bodies: list[Any] = []
        self.keys: list[str] = []
        self.heads: list[dict[str, str]] = []
        #: Statuses of the next answers; 200 after them.
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/in"

    async def open(self) -> None:
        """Accept requests."""
        self.port = await self.servers.open("127.0.0.1", self.port, "/in", self._answer)

    async def close(self) -> None:
        """Refuse connections."""
        await self.servers.close("127.0.0.1", self.port, "/in")

    async def _answer(self, request: Request) -> Response:
        body = await request.body(1 << 20)
        if self.statuses:
            status = self.statuses.pop(0)
            if status != 200:
                return Response(status, b"no", ((b"retry-after", b"0"),))
        key = request.headers["idempotency-key"]
        self.heads.append(dict(request.headers))
        if key not in self.keys:
            self.keys.append(key)
            self.bodies.append(json.loads(body or b"null"))
        return Response(200)
