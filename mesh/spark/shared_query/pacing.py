"""Limits on the messages of one part in a batch of the shared query, as other parts wait for it.

A part begins with a low limit, which doubles with each batch up to a bound.  A task that was slow
writes a file for the planner, with the limit that fits a fair duration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_nats.source.source_options import Limits

#: Limits of a part's messages in one batch: initial, highest, and lowest for the slowest part.
ROWS_FIRST: Final = 200
ROWS_MAX: Final = 10_000
ROWS_MIN: Final = 20
#: How long a part may delay the others, milliseconds.
FAIR_MS: Final = 250.0


def increased(rows_max: int) -> int:
    """The limit after a batch."""
    return min(2 * rows_max, ROWS_MAX)


def next_batch_limit(messages: int, took_ms: float) -> int | None:
    """The limit of a part after ``messages`` took ``took_ms``; None if that was fast enough."""
    if took_ms <= FAIR_MS:
        return None
    return max(ROWS_MIN, int(messages * FAIR_MS / took_ms))


def note(path: Path, messages: int, took_ms: float) -> None:
    """Write the limit of a slow part to ``path`` for the planner; remove it for a fast one."""
    rows_max = next_batch_limit(messages, took_ms)
    if rows_max is None:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(str(rows_max))
    temporary.replace(path)


def allowed(rows_max: int, path: Path) -> int:
    """The limit of a part, lowered to that in its file."""
    try:
        return min(rows_max, int(path.read_text()))
    except FileNotFoundError:
        return rows_max


def limited(limits: Limits, rows_max: int) -> Limits:
    """``limits`` with at most ``rows_max`` messages."""
    return replace(limits, offsets_max=min(limits.offsets_max or rows_max, rows_max))
