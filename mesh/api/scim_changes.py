"""Removals by value in PATCH requests of SCIM, as Entra ID and Okta send them.

    {"op": "Remove", "path": "members", "value": [{"value": "2819c223"}]}

RFC 7644 selects by a filter in the path.  Each value becomes an operation with such a filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

#: Parts of a value that name nothing.
_SHOWN: Final = ("$ref", "display")


def with_filters(request: Mapping[str, Any]) -> dict[str, Any]:
    """A PATCH request in which values of removals are filters; others stay as they are."""
    operations = request.get("Operations")
    if not isinstance(operations, list):
        return dict(request)
    return {**request, "Operations": [one for each in operations for one in _divided(each)]}


def _divided(operation: Any) -> list[Any]:
    if not isinstance(operation, Mapping) or str(operation.get("op")).lower() != "remove":
        return [operation]
    path, value = operation.get("path"), operation.get("value")
    if value is None:
        # One without a value removes by its path alone.
        return [{name: one for name, one in operation.items() if name != "value"}]
    if path is None and isinstance(value, Mapping):
        removals = [_removals(operation, str(name), part) for name, part in value.items()]
        return [one for some in removals for one in some]
    return _removals(operation, path, value)


def _removals(operation: Mapping[str, Any], path: Any, value: Any) -> list[Any]:
    """An operation for each value of an attribute."""
    if not isinstance(path, str) or "[" in path or "." in path.rpartition(":")[2]:
        return [operation]
    values = value if isinstance(value, list) else [value]
    # An empty list selects nothing, as an empty id does.
    filters = [_filter(one) for one in values or [""]]
    if not all(filters):
        return [operation]
    return [{"op": operation["op"], "path": f"{path}[{one}]"} for one in filters]


def _filter(value: Any) -> str:
    """The filter that selects a value; empty if it names nothing."""
    parts = value if isinstance(value, Mapping) else {"value": value}
    terms = [
        f"{name} eq {orjson.dumps(part).decode()}"
        for name, part in parts.items()
        if name not in _SHOWN and isinstance(part, str | bool | int)
    ]
    return " and ".join(terms)
