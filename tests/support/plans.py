"""Plans as tests compare them."""

from __future__ import annotations

import dataclasses
from typing import Any

from mesh.plan.bound import SourceKind


def triggered(value: Any) -> Any:
    """A bound query with triggers as streams, as its readers see them."""
    if value is SourceKind.TRIGGER:
        return SourceKind.STREAM
    if isinstance(value, tuple):
        return tuple(triggered(one) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: triggered(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value)(**parts)
    return value
