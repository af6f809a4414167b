"""Loops without an entry from Python are called by loops alone: such a call ends the process."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Decorators of functions without an entry, and of all native loops.
WITHOUT: Final = {"inner", "helper"}
LOOPS: Final = {*WITHOUT, "bare", "helper_with_entry", "native", "njit"}


def decorators(function: ast.FunctionDef) -> set[str]:
    """Names of the decorators, whether these have arguments or not."""
    found = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return {one.id for one in found if isinstance(one, ast.Name)}


def modules() -> dict[str, ast.Module]:
    """The modules that may call a loop, by name."""
    paths = [*(ROOT / "mesh").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    paths += (ROOT / "bench").rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for path in paths
        if "mesh.operators" in (text := path.read_text("utf-8")) or "@helper" in text
    }


def names_outside_loops(tree: ast.Module) -> Iterator[ast.Name | ast.Attribute]:
    """Names that a module reads anywhere but in its native loops."""
    found: list[ast.AST] = [tree]
    while found:
        node = found.pop()
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node
        if not (isinstance(node, ast.FunctionDef) and decorators(node) & LOOPS):
            found += ast.iter_child_nodes(node)


@pytest.mark.slow
def test_only_loops_call_a_function_without_an_entry() -> None:
    trees = modules()
    without = {
        (name, node.name)
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and decorators(node) & WITHOUT
    }
    assert len(without) > 100
    called = set()
    for name, tree in trees.items():
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        known = {one[1]: one for one in without if one[0] == name}
        for node in imports:
            for alias in node.names:
                if (node.module or "", alias.name) in without:
                    known[alias.asname or alias.name] = (node.module or "", alias.name)
        inside = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in imports
            for alias in node.names
        }
        for used in names_outside_loops(tree):
            if isinstance(used, ast.Name):
                called |= {known.get(used.id)} & without
            elif isinstance(used.value, ast.Name):
                called |= {(inside.get(used.value.id, ""), used.attr)} & without
    assert not called
