"""``python -m tools.image_locks``: the parts of ``requirements.lock`` that go into the images.

An image gets the project's dependencies with theirs, and no tool of the development.  A manager
plans and places but runs no app, so its image lacks Spark and what computes over events.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: What a manager does without; ``tests/manager/test_slim.py`` runs one without them.
WORKERS_ONLY: Final = frozenset({"numba", "pandas", "pyspark"})
_FOLDER: Final = Path("compose")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A version of a package in the lock file: its lines, and the packages that require it."""

    name: str
    lines: tuple[str, ...]
    parents: frozenset[str]


def read(text: str) -> list[Pinned]:
    """The packages of a lock file; one with a version for each Python is there twice."""
    found = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines or "==" not in lines[0]:
            continue
        # "# via a" on one line, or "# via" with a line for each.
        via = [line.strip().removeprefix("#").strip() for line in lines if "#" in line]
        parents = {one.removeprefix("via").strip().partition(" ")[0] for one in via} - {""}
        kept = tuple(line for line in lines if "#" not in line)
        found.append(Pinned(lines[0].partition("==")[0], kept, frozenset(parents)))
    return found


def closure(packages: Sequence[Pinned], roots: Collection[str]) -> list[Pinned]:
    """The packages that ``roots`` need, with themselves, in the order of the lock file."""
    needed = set(roots)
    while more := {p.name for p in packages if p.name not in needed and p.parents & needed}:
        needed |= more
    return [package for package in packages if package.name in needed]


def locks(lock: str, project: Mapping[str, Any]) -> dict[str, str]:
    """The lock files of the images: name to text."""
    roots = {name_of(one) for one in project["dependencies"]}
    extras = project["optional-dependencies"]
    wanted = {
        "build": {"hatchling"},
        "manager": (roots - WORKERS_ONLY) | {name_of(one) for one in extras["oidc"]},
        "worker": roots | {name_of(one) for one in extras["java"]},
        "nats": {name_of(one) for one in extras["server"]},
        "idp": {"nanoidp"},
    }
    return {name: part(lock, needs) for name, needs in wanted.items()}


def name_of(requirement: str) -> str:
    """The name of a requirement like ``nats-py[nkeys]>=2.16``."""
    found = _NAME.match(requirement)
    assert found is not None
    return found[0].lower()


def part(lock: str, roots: Collection[str]) -> str:
    """The lock file of ``roots`` and what they need."""
    # A trailing backslash of a package's last hash would join the next package to it.
    packages = closure(read(lock), roots)
    blocks = ["\n".join(package.lines).removesuffix("\\").rstrip() for package in packages]
    return "# Made by `make lock` from requirements.lock.\n" + "\n".join(blocks) + "\n"


def main() -> None:
    """Write the files."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, text in locks(Path("requirements.lock").read_text("utf-8"), project).items():
        (_FOLDER / f"{name}.lock").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
