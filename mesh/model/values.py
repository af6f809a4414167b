"""Types of values whose shape the code does not fix: JSON documents, and the values of events.

They have ``Any`` inside and no union of types, because a reader knows the type of each entry.  A
document with fixed entries has a ``TypedDict`` or a dataclass instead, as in ``answers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

#: A JSON value: text, number, truth value, null, list or object.
Json: TypeAlias = Any
#: A JSON object.
JsonObject: TypeAlias = dict[str, Any]
#: A JSON object that the code only reads.
JsonMapping: TypeAlias = Mapping[str, Any]
#: An event: its values by attribute.
EventValues: TypeAlias = dict[str, Any]
#: An event or a row of a table: its values in the order of the attributes.
Row: TypeAlias = tuple[Any, ...]
