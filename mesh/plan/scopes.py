"""What a name means where it stands: a filter, a pattern's event, ``select``, ``having``.

The rules are the reference engine's.  In a pattern an event's own filter sees its own attributes
without a prefix, and with one those of events known by then; ``select`` sees all events, and a name
without a prefix must be the attribute of one of them only.  Behind ``select`` a query over one
stream knows its output only; joins and patterns know what they read as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from mesh.errors import MeshError
from mesh.functions.catalogue import did_you_mean
from mesh.language.syntax import StreamKind
from mesh.model.types import Attribute, AttributeType
from mesh.plan.bound import OUTPUT_STEP, TABLE_STEP, Column, EventIsNull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mesh.errors import Position
    from mesh.language.syntax import Variable

nearest = did_you_mean


class Scope(Protocol):
    """A place in a query, to look names up in."""

    def column(self, variable: Variable) -> Column:
        """The column that ``variable`` names; MESH-L202 to L204 if there is none or several."""
        ...

    def has(self, name: str) -> bool:
        """Whether ``name`` without a prefix is that of an attribute."""
        ...

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """Whether the event called ``name`` is there, as an expression; None: no such event."""
        ...

    def spread(self, position: Position) -> tuple[Column, ...]:
        """What ``*`` stands for; MESH-L210 where two of them have one name."""
        ...

    def inside(self) -> Scope:
        """Where the names inside of ``in`` are looked up, but those of the table."""
        ...

    def takes_tables(self) -> bool:
        """Whether the engine takes ``in`` here."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """One thing whose attributes can be named: a stream, a side, an event, a table, the output."""

    #: As it is defined, with its mark: ``S``, ``#M``, ``!S``.
    id: str
    attributes: Mapping[str, Attribute]
    alias: str | None = None
    step: int = 0
    #: It occurs several times; an attribute without an index is an object then.
    is_counted: bool = False

    @property
    def name(self) -> str:
        """What its attributes are called by."""
        return self.alias if self.alias is not None else self.id

    def answers(self, name: str, kind: StreamKind) -> bool:
        """Whether the prefix ``name``, with its mark, means this."""
        if kind is StreamKind.INNER:
            return f"#{name}" == self.id
        return f"{kind}{name}" == self.name

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
        """All its attributes."""
        attributes = self.attributes.values()
        return [Column(a.name, a.type, self.step, position=position) for a in attributes]


@dataclass(frozen=True, slots=True)
class InputScope:
    """What a query reads: ``select``, ``group by`` and filters.

    ``own`` is the step of the event whose filter it is: it knows those before and itself.
    """

    sources: tuple[Source, ...]
    #: Whether an app knows a stream, table, window .. of that name.
    is_known: Callable[[str], bool]
    own: int | None = None
    #: The source whose attribute a name without a prefix is, where others have it too.
    preferred: int | None = None
    #: Whether a counted event's attribute has its own type without an index as well.
    is_behind_select: bool = False

    @property
    def _seen(self) -> tuple[Source, ...]:
        if self.own is None:
            return self.sources
        return self.sources[: self.own + 1]

    def answers(self, variable: Variable) -> bool:
        """Whether the prefix of ``variable`` says something; that of no inner stream doesn't."""
        return variable.kind is not StreamKind.INNER or any(
            s.answers(str(variable.source), variable.kind) for s in self._seen
        )

    def column(self, variable: Variable) -> Column:
        """An attribute of an input."""
        if variable.source is None:
            return self._unqualified(variable)
        found = [s for s in self._seen if s.answers(variable.source, variable.kind)]
        if not found and variable.kind is StreamKind.INNER:
            # The engine passes over a mark that means nothing, and the name behind it.
            return self._unqualified(variable)
        if not found:
            raise self._unknown_source(variable)
        if len(found) > 1 and variable.kind is StreamKind.INNER:
            raise _ambiguous(variable, [s.name for s in found])
        is_exact = self.own is not None or self.is_behind_select
        return found[0].column(variable, in_filter=is_exact)

    def _unqualified(self, variable: Variable) -> Column:
        if self.own is not None:
            return self.sources[self.own].column(variable, in_filter=True)
        if len(self.sources) == 1:
            return self.sources[0].column(variable)
        found = [s for s in self.sources if variable.name in s.attributes]
        if len(found) > 1 and self.preferred is not None:
            found = [s for s in found if s.step == self.preferred] or found
        if not found:
            attributes = [a for s in self.sources for a in s.attributes.values()]
            raise unknown_attribute(variable, attributes, "what the query reads")
        if len(found) > 1:
            raise _ambiguous(variable, [s.name for s in found])
        return found[0].column(variable)

    def _unknown_source(self, variable: Variable) -> MeshError:
        hidden = [s for s in self.sources if s not in self._seen]
        hint = None
        if any(s.name == variable.source for s in hidden):
            hint = "Events that come later are not known yet."
        elif any(s.id == variable.source for s in self._seen):
            named = next(s for s in self._seen if s.id == variable.source)
            hint = f'It is called "{named.name}" here.'
        return unknown_source(variable, [s.name for s in self._seen], hint)

    def has(self, name: str) -> bool:
        """Whether an input has it."""
        sources = self.sources if self.own is None else (self.sources[self.own],)
        return any(name in source.attributes for source in sources)

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """An input; in a query over one stream, any name that the app knows."""
        for source in self._seen:
            is_own = source.step == self.own and source.id == f"{kind}{name}"
            if source.answers(name, kind) or is_own:
                return EventIsNull(source.name, source.step, index)
        is_single = len(self.sources) == 1 and self.own is None
        if is_single and self.is_known(f"{kind}{name}"):
            return EventIsNull(f"{kind}{name}")
        return None

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Every attribute of every input."""
        sources = self.sources if self.own is None else (self.sources[self.own],)
        columns = [column for source in sources for column in source.columns(position)]
        refuse_doubles(columns, position)
        return tuple(columns)

    def inside(self) -> Scope:
        """Here; but a name without a prefix is that of the first input, and of no other."""
        return FirstScope(self)

    def takes_tables(self) -> bool:
        """Not in the filter of an event."""
        return self.own is None


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
        """As around."""
        return self.around.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """As around."""
        return self.around.spread(position)

    def inside(self) -> Scope:
        """The same place."""
        return self

    def takes_tables(self) -> bool:
        """As around."""
        return self.around.takes_tables()


@dataclass(frozen=True, slots=True)
class OutputScope:
    """``having`` and ``order by``: the query's output, and of joins and patterns the input.

    ``reads_input`` says whether names that the output has not are those of the input.
    """

    output: Source
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
        return replace(self.output.column(variable), index=None)

    def has(self, name: str) -> bool:
        """Whether it is an attribute here."""
        return name in self.output.attributes or (self.reads_input and self.input.has(name))

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """As in the input."""
        return self.input.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Every output attribute."""
        return tuple(self.output.columns(position))

    def inside(self) -> Scope:
        """The input: the output means nothing inside of ``in``."""
        return self.input.inside()

    def takes_tables(self) -> bool:
        """It does."""
        return True


