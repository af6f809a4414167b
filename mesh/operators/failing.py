"""What becomes of a chunk when something fails on one of its events.

The reference engine hands a chunk on as one, so a failure ends it: nothing of the chunk goes on,
and what comes behind the event that failed isn't looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import RESET
from mesh.operators.ordering import begins

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Events
    from mesh.operators.expressions import Frame


def stopped(frame: Frame, events: Events) -> Bools:
    """bool[n], which events are not looked at: of a chunk the first that fails and all behind."""
    _forgive_resets(frame, events)
    result = np.zeros(len(events), dtype=np.bool_)
    if frame.failures:
        result[list(frame.failures)] = True
        first = begins(events)
        if not first.all():
            # Failures so far, less those up to where the chunk begins.
            count = np.cumsum(result)
            before = np.maximum.accumulate(np.where(first, count - result, 0))
            result = count > before
    return result


def lost(frame: Frame, events: Events) -> Bools:
    """bool[n], which events go nowhere; all of a chunk fail for the first reason in it."""
    ended = stopped(frame, events)
    if not frame.failures:
        return ended
    number = np.cumsum(begins(events)) - 1
    reasons: dict[int, str] = {}
    for row in sorted(frame.failures):
        reasons.setdefault(int(number[row]), frame.failures[row])
    result: Bools = np.isin(number, list(reasons))
    for row in np.flatnonzero(result & (events.kind != RESET)).tolist():
        frame.failures[row] = reasons[int(number[row])]
    return result


def _forgive_resets(frame: Frame, events: Events) -> None:
    """There is nothing in the row of a reset that could fail."""
    for row in [row for row in frame.failures if events.kind[row] == RESET]:
        del frame.failures[row]
