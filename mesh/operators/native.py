"""Native loops: Numba's ``njit``, with a cache that can't be stale (``loop_cache``)."""

from __future__ import annotations

from typing import Any

import numba
from numba import types as types

from mesh.operators.loop_cache import CACHE


def njit(*arguments: Any, **options: Any) -> Any:
    """``numba.njit`` with a cache for compiled code; called with signatures or as a decorator."""
    setattr(numba.config, "CACHE_DIR", str(CACHE))  # noqa: B010
    compiler: Any = numba.njit
    return compiler(*arguments, cache=True, **options)


def bare(*arguments: Any, **options: Any) -> Any:
    """``njit`` for loops that make no arrays, without reference counts of the arrays passed in.

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
