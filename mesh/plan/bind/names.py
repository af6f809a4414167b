"""Names of an app: streams, tables, windows, triggers, aggregations, inner streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.functions.catalogue import script_function
from mesh.language.syntax import StreamKind
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.bound import SourceKind
from mesh.plan.diagnostics import DependsOnError, nearest, shortened
from mesh.plan.expressions import FUNCTIONS, Vocabulary
from mesh.plan.scopes import NamedSource, table_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mesh.language.syntax import InTable, StreamReference

    _LookUp = Callable[["AppNames", str], "NamedDefinition | None"]

_STREAMS: Final = (SourceKind.STREAM, SourceKind.TRIGGER, SourceKind.FAULT, SourceKind.INNER)
#: Kinds that a query over one stream and a pattern may read.
EVENTS: Final = frozenset({*_STREAMS, SourceKind.WINDOW})
#: Kinds that a side of a join may be.
JOINED: Final = EVENTS | {SourceKind.TABLE, SourceKind.AGGREGATION}


@dataclass(frozen=True, slots=True)
class NamedDefinition:
    """A name with its kind and schema; without a schema, an error in it has been reported."""

    kind: SourceKind
    schema: StreamSchema | None
    position: Position


@dataclass(frozen=True, slots=True)
class Answers:
    """The questions of a query to the names of its app, with the answers."""

    #: The functions that the app defines.
    scripts: tuple[tuple[str, AttributeType], ...]
    #: By the look-up and its argument.
    definitions: Mapping[tuple[_LookUp, str], NamedDefinition | None]


class AppNames:
    """The names of an app, as far as it has been read."""

    def __init__(self) -> None:
        #: Streams, triggers and fault streams (``!S``); so in the order in which they are known.
        self.streams: dict[str, NamedDefinition] = {}
        self.windows: dict[str, NamedDefinition] = {}
        self.tables: dict[str, NamedDefinition] = {}
        self.aggregations: dict[str, NamedDefinition] = {}
        #: Those of the partition at hand, ``#S``.
        self.inner: dict[str, NamedDefinition] = {}
        self.vocabulary = Vocabulary(self._table, FUNCTIONS)
        self._scripts: tuple[tuple[str, AttributeType], ...] = ()
        self._asked: dict[tuple[_LookUp, str], NamedDefinition | None] = {}

    def add_scripts(self, defined: Iterable[tuple[str, AttributeType]]) -> None:
        """Add the functions that the app defines to those that expressions may call."""
        self._scripts = tuple(defined)
        scripts = {name: script_function(name, kind) for name, kind in self._scripts}
        self.vocabulary = Vocabulary(self._table, {**FUNCTIONS, **scripts}, frozenset(scripts))

    # Answers: a query with the same ones is bound to the same

    def take_answers(self) -> Answers:
        """The answers since they were taken last."""
        asked, self._asked = self._asked, {}
        return Answers(self._scripts, asked)

    def agree_with(self, answers: Answers) -> bool:
        """Whether the answers to the same questions are the same here."""
        return self._scripts == answers.scripts and all(
            look_up(self, name) == definition
            for (look_up, name), definition in answers.definitions.items()
        )

    def _ask(self, look_up: _LookUp, name: str) -> NamedDefinition | None:
        definition = look_up(self, name)
        self._asked[look_up, name] = definition
        return definition

    # Look-ups

    def find(self, name: str) -> NamedDefinition | None:
        """The thing that ``name``, with its mark, refers to."""
        return self._ask(AppNames._find, name)

    def _find(self, name: str) -> NamedDefinition | None:
        for definitions in (self.streams, self.windows, self.tables, self.aggregations, self.inner):
            if name in definitions:
                return definitions[name]
        return None

    def is_defined(self, name: str) -> bool:
        """Whether any definition has ``name``, with any mark."""
        return self.find(name) is not None or self.find(name.lstrip("#")) is not None

    def readable(
        self, reference: StreamReference, allowed: frozenset[SourceKind]
    ) -> tuple[SourceKind, StreamSchema]:
        """The input that ``reference`` in a query refers to.

        Raises:
            MeshError: MESH-L201 if it doesn't exist, MESH-L219 if it can't be read there.
            DependsOnError: its definition has an error, which has been reported.
        """
        definition = self.find(str(reference))
        if definition is None:
            raise self._not_defined(reference)
        if definition.kind not in allowed:
            hint = f"Join it: from S join {reference.name} on .. ."
            if definition.kind is SourceKind.AGGREGATION:
                hint = f"Join it: from S join {reference.name} on .. within .. per .. ."
            raise MeshError(
                "MESH-L219",
                f'{definition.kind} "{reference}" has no events to read',
                hint=hint,
                position=reference.position,
            )
        if definition.schema is None:
            raise DependsOnError
        return definition.kind, definition.schema

    def _not_defined(self, reference: StreamReference) -> MeshError:
        candidates = [*self.streams, *self.windows, *self.inner]
        hint = nearest(str(reference), candidates)
        is_fault = reference.kind is StreamKind.FAULT
        if is_fault and (hint is None or reference.name in self.streams):
            hint = "@OnError(action='STREAM') on the stream's definition creates a fault stream."
        elif hint is None:
            hint = "Define it, or move the query that inserts into it before this one."
        kind = "inner stream" if reference.kind is StreamKind.INNER else "stream"
        if reference.kind is StreamKind.FAULT:
            kind = "fault stream"
        return MeshError(
            "MESH-L201",
            f'{kind} "{reference}" is not defined',
            detail=f"Streams known here: {shortened(candidates)}." if candidates else None,
            hint=hint,
            position=reference.position,
        )

    def table(self, name: str, position: Position) -> StreamSchema:
        """A table that a query changes or reads; MESH-L217 without one of that name."""
        definition = self._ask(AppNames._find_table, name)
        if definition is None:
            other = self.find(name)
            message = f'table "{name}" is not defined'
            raise MeshError(
                "MESH-L217",
                f'"{name}" is no table, it is a {other.kind}' if other else message,
                detail=f"Tables: {shortened(self.tables)}." if self.tables else None,
                hint=nearest(name, self.tables),
                position=position,
            )
        if definition.schema is None:
            raise DependsOnError
        return definition.schema

    def _find_table(self, name: str) -> NamedDefinition | None:
        return self.tables.get(name)

    def _table(self, expression: InTable) -> NamedSource:
        schema = self.table(expression.table, expression.table_position)
        return table_source(schema.name, schema.attributes)

    def target(self, reference: StreamReference) -> NamedDefinition | None:
        """The target that ``reference`` inserts into, if it exists already."""
        if reference.kind is StreamKind.INNER:
            return self._ask(AppNames._find_inner, str(reference))
        if reference.kind is StreamKind.FAULT:
            # The engine compares with the stream itself.
            return self._ask(AppNames._find_stream, reference.name)
        return self._ask(AppNames._find_target, reference.name)

    def _find_inner(self, name: str) -> NamedDefinition | None:
        return self.inner.get(name)

    def _find_stream(self, name: str) -> NamedDefinition | None:
        return self.streams.get(name)

    def _find_target(self, name: str) -> NamedDefinition | None:
        return self.streams.get(name) or self.windows.get(name) or self.tables.get(name)

    def infer(self, reference: StreamReference, schema: StreamSchema | None) -> None:
        """Declare the stream that a query creates; ``schema`` is None if the query has an error."""
        if self.target(reference) is not None:
            return
        if reference.kind is StreamKind.INNER:
            self.inner[str(reference)] = NamedDefinition(
                SourceKind.INNER, schema, reference.position
            )
        else:
            definition = NamedDefinition(SourceKind.STREAM, schema, reference.position)
            self.streams[reference.name] = definition


def shown(schema: StreamSchema) -> str:
    """``(a int, b string)``."""
    return f"({', '.join(f'{a.name} {a.type}' for a in schema.attributes)})"


def timestamps(name: str) -> StreamSchema:
    """The schema of a trigger."""
    return StreamSchema(name, (Attribute("triggered_time", AttributeType.LONG),))
