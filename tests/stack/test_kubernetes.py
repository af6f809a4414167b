"""The Kubernetes objects of conf/kubernetes: they fit the schemas, each other, and the code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from mesh.api.auth import OPEN_PATHS
from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.jetstream.connection import close, connect
from mesh.settings import NatsSettings, Settings, load
from mesh.telemetry.logs import JsonFormatter, fields
from mesh.worker.metrics import Probes
from tests.stack.test_alerts import known_names
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client

BASE = ROOT / "conf" / "kubernetes" / "base"
EXAMPLE = ROOT / "conf" / "kubernetes" / "example"
VERSION = "1.29"
ROLES = {"mesh-manager": "manager", "mesh-worker": "worker", "mesh-receiver": "receiver"}
NAME = "app.kubernetes.io/name"


def objects(folder: Path = BASE) -> list[dict[str, Any]]:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in folder.iterdir()} == {*listed, "kustomization.yaml"}
    return [one for name in listed for one in yaml.safe_load_all((folder / name).read_text())]


OBJECTS = objects()
#: Examples for clusters that have an operator: certificates, an ingress, monitors.
EXAMPLES = [
    one for name in ("certificates", "ingress", "monitoring") for one in objects(BASE.parent / name)
]
#: Kinds whose schemas Kubernetes does not have.
OF_OPERATORS = {"Certificate", "Issuer", "ServiceMonitor"}


def of_kind(*kinds: str) -> Iterator[dict[str, Any]]:
    return (one for one in OBJECTS if one["kind"] in kinds)


SETS = {one["metadata"]["name"]: one for one in of_kind("Deployment", "StatefulSet")}


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = SETS[name]["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    """The first one: those after it serve it."""
    found: dict[str, Any] = pod(name)["containers"][0]
    return found


def variables(name: str) -> dict[str, str]:
    return {one["name"]: one.get("value", "mesh-0") for one in container(name)["env"]}


def probes(name: str) -> dict[str, dict[str, Any]]:
    kinds = ("startupProbe", "livenessProbe", "readinessProbe")
    return {kind: container(name)[kind]["httpGet"] for kind in kinds}


@pytest.mark.parametrize(
    "one",
    [
        *OBJECTS,
        *(one for one in EXAMPLES if one["kind"] not in OF_OPERATORS),
        yaml.safe_load((EXAMPLE / "namespace.yaml").read_text()),
    ],
    ids=lambda one: f"{one['kind']}-{one['metadata']['name']}",
)
def test_each_object_fits_its_schema(one: dict[str, Any]) -> None:
    kubernetes_validate.validate(one, VERSION, strict=True)


def test_variables_are_settings_and_their_values_fit() -> None:
    for name, role in ROLES.items():
        given = variables(name)
        known = {
            f"MESH_{section}_{setting}".upper()
            for section in Settings.__dataclass_fields__
            for setting in getattr(Settings(), section).__dataclass_fields__
        }
        assert given.keys() <= known
        settings = load(None, given)
        assert settings.channels.replicas == SETS["nats"]["spec"]["replicas"] == 3
        assert settings.nats.nkey_seed_file == f"/run/mesh/{role}.nk"
        assert settings.nats.inbox_prefix == f"_INBOX.{role}"
        has_own = settings.receiver.nkey_seed_file == "/run/mesh/connector.nk"
        assert has_own is (role != "manager")
    worker, receiver = (load(None, variables(f"mesh-{role}")) for role in ("worker", "receiver"))
    assert (worker.worker.spark, worker.worker.takes_receivers) == (True, False)
    assert (receiver.worker.spark, receiver.worker.takes_queries) == (False, False)
    assert receiver.worker.takes_receivers


def test_ports_are_those_of_the_settings_and_the_images() -> None:
    dockerfile = (ROOT / "compose" / "Dockerfile").read_text()
    for name in SETS:
        exposed = set()
        image = container(name)["image"].removeprefix("mesh-")
        stage = dockerfile.split(f"FROM ${{BASE}} AS {image}\n")[1].split("\nFROM ")[0]
        for line in re.findall(r"^EXPOSE (.*)$", stage, re.MULTILINE):
            exposed |= {int(port) for port in line.split()}
        ports = {one["name"]: one["containerPort"] for one in container(name)["ports"]}
        assert set(ports.values()) == exposed
        exposed |= {
            p["containerPort"] for c in pod(name)["containers"][1:] for p in c.get("ports", ())
        }
        assert all(probe["port"] in ports for probe in probes(name).values())
        for service in of_kind("Service"):
            if service["metadata"]["name"] == name:
                assert {p["port"] for p in service["spec"]["ports"]} == exposed
    assert load(None, variables("mesh-manager")).manager.port == 9543
    assert load(None, variables("mesh-worker")).worker.probe_port == 9544
    urls = load(None, variables("mesh-worker")).nats.url.split(",")
    assert urls == [f"nats://nats-{n}.nats:4222" for n in range(3)]


def test_probes_of_our_processes_exist() -> None:
    for kind, probe in probes("mesh-manager").items():
        assert probe["path"] in OPEN_PATHS, kind
        # It has a certificate.
        assert probe["scheme"] == "HTTPS"
    for name in ("mesh-worker", "mesh-receiver"):
        for probe in probes(name).values():
            status, _ = Probes().answer(f"GET {probe['path']} HTTP/1.1")
            assert status in (200, 503)


def test_a_real_server_accepts_its_configuration_and_answers_its_probes(tmp_path: Path) -> None:
    (config,) = of_kind("ConfigMap")
    text = config["data"]["nats.conf"]
    binary = server.find_binary()
    (tmp_path / "accounts").mkdir()
    (tmp_path / "accounts" / "accounts.conf").write_text("accounts { MESH { jetstream: on } }\n")
    text = text.replace("/run/nats", str(tmp_path)).replace("/data", str(tmp_path / "data"))
    (tmp_path / "nats.conf").write_text(text)
    command = [str(binary), "-t", "-c", str(tmp_path / "nats.conf")]
    environment = os.environ | {"POD_NAME": "nats-0"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
    assert "is valid" in said.stdout + said.stderr
    port = server.free_port()
    (tmp_path / "one.conf").write_text(f"http: 127.0.0.1:{port}\n")
    running = server.start(tmp_path / "js", arguments=["-c", str(tmp_path / "one.conf")])
    try:
        for probe in probes("nats").values():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{probe['path']}") as answer:
                assert answer.status == 200
    finally:
        running.stop()


def test_pods_are_restricted_and_write_to_volumes_only() -> None:
    for name in SETS:
        security = pod(name)["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod(name)["automountServiceAccountToken"] is False
        for one in pod(name)["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert one["resources"]["limits"].keys() == {"memory"}
        volumes = {one["name"] for one in pod(name)["volumes"]}
        volumes |= {
            o["metadata"]["name"] for o in SETS[name]["spec"].get("volumeClaimTemplates", ())
        }
        mounted = [m["name"] for c in pod(name)["containers"] for m in c.get("volumeMounts", ())]
        assert set(mounted) == volumes
    times = {name: pod(name)["terminationGracePeriodSeconds"] for name in SETS}
    assert times["mesh-worker"] >= 30
    assert times["mesh-manager"] >= 10


def test_names_and_labels_of_the_objects_belong_together() -> None:
    for name, one in SETS.items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert labels == one["spec"]["selector"]["matchLabels"] == {NAME: name}
        if one["kind"] == "StatefulSet":
            assert one["spec"]["serviceName"] == name
    budgets = {one["metadata"]["name"]: one["spec"] for one in of_kind("PodDisruptionBudget")}
    assert budgets.keys() == SETS.keys()
    for name, spec in budgets.items():
        assert spec["selector"]["matchLabels"] == {NAME: name}
        assert spec["maxUnavailable"] == 1
    for service in of_kind("Service"):
        assert service["spec"]["selector"][NAME] in SETS
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    target = scaler["spec"]["scaleTargetRef"]
    assert SETS[target["name"]]["kind"] == target["kind"]
    # A set with a number of its own is set back to it at each `kubectl apply`.
    assert {n for n, one in SETS.items() if "replicas" not in one["spec"]} == {target["name"]}
    metrics = [
        m["external"]["metric"]["name"] for m in scaler["spec"]["metrics"] if "external" in m
    ]
    assert metrics
    assert set(metrics) <= known_names()


def test_the_network_lets_through_what_the_processes_use() -> None:
    ports = {
        p["containerPort"]
        for name in SETS
        for c in pod(name)["containers"]
        for p in c.get("ports", ())
    }
    for one in (one for one in (*OBJECTS, *EXAMPLES) if one["kind"] == "NetworkPolicy"):
        spec = one["spec"]
        expressions = spec["podSelector"].get("matchExpressions", [])
        named = {value for e in expressions for value in e["values"]}
        named |= {v for k, v in spec["podSelector"].get("matchLabels", {}).items() if k == NAME}
        assert named <= SETS.keys()
        for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
            assert {p["port"] for p in rule["ports"]} <= {*ports, 53}


def test_the_example_makes_every_secret_and_every_file_that_pods_mount() -> None:
    example = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    made = {
        one["name"]: {f.partition("=")[0].rpartition("/")[2] for f in one["files"]}
        for one in example["secretGenerator"]
    }
    used = {
        v["secret"]["secretName"] for name in SETS for v in pod(name)["volumes"] if "secret" in v
    }
    (keys,) = (v["projected"] for v in pod("mesh-manager")["volumes"] if "projected" in v)
    renamed = {
        one["secret"]["name"]: {of["key"]: of["path"] for of in one["secret"].get("items", ())}
        for one in keys["sources"]
    }
    assert made.keys() == used | renamed.keys()
    for name in ROLES:
        paths = [v for v in variables(name).values() if v.startswith("/run/mesh/")]
        files = {path.rpartition("/")[2] for path in paths}
        assert files == made[name] | (
            set(renamed["mesh-api"].values()) if "manager" in name else set()
        )
    # As cert-manager makes it.
    assert made["mesh-api"] == renamed["mesh-api"].keys() == {"tls.crt", "tls.key"}
    assert made["nats-accounts"] == {"accounts.conf"}
    # Under one name for good: its file changes in pods that run, where the reloader sees it; and
    # monitors name it, which kustomize does not know.
    kept = {one["name"] for one in example["secretGenerator"] if "options" in one}
    assert kept == {"nats-accounts", "mesh-api"}
    base = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    images = {one["name"] for one in (*example["images"], *base["images"])}
    assert images == {c["image"] for name in SETS for c in pod(name)["containers"]}


def test_examples_name_services_ports_and_secrets_that_exist() -> None:
    labels = {one["metadata"]["labels"][NAME]: one["spec"] for one in of_kind("Service")}
    secrets = {"mesh-api", "mesh-authority", "mesh-ingress", "mesh-scrape"}
    kinds = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in EXAMPLES}
    scraped = set()
    for (kind, _), spec in kinds.items():
        if kind != "ServiceMonitor":
            continue
        selector = spec["selector"]
        chosen = set(selector.get("matchLabels", {}).values())
        chosen |= {v for e in selector.get("matchExpressions", ()) for v in e["values"]}
        (endpoint,) = spec["endpoints"]
        for name in chosen:
            assert endpoint["port"] in {port["name"] for port in labels[name]["ports"]}
        assert endpoint["path"] == "/metrics"
        scraped |= chosen
    # A service without a monitor has no figures in any alert.
    assert scraped == SETS.keys()
    manager = kinds["ServiceMonitor", "mesh-manager"]["endpoints"][0]
    assert manager["scheme"] == "https"
    assert manager["tlsConfig"]["ca"]["secret"] == {"name": "mesh-api", "key": "tls.crt"}
    names = kinds["Certificate", "mesh-api"]["dnsNames"]
    assert manager["tlsConfig"]["serverName"] in names
    assert "localhost" in names
    for (kind, _), spec in kinds.items():
        if kind == "Certificate":
            assert spec["secretName"] in secrets
            assert ("Issuer", spec["issuerRef"]["name"]) in kinds
        if kind == "Issuer" and "ca" in spec:
            assert spec["ca"]["secretName"] == "mesh-authority"
    ingress = kinds["Ingress", "mesh-manager"]
    (rule,) = ingress["rules"]
    (path,) = rule["http"]["paths"]
    service = path["backend"]["service"]
    assert service["port"]["name"] in {p["name"] for p in labels[service["name"]]["ports"]}
    assert ingress["tls"] == [{"hosts": [rule["host"]], "secretName": "mesh-ingress"}]


async def is_open(port: int) -> bool:
    """Whether a server takes connections."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.transport.abort()
    return True


