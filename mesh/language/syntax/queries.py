"""Queries and the use of their results; partitions; on-demand queries."""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.language.syntax.expressions import (
    Annotation,
    Expression,
    StreamReference,
    Variable,
    at,
    find,
)
from mesh.language.syntax.outputs import EventKind, OutputRate, ReturnEvents, SelectClause

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax.inputs import QueryInput, WithinRange


# Output


@dataclass(frozen=True, slots=True)
class InsertInto:
    """``insert all events into S``."""

    stream: StreamReference
    events: EventKind = EventKind.CURRENT
    position: Position = at()


@dataclass(frozen=True, slots=True)
class DeleteFrom:
    """``delete T for expired events on T.a == a``."""

    table: StreamReference
    on: Expression
    events: EventKind = EventKind.CURRENT
    position: Position = at()


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """``T.a = b + 1``."""

    attribute: Variable
    value: Expression
    position: Position = at()


@dataclass(frozen=True, slots=True)
class UpdateTable:
    """``update T for all events set T.a = b on T.c == c``; no assignments: all by their names."""

    table: StreamReference
    assignments: tuple[SetAssignment, ...]
    on: Expression
    events: EventKind = EventKind.CURRENT
    #: ``update or insert into T``.
    inserts: bool = False
    position: Position = at()


QueryOutput = InsertInto | DeleteFrom | UpdateTable | ReturnEvents


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Query:
    """``@info(..) from .. select .. output .. insert into ..``."""

    input: QueryInput
    selector: SelectClause
    output: QueryOutput
    annotations: tuple[Annotation, ...] = ()
    rate: OutputRate | None = None
    position: Position = at()

    @property
    def name(self) -> str | None:
        """The name given by ``@info(name='..')``."""
        info = find(self.annotations, "info")
        return info.get("name") if info else None


# Partitions


@dataclass(frozen=True, slots=True)
class ValuePartition:
    """``symbol of S``: one instance for each value."""

    expression: Expression
    stream: StreamReference
    position: Position = at()


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """``a > 5 as 'large'``."""

    condition: Expression
    label: str
    position: Position = at()


@dataclass(frozen=True, slots=True)
class RangePartition:
    """``a > 5 as 'large' or a <= 5 as 'small' of S``: one instance for each label."""

    ranges: tuple[PartitionRange, ...]
    stream: StreamReference
    position: Position = at()


PartitionKey = ValuePartition | RangePartition


@dataclass(frozen=True, slots=True)
class Partition:
    """``@purge(..) partition with (a of S) begin .. end``."""

    keys: tuple[PartitionKey, ...]
    queries: tuple[Query, ...]
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()


# On-demand queries


@dataclass(frozen=True, slots=True)
class StoreInput:
    """``from T as t on .. within .., .. per ..``: the table, window or aggregation that is read."""

    store: StreamReference
    alias: str | None = None
    on: Expression | None = None
    within: WithinRange | None = None
    per: Expression | None = None
    position: Position = at()


@dataclass(frozen=True, slots=True)
class OnDemandQuery:
    """``from T on .. select ..``, ``select .. insert into T``, ``delete T on ..``, and so on.

    A query with an input and without another output returns its rows: ``ReturnEvents``.
    """

    input: StoreInput | None
    selector: SelectClause
    output: QueryOutput
    position: Position = at()