@dataclass(frozen=True, slots=True)
class RowScope:
    """Conditions over a table's rows: the table with its name before, the output without.

    On demand, where nothing else is known, the table's attributes need no prefix.
    """

    table: Source
    output: Source
    is_known: Callable[[str], bool]
    bare_is_table: bool = False

    def column(self, variable: Variable) -> Column:
        """An attribute of the table or of the output."""
        # The engine passes over a mark of inner streams, and the name behind it.
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
        """Whether it is an attribute here."""
        return name in self.output.attributes or (
            self.bare_is_table and name in self.table.attributes
        )

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The table's row; or any name that the app knows."""
        if self.table.answers(name, kind):
            return EventIsNull(self.table.name, TABLE_STEP, index)
        return EventIsNull(f"{kind}{name}") if self.is_known(f"{kind}{name}") else None

    def spread(self, position: Position) -> tuple[Column, ...]:
        """Both, which must not have one name twice."""
        columns = [*self.output.columns(position), *self.table.columns(position)]
        refuse_doubles(columns, position)
        return tuple(columns)

    def inside(self) -> Scope:
        """The same place."""
        return self

    def takes_tables(self) -> bool:
        """It does."""
        return True


@dataclass(frozen=True, slots=True)
class TableScope:
    """Inside of ``in T``: ``T.a`` is the table's, everything else as around it."""

    table: Source
    around: Scope

    def column(self, variable: Variable) -> Column:
        """An attribute of the table, with its name before, or what it is around."""
        if variable.source is not None and self.table.answers(variable.source, variable.kind):
            return self.table.column(variable)
        return self.around.column(variable)

    def has(self, name: str) -> bool:
        """As around."""
        return self.around.has(name)

    def event(self, name: str, kind: StreamKind, index: int | None) -> EventIsNull | None:
        """The table's row, or what it is around."""
        if self.table.answers(name, kind):
            return EventIsNull(self.table.name, TABLE_STEP, index)
        return self.around.event(name, kind, index)

    def spread(self, position: Position) -> tuple[Column, ...]:
        """As around."""
        return self.around.spread(position)

    def inside(self) -> Scope:
        """The same place."""
        return self

    def takes_tables(self) -> bool:
        """As around."""
        return self.around.takes_tables()


