"""Times of a slot's parts: the earliest first, and fewer of them where many parts are busy."""

from __future__ import annotations

import random

from mesh.spark.shared_query.due_queue import DueQueue


def test_items_are_due_at_the_last_time_given_for_each() -> None:
    chosen = random.Random(7)
    queue: DueQueue[int] = DueQueue()
    expected: dict[int, float] = {}
    for now_s in range(3000):
        item = chosen.randrange(40)
        at_s = None if chosen.random() < 0.2 else now_s + chosen.random() * 30
        queue.set(item, at_s)
        expected.pop(item, None)
        if at_s is not None:
            expected[item] = at_s
        assert len(queue) == len(expected)
        assert queue.next_s == min(expected.values(), default=float("inf"))
        # Obsolete entries must not pile up.
        assert len(queue._heap) <= 2 * 40 + 64 + 1
        if chosen.random() < 0.1:
            most = chosen.choice([None, 1, 2])
            due = sorted((s, one) for one, s in expected.items() if s <= now_s)[:most]
            assert queue.take(now_s, most) == [one for _, one in due]
            for _, one in due:
                del expected[one]
