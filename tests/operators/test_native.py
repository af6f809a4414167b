"""Compiled code is kept by the contents of all that is compiled into it."""

from __future__ import annotations

import ast
import os
import subprocess
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


PROGRAM = """
import mesh.operators.executor
from mesh.operators import loop_cache, native
from mesh.operators.windows import sliding
import numpy as np

loops = sorted(path.name for path in loop_cache.CACHE.rglob("*.nbc"))
assert loops == [], loops
assert sliding.delay_loop.signatures == []


@native.native(native.types.int64(native.LONG1))
def total(values):
    found = 0
    for value in values:
        found += value
    return found


assert total(np.arange(5)) == 10
assert len(total.signatures) == 1


@native.njit([native.types.int64(native.types.int64), native.types.float64(native.types.float64)])
def twice(value):
    return value * 2


assert (twice(2), twice(0.5)) == (4, 1.0)
assert len(twice.signatures) == 2
try:
    total(np.arange(5.0))
except TypeError:
    print("refused")
"""


def test_an_import_compiles_nothing_and_a_loop_is_compiled_for_its_signature_alone(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    said = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, "refused\n"), said.stderr
