"""Scopes: the meaning of a name in a filter, a pattern's event, ``select`` or ``having``.

The rules are the reference engine's.  In a pattern an event's own filter sees its own attributes
without a prefix, and with a prefix those of events known by then.  ``select`` sees all events, and
a name without a prefix must be the attribute of one of them only.  After ``select`` a query over
one stream knows its output only; joins and patterns know their inputs as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from mesh.errors import MeshError
from mesh.language.syntax import StreamKind
from mesh.plan.bound import TABLE_STEP, Column, EventIsNull
from mesh.plan.name_errors import ambiguous, refuse_doubles, unknown_attribute, unknown_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.errors import Position
    from mesh.language.syntax import Variable
    from mesh.plan.sources import NamedSource, Sources


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
