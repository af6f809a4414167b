"""Parts shared by the nodes of the syntax tree: positions, stream references, annotations."""

# ``at()`` makes a field, it is no value that instances would share.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mesh.errors import Position

NOWHERE = Position(0, 0)


def at() -> Position:
    """The field that holds the position of a node; ignored by equality."""
    return field(default=NOWHERE, compare=False, repr=False, kw_only=True)


class StreamKind(StrEnum):
    """The prefix of a stream's name; the values are the prefixes."""

    PLAIN = ""
    #: ``#S``: a stream inside a partition.
    INNER = "#"
    #: ``!S``: the failed events of stream S.
    FAULT = "!"


@dataclass(frozen=True, slots=True)
class StreamReference:
    """``S``, ``#S``, ``!S``: a stream, table, window, trigger or aggregation by its name."""

    name: str
    kind: StreamKind = StreamKind.PLAIN
    position: Position = at()

    def __str__(self) -> str:
        """The name with its prefix, the key in symbol tables."""
        return f"{self.kind}{self.name}"


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@dist(execGroup='g', parallel='2')``, ``@App:name('x')``, ``@PrimaryKey('a', 'b')``.

    ``@App:name`` has name ``App:name``.  Names keep their case and are compared without it.
    """

    name: str
    #: (key or None, text) in the order written.
    elements: tuple[tuple[str | None, str], ...] = ()
    annotations: tuple[Annotation, ...] = ()
    position: Position = at()

    def get(self, key: str | None = None) -> str | None:
        """The text of element ``key`` (keys compare without case), None for the unnamed one."""
        lower_key = key.lower() if key is not None else None
        return next(
            (v for k, v in self.elements if (k.lower() if k is not None else None) == lower_key),
            None,
        )


def find(annotations: tuple[Annotation, ...], name: str) -> Annotation | None:
    """The first annotation called ``name``, compared without case."""
    return next((a for a in annotations if a.name.lower() == name.lower()), None)
