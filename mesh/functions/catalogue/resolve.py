"""Judge a call by a table: which form of it is meant and what type it has, or why it is wrong."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from mesh.functions.catalogue.model import (
    ANY,
    ANY_FORM,
    CONSTANT,
    NUMBER,
    OBJECT,
    Argument,
    Kind,
    Objection,
    Overload,
    Parameter,
    Reason,
    Refusal,
    Resolution,
    Result,
    Signature,
    TypeNamedBy,
    TypeOf,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def resolve(
    table: Mapping[str, Signature], name: str, arguments: Sequence[Argument]
) -> Resolution | Refusal:
    """Look up ``name`` in ``table`` and fit ``arguments`` to one of its forms.

    Args:
        table: signatures by their full names; one of the tables of this package, or several merged.
        name: as written, namespace included: ``str:concat``.
        arguments: types, forms and constants; ``f(*)`` has been spread over the attributes.

    Returns:
        The form that fits, with the call's type; or the reason why none does, told of the form
        that comes nearest.
    """
    signature = table.get(name)
    if signature is None:
        return unknown(table, name)
    given = tuple(arguments)
    objections: list[Objection] = []
    for overload in signature.overloads:
        if not _fits_count(overload, len(given)):
            continue
        objection = _object(overload, given)
        if objection is None:
            fails = overload.doom(given) if overload.doom is not None else None
            return Resolution(signature, overload, _result(overload.result, given), fails)
        objections.append(objection)
    if not objections:
        what = f"takes {_counts(signature)}, not {len(given)}"
        return _refusal(signature, Objection(Reason.COUNT, what))
    return _refusal(signature, max(objections, key=_progress))


def unknown(table: Mapping[str, Signature], name: str) -> Refusal:
    """The refusal of a name that ``table`` doesn't have, with the nearest one that it has."""
    kind = next((str(signature.kind) for signature in table.values()), str(Kind.SCALAR))
    return Refusal(
        Reason.UNKNOWN, f'{kind} "{name}" is not defined', hint=did_you_mean(name, table)
    )


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint at what ``name`` may have been meant to be; a missing namespace is found as well."""
    wanted, names = name.lower(), list(known)
    near = [
        one for one in names if one.lower() == wanted or one.lower().rpartition(":")[2] == wanted
    ]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else None


def describe(signature: Signature) -> str:
    """The forms of a call as people read them: ``sum(value int|long|float|double)``."""
    return ", ".join(
        f"{signature.name}({_described(overload)})" for overload in signature.overloads
    )


def _fits_count(overload: Overload, count: int) -> bool:
    least = len(overload.parameters)
    return count >= least if overload.more is not None else count == least


def _object(overload: Overload, arguments: tuple[Argument, ...]) -> Objection | None:
    for index, argument in enumerate(arguments):
        objection = _object_to(overload, index, argument, arguments)
        if objection is not None:
            return objection
    return overload.rule(arguments) if overload.rule is not None else None


def _object_to(
    overload: Overload, index: int, argument: Argument, arguments: tuple[Argument, ...]
) -> Objection | None:
    parameters = overload.parameters
    parameter = parameters[index] if index < len(parameters) else overload.more
    assert parameter is not None, "the count was checked before"
    where = f"its {_ordinal(index)} argument"
    if argument.type not in parameter.types:
        return Objection(Reason.TYPE, f"can't have {argument.type} as {where}", index)
    if argument.form not in parameter.forms:
        wanted = "a constant" if parameter.forms == CONSTANT else _forms(parameter)
        return Objection(Reason.FORM, f"takes {wanted} as {where}", index)
    if parameter.same_as is not None:
        other = arguments[parameter.same_as].type
        if argument.type is not other:
            return Objection(
                Reason.MIXED,
                f"has arguments of types {other} and {argument.type}",
                index,
                "Arguments that belong together have one type: write 1L, 1.0f or 1.0 for 1.",
            )
    if parameter.choices and str(argument.value).lower() not in parameter.choices:
        choices = ", ".join(parameter.choices)
        what = f"can't have '{argument.value}' as {where}"
        return Objection(Reason.VALUE, what, index, f"It is one of {choices}.")
    return None


#: Beyond the index of any argument.
_WHOLE_CALL = 1 << 30


def _progress(objection: Objection) -> int:
    """How far a form fitted; what is said of all arguments together comes last."""
    return objection.argument if objection.argument is not None else _WHOLE_CALL


def _result(result: Result | None, arguments: tuple[Argument, ...]) -> AttributeType | None:
    match result:
        case TypeOf(index, table):
            kind = arguments[index].type
            return kind if table is None else table[kind]
        case TypeNamedBy(index):
            return AttributeType(str(arguments[index].value).lower())
        case _:
            return result


def _refusal(signature: Signature, objection: Objection) -> Refusal:
    return Refusal(
        objection.reason,
        f'{signature.kind} "{signature.name}" {objection.what}',
        detail=f"It is {describe(signature)}.",
        hint=objection.hint,
        argument=objection.argument,
    )


def _counts(signature: Signature) -> str:
    """``1 argument``, ``1 or 2 arguments``, ``at least 1 argument``."""
    counts = sorted({len(overload.parameters) for overload in signature.overloads})
    if any(overload.more is not None for overload in signature.overloads):
        return f"at least {_counted(counts[0])}"
    if len(counts) == 1:
        return _counted(counts[0])
    if counts == list(range(counts[0], counts[-1] + 1)) and len(counts) > 2:
        return f"{counts[0]} to {_counted(counts[-1])}"
    return f"{', '.join(map(str, counts[:-1]))} or {_counted(counts[-1])}"


def _counted(count: int) -> str:
    if count == 0:
        return "no argument"
    return "1 argument" if count == 1 else f"{count} arguments"


def _described(overload: Overload) -> str:
    parts = [_parameter(parameter) for parameter in overload.parameters]
    if overload.more is not None:
        parts.append(f"{_parameter(overload.more)} ..")
    return ", ".join(parts)


def _parameter(parameter: Parameter) -> str:
    words = [parameter.name, _types(parameter.types)]
    if parameter.forms != ANY_FORM:
        words.append(_forms(parameter, article=False))
    return " ".join(words)


def _types(types: frozenset[AttributeType]) -> str:
    if types == ANY:
        return "any"
    if types == NUMBER:
        return "number"
    if types == ANY - OBJECT:
        return "scalar"
    return "|".join(kind for kind in AttributeType if kind in types)


def _forms(parameter: Parameter, *, article: bool = True) -> str:
    words = [str(form) for form in parameter.forms]
    words.sort()
    if not article:
        return " or ".join(words)
    return " or ".join(f"an {word}" if word[0] in "ae" else f"a {word}" for word in words)


def _ordinal(index: int) -> str:
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"
