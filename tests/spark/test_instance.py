"""Instances of a shared query: faults of one are no faults of the query.

What a query of its own tells of its batches.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from mesh.spark.dedicated_query.observing import Counts, end_ms, take_counts
from mesh.spark.instance_metrics import sample
from mesh.spark.shared_query.instance import SharedInstance
from tests.support.latencies import NOW, column
from tests.support.slots import is_retried, mesh, shared

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Outcome
    from tests.support.own_slots import Mesh, QueryWithoutSpark


__all__ = ("mesh", "shared")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def test_a_fault_of_one_listener_fails_its_instance_alone(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.start("keyed")
    mesh.runs("sums")
    mesh.runs("keyed")
    honest = SharedInstance._count

    def wrong(one: SharedInstance, outcome: Outcome) -> None:
        if one.io.group.name == "sums" and not one._life.failures:
            raise KeyError("what nobody thought of")
        honest(one, outcome)

    monkeypatch.setattr(SharedInstance, "_count", wrong)
    mesh.publish("Numbers", {"n": 1})
    mesh.until("sums", lambda told: is_retried(told, "a report on it was not understood"))
    mesh.runs("sums")
    mesh.publish("Numbers", {"n": 2})
    assert mesh.rows("Sums", 2) == [[1], [3]]
    assert mesh.told["keyed"][-1].restarts == 0
    assert len(shared.runs) == 1


def test_a_fault_of_one_tick_is_no_fault_of_the_query(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.start("keyed")
    mesh.runs("sums")
    mesh.runs("keyed")
    honest, ticked = SharedInstance.tick, threading.Event()

    def wrong(one: SharedInstance, now_s: float, busy: int) -> bool:
        if one.io.group.name == "keyed":
            ticked.set()
            raise KeyError("what nobody thought of")
        return honest(one, now_s, busy)

    monkeypatch.setattr(SharedInstance, "tick", wrong)
    assert ticked.wait(20)
    mesh.publish("Numbers", {"n": 1})
    mesh.until("sums", lambda told: told[-1].messages_in == 1)
    assert len(shared.runs) == 1


def test_a_run_without_a_directory_is_followed_by_another(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.runs("sums")

    def wrong(*_: object, **__: object) -> None:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(SharedInstance, "on_query_failed", wrong)
    # As on a full disk.
    (shared.directory / "run-1").write_text("")
    shared.runs[0].error = RuntimeError("ended")
    while len(shared.runs) < 2:
        shared.pause()
    mesh.start("keyed")
    mesh.runs("keyed")
    assert shared.is_supervised


class Received:
    """An accumulator of a driver."""

    def __init__(self, *value: tuple[int, int, list[Any], Counts]) -> None:
        self.value = list(value)


def test_batches_end_where_the_next_one_begins_and_later_ones_wait() -> None:
    stored = sample(column(1000))
    later = (9, NOW + 50, [stored], Counts(1, 1, 1))
    received: Any = Received(
        (6, NOW - 900, [stored], Counts(1, 5, 5)),
        (7, NOW - 800, [stored] * 2, Counts(2, 20, 3, 1)),
        later,
    )
    counted, (counts, sum_s) = take_counts(received, 7, NOW)
    assert counted == Counts(messages=3, events_in=25, events_out=8, errors=1)
    assert sum(counts) == 3
    # The progress of batch 6 was missed: it ended before a task of batch 7 began.
    assert sum_s == pytest.approx(0.2 + 2 * 1.0)
    assert received.value == [later]
    assert take_counts(received, 8, NOW) == (Counts(), ((), 0.0))


def test_the_end_of_a_batch_is_that_of_its_progress() -> None:
    progress = {"timestamp": "2026-11-23T21:00:00.250Z", "durationMs": {"triggerExecution": 80}}
    assert end_ms(progress) % 1000 == 330
