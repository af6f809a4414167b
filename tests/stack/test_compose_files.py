"""The files of the development stack: they parse, and they agree with the code and the pages."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mesh.cli import context
from mesh.jetstream import server
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import Settings, load
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE = ROOT / "compose"
FILE = COMPOSE / "dev.yaml"
PROFILES = ["--profile", "store", "--profile", "metrics"]
#: Each as its program is called: Compose v2, and v1.29 of Debian.
PROGRAMS = [["docker", "compose"], ["docker-compose"]]
OURS = ("n1", "n2", "n3", "m1", "m2", "w1", "w2", "w3")


def services() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    return values


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_compose_accepts_the_file(program: list[str], tmp_path: Path) -> None:
    if (
        shutil.which(program[0]) is None
        or subprocess.run([*program, "version"], capture_output=True).returncode
    ):
        pytest.skip(f"{' '.join(program)} is not installed")
    # docker-compose 1.29 is a Python program itself.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = kept | {"PWD": str(tmp_path)}
    said = subprocess.run(
        [*program, "-f", str(FILE), *PROFILES, "config"],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert set(yaml.safe_load(said.stdout)["services"]) == set(services())


def test_the_override_of_a_new_project_names_a_service_and_a_setting() -> None:
    text = (ROOT / "mesh" / "cli" / "project" / "compose.override.yaml").read_text("utf-8")
    ((name, service),) = yaml.safe_load(text)["services"].items()
    assert service["environment"] == {"MESH_MANAGER_APPS_DIR": "/apps"}
    assert service["volumes"] == ["${PWD}:/apps:ro"]
    assert name in services()
    assert Settings().manager.apps_dir == ""


def test_every_process_has_a_probe_and_an_init_and_a_read_only_root() -> None:
    for name in OURS:
        service = services()[name]
        assert service["healthcheck"]["test"][-1].split("//")[1].startswith("127.0.0.1")
        assert service["init"] is True
        assert service["read_only"] is True
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert services()["w1"]["stop_grace_period"] == "30s"
    assert services()["m1"]["stop_grace_period"] == "10s"


def test_images_run_as_another_user_than_root_and_are_built_with_hashes() -> None:
    text = (COMPOSE / "Dockerfile").read_text("utf-8")
    for target in ("nats", "manager", "worker"):
        stage = text.split(f"FROM ${{BASE}} AS {target}\n")[1].split("\nFROM ")[0]
        assert "\nUSER 10001\n" in stage
    assert text.count("--require-hashes") == 4
    assert text.count("pip install") == 6
    assert text.count("--no-deps") == 3


def test_variables_of_services_are_settings(tmp_path: Path) -> None:
    from compose import stack_init

    sections = ("NATS", "CHANNELS", "MANAGER", "WORKER", "STATE", "FUNCTIONS", "SPARK", "LOG")
    pattern = re.compile(rf"MESH_({'|'.join(sections)})_[A-Z_]+")
    known = {
        f"MESH_{section}_{name}".upper()
        for section in Settings.__dataclass_fields__
        for name in getattr(Settings(), section).__dataclass_fields__
    }
    names = {name for name in OURS for name in services()[name].get("environment", {})}
    dockerfile = (COMPOSE / "Dockerfile").read_text("utf-8")
    names |= {found[0] for found in pattern.finditer(dockerfile)}
    assert names
    assert names <= known
    path = tmp_path / "manager.yaml"
    path.write_text(stack_init.SETTINGS.format("manager", "secret"))
    settings = load(path, {})
    assert settings.channels.replicas == 3
    assert settings.nats.password == "secret"


def test_a_worker_of_the_stack_writes_no_record_of_managers() -> None:
    from compose import stack_init

    found = re.search(r"publish: \{+ deny: \[([^\]]*)\]", stack_init.NATS_CONF)
    assert found is not None
    denied = set(re.findall(r'"([^"]+)"', found[1]))
    buckets = (
        names.APPS_BUCKET, names.BACKUPS_BUCKET, names.USERS_BUCKET, names.SECRETS_BUCKET,
        names.SESSIONS_BUCKET,
    )  # fmt: skip
    assert {f"$KV.{bucket}.>" for bucket in buckets} <= denied
    assert {"$KV.mesh_control.lease", "mesh._audit.>"} <= denied


def test_the_first_step_makes_a_nats_with_tls_that_its_context_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid():
        pytest.skip("it gives files to other users: needs root")
    from compose import stack_init

    volume, host = tmp_path / "volume", tmp_path / "host"
    volume.mkdir()
    host.mkdir()
    ports = server.free_port(), server.free_port()
    monkeypatch.setenv("MESH_STACK_FOLDER", str(host))
    monkeypatch.setenv("MESH_NATS_PORTS", str(ports[0]))
    monkeypatch.setenv("MESH_API_PORT", "1")
    monkeypatch.setenv("MESH_HOST_UID", "0")
    monkeypatch.setenv("MESH_HOST_GID", "0")
    stack_init.main(volume, host)
    made = {path.name: path.read_bytes() for path in volume.iterdir()}
    stack_init.main(volume, host)
    assert {path.name: path.read_bytes() for path in volume.iterdir()} == made
    assert {"api.crt", "api.key", "nats.crt", "nats.key"} <= made.keys()
    assert not (volume / "nats.key").stat().st_mode & 0o077

    # One server, with the paths and the ports of this test.
    text = re.sub(r"(?s)\ncluster \{.*?\n\}", "", made["nats.conf"].decode())
    text = text.replace("/run/mesh", str(volume)).replace("jetstream { store_dir: /data }", "")
    text = text.replace("0.0.0.0:4222", f"127.0.0.1:{ports[0]}")
    text = text.replace("0.0.0.0:8222", f"127.0.0.1:{ports[1]}")
    (tmp_path / "nats.conf").write_text(text)
    found = context.find({}, host / "context.json").nats_settings

    async def play() -> None:
        client = await connect(found, "test")
        try:
            assert await client.jetstream().streams_info() == []
        finally:
            await close(client)

    running = server.start(
        tmp_path / "nats", port=ports[0], arguments=["-c", str(tmp_path / "nats.conf")]
    )
    try:
        asyncio.run(play())
        # A client without TLS is refused.
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=10) as plain:
            assert b'"tls_required":true' in plain.recv(4096)
    finally:
        running.stop()
