"""All scalar functions by full lower-case name, except ``UUID``, which also needs its call site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions import (
    containers,
    documents,
    engine,
    geometry,
    mathematics,
    scalars,
    strings,
    times,
    units,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.rows import Function, PureFunction, Rows
    from mesh.functions.vectors import Vector
    from mesh.model.types import AttributeType


_KINDS_READ = ("double", "float", "int", "long")


def _asking_nothing(function: PureFunction) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        return function(arguments, type)

    return apply


FUNCTIONS: dict[str, Function] = {
    **{name: _asking_nothing(function) for name, function in scalars.SCALARS.items()},
    **engine.FUNCTIONS,
    **strings.FUNCTIONS,
    **mathematics.FUNCTIONS,
    **times.FUNCTIONS,
    **documents.FUNCTIONS,
    **containers.FUNCTIONS,
    **geometry.FUNCTIONS,
    **units.FUNCTIONS,
}

#: Mathematical functions over texts, which may be no numbers.
_READING = frozenset({"bin", "conv", "hex", "oct"} | {f"parse{kind}" for kind in _KINDS_READ})
#: Functions that give a value or null for all arguments: no row fails.
SURE_FUNCTIONS = frozenset(
    {*scalars.SCALARS, *units.FUNCTIONS, "currenttimemillis", "eventtimestamp", "uuid"}
    | {name for name in engine.FUNCTIONS if name.startswith("instanceof")}
    | {n for n in mathematics.FUNCTIONS if n.removeprefix("math:") not in _READING}
)
