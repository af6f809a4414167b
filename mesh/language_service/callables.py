"""Functions, aggregators, windows and stream functions: the forms of their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    SCALARS,
    STREAM_FUNCTIONS,
    WINDOWS,
)
from mesh.functions.catalogue.model import TypeNamedBy, TypeOf
from mesh.functions.catalogue.resolve import describe_overload
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.functions.catalogue import Overload, Signature

#: Functions and aggregators of expressions.
EXPRESSIONS: Final[Mapping[str, Signature]] = SCALARS | AGGREGATORS | DOCUMENTED_FUNCTIONS
ALL_WINDOWS: Final[Mapping[str, Signature]] = WINDOWS | DOCUMENTED_WINDOWS
ALL_STREAM_FUNCTIONS: Final[Mapping[str, Signature]] = (
    STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS
)


def forms(signature: Signature) -> list[str]:
    """Each form of a call with its result: ``avg(value number) -> double``."""
    return [_form(signature, overload) for overload in signature.overloads]


def _form(signature: Signature, overload: Overload) -> str:
    result = overload.result
    shown = ""
    match result:
        case AttributeType():
            shown = str(result)
        case TypeOf(_, table) if table is not None:
            shown = " or ".join(sorted({str(kind) for kind in table.values()}, reverse=True))
        case TypeOf(index):
            shown = f"type of {overload.parameters[index].name}"
        case TypeNamedBy(index):
            shown = f"the type that {overload.parameters[index].name} names"
        case None:
            shown = ", ".join(f"{one.name} {one.type}" for one in overload.adds)
    return f"{signature.name}({describe_overload(overload)})" + (f" -> {shown}" if shown else "")
