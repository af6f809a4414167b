"""The one table of windows: it agrees with the catalogue, and no other module names a window."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.functions import catalogue
from mesh.operators.windows import WINDOWS, make_window
from tests.support import windows_driver as driver
from tests.support.paths import CASES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


PACKAGES = [ROOT / "mesh" / name for name in ("operators", "plan")]
NAMES = {*catalogue.WINDOWS, *catalogue.DOCUMENTED_WINDOWS}
#: Also a name of columns: it is read as a window where it is compared, or beside other windows.
AMBIGUOUS = {"time"}


def test_every_window_that_the_catalogue_calls_running_has_an_operator_and_none_other() -> None:
    listed = {**catalogue.DOCUMENTED_WINDOWS, **catalogue.WINDOWS}
    assert set(WINDOWS) == {name for name, signature in listed.items() if signature.runs}
    assert all(kind.signature is listed[name] for name, kind in WINDOWS.items())


@pytest.mark.parametrize("name", sorted(WINDOWS))
def test_an_operator_is_a_batch_window_if_its_kind_is(name: str) -> None:
    (path,) = (CASES / "windows").rglob(f"{name.replace(':', '-')}.jsonl")
    case = driver.read(path)[0]
    assert make_window(case.bound, driver.SCHEMA, 0).is_batch == WINDOWS[name].is_batch


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.name))
def test_only_the_registry_names_windows(package: Path) -> None:
    files = [path for path in package.rglob("*.py") if path.name != "registry.py"]
    assert files
    found = {
        f"{path.relative_to(package)}:{line}: {name}"
        for path in files
        for line, name in _named(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The windows that a module names, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            children = list(ast.walk(node))
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            children = list(ast.iter_child_nodes(node))
        else:
            children = []
        texts = [(one.lineno, one.value) for one in children if isinstance(one, ast.Constant)]
        beside = {str(text) for _, text in texts} & NAMES
        if isinstance(node, ast.Compare | ast.MatchValue) or len(beside) > 1:
            yield from ((line, str(text)) for line, text in texts if text in NAMES)
        if isinstance(node, ast.Constant) and node.value in NAMES - AMBIGUOUS:
            yield node.lineno, str(node.value)
