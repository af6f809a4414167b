"""Resolution of calls: find the matching form and its type, or the reason for a refusal."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.absent import instead_of_call, instead_of_extension
from mesh.functions.catalogue.documented import (
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
)
from mesh.functions.catalogue.engine import (
    AGGREGATORS,
    INCREMENTAL_AGGREGATORS,
    SCALARS,
    STREAM_FUNCTIONS,
)
from mesh.functions.catalogue.model import (
    ANY,
    ANY_FORM,
    CONSTANT,
    NUMBER,
    OBJECT,
    Argument,
    ArgumentForm,
    CallRefusal,
    NameKind,
    Objection,
    Overload,
    Parameter,
    Reason,
    Resolution,
    Result,
    Signature,
    TypeNamedBy,
    TypeOf,
    ordinal,
)
from mesh.functions.catalogue.windows import WINDOWS
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: Functions of SQL and the like, and what they are called here.
_MEANT: Final = {
    "now": "currentTimeMillis()",
    "nvl": "coalesce(a, b)",
    "isnull": "'a is null'",
    "iif": "ifThenElse(condition, a, b)",
    "if": "ifThenElse(condition, a, b)",
    "last": "the attribute itself: it is that of the last event",
}
#: A time in quotes.
_TIME: Final = re.compile(r"\d+ [a-z]+\Z")
#: Types that an expression is converted to, the one with the most values first.
_CONVERTED: Final = (
    AttributeType.STRING,
    AttributeType.DOUBLE,
    AttributeType.LONG,
    AttributeType.FLOAT,
    AttributeType.INT,
)
_ATTRIBUTE: Final = frozenset({ArgumentForm.ATTRIBUTE})
#: All names, by the place where they are written.
_PLACES: Final[tuple[tuple[Mapping[str, Signature], str], ...]] = (
    (WINDOWS | DOCUMENTED_WINDOWS, "#window.{}(..)"),
    (STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS, "#{}(..)"),
    (SCALARS | AGGREGATORS | DOCUMENTED_FUNCTIONS, "{}(..) behind select"),
)


def resolve(
    table: Mapping[str, Signature], name: str, arguments: Sequence[Argument]
) -> Resolution | CallRefusal:
    """Look up ``name`` in ``table`` and fit ``arguments`` to one of its forms.

    Args:
        table: signatures by their full names; one of the tables of this package, or several merged.
        name: as written, namespace included: ``str:concat``.
        arguments: types, forms and constants; ``f(*)`` has been spread over the attributes.

    Returns:
        The form that fits, with the call's type; otherwise a refusal that explains why the nearest
        form doesn't fit.
    """
    signature = table.get(name)
    if signature is None:
        return unknown(table, name)
    args = tuple(arguments)
    nearest: Objection | None = None
    furthest = (-1, -1)
    for overload in signature.overloads:
        if not _fits_count(overload, len(args)):
            continue
        objection = _object(overload, args)
        if objection is None:
            fails = overload.restriction(args) if overload.restriction is not None else None
            result = _result(overload.result, args)
            adds = overload.adds if overload.adds_for is None else overload.adds_for(args)
            return Resolution(signature, overload, result, fails, adds)
        progress = _progress(overload, args, objection)
        if progress > furthest:
            nearest, furthest = objection, progress
    if nearest is None:
        what = f"takes {_counts(signature)}, not {len(args)}"
        nearest = Objection(Reason.COUNT, what)
    return _refusal(signature, nearest)


def unknown(table: Mapping[str, Signature], name: str) -> CallRefusal:
    """The refusal of a name that ``table`` doesn't have, with the nearest one that it has."""
    kind = next((signature.kind for signature in table.values()), NameKind.SCALAR)
    hint = _suggestion(_same(name, table)) or _of_another_kind(kind, name)
    instead = instead_of_call(name) if hint is None else None
    if instead is not None:
        return CallRefusal(Reason.ABSENT, f'{kind.noun} "{name}"', hint=instead)
    meant = _MEANT.get(name.lower())
    if name in AGGREGATORS and INCREMENTAL_AGGREGATORS.keys() <= table.keys():
        hint = (
            f"An aggregation has {', '.join(sorted(INCREMENTAL_AGGREGATORS))}; a query has {name}."
        )
    namespace = name.rpartition(":")[0]
    similar = [one for one in table if _is_near(namespace, one.rpartition(":")[0])]
    hint = hint or (f"Write {meant}." if meant else did_you_mean(name, similar))
    if hint is None and namespace:
        has_namespace = any(
            one.startswith(f"{namespace}:") for names, _ in _PLACES for one in names
        )
        hint = instead_of_extension(namespace, is_value=kind is NameKind.SCALAR)
        if has_namespace:
            hint = f'docs/siddhiql.md lists what "{namespace}" has.'
    if hint is None:
        hint = f"docs/siddhiql.md lists the {kind.noun}s."
        if kind is NameKind.SCALAR:
            hint = f"{hint[:-1]}; 'define function {name}[javascript]' makes one."
    return CallRefusal(Reason.UNKNOWN, f'{kind.noun} "{name}" is not defined', hint=hint)


