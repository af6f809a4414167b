"""Secrets that are planted in a mesh with Spark are found nowhere that they have no business."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import orjson
import psutil
import pytest

from mesh.clock import SystemClock
from mesh.jetstream.connection import close, connect
from mesh.jetstream.server import free_port
from mesh.jetstream.watch import ClusterView
from mesh.operators import precompile
from mesh.settings import NatsSettings
from mesh.testing.cluster import MeshCluster, Outside
from tests.support.permissions import PASSWORDS, inbox_of, write_accounts
from tests.support.planted import (
    Planted,
    look_at_answers,
    look_at_command_lines,
    look_at_debug,
    look_at_streams,
    plant,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.js import JetStreamContext

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

#: A function that reads what it can of environments, and a sink with a secret that never arrives.
SPY: Final = """@App:name('Spy')
define stream Asked (n int);
define stream Told (text string);
@sink(type='http', publisher.url='http://127.0.0.1:{port}/x', basic.auth.username='ann',
      basic.auth.password='${{secret:door.password}}', @map(type='json'))
define stream Sent (n int);
define function seen[python] return string {{
    import os, pathlib
    read = [dict(os.environ)]
    pid = 'self'
    # Its own process, the daemon, Java, and the session that began them.
    for _ in range(4):
        process = pathlib.Path('/proc', str(pid))
        read.append(process.joinpath('environ').read_bytes())
        pid = process.joinpath('stat').read_text().rsplit(')', 1)[1].split()[1]
    return str(read)
}};
from Asked select seen(n) as text insert into Told;
from Asked select n insert into Sent;
"""


def _spark_processes(cluster: MeshCluster) -> Iterator[psutil.Process]:
    """The session of the worker with Java and Python, and the connector host."""
    yield from psutil.Process(cluster.pid("w1")).children(recursive=True)


def _look_at_processes(planted: Planted, cluster: MeshCluster) -> None:
    look_at_command_lines(planted)
    found = list(_spark_processes(cluster))
    assert any("java" in one.name() for one in found)
    for process in found:
        environ = Path(f"/proc/{process.pid}/environ").read_bytes()
        planted.look(f"environment of {process.cmdline()[:4]}", environ)


@pytest.mark.extended
def test_planted_secrets_are_found_nowhere(tmp_path: Path) -> None:
    # A worker would do so before it is ready, for which the test doesn't wait so long.
    precompile.compile_once()
    password, value, database, client_secret = (secrets.token_urlsafe(18) for _ in range(4))
    environment = plant(tmp_path, password, database, client_secret)
    arguments = write_accounts(tmp_path / "accounts.conf")
    (tmp_path / "run").mkdir()
    cluster = MeshCluster(
        tmp_path / "run", workers=1, arguments=arguments, passwords=PASSWORDS,
        environment=environment,
    )  # fmt: skip
    planted = Planted(
        {
            "password of the API": password,
            "secret of an app": value,
            "database": database,
            "client secret": client_secret,
            "manager's login": PASSWORDS["manager"],
            "worker's login": PASSWORDS["worker"],
        }
    )

    async def scene() -> None:
        manager = NatsSettings(
            cluster.nats.url, "manager", PASSWORDS["manager"], inbox_prefix=inbox_of("manager")
        )
        client = await connect(manager, "test")
        view = ClusterView(client, SystemClock())
        await view.start()
        try:
            await look(Outside(cluster, client, view), client.jetstream())
        finally:
            await view.stop()
            await close(client)

    async def look(outside: Outside, js: JetStreamContext) -> None:
        await outside.until_ready("w1")
        api = await _address(outside)
        await asyncio.to_thread(_use, api)
        await outside.until_running("Spy")
        await js.publish("mesh.Spy.Asked", orjson.dumps({"n": 1}))
        told = await _told(outside, js)
        assert "MESH_FUNCTIONS_PYTHON" in told
        planted.look("a function", told.encode())
        await look_at_streams(planted, js, 20)
        await asyncio.to_thread(_look_at_processes, planted, cluster)
        await asyncio.to_thread(look_at_answers, planted, api, ("ada", password))
        await asyncio.to_thread(look_at_debug, planted, api, ("ada", password))

    def _use(api: str) -> None:
        with httpx.Client(base_url=api, auth=("ada", password), timeout=60) as client:
            made = client.post("/tokens", json={"name": "ci", "may": ["viewer"]}).json()
            planted.values["token"] = made["token"]
            bearer = {"Authorization": f"Bearer {made['token']}"}
            assert httpx.get(f"{api}/siddhi-apps", headers=bearer).status_code == 200
            stored = client.put("/secrets/door.password", content=value.encode())
            assert stored.is_success, stored.text
            plain = {"Content-Type": "text/plain"}
            text = SPY.format(port=free_port())
            done = client.post("/siddhi-apps", content=text.encode(), headers=plain)
            assert done.status_code == 201, done.text
            # Failures are noted, too.
            assert client.get("/me", auth=("ada", "wrong")).status_code == 401

    try:
        asyncio.run(scene())
    finally:
        cluster.stop()
    for path in (*(tmp_path / "run").glob("*.log"), cluster.nats.log):
        planted.look(f"log {path.name}", path.read_bytes())
    assert planted.seen == []


async def _address(outside: Outside) -> str:
    def found() -> str | None:
        nodes = outside.view.snapshot().nodes
        return next((n.value.address for n in nodes if n.value.id == "m1"), None)

    return f"http://{await outside.until('an address', found)}"


async def _told(outside: Outside, js: JetStreamContext) -> str:
    stream = "mesh-Spy-Told"

    async def count() -> Any:
        return (await js.stream_info(stream)).state.messages

    await outside.until("the function's answer", count)
    message = await js.get_msg(stream, (await js.stream_info(stream)).state.first_seq)
    return (message.data or b"").decode()
