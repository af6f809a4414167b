"""Catalogue entries: a name, the forms of its calls, and the result of each.

The catalogue is data.  ``resolve`` in this package checks calls against it; nothing here evaluates
expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.model.types import NUMERIC, Attribute, AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: A check of several arguments together: the objection to arguments that fit one by one.
    Rule = Callable[[tuple["Argument", ...]], "Objection | None"]
    #: The attributes that a stream function adds for its arguments.
    Adds = Callable[[tuple["Argument", ...]], tuple[Attribute, ...]]
    #: Why the engine accepts a call and then fails at run time on every event, in a sentence.
    Restriction = Callable[[tuple["Argument", ...]], "str | None"]

ANY: Final = frozenset(AttributeType)
NUMBER: Final = frozenset(NUMERIC)
OBJECT: Final = frozenset({AttributeType.OBJECT})


class ArgumentForm(StrEnum):
    """Syntactic form of an argument, relevant where the engine requires a constant."""

    #: A literal, a time such as ``1 min`` included; ``1 + 1`` is an expression.
    CONSTANT = "constant"
    #: The name of an attribute, with or without a prefix.
    ATTRIBUTE = "attribute"
    #: Everything else.
    EXPRESSION = "expression"


ANY_FORM: Final = frozenset(ArgumentForm)
CONSTANT: Final = frozenset({ArgumentForm.CONSTANT})


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as the binder sees it: its type, its form and, for a constant, its value."""

    type: AttributeType
    form: ArgumentForm = ArgumentForm.EXPRESSION
    value: str | int | float | bool | None = None
    #: Of an attribute.
    name: str | None = None


class Requirement(StrEnum):
    """A check of the planner on an argument that the engine accepts when it creates an app."""

    #: A valid cron expression.
    CRON = "cron"
    #: A constant of 0 or more.
    NOT_NEGATIVE = "not-negative"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter and the arguments that it accepts."""

    name: str
    types: frozenset[AttributeType]
    forms: frozenset[ArgumentForm] = ANY_FORM
    #: Index of the argument that has the same type; None: no such restriction.
    same_as: int | None = None
    #: The valid strings of a constant in lower case, compared without case; empty: any.
    choices: tuple[str, ...] = ()
    #: Only for a window's parameter that has the same index in every form of the window.
    requires: Requirement | None = None


@dataclass(frozen=True, slots=True)
class TypeOf:
    """A result type derived from an argument's: by ``table``, or the same where that is empty."""

    index: int
    table: Mapping[AttributeType, AttributeType] | None = None


@dataclass(frozen=True, slots=True)
class TypeNamedBy:
    """A result type that a constant string argument names, compared without case."""

    index: int


Result = AttributeType | TypeOf | TypeNamedBy


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a call."""

    parameters: tuple[Parameter, ...] = ()
    #: None for a call without a value: a window passes events, a stream function adds attributes.
    result: Result | None = None
    #: The parameter that may be repeated after the others; None: nothing may follow.
    more: Parameter | None = None
    #: Attributes that a stream function adds to its events, in order.
    adds: tuple[Attribute, ...] = ()
    rule: Rule | None = None
    restriction: Restriction | None = None
    #: In place of ``adds``, where they depend on the arguments.
    adds_for: Adds | None = None


class NameKind(StrEnum):
    """Kind of a name in SiddhiQL."""

    SCALAR = "function"
    AGGREGATOR = "aggregator"
    WINDOW = "window"
    STREAM_FUNCTION = "stream function"
    #: A stream function that the engine accepts in plain queries and joins, but not in patterns.
    STREAM_PROCESSOR = "stream processor"

    @property
    def noun(self) -> str:
        """The word for this kind in messages."""
        return "stream function" if self is NameKind.STREAM_PROCESSOR else str(self)


#: Kilograms to US tons; the other name is that of stones.
_CASED: Final = frozenset({"unitconversion:kgToST"})


@dataclass(frozen=True, slots=True)
class Signature:
    """A name that SiddhiQL can call, with every form of the call."""

    #: As it is written, namespace included; names are case-sensitive.
    name: str
    kind: NameKind
    overloads: tuple[Overload, ...]
    #: Whether this version executes it; types are resolved in any case.
    runs: bool = False
    #: A sentence for editors about the value of a call.
    doc: str = ""

    @property
    def bound_name(self) -> str:
        """The name in ``mesh.plan.bound``: lower case, unless two names differ in case only."""
        return self.name if self.name in _CASED else self.name.lower()


def script_function(name: str, result: AttributeType) -> Signature:
    """The signature of a function that an app defines: any arguments, and the declared result."""
    return Signature(name, NameKind.SCALAR, (Overload((), result, Parameter("argument", ANY)),))


class Reason(StrEnum):
    """Reason for the refusal of a call."""

    #: No such name.
    UNKNOWN = "unknown"
    #: An extension of the original that doesn't run here.
    ABSENT = "absent"
    #: Too few or too many arguments.
    COUNT = "count"
    #: An argument of a type that the parameter doesn't accept.
    TYPE = "type"
    #: Arguments that belong together have different types.
    MIXED = "mixed"
    #: Not a constant, or not an attribute, where one is required.
    FORM = "form"
    #: A constant outside the range, or not among the valid values.
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Objection:
    """An error in the arguments of a call."""

    reason: Reason
    #: Continues a sentence that starts with the name: ``takes 1 argument, not 2``.
    what: str
    #: The wrong argument; None: the call as a whole.
    argument: int | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """A valid call."""

    signature: Signature
    overload: Overload
    #: None for a call without a value.
    type: AttributeType | None
    #: Why the engine creates the app and then fails at every event, in a sentence.
    fails: str | None = None
    #: Attributes that a stream function adds to its events, in order.
    adds: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class CallRefusal:
    """An invalid call, described for an error: a lower-case message, then sentences."""

    reason: Reason
    message: str
    detail: str | None = None
    hint: str | None = None
    #: The wrong argument; None: the call as a whole.
    argument: int | None = None


def ordinal(index: int) -> str:
    """``first`` for 0, in messages about arguments."""
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"
