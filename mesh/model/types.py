"""Attribute types and stream schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class AttributeType(StrEnum):
    """SiddhiQL's attribute types.

    A column of objects is binary in Arrow: each packed as ``mesh.functions.objects`` does.
    """

    STRING = "string"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BOOL = "bool"
    OBJECT = "object"

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic accepts it."""
        return self in NUMERIC

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column of it."""
        return _arrow_types()[self]


#: From narrow to wide: arithmetic yields the wider of its operands.
NUMERIC = (AttributeType.INT, AttributeType.LONG, AttributeType.FLOAT, AttributeType.DOUBLE)


@cache
def _arrow_types() -> Mapping[AttributeType, pa.DataType]:
    # Imported when it is needed: an idle connector host does without, and needs half the memory.
    import pyarrow as pa

    return {
        AttributeType.STRING: pa.string(),
        AttributeType.INT: pa.int32(),
        AttributeType.LONG: pa.int64(),
        AttributeType.FLOAT: pa.float32(),
        AttributeType.DOUBLE: pa.float64(),
        AttributeType.BOOL: pa.bool_(),
        AttributeType.OBJECT: pa.binary(),
    }


@dataclass(frozen=True, slots=True)
class Attribute:
    """A named, typed attribute of a stream."""

    name: str
    type: AttributeType


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """A stream's name and its attributes, in order; attribute names are unique."""

    name: str
    attributes: tuple[Attribute, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attribute names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    def get(self, name: str) -> Attribute | None:
        """The attribute called ``name``, if there is one; SiddhiQL names are case-sensitive."""
        return next((a for a in self.attributes if a.name == name), None)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of a batch of its events, all fields nullable."""
        # By identity first: to hash the attributes takes as long as a step of a query.
        entry = _schemas.get(id(self.attributes))
        if entry is None:
            if len(_schemas) >= _SCHEMAS_MAX:
                _schemas.clear()
            entry = _schemas[id(self.attributes)] = self.attributes, _arrow_schema(self.attributes)
        return entry[1]


_SCHEMAS_MAX = 4096
#: The entry of some attributes keeps them alive, so no others have their identity.
_schemas: dict[int, tuple[tuple[Attribute, ...], pa.Schema]] = {}


@lru_cache(maxsize=1024)
def _arrow_schema(attributes: tuple[Attribute, ...]) -> pa.Schema:
    """A stream's schema is needed for each batch."""
    import pyarrow as pa

    return pa.schema([pa.field(a.name, a.type.arrow) for a in attributes])
