"""No module imports another that imports it, directly or through others.

Imports for type checkers alone count as well: a cycle of these means that a value is in the wrong
file.  Imports inside of functions count for the same reason.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.statements import statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
#: Directories on the import path, with the packages in them that are checked.
SOURCES = {
    ".": ("mesh", "bench", "tools"),
    "connectors": ("pyspark_nats", "mesh_connectors"),
}


def modules() -> dict[str, Path]:
    """Every module by its dotted name; a package is its ``__init__``."""
    found = {}
    for directory, packages in SOURCES.items():
        base = ROOT / directory
        for package in packages:
            for path in sorted((base / package).rglob("*.py")):
                parts = path.relative_to(base).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found[name] = path
    return found


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that one names in its import statements, wherever these are.

    ``from package import name`` imports the module of that name, if there is one, and otherwise the
    package.  That a package's own modules run its ``__init__`` first is no import of theirs.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                source = f"{above}.{source}" if source else above
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner in known:
                    yield inner
                elif source in known:
                    yield source


@cache
def import_graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(name, path, known)) - {name} for name, path in known.items()}


def test_that_no_modules_import_each_other() -> None:
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(error.args[1]))


def test_that_the_graph_is_the_one_of_the_packages() -> None:
    graph = import_graph()
    assert "mesh.operators.base" in graph["mesh.operators.executor"]
    assert "mesh.operators.gaps" in graph["mesh.operators.expressions"]
