"""Scopes: the meaning of a name in a filter, a pattern's event, ``select`` or ``having``.

The rules are the reference engine's.  In a pattern an event's own filter sees its own attributes
without a prefix, and with a prefix those of events known by then.  ``select`` sees all events, and
a name without a prefix must be the attribute of one of them only.  After ``select`` a query over
one stream knows its output only; joins and patterns know their inputs as well.

Things that names in a query can refer to: streams, sides, events, tables, the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from mesh.errors import MeshError
from mesh.language.syntax import StreamKind
from mesh.model.types import Attribute, AttributeType
from mesh.plan.bound import OUTPUT_STEP, TABLE_STEP, Column, EventIsNull
from mesh.plan.diagnostics import ambiguous, refuse_doubles, unknown_attribute, unknown_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mesh.errors import Position
    from mesh.language.syntax import Variable


class Scope(Protocol):
    """A place in a query at which names are resolved."""

    def column(self, variable: Variable) -> Column:
        """The column that ``variable`` names; MESH-L202 to L204 if there is none or several."""
        ...

    def has(self, name: str) -> bool:
        """Whether ``name`` without a prefix is that of an attribute."""
        ...

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """Whether the event called ``name`` exists, as an expression; None: no such event."""
        ...

    def spread(self, position: Position) -> tuple[Column, ...]:
        """The attributes that ``*`` expands to; MESH-L210 if two of them have one name."""
        ...

    def inside(self) -> Scope:
        """The scope of names inside ``in``, except for those of the table."""
        ...

    def takes_tables(self) -> bool:
        """Whether the engine accepts ``in`` here."""
        ...


@dataclass(frozen=True, slots=True)
class InputScope:
    """The input of a query, for ``select``, ``group by`` and filters.

    ``step`` is that of the event whose filter it is: it knows the earlier events and itself.
    """

    sources: Sources
    #: Whether an app has a stream, table, window .. of that name.
    is_defined: Callable[[str], bool]
    step: int | None = None
    #: The source whose attribute a name without a prefix is, if others have it too.
    preferred: int | None = None
    #: Whether a counted event's attribute has its own type without an index as well.
    is_behind_select: bool = False

    @property
    def _seen(self) -> int:
        """Number of sources that are known here."""
        return len(self.sources) if self.step is None else self.step + 1

    def _called(self, name: str, kind: StreamKind) -> list[NamedSource]:
        return self.sources.called(name, kind, self._seen)

    def answers(self, variable: Variable) -> bool:
        """Whether the prefix of ``variable`` has a meaning; an unknown inner stream has none."""
        return variable.kind is not StreamKind.INNER or bool(
            self._called(str(variable.source), variable.kind)
        )

    def column(self, variable: Variable) -> Column:
        """An attribute of an input."""
        if variable.source is None:
            return self._unqualified(variable)
        sources = self._called(variable.source, variable.kind)
        if not sources and variable.kind is StreamKind.INNER:
            # The engine ignores a mark without a meaning, and the name after it.
            return self._unqualified(variable)
        if not sources:
            raise self._unknown_source(variable)
        if len(sources) > 1 and variable.kind is StreamKind.INNER:
            raise ambiguous(variable, [s.name for s in sources])
        is_exact = self.step is not None or self.is_behind_select
        return sources[0].column(variable, in_filter=is_exact)

    def _unqualified(self, variable: Variable) -> Column:
        if self.step is not None:
            return self.sources[self.step].column(variable, in_filter=True)
        if len(self.sources) == 1:
            return self.sources[0].column(variable)
        sources = self.sources.having(variable.name)
        if len(sources) > 1 and self.preferred is not None:
            sources = [s for s in sources if s.step == self.preferred] or sources
        if not sources:
            attributes = [a for s in self.sources for a in s.attributes.values()]
            error = unknown_attribute(variable, attributes, "what the query reads")
            if self._called(variable.name, variable.kind) and attributes:
                first = attributes[0].name
                error.hint = f"It is an input: write {variable.name}.{first}, for instance."
            raise error
        if len(sources) > 1:
            raise ambiguous(variable, [s.name for s in sources])
        return sources[0].column(variable)

    def _unknown_source(self, variable: Variable) -> MeshError:
        hint = None
        seen = [self.sources[place] for place in range(self._seen)]
        if self.sources.called(str(variable.source), variable.kind, len(self.sources)):
            hint = "Later events are not known yet."
        elif any(s.id == variable.source for s in seen):
            named = next(s for s in seen if s.id == variable.source)
            hint = f'It is called "{named.name}" here.'
        return unknown_source(variable, [s.name for s in seen], hint)

    def has(self, name: str) -> bool:
        """Whether an input has it."""
        if self.step is not None:
            return name in self.sources[self.step].attributes
        return bool(self.sources.having(name))

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """An input; in a query over one stream, any name in the app."""
        sources = self._called(name, kind)
        if not sources and self.step is not None and self.sources[self.step].id == f"{kind}{name}":
            sources = [self.sources[self.step]]
        if sources:
            return EventIsNull(sources[0].name, sources[0].step, index)
        is_single = len(self.sources) == 1 and self.step is None
        if is_single and self.is_defined(f"{kind}{name}"):
            return EventIsNull(f"{kind}{name}")
        return None

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Every attribute of every input."""
        sources = self.sources if self.step is None else [self.sources[self.step]]
        columns = [column for source in sources for column in source.columns(position)]
        refuse_doubles(columns, position)
        return tuple(columns)

    def inside(self) -> Scope:
        """Here; but a name without a prefix is that of the first input, and of no other."""
        return FirstScope(self)

    def takes_tables(self) -> bool:
        """Not in the filter of an event."""
        return self.step is None


