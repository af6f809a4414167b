"""Native loops: Numba's ``njit``, with a cache that can't be stale.

Numba keeps compiled code by function, and looks only at the age of that function's own file.  A
loop that has a function of another file compiled into it would stay as it was when that one
changes, and assume another layout of the arrays they share.  So the cache's directory is named
after the contents of all files that have native loops in them, and of those that these import
constants from.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import numba
from numba import types as types

HERE: Final = Path(__file__).parent
#: Where a user wants compiled code to be; beside the sources otherwise.
DIRECTORY_VARIABLE: Final = "NUMBA_CACHE_DIR"
_IMPORT: Final = re.compile(r"^from mesh\.operators\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
#: A file that makes native code by itself.
_NUMBA: Final = re.compile(r"^(?:import|from) numba\b", re.MULTILINE)
_CONSTANT: Final = re.compile(r"\b_?[A-Z][A-Z0-9_]+\b")


def sources() -> list[Path]:
    """The files whose contents compiled code is made of.

    A file that imports from this one, or Numba, has native loops; names of files mean nothing.
    """
    texts = {path: path.read_text("utf-8") for path in HERE.rglob("*.py")}
    imports = {path: _IMPORT.findall(text) for path, text in texts.items()}
    found = {path for path, text in texts.items() if _NUMBA.search(text)}
    found |= {path for path, of in imports.items() if any(name == "native" for name, _ in of)}
    pending = list(found)
    while pending:
        for name, imported in imports.get(pending.pop(), ()):
            path = HERE.joinpath(*name.split(".")).with_suffix(".py")
            if path not in found and _CONSTANT.search(imported):
                found.add(path)
                pending.append(path)
    return sorted(path for path in found if path in imports)


def _digest() -> str:
    found = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for path in sources():
        found.update(path.read_bytes())
    return found.hexdigest()


def _home() -> Path:
    """A directory that can be written to."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named)
    beside = HERE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=beside):
            return beside
    except OSError:
        return Path(tempfile.gettempdir()) / f"mesh-native-{os.getuid()}"


#: Where this version's compiled code is.
CACHE: Final = _home() / f"native-{_digest()}"


def njit(*arguments: Any, **options: Any) -> Any:
    """``numba.njit`` that keeps what it compiles; called with signatures or as a decorator."""
    setattr(numba.config, "CACHE_DIR", str(CACHE))  # noqa: B010
    compiler: Any = numba.njit
    return compiler(*arguments, cache=True, **options)


def bare(*arguments: Any, **options: Any) -> Any:
    """``njit`` for loops that make no arrays, in which nobody counts references to those given.

    Where a loop calls small functions on many arrays, that counting takes longer than their work.
    """
    return njit(*arguments, _nrt=False, **options)


def native(*signature: Any) -> Any:
    """``bare`` for a loop with a signature: compiled when its module is first imported."""
    compiler: Any = bare
    return compiler(*signature, error_model="numpy")


def helper(function: Any) -> Any:
    """A function that is compiled into the loops that call it."""
    # Inlined, calls don't count references to the arrays that they are given.
    return bare(error_model="numpy", forceinline=True)(function)
