"""Input streams merged into one order: events that were sent at once, and waits over a restore."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mesh.operators.dataflow.merge import InputMerger

_SCHEMA = pa.schema([("n", pa.int64())])


def _merger() -> InputMerger:
    return InputMerger(("A", "B"), {"A": _SCHEMA, "B": _SCHEMA})


def _add(merger: InputMerger, times_ms: list[int], messages: list[int] | None) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(times_ms)], schema=_SCHEMA)
    sequence = np.arange(1, len(times_ms) + 1)
    chunk = None if messages is None else np.array(messages)
    merger.add("A", sequence, np.array(times_ms), rows, chunk)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize(
    ("messages", "firsts", "clocks_ms"),
    [
        ([7, 7, 8, 9, 9], [0, 0, 2, 3, 3], [12, 12, 13, 15, 15]),
        ([5, 6, 7, 8, 9], [0, 1, 2, 3, 4], [10, 12, 13, 15, 15]),
        (None, [0, 1, 2, 3, 4], [10, 12, 13, 15, 15]),
    ],
)
def test_events_of_one_message_have_its_first_place_and_its_highest_time(
    messages: list[int] | None, firsts: list[int], clocks_ms: list[int], *, is_restored: bool
) -> None:
    """They wait for the time of another stream, also in a merger that was restored meanwhile."""
    merger = _merger()
    _add(merger, [10, 12, 13, 15, 14], messages)
    assert merger.ready({"A": 15, "B": 0}) == ([], 0), "B may have earlier events"
    if is_restored:
        state = merger.snapshot()
        merger = _merger()
        merger.restore(state)
    (run,), known_ms = merger.ready({"A": 15, "B": 20})
    assert known_ms == 15
    assert run.first.tolist() == [one for one in firsts if clocks_ms[one] < known_ms]
    assert run.clock_ms.tolist() == [one for one in clocks_ms if one < known_ms]
    (rest,), _ = merger.ready({"A": 20, "B": 20})
    assert rest.rows.column("n").to_pylist() == [15, 14]
    assert rest.first.tolist() == [one - 3 for one in firsts[3:]]
    assert rest.clock_ms.tolist() == [15, 15]


def test_messages_of_one_event_after_one_of_several_are_apart_again() -> None:
    merger = _merger()
    _add(merger, [10, 11], [1, 1])
    (together,), _ = merger.ready({"A": 20, "B": 20})
    assert together.first.tolist() == [0, 0]
    _add(merger, [21, 22], [2, 3])
    (apart,), _ = merger.ready({"A": 30, "B": 30})
    assert apart.first is apart.index
    assert apart.clock_ms.tolist() == [21, 22]