def _of_another_kind(kind: NameKind, name: str) -> str | None:
    """A hint at the place of a name that runs, but not where a name of ``kind`` is written."""
    for names, form in _PLACES:
        signature = names.get(name)
        if (
            signature is not None
            and signature.runs
            and kind not in {one.kind for one in names.values()}
        ):
            return f"The {signature.kind.noun} of this name is written {form.format(name)}."
    return None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint at the known name nearest to ``name``; finds a missing namespace as well."""
    names = list(candidates)
    return _suggestion(
        _same(name, names) or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    )


def _is_near(namespace: str, other: str) -> bool:
    """Whether a name may have been meant by one in another namespace: in ``other`` or in none."""
    if not namespace or not other:
        return True
    return bool(difflib.get_close_matches(namespace.lower(), [other.lower()], cutoff=0.6))


def _same(name: str, candidates: Iterable[str]) -> list[str]:
    """The known names that differ in case, or in their namespace, alone."""
    lower = name.lower()
    return [one for one in candidates if lower in (one.lower(), one.lower().rpartition(":")[2])]


def _suggestion(names: Sequence[str]) -> str | None:
    return f'Did you mean "{names[0]}"?' if names else None


def describe(signature: Signature) -> str:
    """The forms of a call in plain notation: ``count() or count(value any)``."""
    *others, last = (f"{signature.name}({describe_overload(o)})" for o in signature.overloads)
    return f"{', '.join(others)} or {last}" if others else last


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
    parameter = _parameter_at(overload, index)
    where = f"its {ordinal(index)} argument"
    if argument.type not in parameter.types:
        what = f"can't have {argument.type} as {where}"
        return Objection(Reason.TYPE, what, index, _another_type(argument, parameter))
    if argument.form not in parameter.forms:
        expected = "a constant" if parameter.forms == CONSTANT else _forms(parameter)
        hint = _as_attribute(parameter)
        return Objection(Reason.FORM, f"takes {expected} as {where}", index, hint)
    if parameter.same_as is not None:
        other = arguments[parameter.same_as].type
        if argument.type is not other:
            return Objection(
                Reason.MIXED,
                f"has arguments of types {other} and {argument.type}",
                index,
                _one_type(arguments),
            )
    if parameter.choices and str(argument.value).lower() not in parameter.choices:
        choices = ", ".join(parameter.choices)
        what = f"can't have '{argument.value}' as {where}"
        return Objection(Reason.VALUE, what, index, f"It is one of {choices}.")
    return None


def _parameter_at(overload: Overload, index: int) -> Parameter:
    parameters = overload.parameters
    parameter = parameters[index] if index < len(parameters) else overload.more
    assert parameter is not None, "the count was checked before"
    return parameter


def _as_attribute(parameter: Parameter) -> str | None:
    """The way from an expression to an attribute, for a parameter that takes attributes only."""
    if parameter.forms != _ATTRIBUTE:
        return None
    return "Compute it in an earlier query: from S select .. as x insert into M."


def _another_type(argument: Argument, parameter: Parameter) -> str | None:
    """The expression that would give an argument the required type."""
    if parameter.forms == _ATTRIBUTE and len(parameter.types) == 1:
        (kind,) = parameter.types
        return f"Convert it in an earlier query: select convert(a, '{kind}') as x insert into M."
    if _TIME.match(str(argument.value)) and AttributeType.LONG in parameter.types:
        return f"Write the time without quotes: {argument.value}."
    if argument.type is AttributeType.STRING and parameter.types == NUMBER:
        return "Convert it: convert(x, 'double')."
    if argument.form is not ArgumentForm.CONSTANT:
        return _conversion(argument, parameter)
    if argument.type is AttributeType.STRING:
        is_number = str(argument.value).isdecimal() and parameter.types & NUMBER
        return f"Write it without quotes: {argument.value}." if is_number else None
    if argument.type not in NUMBER:
        return None
    number = argument.value
    if AttributeType.LONG in parameter.types and argument.type is AttributeType.INT:
        return f"Write {number}L, or a time such as 5 sec."
    if AttributeType.DOUBLE in parameter.types:
        return f"Write {number}.0." if isinstance(number, int) else f"Write {number}."
    if AttributeType.INT in parameter.types and argument.type is AttributeType.LONG:
        return f"Write {number}, without L and without a unit of time."
    return None


def _conversion(argument: Argument, parameter: Parameter) -> str | None:
    """The expression of another type for one that is no constant; None if there is none."""
    if ArgumentForm.EXPRESSION not in parameter.forms:
        return "Write a constant there." if parameter.forms == CONSTANT else None
    if argument.type is AttributeType.OBJECT:
        return None
    if parameter.types == {AttributeType.BOOL}:
        return "Write a condition: x > 0."
    kind = next((one for one in _CONVERTED if one in parameter.types), None)
    return f"Convert it: convert(x, '{kind}')." if kind is not None else None


def _one_type(arguments: tuple[Argument, ...]) -> str:
    together = "These arguments have one type"
    if any(argument.type is AttributeType.STRING for argument in arguments):
        return f"{together}: convert(x, 'string') makes a text of another."
    if any(argument.form is ArgumentForm.CONSTANT for argument in arguments):
        return f"{together}: write 1L, 1.0f or 1.0 for 1."
    return f"{together}: convert(x, 'double') makes one of another."


def _progress(
    overload: Overload, arguments: tuple[Argument, ...], objection: Objection
) -> tuple[int, int]:
    """Closeness of a form: whether its types fit, and the number of arguments before an error."""
    types_fit = all(
        argument.type in _parameter_at(overload, index).types
        for index, argument in enumerate(arguments)
    )
    passed = objection.argument if objection.argument is not None else len(arguments)
    return int(types_fit), passed


def _result(result: Result | None, arguments: tuple[Argument, ...]) -> AttributeType | None:
    match result:
        case TypeOf(index, table):
            kind = arguments[index].type
            return kind if table is None else table[kind]
        case TypeNamedBy(index):
            return AttributeType(str(arguments[index].value).lower())
        case _:
            return result


def _refusal(signature: Signature, objection: Objection) -> CallRefusal:
    return CallRefusal(
        objection.reason,
        f'{signature.kind.noun} "{signature.name}" {objection.what}',
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


def describe_overload(overload: Overload) -> str:
    """The parameters of one form: ``value any, type string constant``."""
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
