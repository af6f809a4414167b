"""Definitions: streams, tables, windows, triggers, functions, aggregations."""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.language.syntax.basics import Annotation, at
from mesh.language.syntax.expressions import Literal, TimeUnit, Variable

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
