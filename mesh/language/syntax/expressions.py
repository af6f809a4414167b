"""Expressions: constants, references to attributes, operators, calls.

Parts shared by the nodes of the syntax tree: positions, stream references, annotations.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.errors import Position

if TYPE_CHECKING:
    from mesh.model.types import AttributeType


NOWHERE = Position(0, 0)


def at() -> Position:
    """The field that holds the position of a node; ignored by equality."""
    return field(default=NOWHERE, compare=False, repr=False, kw_only=True)


class StreamKind(StrEnum):
    """The prefix of a stream's name; the values are the prefixes."""

    PLAIN = ""
    #: ``#S``: a stream inside a partition.
    INNER = "#"
    #: ``!S``: the failed events of stream S.
    FAULT = "!"


@dataclass(frozen=True, slots=True)
class StreamReference:
    """``S``, ``#S``, ``!S``: a stream, table, window, trigger or aggregation by its name."""

    name: str
    kind: StreamKind = StreamKind.PLAIN
    position: Position = at()

    def __str__(self) -> str:
        """The name with its prefix, the key in symbol tables."""
        return f"{self.kind}{self.name}"


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
        lower_key = key.lower() if key is not None else None
        return next(
            (v for k, v in self.elements if (k.lower() if k is not None else None) == lower_key),
            None,
        )


def find(annotations: tuple[Annotation, ...], name: str) -> Annotation | None:
    """The first annotation called ``name``, compared without case."""
    return next((a for a in annotations if a.name.lower() == name.lower()), None)


class TimeUnit(StrEnum):
    """Units of time constants and of aggregations, from long to short."""

    YEAR = "year"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "min"
    SECOND = "sec"
    MILLISECOND = "millisec"


#: Milliseconds of each unit: a year is 365 days and a month 30, as in the reference engine.
UNIT_MS: Final = {
    TimeUnit.YEAR: 31_536_000_000,
    TimeUnit.MONTH: 2_592_000_000,
    TimeUnit.WEEK: 604_800_000,
    TimeUnit.DAY: 86_400_000,
    TimeUnit.HOUR: 3_600_000,
    TimeUnit.MINUTE: 60_000,
    TimeUnit.SECOND: 1000,
    TimeUnit.MILLISECOND: 1,
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant.  Time constants (``2 min``) are long, in milliseconds; there is no ``null``."""

    value: str | int | float | bool
    type: AttributeType
    position: Position = at()
    #: Written as a time constant; the value is milliseconds.
    is_time: bool = field(default=False, compare=False, kw_only=True)
    #: The time constant as it was written: ``90 min`` is ``((90, MINUTE),)``.
    parts: tuple[tuple[int, TimeUnit], ...] = field(default=(), compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Variable:
    """``temp``, ``e1.temp``, ``e1[0].temp``, ``e1[last-1].temp``, ``#inner.a``, ``S#fn.a``."""

    name: str
    #: Stream, alias or event reference before the dot.
    source: str | None = None
    #: Index in brackets; negative counts from the last: -1 is ``last``, -2 ``last-1``.
    index: int | None = None
    #: The prefix of ``source``: ``#inner.a``, ``!fault.a``.
    kind: StreamKind = StreamKind.PLAIN
    #: The name after ``source`` and ``#``: the ``fn`` of ``S#fn.a``; and its index.
    function: str | None = None
    function_index: int | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class EventReference:
    """An event as the operand of ``is null``: ``e1[last] is null``, ``#inner is null``.

    ``e1 is null`` has a ``Variable``: only name resolution can distinguish the two.
    """

    source: str
    index: int | None = None
    kind: StreamKind = StreamKind.PLAIN
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
class InTable:
    """``a == T.x in T``: whether a row of a table meets a condition, or an attribute is its key."""

    operand: Expression
    table: str
    position: Position = at()
    table_position: Position = at()


@dataclass(frozen=True, slots=True)
class Call:
    """``avg(temp)``, ``str:length(name)``, ``count()``, ``count(*)``."""

    name: str
    arguments: tuple[Expression, ...]
    namespace: str | None = None
    #: ``f(*)``: every attribute is an argument; ``arguments`` is empty then.
    takes_all: bool = False
    position: Position = at()


Expression = Literal | Variable | EventReference | Unary | Binary | InTable | Call
