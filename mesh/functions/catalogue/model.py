"""What a catalogue entry is: a name, the forms in which it is called, and what comes of each.

The catalogue is data.  ``resolve`` in this package judges a call by it; nothing here computes
anything of an app.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.model.types import NUMERIC, Attribute, AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ANY: Final = frozenset(AttributeType)
NUMBER: Final = frozenset(NUMERIC)
STRING: Final = frozenset({AttributeType.STRING})
BOOL: Final = frozenset({AttributeType.BOOL})
INT: Final = frozenset({AttributeType.INT})
LONG: Final = frozenset({AttributeType.LONG})
WHOLE: Final = INT | LONG
DOUBLE: Final = frozenset({AttributeType.DOUBLE})
OBJECT: Final = frozenset({AttributeType.OBJECT})


class Form(StrEnum):
    """How an argument is written; the engine tells these apart where it asks for a constant."""

    #: A literal, a time such as ``1 min`` included; ``1 + 1`` is an expression.
    CONSTANT = "constant"
    #: The name of an attribute, with or without a prefix.
    ATTRIBUTE = "attribute"
    #: Everything else.
    EXPRESSION = "expression"


ANY_FORM: Final = frozenset(Form)
CONSTANT: Final = frozenset({Form.CONSTANT})
ATTRIBUTE: Final = frozenset({Form.ATTRIBUTE})


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as the binder knows it: its type, its form and, of a constant, its value."""

    type: AttributeType
    form: Form = Form.EXPRESSION
    value: str | int | float | bool | None = None


class Requirement(StrEnum):
    """What the planner requires of an argument that the engine accepts when it creates an app."""

    #: A cron expression that means something.
    CRON = "cron"
    #: A constant of 0 or more.
    NOT_NEGATIVE = "not negative"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: what it takes."""

    name: str
    types: frozenset[AttributeType]
    forms: frozenset[Form] = ANY_FORM
    #: Must have the type of the argument with this index; None when it is free.
    same_as: int | None = None
    #: The strings that a constant may be, in lower case, letters of either case; empty: any.
    choices: tuple[str, ...] = ()
    #: What it is when it is left out, for documentation; None when there is nothing to say.
    default: str | None = None
    #: Only for a window's parameter that every form of the window has at the same place.
    requires: Requirement | None = None


@dataclass(frozen=True, slots=True)
class TypeOf:
    """A result type that follows an argument's: by ``table``, or the same where that is empty."""

    index: int
    table: Mapping[AttributeType, AttributeType] | None = None


@dataclass(frozen=True, slots=True)
class TypeNamedBy:
    """A result type that a constant string argument names, letters of either case."""

    index: int


Result = AttributeType | TypeOf | TypeNamedBy


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a call."""

    parameters: tuple[Parameter, ...] = ()
    #: None where a call has no value: a window passes events, a stream function adds attributes.
    result: Result | None = None
    #: What may follow the parameters, any number of times; None: nothing.
    more: Parameter | None = None
    #: Attributes that a stream function adds to the events that pass it, in their order.
    adds: tuple[Attribute, ...] = ()
    #: What can't be said of one argument alone: an objection to arguments that fit otherwise.
    rule: Callable[[tuple[Argument, ...]], Objection | None] | None = None
    #: What the engine accepts and then fails on at run time, whatever the event: a sentence why.
    doom: Callable[[tuple[Argument, ...]], str | None] | None = None


class Kind(StrEnum):
    """What a name is in SiddhiQL."""

    SCALAR = "function"
    AGGREGATOR = "aggregator"
    WINDOW = "window"
    STREAM_FUNCTION = "stream function"
    #: A stream function that the engine takes in plain queries and joins, but not in patterns.
    STREAM_PROCESSOR = "stream processor"

    @property
    def noun(self) -> str:
        """How messages call it."""
        return "stream function" if self is Kind.STREAM_PROCESSOR else str(self)


class Origin(StrEnum):
    """Where an entry is known from."""

    #: Asked of the reference engine, Siddhi 5.1.7.
    ENGINE = "engine"
    #: The public documentation of an extension that the engine doesn't bring along.
    DOCUMENTATION = "documentation"


@dataclass(frozen=True, slots=True)
class Signature:
    """A name that SiddhiQL can call, with every form of the call."""

    #: As it is written, namespace included; names are case-sensitive.
    name: str
    kind: Kind
    overloads: tuple[Overload, ...]
    origin: Origin = Origin.ENGINE
    #: This version executes it; what doesn't run is typed all the same.
    runs: bool = False

    @property
    def bound_name(self) -> str:
        """What ``mesh.plan.bound`` calls it: lower case."""
        return self.name.lower()


class Reason(StrEnum):
    """Why a call is refused."""

    #: No such name.
    UNKNOWN = "unknown"
    #: Too few or too many arguments.
    COUNT = "count"
    #: An argument of a type that the parameter doesn't take.
    TYPE = "type"
    #: Arguments that belong together have different types.
    MIXED = "mixed"
    #: Not a constant, or not an attribute, where one is asked for.
    FORM = "form"
    #: A constant that is out of range or not among those there are.
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Objection:
    """What is wrong with the arguments of a call."""

    reason: Reason
    #: Goes on from the name: ``takes 1 argument, not 2``.
    what: str
    #: The argument that is to blame; None: the call as a whole.
    argument: int | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """A call that is right."""

    signature: Signature
    overload: Overload
    #: None where a call has no value.
    type: AttributeType | None
    #: The engine creates the app and then fails at every event; a sentence that says why.
    fails: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that is not, in words for an error: lower-case message, sentences after it."""

    reason: Reason
    message: str
    detail: str | None = None
    hint: str | None = None
    #: The argument that is to blame; None: the call as a whole.
    argument: int | None = None


def ordinal(index: int) -> str:
    """``first`` for 0, in messages about arguments."""
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"
