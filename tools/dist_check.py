"""``python -m tools.dist_check dist``: what ``make dist`` has built is whole and of one version.

It reads archives only.  Images have tests of their own in ``tests/stack/test_images.py``.
"""

from __future__ import annotations

import email.parser
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from mesh import __version__
from mesh.files import shipped
from tools import chart

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parent.parent
_MESH: Final = "nats_event_mesh"
_CONNECTOR: Final = "pyspark_nats"
#: Files without which a wheel is of no use: in each, and in the mesh's alone.
NEEDED: Final = ("pyspark_nats/__init__.py", "pyspark_nats/version.py")
#: With the files that `mesh install` writes and `mesh help` shows.
NEEDED_OF_MESH: Final = (
    "mesh/cli/__init__.py",
    "mesh/README.md",
    # The editor's grammar is one of the examples.
    *dict.fromkeys(
        f"mesh/{path.relative_to(_ROOT)}"
        for part in shipped.PARTS
        for path in shipped.paths_of(part).values()
    ),
)
#: Parts of the checkout that no wheel has.
_UNWANTED: Final = re.compile(r"^(tests|tools|bench|docs|compose)/|__pycache__|\.pyc$")


def problems(folder: Path, version: str = __version__) -> list[str]:
    """All that is wrong with the files of a folder; empty if they can be published."""
    found: list[str] = []
    expected = {
        f"{_MESH}-{version}-py3-none-any.whl",
        f"{_CONNECTOR}-{version}-py3-none-any.whl",
        f"{_MESH}-{version}.tar.gz",
        f"{_CONNECTOR}-{version}.tar.gz",
        f"mesh-{version}.tgz",
        "sbom.json",
    }
    there = {path.name for path in folder.iterdir()}
    found += [f"{name} is missing" for name in sorted(expected - there)]
    # Bills of images are made by `make images`.
    others = {name for name in there - expected if not name.endswith(".sbom.json")}
    found += [f"{name} is not a file of version {version}" for name in sorted(others)]
    for name in sorted(expected & there):
        path = folder / name
        if name.endswith(".whl"):
            found += [f"{name}: {text}" for text in _of_wheel(path, version)]
        elif name.endswith(".tgz"):
            found += [f"{name}: {text}" for text in _of_chart(path, version)]
        elif name == "sbom.json":
            found += [f"{name}: {text}" for text in _of_bill(path, version)]
    return [*found, *_of_example(version)]


def _of_wheel(path: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        about = f"{path.name.partition('-py3')[0]}.dist-info"
        texts = {
            one: archive.read(f"{about}/{one}").decode()
            for one in ("METADATA", "entry_points.txt")
            if f"{about}/{one}" in names
        }
    is_mesh = path.name.startswith(_MESH)
    for needed in (*NEEDED, *(NEEDED_OF_MESH if is_mesh else ())):
        if needed not in names:
            yield f"{needed} is missing"
    yield from (f"{name} does not belong there" for name in sorted(filter(_UNWANTED.match, names)))
    metadata = email.parser.HeaderParser().parsestr(texts.get("METADATA", ""))
    if metadata["Version"] != version:
        yield f"its version is {metadata['Version']}"
    if is_mesh and "mesh = mesh.cli:main" not in texts.get("entry_points.txt", ""):
        yield "it has no command mesh"


def _of_chart(path: Path, version: str) -> Iterator[str]:
    with tarfile.open(path) as archive:
        files = {
            one.name.removeprefix("mesh/"): archive.extractfile(one) for one in archive.getmembers()
        }
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    about: dict[str, Any] = yaml.safe_load(texts.get("Chart.yaml", "{}"))
    for field in ("version", "appVersion"):
        if about.get(field) != version:
            yield f"{field} of Chart.yaml is {about.get(field)}"
    for place, text in chart.texts().items():
        name = str(place.relative_to(chart.CHART))
        if texts.get(name) != text:
            yield f"{name} is not what the bases make: make chart"


def _of_bill(path: Path, version: str) -> Iterator[str]:
    bill = json.loads(path.read_text("utf-8"))
    if bill["metadata"]["component"]["version"] != version:
        yield f"its version is {bill['metadata']['component']['version']}"
    if not bill["components"] or not all(one.get("hashes") for one in bill["components"]):
        yield "it has packages without hashes, or none"


def _of_example(version: str) -> Iterator[str]:
    """Tags of images that the Kubernetes example names."""
    path = _ROOT / "conf" / "kubernetes" / "example" / "kustomization.yaml"
    for image in yaml.safe_load(path.read_text("utf-8"))["images"]:
        if image["newTag"] != version:
            yield f"{path.relative_to(_ROOT)}: {image['name']} has the tag {image['newTag']}"


def main(folder: Path) -> int:
    """Print what is wrong, or what is there."""
    wrong = problems(folder)
    for line in wrong:
        sys.stderr.write(f"make dist: {line}\n")
    if not wrong:
        sys.stdout.write("".join(f"{path.name}\n" for path in sorted(folder.iterdir())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
