"""Native loops: Numba's ``njit``, with a cache that can't be stale (``loop_cache``).

A loop with signatures is compiled for them, and for nothing else, when it is first called.  Numba
does so when a module is imported, which would compile the loops of every window for an app that
has none; ``compile_declared`` does it for all at once.

A loop without signatures is compiled for each new form of its arguments, which a running app would
wait for: an array over a buffer of Arrow is of another form where the buffer may be changed.

Native binary heap of timers, for windows and patterns.

A heap is the first rows of a table, ordered by the columns 0 and 1: the time that a timer is due,
and a number that distinguishes timers of one time.  The table's owner keeps the number of its rows.
"""

from __future__ import annotations

import threading
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

import numba
from numba import types as types

from mesh.operators.loop_cache import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.typing.templates import Signature


Loop = TypeVar("Loop", bound="Callable[..., object]")
#: Of loops with a signature of Numba's, whose parameters have no types of Python's.
Decorator: TypeAlias = "Callable[[Callable[..., object]], Callable[..., Any]]"

#: Types of arrays in signatures: of int64 by dimension, of int8 and of truth values; those with
#: READ in their names are of arrays that a loop does not change.
LONG1, LONG2, LONG3 = (types.Array(types.int64, dimensions, "C") for dimensions in (1, 2, 3))
READ1, READ2 = (types.Array(types.int64, n, "C", readonly=True) for n in (1, 2))
BYTE1 = types.Array(types.int8, 1, "C")
BYTE_READ1 = types.Array(types.int8, 1, "C", readonly=True)
BOOL1 = types.Array(types.boolean, 1, "C")
BOOL_READ1 = types.Array(types.boolean, 1, "C", readonly=True)


def buffer_of(type: Any) -> Any:
    """The type of an array over one of Arrow's buffers, which may begin at any octet."""
    return types.Array(type, 1, "C", readonly=True, aligned=False)


#: For each loop with signatures of the modules that are imported, a call that compiles it once.
_DECLARED: Final[list[Callable[[], object]]] = []
#: Held while a loop is compiled, for others may call it for the first time as well.
_COMPILING: Final = threading.RLock()


@overload
def njit(function: Loop, /) -> Loop: ...
@overload
def njit(*signatures: Signature | list[Signature], **options: object) -> Decorator: ...
def njit(*arguments: Any, **options: object) -> Any:
    """``numba.njit`` with a cache for compiled code; called with signatures or as a decorator."""
    setattr(numba.config, "CACHE_DIR", str(CACHE))  # noqa: B010
    compiler: Any = numba.njit
    if not arguments or isfunction(arguments[0]):
        return compiler(*arguments, cache=True, **options)
    (spec,) = arguments
    signatures = spec if isinstance(spec, list) else [spec]
    return lambda function: _declare(compiler(cache=True, **options)(function), signatures)


def _declare(loop: Any, signatures: list[Signature]) -> Any:
    """A loop that is compiled for its signatures at the first call, whatever its arguments are."""
    is_compiled = False

    def compile_once(*_: object) -> object:
        nonlocal is_compiled
        with _COMPILING:
            if not is_compiled:
                for signature in signatures:
                    loop.compile(signature)
                loop.disable_compile()
                is_compiled = True
        return loop

    # Numba asks this for the form of arguments that no compiled form fits, and calls it.
    loop._compile_for_args = compile_once
    _DECLARED.append(compile_once)
    return loop


def compile_declared() -> None:
    """Compile, or load, each loop with a signature of the modules that are imported."""
    for compile_once in _DECLARED:
        compile_once()


@overload
def bare(function: Loop, /) -> Loop: ...
@overload
def bare(*signatures: Signature | list[Signature], **options: object) -> Decorator: ...
def bare(*arguments: Any, **options: object) -> Any:
    """``njit`` for loops that make no arrays, without reference counts of the arrays passed in.

    Where a loop calls small functions on many arrays, that counting takes longer than their work.
    """
    return njit(*arguments, _nrt=False, **options)


#: Without the entries from Python and C, which unpack every array of the arguments: for functions
#: that take many arrays their compilation takes longer than that of the rest.
_NO_ENTRY: Final = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: Loop) -> Loop:
    """``bare`` for a function that only loops call; a call from Python ends the process."""
    return cast("Loop", bare(**_NO_ENTRY)(function))


def native(*signature: Signature | list[Signature]) -> Decorator:
    """``bare`` for a loop with a signature: compiled for it alone, when it is first called."""
    return bare(*signature, error_model="numpy")


def helper(function: Callable[..., object]) -> Callable[..., Any]:
    """An ``inner`` function that is compiled into the loops that call it."""
    # Inlined, calls don't count references to the arrays that they are given.
    return bare(error_model="numpy", forceinline=True, **_NO_ENTRY)(function)


def helper_with_entry(function: Callable[..., object]) -> Any:
    """A ``helper`` that Python calls as well."""
    return bare(error_model="numpy", forceinline=True)(function)


@helper
def _is_earlier(heap, left, right):  # type: ignore[no-untyped-def]
    if heap[left, 0] != heap[right, 0]:
        return heap[left, 0] < heap[right, 0]
    return heap[left, 1] < heap[right, 1]


@helper
def swap_rows(heap, columns, left, right):  # type: ignore[no-untyped-def]
    """Exchange two rows of that many columns."""
    for column in range(columns):
        held = heap[left, column]
        heap[left, column] = heap[right, column]
        heap[right, column] = held


@helper
def sift_up(heap, columns, at):  # type: ignore[no-untyped-def]
    """Move the row ``at``, the last one, up to its place."""
    while at > 0:
        parent = (at - 1) // 2
        if not _is_earlier(heap, at, parent):
            break
        swap_rows(heap, columns, at, parent)
        at = parent


@helper
def remove_first(heap, columns, last):  # type: ignore[no-untyped-def]
    """Exchange the first row with row ``last``, the last one; all but that are a heap then."""
    swap_rows(heap, columns, 0, last)
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last and _is_earlier(heap, child, least):
                least = child
        if least == at:
            break
        swap_rows(heap, columns, at, least)
        at = least
