"""The Kubernetes objects of conf/kubernetes: they fit the schemas, each other, and the code."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from mesh.api.auth import OPEN_PATHS
from mesh.jetstream import server
from mesh.settings import Settings, load
from mesh.worker.probes import Probes
from tests.stack.test_alerts import known_names
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BASE = ROOT / "conf" / "kubernetes" / "base"
EXAMPLE = ROOT / "conf" / "kubernetes" / "example"
VERSION = "1.29"
ROLES = {"mesh-manager": "manager", "mesh-worker": "worker", "mesh-receiver": "receiver"}
NAME = "app.kubernetes.io/name"


def objects() -> list[dict[str, Any]]:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in BASE.iterdir()} == {*listed, "kustomization.yaml"}
    return [one for name in listed for one in yaml.safe_load_all((BASE / name).read_text())]


OBJECTS = objects()


def of_kind(*kinds: str) -> Iterator[dict[str, Any]]:
    return (one for one in OBJECTS if one["kind"] in kinds)


SETS = {one["metadata"]["name"]: one for one in of_kind("Deployment", "StatefulSet")}


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = SETS[name]["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def variables(name: str) -> dict[str, str]:
    return {one["name"]: one.get("value", "mesh-0") for one in container(name)["env"]}


def probes(name: str) -> dict[str, dict[str, Any]]:
    kinds = ("startupProbe", "livenessProbe", "readinessProbe")
    return {kind: container(name)[kind]["httpGet"] for kind in kinds}


@pytest.mark.parametrize(
    "one",
    [*OBJECTS, yaml.safe_load((EXAMPLE / "namespace.yaml").read_text())],
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
        assert container(name)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {one["name"] for one in pod(name)["volumes"]}
        volumes |= {
            o["metadata"]["name"] for o in SETS[name]["spec"].get("volumeClaimTemplates", ())
        }
        assert {one["name"] for one in container(name)["volumeMounts"]} == volumes
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
    metrics = [
        m["external"]["metric"]["name"] for m in scaler["spec"]["metrics"] if "external" in m
    ]
    assert metrics
    assert set(metrics) <= known_names()


def test_the_network_lets_through_what_the_processes_use() -> None:
    ports = {p["containerPort"] for name in SETS for p in container(name)["ports"]}
    for one in of_kind("NetworkPolicy"):
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
    assert made.keys() == used
    for name in ROLES:
        paths = [v for v in variables(name).values() if v.startswith("/run/mesh/")]
        assert {path.rpartition("/")[2] for path in paths} == made[name]
    assert made["nats-accounts"] == {"accounts.conf"}
    images = {one["name"] for one in example["images"]}
    assert images == {container(name)["image"] for name in SETS}
