"""Bound inputs: one stream, a join, a pattern or sequence, the store of an on-demand query."""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import BinaryOperator, at
from mesh.model.types import Attribute, AttributeType
from mesh.plan.bound.expressions import BinaryExpression, BoundExpression, Column, Constant

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import JoinKind, JoinSide, LogicalOperator, StateKind, TimeUnit
    from mesh.model.types import StreamSchema


class SourceKind(StrEnum):
    """The kind of an input; the values are the words that messages use."""

    STREAM = "stream"
    TABLE = "table"
    WINDOW = "window"
    TRIGGER = "trigger"
    AGGREGATION = "aggregation"
    INNER = "inner stream"
    FAULT = "fault stream"


# Handlers: the steps that follow a stream's name


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """``[temp > 40]``."""

    condition: BoundExpression


@dataclass(frozen=True, slots=True)
class BoundStreamFunction:
    """``#pol2Cart(theta, rho)``: its arguments, and the attributes that it adds."""

    name: str
    arguments: tuple[BoundExpression, ...]
    adds: tuple[Attribute, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Window:
    """``#window.time(2 min)``: its name and its arguments, constants and attributes."""

    name: str
    arguments: tuple[Constant | Column, ...]
    #: Why no event will ever pass it, as a sentence; None: it may work.
    fails: str | None = None
    position: Position = at()


BoundHandler = BoundFilter | BoundStreamFunction | Window


@dataclass(frozen=True, slots=True)
class BoundStream:
    """One input: a stream, or a side of a join, with the handlers of its events in order."""

    schema: StreamSchema
    handlers: tuple[BoundHandler, ...] = ()
    kind: SourceKind = SourceKind.STREAM
    #: The prefix of its attributes, if that is not its name.
    alias: str | None = None
    position: Position = at()

    @property
    def window(self) -> Window | None:
        """Its window, if it has one."""
        return next((h for h in self.handlers if isinstance(h, Window)), None)


@dataclass(frozen=True, slots=True)
class BoundWithin:
    """``within start, end`` of an aggregation; one text may be a whole span of time."""

    start: BoundExpression
    end: BoundExpression | None = None


@dataclass(frozen=True, slots=True)
class BoundJoin:
    """Two inputs and a condition; ``Column.step`` is 0 on the left side and 1 on the right."""

    left: BoundStream
    right: BoundStream
    kind: JoinKind
    #: The side whose events trigger the join.
    trigger: JoinSide
    on: BoundExpression | None = None
    within: BoundWithin | None = None
    per: BoundExpression | None = None
    #: The attribute of the stream by which this join with an aggregation is divided among several
    #: partitions.
    divided_by: str | None = None
    position: Position = at()


# Patterns and sequences


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One event of a pattern; its filters may use columns of the events known at its arrival."""

    schema: StreamSchema
    handlers: tuple[BoundFilter | BoundStreamFunction, ...] = ()
    #: The reference or, without one, the stream's name.
    name: str = ""
    kind: SourceKind = SourceKind.STREAM
    position: Position = at()

    @property
    def filter(self) -> BoundExpression | None:
        """The conjunction of its filters; None without any."""
        conditions = [h.condition for h in self.handlers if isinstance(h, BoundFilter)]
        if not conditions:
            return None
        return reduce(
            lambda a, b: BinaryExpression(BinaryOperator.AND, a, b, AttributeType.BOOL), conditions
        )


@dataclass(frozen=True, slots=True)
class OneEvent:
    """An event that must occur; ``step`` is its index in the pattern's steps."""

    step: int
    position: Position = at()


@dataclass(frozen=True, slots=True)
class SomeEvents:
    """An event that occurs ``least`` to ``most`` times; None: no upper bound."""

    step: int
    least: int
    most: int | None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class NoEvent:
    """An event that must not occur, for a time or until the other side's has occurred."""

    step: int
    waiting_ms: int | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BothEvents:
    """Two events joined by ``and`` or ``or``."""

    operator: LogicalOperator
    left: OneEvent | NoEvent
    right: OneEvent | NoEvent
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Every:
    """``every X``: X starts again when it is met."""

    element: BoundElement
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Next:
    """Elements that follow each other."""

    elements: tuple[BoundElement, ...]
    position: Position = at()


BoundElement = OneEvent | SomeEvents | NoEvent | BothEvents | Every | Next


@dataclass(frozen=True, slots=True)
class BoundPattern:
    """``every A -> B [-> C ..] [within t]`` and similar patterns; or a sequence, by its kind."""

    #: Every event named in it, in the order of the text.
    steps: tuple[BoundStep, ...]
    within_ms: int | None
    kind: StateKind
    element: BoundElement
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundStore:
    """The store that an on-demand query reads: a table, a named window, an aggregation."""

    schema: StreamSchema
    kind: SourceKind
    on: BoundExpression | None = None
    within: BoundWithin | None = None
    per: BoundExpression | None = None
    #: Of a table of an aggregation: the aggregation, and the duration.
    table_of: tuple[str, TimeUnit] | None = None
    position: Position = at()
