"""Syntax of a whole app: annotations, and definitions, queries and partitions in text order.

Definitions: streams, tables, windows, triggers, functions, aggregations.
"""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import Annotation, Literal, TimeUnit, Variable, at, find
from mesh.language.syntax.queries import Partition, Query

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax.inputs import StreamInput, WindowHandler
    from mesh.language.syntax.outputs import EventKind, SelectClause
    from mesh.model.types import AttributeType


@dataclass(frozen=True, slots=True)
class AttributeDefinition:
    """``temp double``."""

    name: str
    type: AttributeType
    position: Position = at()


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """``define stream S (a int, b string)``.  A definition's position is that of its name."""

    name: str
    attributes: tuple[AttributeDefinition, ...]
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """``@PrimaryKey('a') define table T (a int)``."""

    name: str
    attributes: tuple[AttributeDefinition, ...]
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """``define window W (a int) length(5) output all events``."""

    name: str
    attributes: tuple[AttributeDefinition, ...]
    window: WindowHandler
    #: None: not specified.
    events: EventKind | None = None
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


@dataclass(frozen=True, slots=True)
class TriggerDefinition:
    """``define trigger T at 'start'``, ``at every 5 min``; it has no annotations."""

    name: str
    #: A time constant after ``every``; or a text, ``start`` or a cron expression.
    schedule: Literal
    position: Position = at()


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """``define function f[javascript] return string { .. }``; it has no annotations."""

    name: str
    language: str
    return_type: AttributeType
    #: The text between the outer brackets.
    body: str
    position: Position = at()


@dataclass(frozen=True, slots=True)
class Durations:
    """``every sec ... year`` or ``every sec, min, hour``."""

    #: As written; for a range the two ends.
    units: tuple[TimeUnit, ...]
    is_range: bool = False
    position: Position = at()


@dataclass(frozen=True, slots=True)
class AggregationDefinition:
    """``define aggregation A from S select .. group by .. aggregate by ts every sec ... year``."""

    name: str
    input: StreamInput
    selector: SelectClause
    #: The attribute that holds the time; None: the time of arrival.
    aggregate_by: Variable | None
    every: Durations
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


Definition = (
    StreamDefinition
    | TableDefinition
    | WindowDefinition
    | TriggerDefinition
    | FunctionDefinition
    | AggregationDefinition
)

Element = Definition | Query | Partition


@dataclass(frozen=True, slots=True)
class App:
    """A whole text."""

    #: Annotations of the app itself: ``@App:name('..')`` and the like.
    annotations: tuple[Annotation, ...] = ()
    elements: tuple[Element, ...] = ()

    @property
    def name(self) -> str | None:
        """The name given by ``@App:name('..')``."""
        annotation = find(self.annotations, "App:name")
        return annotation.get() if annotation else None

    @property
    def streams(self) -> tuple[StreamDefinition, ...]:
        """The app's ``define stream`` elements in text order."""
        return tuple(e for e in self.elements if isinstance(e, StreamDefinition))

    @property
    def tables(self) -> tuple[TableDefinition, ...]:
        """The app's ``define table`` elements."""
        return tuple(e for e in self.elements if isinstance(e, TableDefinition))

    @property
    def windows(self) -> tuple[WindowDefinition, ...]:
        """The app's ``define window`` elements."""
        return tuple(e for e in self.elements if isinstance(e, WindowDefinition))

    @property
    def triggers(self) -> tuple[TriggerDefinition, ...]:
        """The app's ``define trigger`` elements."""
        return tuple(e for e in self.elements if isinstance(e, TriggerDefinition))

    @property
    def functions(self) -> tuple[FunctionDefinition, ...]:
        """The app's ``define function`` elements."""
        return tuple(e for e in self.elements if isinstance(e, FunctionDefinition))

    @property
    def aggregations(self) -> tuple[AggregationDefinition, ...]:
        """The app's ``define aggregation`` elements."""
        return tuple(e for e in self.elements if isinstance(e, AggregationDefinition))

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """All elements except queries and partitions."""
        return tuple(e for e in self.elements if not isinstance(e, Query | Partition))

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries outside of partitions."""
        return tuple(e for e in self.elements if isinstance(e, Query))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions."""
        return tuple(e for e in self.elements if isinstance(e, Partition))
