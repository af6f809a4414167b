"""How much of one part a batch of a carrier takes: others wait for it.

A part begins with little and is given twice as much each time, up to a bound.  A task that has been
slow over a part leaves a note for the planner, by which the part gets what took a fair time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_nats.source.source_options import Limits

#: Messages of a part in one batch: at first, at most, and even of the slowest.
ROWS_FIRST: Final = 200
ROWS_MAX: Final = 10_000
ROWS_MIN: Final = 20
#: How long a part may keep the others waiting, milliseconds.
FAIR_MS: Final = 250.0


def increased(rows_max: int) -> int:
    """What a part may have after a batch."""
    return min(2 * rows_max, ROWS_MAX)


def next_batch_limit(messages: int, took_ms: float) -> int | None:
    """The messages that a part may have when so many took so long; None where that was fine."""
    if took_ms <= FAIR_MS:
        return None
    return max(ROWS_MIN, int(messages * FAIR_MS / took_ms))


def note(path: Path, messages: int, took_ms: float) -> None:
    """Leave the planner a note, or take it away."""
    rows_max = next_batch_limit(messages, took_ms)
    if rows_max is None:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(str(rows_max))
    temporary.replace(path)


def allowed(rows_max: int, path: Path) -> int:
    """What a part may have by its note."""
    try:
        return min(rows_max, int(path.read_text()))
    except FileNotFoundError:
        return rows_max


def limited(limits: Limits, rows_max: int) -> Limits:
    """``limits`` with no more messages than that."""
    return replace(limits, offsets_max=min(limits.offsets_max or rows_max, rows_max))
