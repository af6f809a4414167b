"""The software bill of materials: each package of ``requirements.lock``, as CycloneDX JSON.

    python -m tools.sbom dist/sbom.json

Licences are those that the installed packages declare.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import mesh

LOCK: Final = Path(__file__).parent.parent / "requirements.lock"
_PACKAGE: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER: Final = "License :: OSI Approved :: "


@dataclass(frozen=True, slots=True)
class Package:
    """A locked package."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked(text: str) -> list[Package]:
    """The packages of a lock file, in its order."""
    found: list[Package] = []
    for block in re.split(r"\n(?=\S)", text):
        named = _PACKAGE.match(block)
        if named:
            found.append(Package(named[1], named[2], tuple(_HASH.findall(block))))
    return found


def licence_of(name: str) -> str | None:
    """The licence that an installed package declares; None for one that is not installed."""
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    classified = [
        line.removeprefix(_CLASSIFIER)
        for line in told.get_all("Classifier") or ()
        if line.startswith(_CLASSIFIER)
    ]
    if "License-Expression" in told:
        return told["License-Expression"]
    if classified or "License" not in told:
        return ", ".join(classified) or "unknown"
    # Some put the whole text there.
    return told["License"].strip().split("\n")[0]


def document(packages: list[Package]) -> dict[str, Any]:
    """The bill as CycloneDX 1.6."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "name": "nats-event-mesh", "version": mesh.__version__,
            }
        },
        "components": [_component(package) for package in packages],
    }  # fmt: skip


def _component(package: Package) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name.lower().replace('_', '-')}@{package.version}"
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": one} for one in package.hashes],
    }
    licence = licence_of(package.name)
    if licence is not None:
        made["licenses"] = [{"license": {"name": licence}}]
    return made


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(document(locked(LOCK.read_text())), indent=1) + "\n")
    sys.stdout.write(f"{where}\n")
