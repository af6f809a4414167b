"""Function calls as text with the catalogue's verdict, for its test and its recorder.

A case file has one call a line, and after ``=>`` the reference engine's result:

    sum(i) => long
    sum(s) => refused: There is no parameterOverload for 'sum' ..

Calls use ``STREAM``, whose attributes are named after their types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    AGGREGATORS,
    SCALARS,
    Argument,
    ArgumentForm,
    CallRefusal,
    ExtensionRole,
    Resolution,
    check_options,
    find_extension,
    resolve,
)
from mesh.model.types import NUMERIC, AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.functions.catalogue import Extension, Signature

STREAM: Final = (
    "define stream S (i int, l long, f float, d double, b bool, s string, o object, "
    "i2 int, l2 long, d2 double, s2 string);"
)
ARROW: Final = "=>"
FUNCTIONS: Final = SCALARS | AGGREGATORS

_ATTRIBUTES: Final = {
    name: AttributeType(kind) for name, kind in re.findall(r"(\w+) (\w+)[,)]", STREAM)
}
_LITERALS: Final = (
    (re.compile(r"-?\d+"), AttributeType.INT),
    (re.compile(r"-?\d+L"), AttributeType.LONG),
    (re.compile(r"\d+ (sec|min|hour|day)"), AttributeType.LONG),
    (re.compile(r"-?\d+\.\d+f"), AttributeType.FLOAT),
    (re.compile(r"-?\d+\.\d+"), AttributeType.DOUBLE),
    (re.compile(r"true|false"), AttributeType.BOOL),
    (re.compile(r"'[^']*'"), AttributeType.STRING),
)
_TIMES_MS: Final = {"sec": 1_000, "min": 60_000, "hour": 3_600_000, "day": 86_400_000}
_OPTION: Final = re.compile(r"([\w.]+)='([^']*)'")
_EXPRESSION: Final = re.compile(r"(\w+) [-+*>] (\w+)")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call and the engine's answer; ``line`` counts from 1."""

    line: int
    call: str
    answer: str

    @property
    def is_accepted(self) -> bool:
        """Whether the engine creates the app."""
        return not self.answer.startswith("refused")


def read_cases(path: Path) -> tuple[RecordedCall, ...]:
    """The calls of a case file; empty lines and those that start with ``#`` are for people."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            call, _, answer = line.partition(ARROW)
            cases.append(RecordedCall(number, call.strip(), answer.strip()))
    return tuple(cases)


def judge(call: str, table: Mapping[str, Signature]) -> Resolution | CallRefusal:
    """The catalogue's result for ``call``; calls among its arguments are typed first."""
    name, _, inside = call.partition("(")
    assert inside.endswith(")"), call
    return resolve(table, name, tuple(argument(text) for text in _split(inside.removesuffix(")"))))


def kind_of(call: str) -> tuple[ExtensionRole, str, dict[str, str]]:
    """Role, name and options in a line of ``extensions.txt``."""
    role = max((role for role in ExtensionRole if call.startswith(f"{role} ")), key=len)
    name, _, options = call.removeprefix(f"{role} ").partition(" ")
    return role, name, dict(_OPTION.findall(options))


def judge_kind(call: str) -> Extension | CallRefusal:
    """The catalogue's result for a line of ``extensions.txt``, over a stream (i int, s string)."""
    role, name, options = kind_of(call)
    found = find_extension(role, name)
    if isinstance(found, CallRefusal):
        return found
    return check_options(found, options, ("i", "s")) or found


def argument(text: str) -> Argument:
    """An attribute of ``STREAM``, a literal, a call, or two operands with their operator."""
    if (name := text.removeprefix("S.")) in _ATTRIBUTES:
        return Argument(_ATTRIBUTES[name], ArgumentForm.ATTRIBUTE)
    for pattern, kind in _LITERALS:
        if pattern.fullmatch(text):
            return Argument(kind, ArgumentForm.CONSTANT, _value(text, kind))
    if operation := _EXPRESSION.fullmatch(text):
        operands = [argument(operand).type for operand in operation.groups()]
        wider = max(operands, key=NUMERIC.index)
        return Argument(AttributeType.BOOL if ">" in text else wider)
    nested = judge(text, FUNCTIONS)
    assert isinstance(nested, Resolution), (text, nested)
    assert nested.type is not None, text
    return Argument(nested.type)


def _value(text: str, kind: AttributeType) -> str | int | float | bool:
    match kind:
        case AttributeType.STRING:
            return text[1:-1]
        case AttributeType.BOOL:
            return text == "true"
        case AttributeType.INT | AttributeType.LONG:
            number, _, unit = text.partition(" ")
            return int(number.removesuffix("L")) * _TIMES_MS.get(unit, 1)
        case _:
            return float(text.removesuffix("f"))


def _split(text: str) -> list[str]:
    """Arguments at commas outside of parentheses and strings."""
    parts, depth, quoted, start = [], 0, False, 0
    for index, character in enumerate(text):
        if character == "'":
            quoted = not quoted
        elif not quoted and character in "()":
            depth += 1 if character == "(" else -1
        elif not quoted and character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []
