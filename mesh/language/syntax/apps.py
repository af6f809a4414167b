"""Syntax of a whole app: annotations, and definitions, queries and partitions in text order."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.language.syntax.basics import Annotation, find
from mesh.language.syntax.definitions import (
    AggregationDefinition,
    Definition,
    FunctionDefinition,
    StreamDefinition,
    TableDefinition,
    TriggerDefinition,
    WindowDefinition,
)
from mesh.language.syntax.queries import Partition, Query

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