def by_name(attributes: Iterable[Attribute]) -> dict[str, Attribute]:
    """Attributes under their names."""
    return {attribute.name: attribute for attribute in attributes}


def table_source(name: str, attributes: Iterable[Attribute]) -> Source:
    """A table's rows as what can be named."""
    return Source(name, by_name(attributes), step=TABLE_STEP)


def output_source(name: str, attributes: Iterable[Attribute]) -> Source:
    """A query's output as what can be named."""
    return Source(name, by_name(attributes), step=OUTPUT_STEP)


def refuse_doubles(columns: Sequence[Column], position: Position) -> None:
    """MESH-L210 where two of ``columns`` have one name."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise MeshError(
                "MESH-L210",
                f'attribute "{column.name}" comes of two inputs',
                hint="Select the attributes one by one, and give one of them another name.",
                position=position,
            )
        seen.add(column.name)


def unknown_attribute(variable: Variable, attributes: Iterable[Attribute], of: str) -> MeshError:
    """MESH-L202."""
    known = list(attributes)
    shown = ", ".join(dict.fromkeys(f"{a.name} {a.type}" for a in known))
    return MeshError(
        "MESH-L202",
        f'attribute "{variable.name}" is not defined',
        detail=f"Attributes of {of}: {shown}." if shown else f"There are no attributes of {of}.",
        hint=nearest(variable.name, [a.name for a in known]),
        position=variable.position,
    )


def unknown_source(variable: Variable, known: Sequence[str], hint: str | None = None) -> MeshError:
    """MESH-L203."""
    return MeshError(
        "MESH-L203",
        f'"{variable.kind}{variable.source}" is not known here',
        detail=f"Known: {', '.join(dict.fromkeys(known))}." if known else None,
        hint=hint or nearest(str(variable.source), known),
        position=variable.position,
    )


def _ambiguous(variable: Variable, owners: Sequence[str]) -> MeshError:
    return MeshError(
        "MESH-L204",
        f'attribute "{variable.name}" is ambiguous',
        detail=f"{' and '.join(dict.fromkeys(owners))} have it.",
        hint=f"Write {owners[0]}.{variable.name}, for instance."
        if len(set(owners)) > 1
        else "Give them other names: S as one join S as other; e1=S -> e2=S.",
        position=variable.position,
    )


def _of(source: Source) -> str:
    match source.step:
        case step if step == OUTPUT_STEP:
            return "the output of the query"
        case step if step == TABLE_STEP:
            return f'table "{source.id}"'
        case _:
            return f'stream "{source.id}"'
