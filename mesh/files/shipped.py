"""Files that an installation ships for people and other programs, from a checkout or the wheel.

Pages, dashboards, rules, manifests, units, an editor's grammar and examples.  ``mesh install``
lists and writes them, ``mesh help`` shows the pages.  The wheel has the directories of the
checkout below its package ``mesh`` (``pyproject.toml``), so one relative path finds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesh.errors import MeshError

_PACKAGE: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class ShippedFiles:
    """Files of one purpose, which ``mesh install NAME`` lists and writes."""

    name: str
    about: str
    #: Directory or file, relative to the checkout.
    source: str
    suffixes: tuple[str, ...] = ()


#: In the order in which they are listed.  The man pages are made from the commands.
PARTS: Final = (
    ShippedFiles("docs", "the pages that mesh help shows, as Markdown", "docs", (".md",)),
    ShippedFiles("man", "a manual page of each command, for man", ""),
    ShippedFiles("examples", "apps with their events and the output that is expected", "examples"),
    ShippedFiles(
        "editor",
        "an extension of VS Code, and a grammar that highlights SiddhiQL in editors",
        "examples/editor",
    ),
    ShippedFiles("settings", "mesh.yaml with every setting and its default", "conf/mesh.yaml"),
    ShippedFiles(
        "systemd", "units of systemd; --role prepares a machine with them", "conf/systemd"
    ),
    ShippedFiles("kubernetes", "kustomize bases and the Helm chart", "conf/kubernetes"),
    ShippedFiles("prometheus", "alert rules", "conf/prometheus"),
    ShippedFiles("grafana", "a dashboard", "conf/grafana"),
)


def path_of(source: str) -> Path:
    """A file or directory of the checkout, here or in the package; MESH-U151 without either."""
    candidates = (folder / source for folder in (_PACKAGE.parent, _PACKAGE))
    path = next((one for one in candidates if one.exists()), None)
    if path is None:
        raise MeshError(
            "MESH-U151",
            f'"{source}" is not part of this installation',
            hint="Install the wheel again, or use a checkout of the project.",
        )
    return path


def paths_of(part: ShippedFiles) -> dict[str, Path]:
    """Paths of a part's files by those below its directory; none for pages that are made."""
    if not part.source:
        return {}
    top = path_of(part.source)
    if top.is_file():
        return {top.name: top}
    files = (one for one in top.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    matches = (one for one in files if not part.suffixes or one.suffix in part.suffixes)
    return {str(one.relative_to(top)): one for one in sorted(matches)}
