"""Notation of signatures: one form of a call per line.

    str:charAt(input.value string, index int) -> string
    str:concat(arg scalar, arg scalar ..) -> string
    str:coalesce(arg any, arg any same ..) -> arg
    time:dateAdd(date.value string, expr int, unit string constant) -> string
    str:tokenize(input.string string, regex string) -> token string

A parameter is its name, its types divided by ``|``, and words: ``constant`` or ``attribute`` for
the form, ``same`` for the type of the first argument, ``..`` for zero or more of them.  ``number``
is every numeric type, ``scalar`` every type but object, ``any`` all.  The result is a type, or the
name of the parameter that has it.  For a stream function the arrow precedes the attributes that the
function adds.  A line that ends with a comma continues on the next line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.model import (
    ANY,
    ANY_FORM,
    NUMBER,
    OBJECT,
    Form,
    Kind,
    Origin,
    Overload,
    Parameter,
    Signature,
    TypeOf,
)
from mesh.functions.catalogue.running import RUNNING, RUNNING_STREAM_FUNCTIONS
from mesh.model.types import Attribute, AttributeType

if TYPE_CHECKING:
    from mesh.functions.catalogue.model import Result

_LINE: Final = re.compile(r"(?P<name>[\w:]+)\((?P<inside>[^)]*)\)(?: -> (?P<result>.+))?")
_GROUPS: Final = {"any": ANY, "number": NUMBER, "scalar": ANY - OBJECT}


def signatures(text: str, kind: Kind) -> dict[str, Signature]:
    """The signatures that ``text`` lists, by name; lines of one name are forms of one call."""
    overloads: dict[str, list[Overload]] = {}
    for line in filter(None, re.sub(r",\n\s+", ", ", text).splitlines()):
        match = _LINE.fullmatch(line)
        assert match is not None, line
        form = _overload(match["inside"], match["result"], kind)
        overloads.setdefault(match["name"], []).append(form)
    return {
        name: Signature(name, kind, tuple(forms), Origin.DOCUMENTATION, runs=_runs(name, kind))
        for name, forms in overloads.items()
    }


def _runs(name: str, kind: Kind) -> bool:
    if kind is Kind.SCALAR:
        return True
    return name in (RUNNING_STREAM_FUNCTIONS if kind is Kind.STREAM_PROCESSOR else RUNNING)


def _overload(inside: str, result: str | None, kind: Kind) -> Overload:
    parameters: list[Parameter] = []
    more = None
    for part in filter(None, inside.split(", ")):
        parameter, repeats = _parameter(part)
        if repeats:
            more = parameter
        else:
            parameters.append(parameter)
    if result is None:
        return Overload(tuple(parameters), more=more)
    if kind in (Kind.STREAM_FUNCTION, Kind.STREAM_PROCESSOR):
        return Overload(tuple(parameters), more=more, adds=_attributes(result))
    return Overload(tuple(parameters), _result(result, parameters), more)


def _parameter(text: str) -> tuple[Parameter, bool]:
    name, types, *words = text.split()
    forms = frozenset(Form(word) for word in words if word in set(Form)) or ANY_FORM
    same_as = 0 if "same" in words else None
    kinds = frozenset[AttributeType]().union(
        *(_GROUPS.get(one) or {AttributeType(one)} for one in types.split("|"))
    )
    return Parameter(name, kinds, forms, same_as), ".." in words


def _result(text: str, parameters: list[Parameter]) -> Result:
    names = [parameter.name for parameter in parameters]
    return TypeOf(names.index(text)) if text in names else AttributeType(text)


def _attributes(text: str) -> tuple[Attribute, ...]:
    pairs = (pair.split() for pair in text.split(", "))
    return tuple(Attribute(name, AttributeType(kind)) for name, kind in pairs)
