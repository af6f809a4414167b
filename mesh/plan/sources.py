"""Things that names in a query can refer to: streams, sides, events, tables, the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.language.syntax import StreamKind
from mesh.model.types import Attribute, AttributeType
from mesh.plan.bound import OUTPUT_STEP, TABLE_STEP, Column
from mesh.plan.name_errors import unknown_attribute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mesh.errors import Position
    from mesh.language.syntax import Variable


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
