"""Notation of signatures: one form of a call per line, and a sentence before the first.

    # The character at an index.
    str:charAt(input.value string, index int) -> string
    str:concat(arg scalar, arg scalar ..) -> string
    str:coalesce(arg any, arg any same ..) -> arg
    cast(value any, type string constant =int|long|string) -> named by type
    sum(value number) -> wide value
    str:tokenize(input.string string, regex string) -> token string

A parameter is its name (``_`` for a blank), its types divided by ``|``, and words: ``constant`` or
``attribute`` for the form, ``same`` for the type of the first argument, ``same=1`` of the second,
``=a|b`` for the valid constants, a ``Requirement``, ``..`` for zero or more of them.  ``number`` is
every numeric type, ``scalar`` every type but object, ``any`` all.  The result is a type; or the
name of the parameter that has it, after ``wide`` the widest of its kind (long, double), after
``named by`` a constant with its name.  For a stream function the arrow precedes the attributes that
the function adds.  A line that ends with a comma continues on the next line.  The sentence is what
editors show; it may have several lines.

Units of the functions ``unitconversion:``: their ratios are exact; a year has 365.2425 days.

Source: API documentation of siddhi-execution-unitconversion 2.0; the international yard and pound.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.model import (
    ANY,
    ANY_FORM,
    NUMBER,
    OBJECT,
    ArgumentForm,
    NameKind,
    Overload,
    Parameter,
    Requirement,
    Signature,
    TypeNamedBy,
    TypeOf,
)
from mesh.model.types import NUMERIC, Attribute, AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.functions.catalogue.model import Restriction, Result, Rule


_LINE: Final = re.compile(r"(?P<name>[\w:]+)\((?P<inside>[^)]*)\)(?: -> (?P<result>.+))?")
_GROUPS: Final = {"any": ANY, "number": NUMBER, "scalar": ANY - OBJECT}
_WHOLE: Final = (AttributeType.INT, AttributeType.LONG)
_WIDE: Final = {k: AttributeType.LONG if k in _WHOLE else AttributeType.DOUBLE for k in NUMERIC}


def signatures(
    text: str,
    kind: NameKind,
    *,
    runs: bool = False,
    rules: Mapping[str, Rule] | None = None,
    restrictions: Mapping[str, Restriction] | None = None,
) -> dict[str, Signature]:
    """The signatures that ``text`` lists, by name; lines of one name are forms of one call.

    Args:
        text: in the notation.
        kind: of all.
        runs: whether this version executes them.
        rules: by name, ``Overload.rule`` of all forms.
        restrictions: by name, ``Overload.restriction`` of all forms.
    """
    overloads: dict[str, list[Overload]] = {}
    docs: dict[str, str] = {}
    words: list[str] = []
    for line in filter(None, re.sub(r",\n\s+", ", ", text).splitlines()):
        if line.startswith("# "):
            words.append(line[2:])
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, inside, result = match.groups()
        docs[name] = " ".join(words) or docs.get(name, "")
        words = []
        rule, restriction = (rules or {}).get(name), (restrictions or {}).get(name)
        overloads.setdefault(name, []).append(_overload(inside, result, kind, rule, restriction))
    return {
        name: Signature(name, kind, tuple(forms), runs=runs, doc=docs[name])
        for name, forms in overloads.items()
    }


def _overload(
    inside: str,
    result: str | None,
    kind: NameKind,
    rule: Rule | None,
    restriction: Restriction | None,
) -> Overload:
    parameters: list[Parameter] = []
    more = None
    for part in filter(None, inside.split(", ")):
        parameter, repeats = _parameter(part)
        if repeats:
            more = parameter
        else:
            parameters.append(parameter)
    if result is None:
        return Overload(tuple(parameters), more=more, rule=rule, restriction=restriction)
    if kind in (NameKind.STREAM_FUNCTION, NameKind.STREAM_PROCESSOR):
        return Overload(tuple(parameters), more=more, adds=_attributes(result), rule=rule)
    return Overload(
        tuple(parameters), _result(result, parameters), more, rule=rule, restriction=restriction
    )


def _parameter(text: str) -> tuple[Parameter, bool]:
    name, types, *words = text.split()
    forms = frozenset(ArgumentForm(word) for word in words if word in set(ArgumentForm)) or ANY_FORM
    same_as = next((int(w[5:] or 0) for w in words if w.startswith("same")), None)
    choices = next((tuple(w[1:].split("|")) for w in words if w.startswith("=")), ())
    requires = next((Requirement(word) for word in words if word in set(Requirement)), None)
    kinds = frozenset[AttributeType]().union(
        *(_GROUPS.get(one) or {AttributeType(one)} for one in types.split("|"))
    )
    shown = name.replace("_", " ")
    return Parameter(shown, kinds, forms, same_as, choices, requires), ".." in words


def _result(text: str, parameters: list[Parameter]) -> Result:
    names = [parameter.name for parameter in parameters]
    how, _, name = text.rpartition(" ")
    if how == "named by":
        return TypeNamedBy(names.index(name))
    if name in names:
        return TypeOf(names.index(name), _WIDE if how == "wide" else None)
    return AttributeType(text)


def _attributes(text: str) -> tuple[Attribute, ...]:
    pairs = (pair.split() for pair in text.split(", "))
    return tuple(Attribute(name, AttributeType(kind)) for name, kind in pairs)


_POUND: Final = Fraction("0.45359237")
#: Metres, kilograms, seconds or litres, by the name of a unit.
_LENGTHS: Final = {
    "Mm": Fraction(10**6), "km": Fraction(1000), "m": Fraction(1), "cm": Fraction(1, 100),
    "mm": Fraction(1, 1000), "um": Fraction(1, 10**6), "nm": Fraction(1, 10**9),
    "in": Fraction("0.0254"), "ft": Fraction("0.3048"), "yd": Fraction("0.9144"),
    "mi": Fraction("1609.344"),
}  # fmt: skip
_MASSES: Final = {
    "t": Fraction(1000), "kg": Fraction(1), "g": Fraction(1, 1000), "mg": Fraction(1, 10**6),
    "ug": Fraction(1, 10**9), "lb": _POUND, "oz": _POUND / 16, "st": 14 * _POUND,
    "ST": 2000 * _POUND, "LT": 2240 * _POUND,
}  # fmt: skip
_TIMES: Final = {
    "y": Fraction("365.2425") * 86400, "d": Fraction(86400), "h": Fraction(3600),
    "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000), "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}  # fmt: skip
_VOLUMES: Final = {"m3": Fraction(1000), "l": Fraction(1), "ml": Fraction(1, 1000)}
#: The functions that the extension has.
_NAMES: Final = (
    (_LENGTHS, ("MmTokm cmToft cmToin cmTokm cmTom cmTomi cmTomm cmTonm cmToum cmToyd kmTocm kmToft"
     " kmToin kmTom kmTomi kmTomm kmTonm kmToum kmToyd mTocm mToft mTomm mToyd miTokm")),
    (_MASSES, "gTokg gTomg gToug kgToLT kgToST kgTog kgTolb kgTooz kgTost kgTot tTog tTokg"),
    (_TIMES, "dToh hTom hTos mTos sToms sTons sTous yTod"),
    (_VOLUMES, "lTom3 lToml m3Tol mlTol"),
)  # fmt: skip
_WORDS: Final = {
    "Mm": "megametres", "km": "kilometres", "m": "metres", "cm": "centimetres",
    "mm": "millimetres", "um": "micrometres", "nm": "nanometres", "in": "inches", "ft": "feet",
    "yd": "yards", "mi": "miles", "t": "tonnes", "kg": "kilograms", "g": "grams",
    "mg": "milligrams", "ug": "micrograms", "lb": "pounds", "oz": "ounces", "st": "stones",
    "ST": "US tons", "LT": "imperial tons", "y": "years", "d": "days", "h": "hours",
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
    "m3": "cubic metres", "l": "litres", "ml": "millilitres",
}  # fmt: skip


def _ratios() -> dict[str, Fraction]:
    ratios = {}
    for units, names in _NAMES:
        for name in names.split():
            one, _, other = name.partition("To")
            ratios[name] = units[one] / units[other]
    return ratios


#: By name of a function without its namespace, the number of the second unit in the first.
UNIT_RATIOS: Final = _ratios()


def sentence_of(name: str) -> str:
    """The conversion in words, such as "Centimetres as feet"."""
    # Both a metre and a minute are m.
    words = {**_WORDS, "m": "minutes"} if name in _NAMES[2][1].split() else _WORDS
    one, _, other = name.partition("To")
    return f"{words[one].capitalize()} as {words[other]}."
