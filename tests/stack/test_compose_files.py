"""The files of the development stack: they parse, and they agree with the code and the pages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from nats.errors import Error as NatsError

import mesh
from mesh.client import context
from mesh.jetstream import server
from mesh.jetstream.channels import ensure_buckets
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import ChannelSettings, NatsSettings, Settings, SparkSettings, load
from mesh.spark import cluster
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.environment import Variables


COMPOSE = ROOT / "compose"
FILE = COMPOSE / "dev.yaml"
PROFILES = [part for name in ("store", "metrics", "spark", "idp") for part in ("--profile", name)]
#: Each as its program is called: Compose v2, and v1.29 of Debian.
PROGRAMS = [["docker", "compose"], ["docker-compose"]]
OURS = ("n1", "n2", "n3", "m1", "m2", "w1", "w2", "w3", "ws", "r1")


def services() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    return values


@pytest.mark.slow
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
    for target in ("nats", "manager", "worker", "idp"):
        stage = text.split(f"FROM ${{BASE}} AS {target}\n")[1].split("\nFROM ")[0]
        assert "\nUSER 10001\n" in stage
    assert text.count("--require-hashes") == 5
    # The sixth is the project itself.
    assert text.count("pip install") == 6
    assert text.count("--no-deps") == 1


def test_variables_of_services_are_settings(tmp_path: Path) -> None:
    from compose import stack_init

    sections = (
        "NATS",
        "CHANNELS",
        "MANAGER",
        "WORKER",
        "RECEIVER",
        "STATE",
        "FUNCTIONS",
        "SPARK",
        "LOG",
    )
    pattern = re.compile(rf"MESH_({'|'.join(sections)})_[A-Z_]+")
    known = {
        f"MESH_{section}_{name}".upper()
        for section in Settings.__dataclass_fields__
        for name in getattr(Settings(), section).__dataclass_fields__
    }
    named = {name for name in OURS for name in services()[name].get("environment", {})}
    names = {name for name in named if name.startswith("MESH_")}
    dockerfile = (COMPOSE / "Dockerfile").read_text("utf-8")
    names |= {found[0] for found in pattern.finditer(dockerfile)}
    assert names
    assert names <= known
    for role in ("manager", "worker", "receiver"):
        path = tmp_path / f"{role}.yaml"
        path.write_text(stack_init.SETTINGS.format(role=role, inbox=f"_INBOX.{role}"))
        settings = load(path, {})
        assert settings.channels.replicas == 3
        assert settings.nats.nkey_seed_file == f"/run/mesh/{role}.nk"
        assert settings.receiver.nkey_seed_file == "/run/mesh/connector.nk"
        assert settings.nats.url.count("tls://") == 3


def test_no_service_has_the_keys_of_another() -> None:
    kinds = {"n": "nats", "m": "manager", "w": "worker", "r": "receiver"}
    for name in OURS:
        mounted = [v for v in services()[name]["volumes"] if v.endswith(":/run/mesh:ro")]
        assert mounted == [f"{kinds[name[0]]}-keys:/run/mesh:ro"]
    for name in ("spark-master", "spark-1", "spark-2"):
        assert services()[name]["volumes"] == ["spark-keys:/run/mesh:ro"]
        assert services()[name]["profiles"] == ["spark"]
    made = {v.split(":")[0] for v in services()["init"]["volumes"]}
    assert {f"{kind}-keys" for kind in (*kinds.values(), "store", "metrics", "idp")} <= made


def test_images_are_built_here_or_for_several_kinds_of_cpu() -> None:
    def commands(*variables: str) -> str:
        return subprocess.run(
            ["make", "-n", "images", *variables],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    said = commands()
    assert "docker build --network default" in said
    assert "for target in nats manager worker ;" in said
    assert f"-t $image:dev -t $image:{mesh.__version__} " in said
    assert f"--build-arg VERSION={mesh.__version__} " in said
    # Each has its bill of materials.
    assert f"--installed mesh-$target {mesh.__version__} " in said
    assert "> dist/mesh-$target.sbom.json" in said
    assert "for target in nats manager worker idp;" in commands("PROFILES=store,idp")
    platforms = "linux/amd64,linux/arm64"
    said = commands(f"PLATFORMS={platforms}", "REGISTRY=registry.example/")
    assert f"buildx build --push --sbom=true --provenance=true --platform {platforms} " in said
    assert "image=registry.example/mesh-$target" in said
    assert "docker run" not in said


def test_services_have_no_capability_that_they_do_not_need_and_a_limit_of_memory() -> None:
    needed = {
        # Files for the users of the services.
        "init": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
        # The official image begins as root.
        "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
    }
    for name, service in services().items():
        assert service["cap_drop"] == ["ALL"], name
        assert set(service.get("cap_add", ())) == needed.get(name, set()), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
    for name in ("n1", "n2", "n3"):
        limit, go = services()[name]["mem_limit"], services()[name]["environment"]["GOMEMLIMIT"]
        assert _mib(go) < _mib(limit)


def _mib(amount: str) -> int:
    """MiB of an amount, or of a variable's default."""
    number, unit = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)(MiB|m|g)\}?", amount).groups()  # type: ignore[union-attr]
    return int(number) * (1024 if unit == "g" else 1)


