"""The check of `make dist`: archives of one version, with all that belongs into them."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

import mesh
from tests.support.paths import ROOT
from tools import chart, dist_check

if TYPE_CHECKING:
    from pathlib import Path

VERSION = mesh.__version__
WHEELS = ("nats_event_mesh", "pyspark_nats")


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder as `make dist` leaves it; of the wheels, the files that the check looks for."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in WHEELS:
        stem = f"{name}-{VERSION}"
        (folder / f"{stem}.tar.gz").touch()
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
            for needed in (*dist_check.NEEDED, *dist_check.NEEDED_OF_MESH):
                archive.writestr(needed, "")
            archive.writestr(f"{stem}.dist-info/METADATA", f"Name: {name}\nVersion: {VERSION}\n")
            points = "[console_scripts]\nmesh = mesh.cli:main\n"
            archive.writestr(f"{stem}.dist-info/entry_points.txt", points)
    chart.package(folder)
    bill = {
        "metadata": {"component": {"version": VERSION}},
        "components": [{"name": "numpy", "hashes": [{"alg": "SHA-256", "content": "00"}]}],
    }
    (folder / "sbom.json").write_text(json.dumps(bill))
    return folder


def test_a_whole_folder_has_no_problem(dist: Path) -> None:
    (dist / "mesh-worker.sbom.json").write_text("{}")
    assert dist_check.problems(dist) == []
    assert dist_check.main(dist) == 0


def test_a_file_that_is_missing_or_of_another_version_is_named(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dist / f"mesh-{VERSION}.tgz").rename(dist / "mesh-9.9.9.tgz")
    assert dist_check.problems(dist) == [
        f"mesh-{VERSION}.tgz is missing",
        f"mesh-9.9.9.tgz is not a file of version {VERSION}",
    ]
    assert dist_check.main(dist) == 1
    assert "make dist: " in capsys.readouterr().err


def test_another_version_inside_is_named(dist: Path) -> None:
    renamed = {path: path.name.replace(VERSION, "9.9.9") for path in dist.iterdir()}
    for path, name in renamed.items():
        path.rename(path.parent / name)
    found = "\n".join(dist_check.problems(dist, "9.9.9"))
    for part in (
        f"whl: its version is {None}",
        f"tgz: version of Chart.yaml is {VERSION}",
        f"tgz: appVersion of Chart.yaml is {VERSION}",
        f"sbom.json: its version is {VERSION}",
        f"example/kustomization.yaml: mesh-worker has the tag {VERSION}",
    ):
        assert part in found


def test_a_wheel_without_a_part_or_with_tests_is_named(dist: Path) -> None:
    path = dist / f"nats_event_mesh-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("tests/test_x.py", "")
    left = dist / f"pyspark_nats-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(left, "w") as archive:
        archive.writestr(f"pyspark_nats-{VERSION}.dist-info/METADATA", f"Version: {VERSION}\n")
    assert dist_check.problems(dist) == [
        f"{path.name}: tests/test_x.py does not belong there",
        *(f"{left.name}: {needed} is missing" for needed in dist_check.NEEDED),
    ]


def test_a_chart_that_lags_and_a_bill_without_hashes_are_named(dist: Path, tmp_path: Path) -> None:
    path = dist / f"mesh-{VERSION}.tgz"
    # Python 3.11.2, which Debian 12 has, knows no filter, and later ones warn without.
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)
    worker = tmp_path / "mesh" / "templates" / "worker.yaml"
    worker.write_text(worker.read_text().replace("9544", "9545"))
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "mesh", "mesh")
    bill = json.loads((dist / "sbom.json").read_text())
    del bill["components"][0]["hashes"]
    (dist / "sbom.json").write_text(json.dumps(bill))
    assert dist_check.problems(dist) == [
        f"{path.name}: templates/worker.yaml is not what the bases make: make chart",
        "sbom.json: it has packages without hashes, or none",
    ]


def test_make_dist_builds_all_and_checks_it() -> None:
    said = subprocess.run(
        ["make", "-n", "dist", "PYTHON=python3"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    steps = [line.split(" -m ")[1] for line in said.stdout.splitlines() if " -m tools." in line]
    steps = [step for step in steps if not step.startswith("tools.install")]
    assert "rm -rf dist" not in said.stdout
    assert "find dist -type f ! -name 'mesh-*.sbom.json' -delete" in said.stdout
    assert steps == [
        "tools.advisories",
        "tools.chart dist",
        "tools.sbom dist/sbom.json",
        "tools.dist_check dist",
    ]
