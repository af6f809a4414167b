"""``#priority:time``: a priority that sinks."""

from __future__ import annotations

from tests.support.recorder import Step, at_once, log_of


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
