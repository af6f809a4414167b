"""Start position of an app in its input: ``earliest``, ``latest``, a sequence, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from mesh.errors import MeshError


class StartPositionKind(StrEnum):
    """Kinds of start positions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SEQUENCE = "sequence"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A start position, the same for each stream that comes from outside."""

    kind: StartPositionKind
    #: The first sequence to read, from 1 up.
    sequence: int = 0
    #: The time of the first message to read, by the broker's clock; milliseconds since 1970.
    time_ms: int = 0

    def __str__(self) -> str:
        match self.kind:
            case StartPositionKind.SEQUENCE:
                return f"sequence {self.sequence}"
            case StartPositionKind.TIME:
                return datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat()
            case _:
                return self.kind.value


EARLIEST = StartPosition(StartPositionKind.EARLIEST)


def parse_start_position(text: str) -> StartPosition:
    """``earliest``, ``latest``, a sequence, or a time in ISO 8601 with its zone.

    Raises:
        MeshError: MESH-A400 for anything else.
    """
    if text in (StartPositionKind.EARLIEST, StartPositionKind.LATEST):
        return StartPosition(StartPositionKind(text))
    if re.fullmatch(r"[0-9]{1,18}", text) and int(text) > 0:
        return StartPosition(StartPositionKind.SEQUENCE, sequence=int(text))
    time_ms = _time_ms(text)
    if time_ms is None:
        raise MeshError(
            "MESH-A400",
            f'"{text}" is no start position',
            detail="It is earliest, latest, the first sequence to read, or a time with its zone.",
            hint="A time is written like 2026-11-21T20:00:00Z.",
        )
    return StartPosition(StartPositionKind.TIME, time_ms=time_ms)


def _time_ms(text: str) -> int | None:
    """Milliseconds since 1970; None for what is no time with a zone, or not in the years 1 to 9999.

    A time of the last day of the year 9999 in a western zone is after the end of ``datetime``.
    """
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else round(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
