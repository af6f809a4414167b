"""``#extrema:topKLengthBatch`` and its like: ranks of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.processors import STEP, pieces_of
from tests.support.recorder import Step, at_once, log_of


def ranked(rows: list[list[Any]], count: int, *, rarest: bool) -> list[Any]:
    """The values of ``s`` with their counts, most frequent first, of equal ones the first."""
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row[2]] = counts.get(row[2], 0) + 1
    order = sorted(counts, key=lambda value: counts[value] if rarest else -counts[value])
    found = [part for value in order[:count] for part in (value, counts[value])]
    return found + [None] * (2 * count - len(found))


def changes(batches: list[list[list[Any]]], *, rarest: bool) -> list[str]:
    """Output for batches: ``k`` of the last event with two ranks, where they are others."""
    made, before = [], None
    for rows in batches:
        ranks = ranked(rows, 2, rarest=rarest)
        if ranks != before:
            made.append(repr([rows[-1][0], *ranks]))
        before = ranks
    return made


@pytest.mark.parametrize("side", ["Top", "Bottom"])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=40), data=st.data())
def test_the_ranks_of_a_batch_are_those_of_its_values(
    side: str, steps: list[Step], data: Any
) -> None:
    added = ", ".join(f"{side}{n}{what}" for n in (1, 2) for what in ("Element", "Frequency"))
    log = log_of(steps, ("S",))["S"]
    rows, rarest = [row for _, row in log], side == "Bottom"
    text = f"from S#extrema:{side.lower()}KLengthBatch(s, 4, 2) select k, {added} insert into O;"
    found = pieces_of(text, steps, data)
    batches = [rows[at : at + 4] for at in range(0, len(rows) - 3, 4)]
    assert [row for *_, row in found] == changes(batches, rarest=rarest)
    text = f"from S#extrema:{side.lower()}KTimeBatch(s, 30, 2) select k, {added} insert into O;"
    found = pieces_of(text, steps, data)
    # Periods without events give nothing.
    periods: dict[int, list[list[Any]]] = {}
    for time_ms, row in log:
        periods.setdefault((time_ms - log[0][0]) // 30, []).append(row)
    assert [row for *_, row in found] == changes(list(periods.values()), rarest=rarest)


def test_a_priority_sinks_until_it_is_gone() -> None:
    text = """from S#priority:time(s, k, 10 millisec)
    select s, priorityKey as p, currentPriority as c insert into O;"""
    events: list[Step] = [("S", 0, 2, 0.0, "a"), ("S", 5, 0, 0.0, "b"), ("S", 3, 1, 0.0, "a")]
    found = [(time_ms, row) for _, _, time_ms, row in at_once(text, log_of(events, ("S",)))]
    assert found == [
        (1000, "['a', 'a', 2]"),
        (1005, "['b', 'b', 0]"),
        (1008, "['a', 'a', 3]"),
        (1018, "['a', 'a', 2]"),
        (1028, "['a', 'a', 1]"),
        (1038, "['a', 'a', 0]"),
    ]