def test_the_end_of_the_stack_takes_scratch_volumes_and_every_profile() -> None:
    said = subprocess.run(
        ["make", "-n", "down"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    # `down` alone leaves the volumes without a name; `down -v` would take the named ones.
    assert "-f compose/dev.yaml rm --stop --force -v\n" in said
    assert "-f compose/dev.yaml down\n" in said
    profiles = {one for service in services().values() for one in service.get("profiles", ())}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (named,) = re.findall(r"^down: export COMPOSE_PROFILES := (.*)$", makefile, re.MULTILINE)
    assert set(named.split(",")) == profiles


def test_images_that_compose_builds_have_the_version_too() -> None:
    for service in services().values():
        if "build" in service:
            arguments = service["build"]["args"]
            assert arguments["VERSION"] == "${MESH_IMAGE_VERSION:-dev}"
            assert arguments["REVISION"] == "${MESH_IMAGE_REVISION:-unknown}"


def test_images_have_labels() -> None:
    text = (COMPOSE / "Dockerfile").read_text("utf-8")
    for target in ("nats", "manager", "worker", "idp"):
        stage = text.split(f"FROM ${{BASE}} AS {target}\n")[1].split("\nFROM ")[0]
        for label in ("title", "description", "version", "revision", "licenses"):
            assert f"org.opencontainers.image.{label}=" in stage


@pytest.mark.slow
def test_the_first_step_makes_a_nats_with_tls_that_its_context_reaches(
    tmp_path: Path, environment: Variables
) -> None:
    if os.getuid():
        pytest.skip("it gives files to other users: needs root")
    from compose import stack_init

    volume, host = tmp_path / "volume", tmp_path / "host"
    volume.mkdir()
    host.mkdir()
    ports = server.free_ports(6)
    ports, others = ports[:3], ports[3:]
    routes = dict(zip(("n1", "n2", "n3"), others, strict=True))
    environment["MESH_STACK_FOLDER"] = str(host)
    environment["MESH_NATS_PORTS"] = ",".join(map(str, ports))
    environment["MESH_API_PORT"] = "1"
    environment["MESH_HOST_UID"] = "0"
    environment["MESH_HOST_GID"] = "0"
    stack_init.main(volume, host)
    made = _files(volume)
    stack_init.main(volume, host)
    assert _files(volume) == made
    assert {"api.crt", "api.key", "users", "manager.nk"} <= made["manager"].keys()
    assert made["worker"].keys() == {
        "connector.nk", "nats.crt", "spark.conf", "worker.nk", "worker.yaml",
    }  # fmt: skip
    assert "connector.nk" in made["receiver"]
    assert "connector.nk" not in made["manager"]
    assert made["idp"].keys() == {"idp.crt", "idp.key", "settings.yaml", "users.yaml"}
    assert b"oidc:" not in made["manager"]["manager.yaml"]
    # Executors have no key of NATS; the worker may send its login to them.
    assert made["spark"].keys() == {"nats.crt", "spark.conf"}
    conf = str(volume / "spark" / "spark.conf")
    master = services()["ws"]["environment"]["MESH_SPARK_MASTER"]
    login = NatsSettings(url="tls://n1:4222", nkey_seed_file="/run/mesh/worker.nk")
    assert cluster.check(SparkSettings(master=master, conf_file=conf), login)
    assert not (volume / "nats" / "nats.key").stat().st_mode & 0o077

    # Three servers, with the paths and the ports of this test.
    running: list[server.NatsServer] = []
    try:
        for name, port in zip(("n1", "n2", "n3"), ports, strict=True):
            running.append(_start(name, port, routes, volume / "nats", tmp_path / name))
        asyncio.run(_used(host, volume))
        # A client without TLS is refused.
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=10) as plain:
            assert b'"tls_required":true' in plain.recv(4096)
    finally:
        for one in running:
            one.stop()


def _files(volume: Path) -> dict[str, dict[str, bytes]]:
    """Contents by folder and name."""
    return {
        folder.name: {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in volume.iterdir()
    }


def _start(
    name: str, port: int, routes: dict[str, int], keys: Path, directory: Path
) -> server.NatsServer:
    text = (keys / "nats.conf").read_text()
    text = text.replace("/run/mesh", str(keys)).replace("jetstream { store_dir: /data }", "")
    text = text.replace("http: 127.0.0.1:8222", f"server_name: {name}")
    text = text.replace("0.0.0.0:4222", f"127.0.0.1:{port}")
    text = text.replace("0.0.0.0:6222", f"127.0.0.1:{routes[name]}")
    for other, route in routes.items():
        text = text.replace(f"@{other}:6222", f"@localhost:{route}")
    directory.mkdir()
    (directory / "accounts.conf").write_bytes((keys / "accounts.conf").read_bytes())
    (directory / "nats.conf").write_text(text)
    arguments = ["-c", str(directory / "nats.conf")]
    return server.start(directory, port=port, arguments=arguments)


async def _used(host: Path, volume: Path) -> None:
    """A manager makes the buckets on three servers; others do what their roles may."""
    found = context.find({}, host / "context.json").nats_settings
    seed = str(volume / "manager" / "manager.nk")
    manager = replace(
        found, user="", password="", nkey_seed_file=seed, inbox_prefix="_INBOX.manager"
    )
    worker = replace(
        found, user="", password="", nkey_seed_file=str(volume / "worker" / "worker.nk"),
        inbox_prefix="_INBOX.worker",
    )  # fmt: skip
    clients: list[Client] = []
    try:
        clients += [await connect(settings, "test") for settings in (manager, found, worker)]
        leads, dev, works = clients
        # Three copies: the servers have found each other with TLS.
        await ensure_buckets(leads.jetstream(), ChannelSettings(replicas=3))
        assert names.APPS_BUCKET in " ".join(await names_of(dev))
        await leads.publish("$KV.mesh_apps.app.X", b"x")
        for client in (dev, works):
            with pytest.raises(NatsError):
                await client.jetstream(timeout=0.5).publish("$KV.mesh_apps.app.X", b"y")
    finally:
        for client in clients:
            await close(client)


async def names_of(client: Client) -> list[str]:
    """Names of the streams, which every role may ask for."""
    reply = await client.request("$JS.API.STREAM.NAMES", b"", timeout=5)
    return list(json.loads(reply.data)["streams"])