async def test_a_server_that_ends_keeps_its_clients_for_a_while_and_reads_changed_accounts(
    tmp_path: Path,
) -> None:
    """As in its pod: the reloader sends SIGHUP; the kubelet runs the hook, and sends SIGTERM."""
    (config,) = of_kind("ConfigMap")
    text = config["data"]["nats.conf"].partition("cluster {")[0]
    text = re.sub(r"(listen|http|jetstream|server_name).*", "", text)
    text = text.replace("/run/nats", str(tmp_path)) + "include accounts/accounts.conf\n"
    assert "lame_duck_duration" in text
    accounts = tmp_path / "accounts" / "accounts.conf"
    accounts.parent.mkdir()
    accounts.write_text("authorization { users: [ {user: a, password: a} ] }\n")
    (tmp_path / "nats.conf").write_text(text)
    running = server.start(tmp_path / "js", arguments=["-c", str(tmp_path / "nats.conf")])
    clients: list[Client] = []

    async def add(user: str) -> None:
        clients.append(await connect(NatsSettings(url=running.url, user=user, password=user), "t"))

    try:
        pid = int((tmp_path / "nats.pid").read_text())
        await add("a")
        with pytest.raises(MeshError, match="N110"):
            await add("b")
        accounts.write_text(accounts.read_text().replace("[", "[ {user: b, password: b},"))
        os.kill(pid, signal.SIGHUP)
        async with asyncio.timeout(20):
            while len(clients) == 1:
                with contextlib.suppress(MeshError):
                    await add("b")
        program, flag, value = container("nats")["lifecycle"]["preStop"]["exec"]["command"]
        assert program == server.find_binary().name == "nats-server"
        hook = [str(server.find_binary()), flag, value.replace("/run/nats", str(tmp_path))]
        await asyncio.to_thread(subprocess.run, hook, check=True, capture_output=True)
        os.kill(pid, signal.SIGTERM)
        # No other client gets in; those that are there are served.
        async with asyncio.timeout(20):
            while await is_open(running.port):
                pass
        for client in clients:
            await client.flush(5)
        assert running.process.poll() is None
    finally:
        for client in clients:
            await close(client)
        running.process.kill()
        running.stop()


def test_the_page_finds_the_token_in_the_lines_of_a_manager() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    notes = (BASE.parent / "chart" / "templates" / "NOTES.txt").read_text("utf-8")
    # What the images set.
    assert "MESH_LOG_STYLE=json" in (ROOT / "compose" / "Dockerfile").read_text("utf-8")
    record = logging.LogRecord("mesh", logging.WARNING, "", 0, "no user yet", None, None)
    lines = []
    for value in ("mesh_first", "mesh_last-1_a"):
        record.__dict__.update(fields(token=value))
        lines.append(JsonFormatter().format(record))
    text = "\n".join([lines[0], "{}", lines[1], '{"message": "no token"}', ""])
    for written in (page, notes):
        (command,) = re.findall(r"sed -n '[^']*token[^']*' \| tail -n 1", written)
        said = subprocess.run(
            ["bash", "-c", command], input=text, capture_output=True, text=True, check=True
        )
        assert said.stdout == "mesh_last-1_a\n"
        # By default, kubectl shows the last ten lines of pods that a label chooses.
        assert "--tail=-1" in written