@dataclass(frozen=True, slots=True)
class FirstScope:
    """Inside of ``in``: names without a prefix are those of the first input only."""

    around: InputScope

    def column(self, variable: Variable) -> Column:
        """An attribute of the first input, or with its prefix that of another."""
        if variable.source is None or not self.around.answers(variable):
            return self.around.sources[0].column(variable)
        return self.around.column(variable)

    def has(self, name: str) -> bool:
        """Whether the first input has it."""
        return name in self.around.sources[0].attributes

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The same as in the outer scope."""
        return self.around.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """The same as in the outer scope."""
        return self.around.spread(position)

    def inside(self) -> Scope:
        """This scope."""
        return self

    def takes_tables(self) -> bool:
        """The same as in the outer scope."""
        return self.around.takes_tables()


@dataclass(frozen=True, slots=True)
class OutputScope:
    """``having`` and ``order by``: the query's output, and of joins and patterns the input.

    ``reads_input``: whether names that the output lacks are those of the input.
    """

    output: NamedSource
    input: InputScope
    reads_input: bool

    def column(self, variable: Variable) -> Column:
        """An output attribute; or an input's."""
        if self.reads_input:
            if variable.source is not None or variable.name not in self.output.attributes:
                return replace(self.input, is_behind_select=True).column(variable)
        elif variable.source is not None and not (
            self.output.answers(variable.source, variable.kind) or variable.kind is StreamKind.INNER
        ):
            hint = "Here are output attributes only, without a prefix."
            raise unknown_source(variable, [], hint)
        try:
            return replace(self.output.column(variable), index=None)
        except MeshError as error:
            if self.input.has(variable.name):
                error.hint = f"Select it as well: select {variable.name}, .. ."
            raise

    def has(self, name: str) -> bool:
        """Whether this is an attribute here."""
        return name in self.output.attributes or (self.reads_input and self.input.has(name))

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The same as in the input."""
        return self.input.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Every output attribute."""
        return tuple(self.output.columns(position))

    def inside(self) -> Scope:
        """The input: the output means nothing inside of ``in``."""
        return self.input.inside()

    def takes_tables(self) -> bool:
        """Accepted."""
        return True


