"""What a name means where it stands: a filter, a pattern's step, ``select``, ``having``.

The rules are the reference engine's.  In a pattern a step's own filter sees its own event without a
prefix, and events up to its own with one; ``select`` sees all events, and a name without a prefix
must be the attribute of one of them only.  ``having`` sees what the query puts out.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mesh.errors import MeshError, not_supported
from mesh.plan.bound import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.language.syntax import Variable
    from mesh.model.types import Attribute, StreamSchema


class Scope(Protocol):
    """A place in a query, to look names up in."""

    def column(self, variable: Variable) -> Column:
        """The column that ``variable`` names; MESH-L202 to L204 if there is none or several."""
        ...

    def is_event(self, name: str) -> bool:
        """Whether ``name`` is that of an event rather than of an attribute."""
        ...


@dataclass(frozen=True, slots=True)
class StreamScope:
    """Queries with one input stream."""

    schema: StreamSchema

    def column(self, variable: Variable) -> Column:
        """An attribute of the stream, with or without the stream's name before it."""
        if variable.source is not None and variable.source != self.schema.name:
            raise _unknown_source(variable, [self.schema.name])
        if variable.index is not None:
            raise not_supported("an index outside of a pattern", variable.position)
        return _column(variable, self.schema, 0)

    def is_event(self, name: str) -> bool:
        """Whether it is the stream's name."""
        return name == self.schema.name and self.schema.get(name) is None


@dataclass(frozen=True, slots=True)
class PatternScope:
    """A pattern's select clause, or the filter of one of its steps.

    ``own`` is the index of the step whose filter it is, None for the select clause.
    """

    #: (reference or, without one, the stream's name; schema) of each step.
    steps: tuple[tuple[str, StreamSchema], ...]
    own: int | None = None

    def column(self, variable: Variable) -> Column:
        """An attribute of one step's event."""
        if variable.source is None:
            return self._unqualified(variable)
        visible = self.steps if self.own is None else self.steps[: self.own + 1]
        found = [i for i, (name, _) in enumerate(visible) if name == variable.source]
        if not found:
            later = [name for name, _ in self.steps[len(visible) :]]
            hint = (
                "Events later in the pattern are not known yet."
                if variable.source in later
                else None
            )
            raise _unknown_source(variable, [name for name, _ in visible], hint)
        if len(found) > 1:
            raise MeshError(
                "MESH-L204",
                f'"{variable.source}" is the name of several events',
                hint="Name the events: e1=S -> e2=S.",
                position=variable.position,
            )
        if variable.index not in (None, 0, -1):
            raise not_supported("an index of an event that there is one of", variable.position)
        return _column(variable, self.steps[found[0]][1], found[0])

    def _unqualified(self, variable: Variable) -> Column:
        if self.own is not None:
            return _column(variable, self.steps[self.own][1], self.own)
        found = [i for i, (_, schema) in enumerate(self.steps) if schema.get(variable.name)]
        if not found:
            attributes = [a for _, schema in self.steps for a in schema.attributes]
            raise _unknown_attribute(variable, attributes, "the events of the pattern")
        if len(found) > 1:
            owners = [self.steps[i][0] for i in found]
            raise MeshError(
                "MESH-L204",
                f'attribute "{variable.name}" is ambiguous',
                detail=f"Events {', '.join(owners)} have it.",
                hint=f"Write {owners[0]}.{variable.name}, for instance.",
                position=variable.position,
            )
        return _column(variable, self.steps[found[0]][1], found[0])

    def is_event(self, name: str) -> bool:
        """Whether it is the name of a step's event."""
        return any(name == step for step, _ in self.steps)


@dataclass(frozen=True, slots=True)
class OutputScope:
    """``having``: the query's own output attributes."""

    schema: StreamSchema

    def column(self, variable: Variable) -> Column:
        """An output attribute; the names of inputs mean nothing here."""
        if variable.source is not None:
            raise _unknown_source(
                variable, [], "'having' sees output attributes, without a prefix."
            )
        return _column(variable, self.schema, -1, "the output of the query")

    def is_event(self, name: str) -> bool:
        """Never: events are gone here."""
        return False


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint at what ``name`` may have been meant to be."""
    names = list(dict.fromkeys(known))
    same = [k for k in names if k.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else None


def _column(variable: Variable, schema: StreamSchema, step: int, of: str | None = None) -> Column:
    attribute = schema.get(variable.name)
    if attribute is None:
        raise _unknown_attribute(variable, schema.attributes, of or f'stream "{schema.name}"')
    return Column(attribute.name, attribute.type, step)


def _unknown_attribute(variable: Variable, attributes: Sequence[Attribute], of: str) -> MeshError:
    shown = ", ".join(dict.fromkeys(f"{a.name} {a.type}" for a in attributes))
    return MeshError(
        "MESH-L202",
        f'attribute "{variable.name}" is not defined',
        detail=f"Attributes of {of}: {shown}.",
        hint=nearest(variable.name, (a.name for a in attributes)),
        position=variable.position,
    )


def _unknown_source(variable: Variable, known: Sequence[str], hint: str | None = None) -> MeshError:
    assert variable.source is not None
    return MeshError(
        "MESH-L203",
        f'"{variable.source}" is not known here',
        detail=f"Known: {', '.join(dict.fromkeys(known))}." if known else None,
        hint=hint or nearest(variable.source, known),
        position=variable.position,
    )
