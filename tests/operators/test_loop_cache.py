"""Native code is kept by the contents of all that is compiled into it, and by who may write it."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from numba.core.dispatcher import Dispatcher

from mesh.operators import executor, loop_cache
from tests.support.scratch import system

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ("system",)


def test_native_code_is_kept_in_the_users_cache_or_goes_with_the_process(
    system: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    _install_for_all(home, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert loop_cache.find_cache().parent == home / "mesh"
    monkeypatch.setenv("CACHE_DIRECTORY", f"{home / 'unit'}:{home / 'other'}")
    assert loop_cache.find_cache().parent == home / "unit"
    assert list(system.iterdir()) == []
    monkeypatch.setenv("CACHE_DIRECTORY", str(home / "file"))
    made = loop_cache.find_cache()
    assert made.parent.parent == system
    assert os.environ[loop_cache.DIRECTORY_VARIABLE] == str(made.parent)
    # A process that this one starts uses it too.
    assert loop_cache.find_cache() == made


@pytest.mark.parametrize("place", ["home", "cache"])
@pytest.mark.parametrize("owner", ["another user", "this user"])
def test_native_code_is_not_loaded_from_a_directory_that_others_may_write_to(
    system: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    owner: str,
) -> None:
    home = tmp_path_factory.mktemp("home")
    _install_for_all(home, monkeypatch)
    monkeypatch.setenv(loop_cache.DIRECTORY_VARIABLE, str(home / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    cache = loop_cache.find_cache()
    planted = cache if place == "cache" else cache.parent
    if owner == "this user":
        planted.chmod(0o777)
    else:
        stranger = os.getuid() + 1
        stat = Path.stat

        def stat_of(path: Path, **given: bool) -> os.stat_result:
            found = stat(path, **given)
            of_others = os.stat_result((*found[:4], stranger, *found[5:]))
            return of_others if path == planted else found

        monkeypatch.setattr(Path, "stat", stat_of)
    assert loop_cache.find_cache().parent == home / "mesh"


def _install_for_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that its users can't write to."""
    (home / "file").touch()
    monkeypatch.setenv(loop_cache.DIRECTORY_VARIABLE, "")
    monkeypatch.setattr(loop_cache, "HERE", home / "file")
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    monkeypatch.setattr(loop_cache, "_digest", lambda: "0")


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


@pytest.mark.slow
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
