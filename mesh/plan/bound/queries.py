"""Bound queries: every name resolved, every type known, ready to be compiled to operators.

A bound query reads rows and writes rows.  Rows of a query with one input stream have that stream's
attributes; rows of a join or pattern have a column for each (step, attribute) it uses.

Bound apps: definitions, inferred streams, queries and partitions.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.language.syntax import Direction, EventKind, RateKind
from mesh.language.syntax.expressions import at
from mesh.plan.bound.expressions import BoundExpression, Column, TableCheck, has_aggregate, walk
from mesh.plan.bound.inputs import (
    BoundFilter,
    BoundHandler,
    BoundJoin,
    BoundPattern,
    BoundStore,
    BoundStream,
    BoundStreamFunction,
    SourceKind,
)

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import Annotation, TimeUnit
    from mesh.model.types import AttributeType, StreamSchema
    from mesh.plan.bound.inputs import Window


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """One output attribute and the expression that computes it."""

    name: str
    expression: BoundExpression


@dataclass(frozen=True, slots=True)
class BoundOrder:
    """``order by temp desc``: a column of the output, or of the input of a join or pattern."""

    column: Column
    direction: Direction
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundRate:
    """``output last every 5 events``: a number of events, or milliseconds."""

    kind: RateKind
    every: int
    is_by_time: bool
    position: Position = at()


# Actions on the output


@dataclass(frozen=True, slots=True)
class Insert:
    """Into a stream, a table, a named window or an inner stream, with its attributes."""

    target: StreamSchema
    kind: SourceKind = SourceKind.STREAM
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows of a table that match ``on``, whose columns are the output's and the table's."""

    target: StreamSchema
    on: BoundExpression
    position: Position = at()


@dataclass(frozen=True, slots=True)
class UpdateAssignment:
    """``T.a = b + 1``: the table's attribute and its new value."""

    attribute: Column
    value: BoundExpression


@dataclass(frozen=True, slots=True)
class Update:
    """The rows of a table that meet ``on``; without assignments all outputs by their names."""

    target: StreamSchema
    assignments: tuple[UpdateAssignment, ...]
    on: BoundExpression
    #: ``update or insert``: the output becomes a row where none meets ``on``.
    inserts: bool = False
    position: Position = at()


@dataclass(frozen=True, slots=True)
class AnswerOutput:
    """The output is the answer of the on-demand query."""

    target: StreamSchema
    position: Position = at()


Action = Insert | Delete | Update | AnswerOutput


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BoundQuery:
    """A query with nothing left to look up."""

    #: ``@info(name)``, or ``query-{position in the app or partition, from 1}``.
    name: str
    input: BoundStream | BoundJoin | BoundPattern
    outputs: tuple[BoundOutput, ...]
    group_by: tuple[Column, ...]
    #: Over output attributes: ``Column`` with ``OUTPUT_STEP``; in joins and patterns inputs too.
    having: BoundExpression | None
    action: Action
    #: The events that are emitted.
    events: EventKind
    order_by: tuple[BoundOrder, ...] = ()
    limit: int | None = None
    offset: int | None = None
    rate: BoundRate | None = None
    annotations: tuple[Annotation, ...] = field(default=(), compare=False, repr=False)
    position: Position = at()

    @property
    def target(self) -> StreamSchema:
        """The stream or table that it writes, with its attributes."""
        return self.action.target

    @property
    def inputs(self) -> tuple[tuple[str, SourceKind], ...]:
        """Its inputs and their kinds, in the order of the text."""
        match self.input:
            case BoundStream():
                sources: tuple[BoundStream, ...] = (self.input,)
            case BoundJoin():
                sources = (self.input.left, self.input.right)
            case BoundPattern():
                return tuple((step.schema.name, step.kind) for step in self.input.steps)
        return tuple((source.schema.name, source.kind) for source in sources)

    @property
    def input_streams(self) -> tuple[str, ...]:
        """Its input streams, each once, in the order of first mention."""
        return tuple(dict.fromkeys(name for name, _ in self.inputs))

    @property
    def is_stateless(self) -> bool:
        """Whether each output depends on one input event alone."""
        return (
            isinstance(self.input, BoundStream)
            and self.input.kind in (SourceKind.STREAM, SourceKind.TRIGGER)
            and self.input.window is None
            and isinstance(self.action, Insert)
            and self.action.kind is SourceKind.STREAM
            and self.rate is None
            and not self.order_by
            and self.limit is None
            and self.offset is None
            and not any(_multiplies(handler) for handler in self.input.handlers)
            and not self.has_aggregates
            and not self.asks_tables
        )

    @property
    def asks_tables(self) -> bool:
        """Whether there is ``in`` in a filter, in its select clause or in ``having``."""
        expressions = [output.expression for output in self.outputs]
        if self.having is not None:
            expressions.append(self.having)
        if isinstance(self.input, BoundStream):
            for handler in self.input.handlers:
                if isinstance(handler, BoundFilter):
                    expressions.append(handler.condition)
                elif isinstance(handler, BoundStreamFunction):
                    expressions += handler.arguments
        return any(isinstance(part, TableCheck) for e in expressions for part in walk(e))

    @property
    def has_aggregates(self) -> bool:
        """Whether there is an aggregator in its select clause, or in ``having``."""
        expressions = [output.expression for output in self.outputs]
        if self.having is not None:
            expressions.append(self.having)
        return any(has_aggregate(expression) for expression in expressions)


