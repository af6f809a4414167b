"""Partitioning keys of streams: attributes, a computed value, or ranges.

A key has a name that occurs in subjects and in names of JetStream streams: the joined names of its
attributes, or for a computed key the words of its text with a digest.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.print_expressions import print_expression, print_string
from mesh.language.syntax import RangePartition
from mesh.model.types import AttributeType
from mesh.plan.bound import Column

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import PartitionKey
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundKey

_KEY_NAME: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_WORDS: Final = re.compile(r"[A-Za-z0-9_]+")
_WORDS_MAX: Final = 32
#: Types of attributes by how well they share out events.
_SPREADING: Final = (
    AttributeType.STRING,
    AttributeType.LONG,
    AttributeType.INT,
    AttributeType.DOUBLE,
    AttributeType.FLOAT,
)


@dataclass(frozen=True, slots=True)
class Key:
    """Attributes, in the order of first mention, or a computation on an event."""

    attributes: tuple[str, ...] = ()
    #: SiddhiQL before ``of`` in a partition; empty if attributes are the key.
    computed: str = ""
    #: An event may be in several ranges, or in none: then it is delivered several times, or not at
    #: all.
    has_ranges: bool = False

    def __str__(self) -> str:
        return f"({self.computed or ', '.join(self.attributes)})"

    @property
    def identity(self) -> frozenset[str] | str:
        """Equal for keys that divide alike; the order of attributes does not matter."""
        return self.computed or frozenset(self.attributes)

    def label(self, schema: StreamSchema) -> str:
        """Its name in subjects, unlike that of any other key of the stream."""
        if self.computed:
            words = "_".join(_WORDS.findall(self.computed))[:_WORDS_MAX]
            return f"{words}_{_digest(self.computed)}"
        joined = "_".join(self.attributes)
        if len(self.attributes) > 1 and _readings(joined, schema.names) > 1:
            return f"{joined}_{_digest(','.join(self.attributes))}"
        return joined


def partition_key(written: PartitionKey, bound: BoundKey) -> Key:
    """The key of one stream of a partition.

    Raises:
        MeshError: MESH-P211 for an attribute that can't be part of a subject.
    """
    if isinstance(bound.value, Column):
        check_key_name(bound.value.name, written.position)
        return Key((bound.value.name,))
    if isinstance(written, RangePartition):
        ranges = (
            f"{print_expression(r.condition)} as {print_string(r.label)}" for r in written.ranges
        )
        return Key(computed=" or ".join(ranges), has_ranges=True)
    return Key(computed=print_expression(written.expression))


def spread_key(schema: StreamSchema) -> Key | None:
    """A key that only distributes events: the attribute that most likely has many values."""
    fit = [a for a in schema.attributes if _KEY_NAME.match(a.name) and a.type in _SPREADING]
    best = min(fit, key=lambda a: _SPREADING.index(a.type), default=None)
    return Key((best.name,)) if best is not None else None


def check_key_name(name: str, position: Position) -> None:
    """Refuse an attribute that can't be a key; MESH-P211."""
    if not _KEY_NAME.match(name):
        raise MeshError(
            "MESH-P211",
            f"attribute \"{name}\" can't be a key: it can't be part of a subject",
            hint="Give it another name in a query before this one.",
            position=position,
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _readings(joined: str, names: tuple[str, ...]) -> int:
    """Number of ways to build ``joined`` from ``names`` with ``_`` between."""
    ways = [0] * (len(joined) + 1)
    ways[0] = 1
    for end in range(len(joined)):
        if ways[end] and (end == 0 or joined[end] == "_"):
            start = end + 1 if end else 0
            for name in names:
                if joined.startswith(name, start):
                    ways[start + len(name)] += ways[end]
    return ways[-1]
