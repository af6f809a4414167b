"""Bound queries: every name resolved, every type known, ready to be compiled to operators.

A bound query reads rows and writes rows.  Rows of a query with one input stream have that stream's
attributes; rows of a pattern have a column for each (step, attribute) it uses.  An expression
is a tree over columns; ``Column`` names one.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.language.syntax import BinaryOperator, EventKind, UnaryOperator
from mesh.model.types import AttributeType, StreamSchema

# Expressions.  Each node has a ``type``; None is the type of a bare ``null``.


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known when the app is planned."""

    value: str | int | float | bool | None
    type: AttributeType | None


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute of the input; ``step`` says of which event of a pattern, 0 elsewhere.

    After the select clause (in ``having``) step is -1: the query's own output attributes.
    """

    name: str
    type: AttributeType
    step: int = 0


@dataclass(frozen=True, slots=True)
class UnaryExpression:
    """``not``, ``-``, ``is null``."""

    operator: UnaryOperator
    operand: BoundExpression
    type: AttributeType


@dataclass(frozen=True, slots=True)
class BinaryExpression:
    """Arithmetic yields the wider operand's type; comparisons and logic yield bool, never null."""

    operator: BinaryOperator
    left: BoundExpression
    right: BoundExpression
    type: AttributeType


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A scalar function, by its full lower-case name (``coalesce``, ``str:length``)."""

    function: str
    arguments: tuple[BoundExpression, ...]
    type: AttributeType


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregator, ``avg(temp)``; may stand anywhere in a select expression."""

    function: str
    arguments: tuple[BoundExpression, ...]
    type: AttributeType


BoundExpression = (
    Constant | Column | UnaryExpression | BinaryExpression | FunctionCall | AggregateCall
)


# Inputs


@dataclass(frozen=True, slots=True)
class Window:
    """``#window.time(2 min)``: its name and its constant arguments."""

    name: str
    arguments: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class BoundStream:
    """One input stream: filters before the window, the window, filters behind it."""

    schema: StreamSchema
    filters: tuple[BoundExpression, ...] = ()
    window: Window | None = None
    #: Only with a window; they see current and expired events alike.
    filters_after: tuple[BoundExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One event of a pattern; its filter may name columns of earlier steps and its own."""

    schema: StreamSchema
    filter: BoundExpression | None


@dataclass(frozen=True, slots=True)
class BoundPattern:
    """``every A -> B [-> C ..] [within t]``: each A starts a match of its own."""

    steps: tuple[BoundStep, ...]
    within_ms: int | None


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """One output attribute and what computes it."""

    name: str
    expression: BoundExpression


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query with nothing left to look up."""

    #: ``@info(name)``, or ``query-{position in the app, from 1}``.
    name: str
    input: BoundStream | BoundPattern
    outputs: tuple[BoundOutput, ...]
    group_by: tuple[Column, ...]
    #: Over output attributes: ``Column`` with step -1.
    having: BoundExpression | None
    #: The stream it inserts into, with its attributes.
    target: StreamSchema
    #: Which events go on.
    events: EventKind

    @property
    def input_streams(self) -> tuple[str, ...]:
        """The streams it reads, each once, in the order of first mention."""
        if isinstance(self.input, BoundStream):
            return (self.input.schema.name,)
        return tuple(dict.fromkeys(step.schema.name for step in self.input.steps))

    @property
    def is_stateless(self) -> bool:
        """Whether each output depends on one input event alone."""
        return (
            isinstance(self.input, BoundStream)
            and self.input.window is None
            and not any(has_aggregate(output.expression) for output in self.outputs)
        )


def has_aggregate(expression: BoundExpression) -> bool:
    """Whether an aggregator stands anywhere in ``expression``."""
    match expression:
        case AggregateCall():
            return True
        case UnaryExpression():
            return has_aggregate(expression.operand)
        case BinaryExpression():
            return has_aggregate(expression.left) or has_aggregate(expression.right)
        case FunctionCall():
            return any(has_aggregate(argument) for argument in expression.arguments)
        case Constant() | Column():
            return False


@dataclass(frozen=True, slots=True)
class BoundApp:
    """All streams (defined and inferred) and all queries, in the order written."""

    name: str
    streams: tuple[StreamSchema, ...]
    queries: tuple[BoundQuery, ...]

    def stream(self, name: str) -> StreamSchema:
        """The stream called ``name``; it exists."""
        return next(s for s in self.streams if s.name == name)
