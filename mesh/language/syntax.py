"""The syntax tree of SiddhiQL: what was written, with where, before any name is looked up.

Every node carries the ``Position`` where it starts; positions don't count for equality, so a text
and its printed form have equal trees.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.errors import Position

if TYPE_CHECKING:
    from mesh.model.types import AttributeType

NOWHERE = Position(0, 0)


def at() -> Position:
    """The field of a node that says where it stands; no part of equality."""
    return field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# Expressions


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant.  Time constants (``2 min``) are long, in milliseconds; there is no ``null``."""

    value: str | int | float | bool
    type: AttributeType
    position: Position = at()
    #: Printed as a time constant when set; the value is milliseconds.
    is_time: bool = field(default=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Variable:
    """``temp``, ``e1.temp``, ``e1[0].temp``, ``e1[last].temp``, ``e1[last-1].temp``."""

    name: str
    #: Stream, alias or event reference before the dot.
    source: str | None = None
    #: Index in brackets; negative counts from the last: -1 is ``last``, -2 ``last-1``.
    index: int | None = None
    position: Position = at()


class UnaryOperator(StrEnum):
    """Operators before or after one operand."""

    NOT = "not"
    NEGATE = "-"
    IS_NULL = "is null"


@dataclass(frozen=True, slots=True)
class Unary:
    """``not x``, ``-x``, ``x is null``."""

    operator: UnaryOperator
    operand: Expression
    position: Position = at()


class BinaryOperator(StrEnum):
    """Operators between two operands."""

    MULTIPLY = "*"
    DIVIDE = "/"
    MODULO = "%"
    ADD = "+"
    SUBTRACT = "-"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    EQUAL = "=="
    NOT_EQUAL = "!="
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Binary:
    """``a + b``; the position is the operator's."""

    operator: BinaryOperator
    left: Expression
    right: Expression
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Call:
    """``avg(temp)``, ``str:length(name)``, ``count()``."""

    name: str
    arguments: tuple[Expression, ...]
    namespace: str | None = None
    position: Position = at()


Expression = Literal | Variable | Unary | Binary | Call


# Annotations and definitions


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@dist(execGroup='g', parallel='2')``, ``@App:name('x')``, ``@PrimaryKey('a', 'b')``.

    ``@App:name`` has name ``App:name``.  Names keep their case and are compared without it.
    """

    name: str
    #: (key or None, text) in the order written.
    elements: tuple[tuple[str | None, str], ...] = ()
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()

    def get(self, key: str | None = None) -> str | None:
        """The text of element ``key`` (keys compare without case), None for the unnamed one."""
        wanted = key.lower() if key is not None else None
        return next(
            (v for k, v in self.elements if (k.lower() if k is not None else None) == wanted), None
        )


@dataclass(frozen=True, slots=True)
class AttributeDefinition:
    """``temp double``."""

    name: str
    type: AttributeType
    position: Position = at()


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """``define stream S (a int, b string)``."""

    name: str
    attributes: tuple[AttributeDefinition, ...]
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


# Queries


@dataclass(frozen=True, slots=True)
class Filter:
    """``[temp > 40]``."""

    condition: Expression
    position: Position = at()


@dataclass(frozen=True, slots=True)
class WindowHandler:
    """``#window.time(2 min)``; ``name`` is what follows ``window.``."""

    name: str
    arguments: tuple[Expression, ...]
    position: Position = at()


Handler = Filter | WindowHandler


@dataclass(frozen=True, slots=True)
class StreamInput:
    """``TempStream[..]#window.time(..) as t``: one stream and what its events pass, in order."""

    stream: str
    handlers: tuple[Handler, ...] = ()
    alias: str | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class PatternStep:
    """``every e1=TempStream[..]``: one event of a pattern."""

    stream: str
    reference: str | None = None
    filters: tuple[Filter, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class PatternInput:
    """``every A -> B -> C within t``.

    ``every`` is a half-open range of step indexes that repeat (``(0, 1)`` for ``every A -> B``), or
    None; ``within_ms`` is None without a bound.
    """

    steps: tuple[PatternStep, ...]
    every: tuple[int, int] | None
    within_ms: int | None = None
    position: Position = at()


QueryInput = StreamInput | PatternInput


@dataclass(frozen=True, slots=True)
class OutputAttribute:
    """``avg(temp) as avgTemp``; without an alias a variable's own name."""

    expression: Expression
    alias: str | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Selector:
    """``select .. group by .. having ..``; no attributes means ``*``."""

    attributes: tuple[OutputAttribute, ...] = ()
    group_by: tuple[Variable, ...] = ()
    having: Expression | None = None
    position: Position = at()


class EventKind(StrEnum):
    """Which events of a query go on: ``insert [current|expired|all events] into``."""

    CURRENT = "current"
    EXPIRED = "expired"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class InsertInto:
    """``insert all events into S``."""

    stream: str
    events: EventKind = EventKind.CURRENT
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Query:
    """``@info(..) from .. select .. insert into ..``."""

    input: QueryInput
    selector: Selector
    output: InsertInto
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()

    @property
    def name(self) -> str | None:
        """The name given by ``@info(name='..')``."""
        info = find(self.annotations, "info")
        return info.get("name") if info else None


@dataclass(frozen=True, slots=True)
class App:
    """A whole text."""

    #: Those of the app itself: ``@App:name('..')`` and the like.
    annotations: tuple[Annotation, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()
    queries: tuple[Query, ...] = ()

    @property
    def name(self) -> str | None:
        """The name given by ``@App:name('..')``."""
        annotation = find(self.annotations, "App:name")
        return annotation.get() if annotation else None


def find(annotations: tuple[Annotation, ...], name: str) -> Annotation | None:
    """The first annotation called ``name``, compared without case."""
    return next((a for a in annotations if a.name.lower() == name.lower()), None)
