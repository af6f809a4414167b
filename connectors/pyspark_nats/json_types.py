"""Types of JSON documents, for annotations."""

from __future__ import annotations

from typing import Any, TypeAlias

#: A JSON object; ``Any``, because a reader knows the type of each entry.
JsonObject: TypeAlias = dict[str, Any]
