"""Selection, output rate and returned events: the part of a query that inner queries share.

Both ``inputs`` (an anonymous query is an input) and ``queries`` import these classes.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import Expression, Literal, Variable, at

if TYPE_CHECKING:
    from mesh.errors import Position

# Selection


@dataclass(frozen=True, slots=True)
class OutputAttribute:
    """``avg(temp) as avgTemp``; without an alias a variable's own name."""

    expression: Expression
    alias: str | None = None
    position: Position = at()


class Direction(StrEnum):
    """Sort direction of ``order by``."""

    ASCENDING = "asc"
    DESCENDING = "desc"


@dataclass(frozen=True, slots=True)
class OrderBy:
    """``temp desc``."""

    attribute: Variable
    direction: Direction = Direction.ASCENDING
    position: Position = at()


@dataclass(frozen=True, slots=True)
class SelectClause:
    """``select .. group by .. having .. order by .. limit .. offset ..``.

    No attributes means ``*``, and so does a query without ``select``.
    """

    attributes: tuple[OutputAttribute, ...] = ()
    group_by: tuple[Variable, ...] = ()
    having: Expression | None = None
    order_by: tuple[OrderBy, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
    position: Position = at()


# Rate


class RateKind(StrEnum):
    """Choice among the events of one output interval."""

    ALL = "all"
    FIRST = "first"
    LAST = "last"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class OutputRate:
    """``output last every 5 events``, ``output snapshot every 1 min``."""

    kind: RateKind
    #: A number of events, of type int; or a time constant, of type long.
    every: Literal
    position: Position = at()


# Output


class EventKind(StrEnum):
    """Events of a query that are emitted: ``insert [current|expired|all events] into``."""

    CURRENT = "current"
    EXPIRED = "expired"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReturnEvents:
    """``return all events``: the events that an inner query passes to the outer one."""

    events: EventKind = EventKind.CURRENT
    position: Position = at()