@dataclass(frozen=True, slots=True)
class RowScope:
    """Conditions over a table's rows: the table with its name as prefix, the output without.

    In on-demand queries, which have no other input, the table's attributes need no prefix.
    """

    table: NamedSource
    output: NamedSource
    is_defined: Callable[[str], bool]
    bare_is_table: bool = False

    def column(self, variable: Variable) -> Column:
        """An attribute of the table or of the output."""
        # The engine ignores a mark of inner streams, and the name after it.
        if variable.source is not None and variable.kind is not StreamKind.INNER:
            if not self.table.answers(variable.source, variable.kind):
                hint = f'The table\'s attributes have "{self.table.name}." before them, '
                raise unknown_source(variable, [self.table.name], f"{hint}the query's none.")
            return self.table.column(variable)
        if variable.name in self.output.attributes:
            return self.output.column(variable)
        if self.bare_is_table:
            return self.table.column(variable)
        error = unknown_attribute(variable, self.output.attributes.values(), "the query's output")
        if error.hint is None and variable.name in self.table.attributes:
            error.hint = f"Write {self.table.name}.{variable.name} for the table's."
        raise error

    def has(self, name: str) -> bool:
        """Whether this is an attribute here."""
        return name in self.output.attributes or (
            self.bare_is_table and name in self.table.attributes
        )

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The table's row; or any name in the app."""
        if self.table.answers(name, kind):
            return EventIsNull(self.table.name, TABLE_STEP, index)
        return EventIsNull(f"{kind}{name}") if self.is_defined(f"{kind}{name}") else None

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Both, which must not have one name twice."""
        columns = [*self.output.columns(position), *self.table.columns(position)]
        refuse_doubles(columns, position)
        return tuple(columns)

    def inside(self) -> Scope:
        """This scope."""
        return self

    def takes_tables(self) -> bool:
        """Accepted."""
        return True


@dataclass(frozen=True, slots=True)
class TableScope:
    """Inside of ``in T``: ``T.a`` is the table's, everything else as around it."""

    table: NamedSource
    around: Scope

    def column(self, variable: Variable) -> Column:
        """An attribute of the table, with its name as prefix, or of the outer scope."""
        if variable.source is not None and self.table.answers(variable.source, variable.kind):
            return self.table.column(variable)
        return self.around.column(variable)

    def has(self, name: str) -> bool:
        """The same as in the outer scope."""
        return self.around.has(name)

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The table's row, or an event of the outer scope."""
        if self.table.answers(name, kind):
            return EventIsNull(self.table.name, TABLE_STEP, index)
        return self.around.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """The same as in the outer scope."""
        return self.around.spread(position)

    def inside(self) -> Scope:
        """This scope."""
        return self

    def takes_tables(self) -> bool:
        """The same as in the outer scope."""
        return self.around.takes_tables()


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A thing with attributes to name: a stream, a side, an event, a table, the output."""

    #: Name as defined, with its mark: ``S``, ``#M``, ``!S``.
    id: str
    attributes: Mapping[str, Attribute]
    alias: str | None = None
    step: int = 0
    #: It occurs several times; an attribute without an index is an object then.
    is_counted: bool = False
    #: Its own name means it also beside an alias.
    keeps_name: bool = False

    @property
    def name(self) -> str:
        """The prefix of its attributes."""
        return self.alias if self.alias is not None else self.id

    def answers(self, name: str, kind: StreamKind) -> bool:
        """Whether the prefix ``name``, with its mark, means this."""
        if kind is StreamKind.INNER:
            return f"#{name}" == self.id
        return f"{kind}{name}" == self.name or (self.keeps_name and f"{kind}{name}" == self.id)

    def column(self, variable: Variable, *, in_filter: bool = False) -> Column:
        """Its attribute of that name; MESH-L202 if it has none."""
        attribute = self.attributes.get(variable.name)
        if attribute is None:
            raise unknown_attribute(variable, self.attributes.values(), _of(self))
        kind = attribute.type
        index = variable.index
        if not self.is_counted:
            index = None if index in (0, -1) else index
        elif index is None and variable.source is not None and not in_filter:
            kind = AttributeType.OBJECT
        return Column(attribute.name, kind, self.step, index, position=variable.position)

    def columns(self, position: Position) -> list[Column]:
        """The attributes of all sources."""
        attributes = self.attributes.values()
        return [Column(a.name, a.type, self.step, position=position) for a in attributes]


class Sources:
    """The inputs of a query, in order, each found by its name in constant time."""

    def __init__(self, sources: Iterable[NamedSource]) -> None:
        self._all = list(sources)
        self._by_name: dict[str, list[int]] = {}
        self._by_attribute: dict[str, list[int]] | None = None
        for place, source in enumerate(self._all):
            # Inner streams are called by their mark whatever other name they have.
            has_both = source.keeps_name or source.id.startswith("#")
            names = {source.name, source.id} if has_both else {source.name}
            for name in names:
                self._by_name.setdefault(name, []).append(place)

    def __iter__(self) -> Iterator[NamedSource]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, place: int) -> NamedSource:
        return self._all[place]

    def put(self, place: int, source: NamedSource) -> None:
        """Replace a source by the one after its stream functions, of the same name."""
        self._all[place] = source
        self._by_attribute = None

    def called(self, name: str, kind: StreamKind, seen: int) -> list[NamedSource]:
        """The first two of the first ``seen`` sources that the prefix ``name`` means."""
        matches: list[NamedSource] = []
        for place in self._by_name.get(f"{kind}{name}", ()):
            if place >= seen or len(matches) > 1:
                break
            if self._all[place].answers(name, kind):
                matches.append(self._all[place])
        return matches

    def having(self, attribute: str) -> list[NamedSource]:
        """The sources that have ``attribute``."""
        if self._by_attribute is None:
            self._by_attribute = {}
            for place, source in enumerate(self._all):
                for name in source.attributes:
                    self._by_attribute.setdefault(name, []).append(place)
        return [self._all[place] for place in self._by_attribute.get(attribute, ())]


def by_name(attributes: Iterable[Attribute]) -> dict[str, Attribute]:
    """Attributes under their names."""
    return {attribute.name: attribute for attribute in attributes}


def table_source(name: str, attributes: Iterable[Attribute]) -> NamedSource:
    """A table's rows as a source."""
    return NamedSource(name, by_name(attributes), step=TABLE_STEP)


def output_source(name: str, attributes: Iterable[Attribute]) -> NamedSource:
    """A query's output as a source."""
    return NamedSource(name, by_name(attributes), step=OUTPUT_STEP)


def _of(source: NamedSource) -> str:
    match source.step:
        case step if step == OUTPUT_STEP:
            return "the output of the query"
        case step if step == TABLE_STEP:
            return f'table "{source.id}"'
        case _:
            return f'stream "{source.id}"'
