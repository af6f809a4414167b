"""Compiled code is kept by the contents of all that is compiled into it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.dispatcher import Dispatcher

from mesh.operators import executor, loop_cache

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(loop_cache.HERE).parents[1]


def _operators() -> list[ModuleType]:
    """Every module of the operators, with the executor that imports them."""
    assert executor.__name__ in sys.modules
    return [m for name, m in sorted(sys.modules.items()) if name.startswith("mesh.operators.")]


def _imported(module: ModuleType) -> dict[str, Path]:
    """The names that a module has of other files of the operators, and of which."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    return {
        name.asname or name.name: _file_of(node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mesh.operators.")
        for name in node.names
        if node.module is not None
    }


def _file_of(source: str, name: str) -> Path:
    """The file of a name in ``source``: its own if it is a module of a package."""
    place = ROOT / Path(*source.split("."))
    itself = place / f"{name}.py"
    return itself if itself.exists() else place.with_suffix(".py")


def test_the_cache_is_named_after_all_files_that_are_compiled_into_loops() -> None:
    looked_at = {str(path) for path in loop_cache.sources()}
    loops = 0
    for module in _operators():
        found: list[Any] = [v for v in vars(module).values() if isinstance(v, Dispatcher)]
        own = [one.py_func for one in found if one.py_func.__module__ == module.__name__]
        loops += len(own)
        if own:
            assert str(module.__file__) in looked_at, module.__name__
        used = {name for function in own for name in function.__code__.co_names}
        for name, path in _imported(module).items():
            if name in used:
                assert str(path) in looked_at, f"{name}, that {module.__name__} has of {path.name}"
    assert loops > 100
