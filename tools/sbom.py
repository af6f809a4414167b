"""Software bills of materials, as CycloneDX JSON.

    python -m tools.sbom dist/sbom.json                         each package of requirements.lock
    python3 tools/sbom.py --installed mesh-worker 0.1.0         the packages around this Python

The second form needs nothing but Python and writes to standard output: ``make images`` runs it in
each image.  It lists the packages of Python, those of Debian, and a NATS server.

Licences are those that the installed packages declare.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

LOCK: Final = Path("requirements.lock")
_PACKAGE: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER: Final = "License :: OSI Approved :: "


@dataclass(frozen=True, slots=True)
class Package:
    """A locked package."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()
    #: Of its package URL: ``pypi``, ``deb/debian`` or ``golang/github.com/nats-io``.
    kind: str = "pypi"


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


def installed() -> list[Package]:
    """The packages of this machine: of this Python, of Debian, and a NATS server."""
    found = {
        one.metadata["Name"].lower(): Package(one.metadata["Name"], one.version)
        for one in metadata.distributions()
    }
    more = [*_of_debian(), *_nats_server()]
    return [*(found[name] for name in sorted(found)), *more]


def _of_debian() -> list[Package]:
    """Packages of Debian; of another system none, and the bill says that it is not complete."""
    if shutil.which("dpkg-query") is None:
        return []
    shown = _output("dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n")
    return [
        Package(name, version, kind="deb/debian")
        for name, _, version in (line.partition(" ") for line in shown.splitlines())
    ]


def _nats_server() -> list[Package]:
    if shutil.which("nats-server") is None:
        return []
    version = _output("nats-server", "--version").strip().rpartition("v")[2]
    return [Package("nats-server", version, kind="golang/github.com/nats-io")]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def document(packages: list[Package], name: str, version: str, kind: str) -> dict[str, Any]:
    """The bill as CycloneDX 1.6, of a thing of this kind: an application or a container."""
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": kind, "bom-ref": name, "name": name, "version": version}
        },
        "components": [_component(package) for package in packages],
    }
    if kind == "container":
        is_whole = any(package.kind == "deb/debian" for package in packages)
        aggregate = "complete" if is_whole else "incomplete"
        made["compositions"] = [{"aggregate": aggregate, "assemblies": [name]}]
    return made


def _component(package: Package) -> dict[str, Any]:
    name = package.name.lower().replace("_", "-")
    purl = f"pkg:{package.kind}/{name}@{quote(package.version, safe='.-~')}"
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    if package.hashes:
        made["hashes"] = [{"alg": "SHA-256", "content": one} for one in package.hashes]
    licence = licence_of(package.name) if package.kind == "pypi" else None
    if licence is not None:
        made["licenses"] = [{"license": {"name": licence}}]
    return made


def _main(arguments: list[str]) -> None:
    if arguments[0] == "--installed":
        _, name, version = arguments
        text = json.dumps(document(installed(), name, version, "container"), indent=1)
        sys.stdout.write(text + "\n")
        return
    from mesh import __version__

    where = Path(arguments[0])
    where.parent.mkdir(parents=True, exist_ok=True)
    made = document(locked(LOCK.read_text()), "nats-event-mesh", __version__, "application")
    where.write_text(json.dumps(made, indent=1) + "\n")
    sys.stdout.write(f"{where}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
