"""Functions, aggregators, windows and stream functions: signatures and a sentence each."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    SCALARS,
    STREAM_FUNCTIONS,
    WINDOWS,
    NameKind,
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
_TABLES: Final = {
    NameKind.SCALAR: "functions",
    NameKind.AGGREGATOR: "aggregators",
    NameKind.WINDOW: "windows",
    NameKind.STREAM_FUNCTION: "stream_functions",
    NameKind.STREAM_PROCESSOR: "stream_functions",
}


@cache
def sentences() -> Mapping[str, Mapping[str, str]]:
    """A sentence for each name, by kind."""
    file = resources.files("mesh.language_service").joinpath("functions.toml")
    tables: dict[str, dict[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    return tables


def sentence(signature: Signature) -> str:
    """The result of a call in words; empty for a function of another package."""
    return sentences()[_TABLES[signature.kind]].get(signature.name, "")


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