def _multiplies(handler: BoundHandler) -> bool:
    """Whether a function may emit several events for one: those of the extensions do."""
    return isinstance(handler, BoundStreamFunction) and ":" in handler.name


@dataclass(frozen=True, slots=True)
class BoundOnDemandQuery:
    """A query that is run once, on a table, a named window or an aggregation."""

    #: None: ``select`` of constants, or a change of a table without ``select``.
    store: BoundStore | None
    outputs: tuple[BoundOutput, ...]
    group_by: tuple[Column, ...]
    having: BoundExpression | None
    action: Action
    order_by: tuple[BoundOrder, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The table, window or aggregation that it reads, and the tables of ``in``."""
        roots: list[BoundExpression] = [output.expression for output in self.outputs]
        roots += [self.having] if self.having is not None else []
        stores: list[str] = []
        if self.store is not None:
            table_of = self.store.table_of
            stores.append(self.store.schema.name if table_of is None else table_of[0])
            roots += [self.store.on] if self.store.on is not None else []
        parts = (part for root in roots for part in walk(root))
        return frozenset([*stores, *(part.table for part in parts if isinstance(part, TableCheck))])


@dataclass(frozen=True, slots=True)
class BoundTable:
    """``define table``, kept in memory unless an annotation names a store."""

    schema: StreamSchema
    primary_key: tuple[str, ...] = ()
    #: Attributes that have an index of their own.
    indexes: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundNamedWindow:
    """``define window``."""

    schema: StreamSchema
    window: Window
    events: EventKind
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundTrigger:
    """``define trigger``: every so many milliseconds, or by a text: ``start`` or cron."""

    schema: StreamSchema
    every_ms: int | None
    schedule: str | None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundScript:
    """``define function``."""

    name: str
    language: str
    type: AttributeType
    body: str
    position: Position = at()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BoundAggregation:
    """``define aggregation``; its schema is that of the rows found by a query, the time first."""

    schema: StreamSchema
    input: BoundStream
    outputs: tuple[BoundOutput, ...]
    group_by: tuple[Column, ...]
    #: None: the arrival time of the event.
    aggregate_by: Column | None
    #: From short to long, each once.
    durations: tuple[TimeUnit, ...]
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundRange:
    """``temp > 40 as 'hot'``."""

    condition: BoundExpression
    label: str


@dataclass(frozen=True, slots=True)
class BoundKey:
    """A stream's key in a partition: the value of an expression, or the first range that fits."""

    stream: str
    value: BoundExpression | None
    ranges: tuple[BoundRange, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BoundPartition:
    """``partition with (..) begin .. end``."""

    keys: tuple[BoundKey, ...]
    queries: tuple[BoundQuery, ...]
    #: ``#S``, with the attributes that the first query gives them.
    inner_streams: tuple[StreamSchema, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class BoundApp:
    """All streams (defined, inferred, of triggers and of faults), with all that works on them."""

    name: str
    streams: tuple[StreamSchema, ...]
    #: Those outside of partitions, in the order written; so with the others.
    queries: tuple[BoundQuery, ...]
    tables: tuple[BoundTable, ...] = ()
    windows: tuple[BoundNamedWindow, ...] = ()
    triggers: tuple[BoundTrigger, ...] = ()
    scripts: tuple[BoundScript, ...] = ()
    aggregations: tuple[BoundAggregation, ...] = ()
    partitions: tuple[BoundPartition, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    #: (stream, annotation of its definition): its sources, its sinks and other annotations.
    stream_annotations: tuple[tuple[str, Annotation], ...] = ()
    #: (stream, position of its first mention).
    stream_positions: tuple[tuple[str, Position], ...] = field(
        default=(), compare=False, repr=False
    )

    @property
    def all_queries(self) -> tuple[BoundQuery, ...]:
        """Its queries, then those of its partitions."""
        return (*self.queries, *(query for part in self.partitions for query in part.queries))

    def stream(self, name: str) -> StreamSchema:
        """The stream called ``name``; it exists."""
        return next(s for s in self.streams if s.name == name)
