"""Values of parts of a tree that are computed once, as long as the parts live.

An editor's text is analysed at each pause of typing.  Its unchanged statements have the trees that
they had before, as ``mesh.language.parser`` keeps these; so what is known of a tree stays too.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable

Part = TypeVar("Part")
Value = TypeVar("Value")


def memoized(function: Callable[[Part], Value]) -> Callable[[Part], Value]:
    """A function of a frozen part that is called once for each; an error is not kept.

    Parts are compared by identity: to compare trees takes as long as to walk them.  The value must
    not hold its part, which would then never be collected.
    """
    values: dict[int, tuple[ref[Part], Value]] = {}

    @wraps(function)
    def of_part(part: Part) -> Value:
        key = id(part)
        entry = values.get(key)
        if entry is None:
            # Before another part gets its id, the entry is gone.
            entry = ref(part, lambda _: values.pop(key, None)), function(part)
            values[key] = entry
        return entry[1]

    return of_part
