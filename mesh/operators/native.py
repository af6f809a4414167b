"""Native loops: Numba's ``njit``, with a cache that can't be stale.

Numba keeps compiled code by function, and looks only at the age of that function's own file.  A
loop that has a function of another file compiled into it would stay as it was when that one
changes, and go on with another idea of the arrays they share.  So the cache's directory is named
after the contents of all files that have native loops in them, or constants for these.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import numba
from numba import types as types

from mesh import scratch

HERE: Final = Path(__file__).parent
#: Where a user wants compiled code to be; beside the sources otherwise.
DIRECTORY_VARIABLE: Final = "NUMBA_CACHE_DIR"
#: What a file has in it that has native loops, or is compiled into them.
_WORDS: Final = (b"mesh.operators.native", b"machine import", b"njit")


def sources() -> list[Path]:
    """The files whose contents compiled code is made of."""
    return [
        path
        for path in sorted(HERE.rglob("*.py"))
        if path.name == "base.py" or any(word in path.read_bytes() for word in _WORDS)
    ]


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
        return _home_elsewhere()


def _home_elsewhere() -> Path:
    """The user's cache; where that can't be written to either, a directory of this process."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mesh")
    try:
        user.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=user):
            return user
    except OSError:
        made = scratch.for_process("native")
        # Processes that this one starts use it too.
        os.environ[DIRECTORY_VARIABLE] = str(made)
        return made


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
