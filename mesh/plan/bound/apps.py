"""Bound apps: definitions, inferred streams, queries and partitions."""

# ``at()`` creates a field, not a value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import at

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import Annotation, EventKind, TimeUnit
    from mesh.model.types import AttributeType, StreamSchema
    from mesh.plan.bound.expressions import BoundExpression, Column
    from mesh.plan.bound.inputs import BoundStream, Window
    from mesh.plan.bound.queries import BoundOutput, BoundQuery


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
