"""No module imports another that imports it, directly or through others.

Imports for type checkers alone count as well: a cycle of these means that a value is in the wrong
file.  Imports inside of functions count for the same reason.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
#: Directories on the import path, with the packages in them that are checked.
SOURCES = {
    ".": ("mesh", "bench", "tools"),
    "connectors": ("pyspark_nats", "mesh_connectors"),
}
#: Cycles that are known and remain to be cut, each by any of its modules.
KNOWN = frozenset(
    {
        "bench.chaos.scene",
        "mesh.cli.demo_run",
        "mesh.language.syntax.inputs",
        "mesh.operators.patterns.memory",
        "mesh.operators.windows.plain",
        "mesh.testing.simulator.session",
        "pyspark_nats.sink.exactly_once",
        "pyspark_nats.sink.markers",
    }
)


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
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[set[str]] = []
    for root in graph:
        if root in index:
            continue
        # Each entry: a node, and its successors that remain to be visited.
        pending: list[tuple[str, Iterator[str]]] = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while pending:
            node, successors = pending[-1]
            successor = next(successors, None)
            if successor is not None:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    pending.append((successor, iter(graph[successor])))
                elif successor in on_stack:
                    low[node] = min(low[node], index[successor])
                continue
            pending.pop()
            if pending:
                above = pending[-1][0]
                low[above] = min(low[above], low[node])
            if low[node] == index[node]:
                component: set[str] = set()
                while node not in component:
                    member = stack.pop()
                    on_stack.discard(member)
                    component.add(member)
                if len(component) > 1:
                    found.append(component)
    return found


def import_graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(name, path, known)) - {name} for name, path in known.items()}


@pytest.fixture(scope="module")
def found() -> list[set[str]]:
    return cycles(import_graph())


def test_that_no_modules_import_each_other(found: list[set[str]]) -> None:
    new = [" <-> ".join(sorted(cycle)) for cycle in found if not cycle & KNOWN]
    assert not new, "import cycles:\n" + "\n".join(new)


def test_that_known_cycles_are_still_there(found: list[set[str]]) -> None:
    gone = sorted(KNOWN - set().union(*found))
    assert not gone, f"cut by now, so take them out of KNOWN: {gone}"


def test_that_the_graph_is_the_one_of_the_packages() -> None:
    graph = import_graph()
    assert "mesh.operators.base" in graph["mesh.operators.executor"]
    assert "mesh.operators.frame" in graph["mesh.operators.environment"]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set[str]()}, []),
        ({"a": {"b"}, "b": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}, [{"b", "c"}]),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, [{"a", "b"}, {"c", "d"}]),
    ],
)
def test_cycles(graph: dict[str, set[str]], expected: list[set[str]]) -> None:
    assert sorted(map(sorted, cycles(graph))) == sorted(map(sorted, expected))
