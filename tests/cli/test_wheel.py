"""The project's wheel in a clean environment, without a checkout: what the README shows works.

Dependencies are those of this environment, by a `.pth` file.  An editable installation is itself a
`.pth` file, which Python reads only in its own directory, so the checkout is not on the path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(out), str(ROOT)], check=True, timeout=200)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of an environment with the wheel."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", str(wheel)], check=True, timeout=200)
    return home / "bin"


@pytest.fixture(scope="module")
def prepared(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, prepared as the README says."""
    run(installed / "python", tmp_path_factory.mktemp("prepare"), "-m", "mesh.worker.prepare")
    return installed


def mesh(installed: Path, directory: Path, *arguments: str) -> str:
    """The output of `mesh` in an empty directory."""
    return run(installed / "mesh", directory, *arguments)


def run(program: Path, directory: Path, *arguments: str) -> str:
    """The output of a program of the environment."""
    left_out = ("MESH_", "PYTHON")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    environment |= {"XDG_CONFIG_HOME": str(directory / "config"), "COLUMNS": "200"}
    said = subprocess.run(
        [program, *arguments], cwd=directory, env=environment, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr + said.stdout
    return said.stdout


def test_it_has_the_examples_and_nothing_of_the_development(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "mesh/examples/orders.siddhi",
        "mesh/cli/project/starter.siddhi",
        "mesh/conf/systemd/mesh-worker.service",
    ):
        assert name in names
    assert not any(name.startswith(("tests/", "tools/", "bench/", "compose/")) for name in names)


def test_commands_of_the_readme_work_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    assert str(ROOT) not in mesh(installed, tmp_path, "--version")
    mesh(installed, tmp_path, "init", "shop")
    assert "as expected" in mesh(installed, tmp_path, "test", "shop/shop.siddhi")
    readme = (ROOT / "README.md").read_text("utf-8")
    app = re.search(r"    @App:name\('Shop'\)\n(?:    .+\n)+", readme)
    assert app is not None
    path = tmp_path / "shop.siddhi"
    path.write_text(app[0])
    assert json.loads(mesh(installed, tmp_path, "validate", str(path), "-o", "json"))["valid"]
    assert "DearOrders" in mesh(installed, tmp_path, "plan", str(path))
    assert "MESH-L202" in mesh(installed, tmp_path, "explain", "MESH-L202")


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.timeout(500)
def test_the_demo_runs_without_a_checkout_and_loses_nothing(prepared: Path, tmp_path: Path) -> None:
    said = mesh(prepared, tmp_path, "demo", "--rows", "900")
    assert "; 0 rows lost, 0 doubled\n" in said
    assert re.search(r"^steady  300 events at 200/s: output \d+ ms", said, re.MULTILINE)
