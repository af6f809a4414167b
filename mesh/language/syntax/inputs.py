"""Inputs of a query: one stream, a join, a pattern or sequence, another query."""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import Expression, Literal, StreamReference, at

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax.outputs import OutputRate, ReturnEvents, SelectClause

# Handlers: the steps after a stream's name


@dataclass(frozen=True, slots=True)
class Filter:
    """``[temp > 40]``."""

    condition: Expression
    position: Position = at()


@dataclass(frozen=True, slots=True)
class StreamFunction:
    """``#log('x')``, ``#ns:fn(a)``, ``#fn(*)``."""

    name: str
    arguments: tuple[Expression, ...] = ()
    namespace: str | None = None
    #: ``#fn(*)``; ``arguments`` is empty then.
    takes_all: bool = False
    position: Position = at()


@dataclass(frozen=True, slots=True)
class WindowHandler:
    """``#window.time(2 min)``, ``#window.ns:fn(..)``; ``name`` is the part after ``window.``."""

    name: str
    arguments: tuple[Expression, ...] = ()
    namespace: str | None = None
    #: ``#window.fn(*)``; ``arguments`` is empty then.
    takes_all: bool = False
    position: Position = at()


Handler = Filter | StreamFunction | WindowHandler


@dataclass(frozen=True, slots=True)
class StreamInput:
    """``TempStream[..]#window.time(..) as t``: one stream and its handlers, in order.

    Only the sides of a join have an alias.
    """

    stream: StreamReference
    handlers: tuple[Handler, ...] = ()
    alias: str | None = None
    position: Position = at()


# Joins


class JoinKind(StrEnum):
    """Sides of a join that emit events without a partner; the values are as written."""

    INNER = "join"
    LEFT_OUTER = "left outer join"
    RIGHT_OUTER = "right outer join"
    FULL_OUTER = "full outer join"


class JoinSide(StrEnum):
    """A side of a join, or both."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class WithinRange:
    """``within '2019-**-** **:**:**'`` or ``within start, end``: the time of an aggregation."""

    start: Expression
    end: Expression | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class JoinInput:
    """``A#window.length(5) as a unidirectional join B as b on a.x == b.x within .. per ..``."""

    left: StreamInput
    right: StreamInput
    kind: JoinKind = JoinKind.INNER
    #: The side whose events trigger the join; ``unidirectional`` names one.
    trigger: JoinSide = JoinSide.BOTH
    on: Expression | None = None
    within: WithinRange | None = None
    per: Expression | None = None
    position: Position = at()


# Patterns and sequences: a tree of elements


@dataclass(frozen=True, slots=True)
class EventElement:
    """``e1=S[..]``: one event; it has filters and stream functions, and no window."""

    stream: StreamReference
    reference: str | None = None
    handlers: tuple[Handler, ...] = ()
    position: Position = at()

    @property
    def name(self) -> str:
        """Qualifier of its attributes: the reference, or the stream's name."""
        return self.reference if self.reference is not None else self.stream.name


@dataclass(frozen=True, slots=True)
class CountElement:
    """``S<2:5>``, ``S<2:>``, ``S<:5>``, ``S<2>``; in sequences ``S*``, ``S+``, ``S?``."""

    event: EventElement
    least: int
    #: None: unbounded.
    most: int | None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class AbsentElement:
    """``not S[..] for 5 sec``, or one side of ``not S[..] and e2=U``."""

    event: EventElement
    waiting: Literal | None = None
    position: Position = at()


class LogicalOperator(StrEnum):
    """Connective of the two sides of a logical element."""

    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class LogicalElement:
    """``e1=A and e2=B``, ``A or B``, ``not A and e2=B``, ``not A for 1 sec or B``."""

    operator: LogicalOperator
    left: EventElement | AbsentElement
    right: EventElement | AbsentElement
    position: Position = at()


@dataclass(frozen=True, slots=True)
class EveryElement:
    """``every X``, ``every (X -> Y)``."""

    element: StateElement
    position: Position = at()


@dataclass(frozen=True, slots=True)
class NextElement:
    """``A -> B -> C`` in a pattern, ``A, B, C`` in a sequence: two elements or more.

    Redundant brackets are dropped: an element of a chain is a chain itself only inside an
    ``EveryElement``.
    """

    elements: tuple[StateElement, ...]
    position: Position = at()


StateElement = (
    EventElement | CountElement | AbsentElement | LogicalElement | EveryElement | NextElement
)


class StateKind(StrEnum):
    """Relation between consecutive elements; the values are the separators."""

    PATTERN = "->"
    SEQUENCE = ","


@dataclass(frozen=True, slots=True)
class StateInput:
    """``every e1=A -> e2=B within 5 sec``, ``e1=A, e2=B+``."""

    kind: StateKind
    element: StateElement
    #: A time constant; None without a bound.
    within: Literal | None = None
    position: Position = at()


# Queries inside queries


@dataclass(frozen=True, slots=True)
class AnonymousInput:
    """``(from S select a return)``: a query without a name, read by another."""

    input: QueryInput
    selector: SelectClause
    rate: OutputRate | None
    output: ReturnEvents
    position: Position = at()


QueryInput = StreamInput | JoinInput | StateInput | AnonymousInput
