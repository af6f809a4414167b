"""Input events that caused a failure: a fault stream gets these.

A query of several streams, and a table's condition, fail on the query's output; the engine reports
the input event that caused it, with all events that were sent at once. A failure that a timer
caused has no such event.

Source: observed on Siddhi 5.1.7; tests/cases/conformance/faults.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Bools, EventBatch

#: Order, clock and path.
_Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FailedInput:
    """Input events of a query, in order, with the reason of the failure that each caused."""

    stream: str
    events: EventBatch
    reasons: list[str]


def failed_inputs(
    inputs: Mapping[str, Sequence[EventBatch]], failed: EventBatch, reasons: Sequence[str]
) -> tuple[list[FailedInput], Bools]:
    """The events of one run that caused failures.

    Args:
        inputs: the input of the query, by stream; only streams with a reader of failures.
        failed: n rows that the query emitted, with the positions of their causes.
        reasons: of length n; the first of a cause counts.

    Returns:
        The events, and bool[n], the rows for which there are any.
    """
    why: dict[_Place, str] = {}
    places = _places(failed)
    for place, reason in zip(places, reasons, strict=True):
        why.setdefault(place, reason)
    orders = np.unique(failed.order)
    causes: list[FailedInput] = []
    cause_places: set[_Place] = set()
    for stream, runs in inputs.items():
        for run in runs:
            some = np.flatnonzero(np.isin(run.order, orders))
            mine = _places(run.at(some))
            matches = [number for number, place in enumerate(mine) if place in why]
            if matches:
                texts = [why[mine[number]] for number in matches]
                causes.append(FailedInput(stream, run.take(some[matches]), texts))
                cause_places.update(mine[number] for number in matches)
    return causes, np.array([place in cause_places for place in places], dtype=np.bool_)


def _places(events: EventBatch) -> list[_Place]:
    columns = (events.order, events.clock_ms, events.path)
    return list(zip(*(column.tolist() for column in columns), strict=True))
