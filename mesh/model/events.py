"""Events as people hand them to a manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mesh.model.values import JsonObject


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """An event to send for a test."""

    stream: str
    #: Values in the order of the definition, or by name.
    data: list[Any] | JsonObject
    #: Its own time, milliseconds since 1970; None for the broker's.
    time_ms: int | None = None
