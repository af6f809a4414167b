"""Two meshes on one NATS account, each with an app of the same name."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh import mesh_name
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.processes.bounded_process import die_with_parent
from mesh.settings import NatsSettings, Settings, load
from tools.processes import Processes

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

#: Prints every constant of the names, and the permissions of every role.
PRINT = """
from mesh.model import names, nats_roles
for name, value in sorted(vars(names).items()):
    if name.isupper():
        print(name, value)
print(names.subject("A", "S"), names.js_stream("A", "S"), names.marker_subject("X"))
for role in nats_roles.NatsRole:
    print(nats_roles.permissions(role))
print(nats_roles.INTERNAL, nats_roles.PRIVATE)
"""
APP = "@App:name('Shop') define stream S (n int); from S select n insert into T;"


def printed(name: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop(mesh_name.VARIABLE, None)
    if name:
        environment[mesh_name.VARIABLE] = name
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_everything_in_nats_begins_with_the_name_of_the_mesh() -> None:
    usual, blue = printed(""), printed("blue")
    assert "mesh_control" in usual
    assert "KV_blue_users" in blue
    assert blue.replace("blue", "mesh") == usual
    assert not re.search(r"\bmesh[._-]|_mesh_", blue)


@pytest.mark.parametrize("name", ["a-b", "a.b", "a_b", "1a", "a b", "a*", "x" * 33])
def test_a_name_that_streams_could_not_tell_apart_is_refused(name: str) -> None:
    with pytest.raises(MeshError, match="MESH-U105"):
        load(environment={mesh_name.VARIABLE: name})


def test_the_default_is_the_name_of_all_meshes_so_far() -> None:
    assert Settings().mesh.name == "mesh"
    assert load(environment={mesh_name.VARIABLE: "blue"}).mesh.name == "blue"


class Managers(Processes):
    """A manager for each mesh."""

    def begin(self, mesh: str, url: str) -> None:
        config = self.directory / f"{mesh}.yaml"
        config.write_text(
            f"mesh: {{name: {mesh}}}\nnats: {{url: '{url}'}}\n"
            "manager: {id: m, port: 0, anonymous: true}\n"
        )
        self._running[mesh] = self._start(mesh, "manager", MESH_MANAGER_ID="m", CONFIG=str(config))

    def _start(self, log_name: str, role: str, **environment: str) -> subprocess.Popen[bytes]:
        config = environment.pop("CONFIG")
        with (self.directory / f"{log_name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "mesh.cli", role, "--config", config],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def api(self, mesh: str) -> str:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            text = (self.directory / f"{mesh}.log").read_text()
            if found := re.search(r"api listens url=(\S+)", text):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(text)


@pytest.mark.thorough
@pytest.mark.nats
@pytest.mark.timeout(150)
def test_apps_of_one_name_live_in_two_meshes(tmp_path: Path, nats_server: NatsServer) -> None:
    managers = Managers(tmp_path)
    try:
        for mesh in ("mesh", "blue"):
            managers.begin(mesh, nats_server.url)
        with httpx.Client(timeout=30) as client:
            for mesh in ("mesh", "blue"):
                answer = client.post(
                    f"{managers.api(mesh)}/siddhi-apps",
                    content=APP,
                    headers={"Content-Type": "text/plain"},
                )
                assert answer.status_code == 201, answer.text
            asyncio.run(publish_and_count(nats_server.url))
            assert client.delete(f"{managers.api('mesh')}/siddhi-apps/Shop").is_success
            asyncio.run(blue_is_left(nats_server.url))
            assert "Shop" in client.get(f"{managers.api('blue')}/siddhi-apps").text
    finally:
        managers.stop()


async def publish_and_count(url: str) -> None:
    client = await connect(NatsSettings(url=url), "test")
    try:
        js = client.jetstream()
        await js.publish("blue.Shop.S", b'{"n": 1}')
        assert (await js.stream_info("blue-Shop-S")).state.messages == 1
        assert (await js.stream_info("mesh-Shop-S")).state.messages == 0
    finally:
        await close(client)


async def blue_is_left(url: str) -> None:
    client = await connect(NatsSettings(url=url), "test")
    try:
        streams: set[str | None] = {"mesh-Shop-S"}
        while "mesh-Shop-S" in streams:
            streams = {info.config.name for info in await client.jetstream().streams_info()}
        assert {"blue-Shop-S", "blue-Shop-T", "KV_blue_control", "KV_mesh_control"} <= streams
    finally:
        await close(client)
