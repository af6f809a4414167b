"""Slots of the shared query in threads of this process, with a real server and without Spark."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import query, task
from mesh.spark.shared_query.instance import SharedInstance
from pyspark_nats.errors import UnavailableError
from tests.support.slots import is_retried, mesh, shared

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import WorkItem
    from tests.support.own_slots import Mesh, QueryWithoutSpark

__all__ = ("mesh", "shared")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def test_parts_of_an_instance_are_served_by_all_slots(
    mesh: Mesh, shared: QueryWithoutSpark
) -> None:
    one = mesh.start("keyed")
    mesh.runs("keyed")
    loads = [sum(link.load.values()) for link in shared.links]
    assert min(loads) > 0
    assert loads[0] == loads[1]
    one.stop(settle=True)
    one.join()
    stopped = [s for s in mesh.told["keyed"] if s.state is InstanceState.STOPPED]
    assert len(stopped) == 1
    assert stopped[0].settled
    assert [link.load for link in shared.links] == [{}, {}]


def test_groups_of_an_app_have_slots_of_their_own(mesh: Mesh, shared: QueryWithoutSpark) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    mesh.start("keyed")
    mesh.runs("keyed")
    loads = sorted(sum(link.load.values()) for link in shared.links)
    # One reads all of a stream, and the other one its part of another.
    assert loads == [Fraction(1, 2), 1]


@pytest.mark.slow
def test_what_is_reported_adds_up_and_is_stored(mesh: Mesh, shared: QueryWithoutSpark) -> None:
    one = mesh.start("sums")
    mesh.runs("sums")
    for n in (1, 2, 3, 4):
        mesh.publish("Numbers", {"n": n})
        mesh.rows("Sums", n)
    mesh.until("sums", lambda told: told[-1].messages_in == 4)
    one.stop()
    one.join()
    assert mesh.hand.rows("A", "Sums") == [[1], [3], [6], [9]]
    last = mesh.told["sums"][-1]
    assert last.messages_in == 4
    # Each event has a latency, each run a duration, and the query its counts.
    assert sum(last.latencies) == 4
    assert 0 <= last.latencies_sum_s < 60
    assert 1 <= sum(last.batches) <= 4
    (query,) = last.elements
    assert (query.kind, query.events_in, query.events_out, query.rows) == ("query", 4, 4, None)
    assert last.state_bytes > 0
    # The state was stored, and goes on.
    again = mesh.start("sums")
    mesh.publish("Numbers", {"n": 5})
    assert mesh.rows("Sums", 5)[-1] == [12]
    again.stop()
    again.join()


def test_a_failure_in_one_slot_is_one_failure_of_the_instance(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("partition-Keyed-k", "keyed", "sums"):
        mesh.start(group)
    for group in ("partition-Keyed-k", "keyed", "sums"):
        mesh.runs(group)
    honest = task.run
    wrong = threading.Event()
    wrong.set()

    def run(item: WorkItem, **given: Any) -> task.PartRun:
        if wrong.is_set() and item.member.name == "A-keyed-1":
            raise KeyError("what nobody thought of")
        return honest(item, **given)

    monkeypatch.setattr(task, "run", run)
    # Half of the partitions are another instance's.
    mesh.publish("Keyed", *({"k": f"k{n}", "n": n} for n in range(10)))
    mesh.publish("Numbers", {"n": 1})
    mesh.until("keyed", lambda told: is_retried(told, "KeyError"))
    assert mesh.rows("Sums", 1) == [[1]]
    assert mesh.told["sums"][-1].restarts == 0
    wrong.clear()
    mesh.until("keyed", lambda told: bool(told) and told[-1].state is InstanceState.RUNNING)
    totals = mesh.rows("Totals", 1)
    assert all(f"k{n}" == k for k, n in totals)
    assert len(shared.runs) == 1


def test_a_slot_that_ends_fails_all_and_only_its_work_is_suspected(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.runs("sums")

    def crash(item: WorkItem, **given: Any) -> task.PartRun:
        # As after a kill: the connection ends in the middle of the work.
        ours = next(s for s in shared.runs[0].slots if threading.current_thread() is s.thread)
        ours.session.close()
        while not shared.is_slot_lost:
            shared.pause()
        raise KeyError("nobody hears this")

    monkeypatch.setattr(task, "run", crash)
    failed: list[bool] = []
    monkeypatch.setattr(
        SharedInstance,
        "on_query_failed",
        lambda self, error, *, is_suspect: failed.append(is_suspect),
    )
    mesh.publish("Numbers", {"n": 1})
    while not failed:
        shared.pause()
    assert failed == [True]


def test_one_that_hangs_is_the_only_suspect(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(query, "_HANGS_S", 0.1)
    monkeypatch.setattr("mesh.spark.shared_query.slots.os.kill", lambda *_: go_on.set())
    mesh.start("sums")
    mesh.runs("sums")
    honest = task.run

    def hang(item: WorkItem, **given: Any) -> task.PartRun:
        go_on.wait(5)
        return honest(item, **given)

    monkeypatch.setattr(task, "run", hang)
    failed: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        SharedInstance,
        "on_query_failed",
        lambda self, error, *, is_suspect: failed.append((error, is_suspect)),
    )
    mesh.publish("Numbers", {"n": 1})
    while not failed:
        shared.pause()
    assert failed == [("work for A-sums-1 was not finished after 0.1 s", True)]
    assert go_on.is_set()


def test_a_server_that_is_gone_is_nobodys_fault(
    mesh: Mesh, shared: QueryWithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    honest = task.run

    def unanswered(item: WorkItem, **given: Any) -> task.PartRun:
        monkeypatch.setattr(task, "run", honest)
        monkeypatch.setattr(task, "is_server_there", lambda member: False)
        raise UnavailableError("no answer from NATS within 10 s: publishing")

    monkeypatch.setattr(task, "run", unanswered)
    mesh.publish("Numbers", {"n": 1})
    assert mesh.rows("Sums", 1) == [[1]]
    assert len(shared.runs) == 2
    assert mesh.told["sums"][-1].restarts == 0


def test_a_report_that_is_none_starts_the_query_again(
    mesh: Mesh, shared: QueryWithoutSpark
) -> None:
    mesh.start("sums")
    mesh.runs("sums")
    wrong: Any = 5
    shared.runs[0].slots[0].send(wrong)
    while len(shared.runs) < 2:
        shared.pause()
    mesh.publish("Numbers", {"n": 1})
    assert mesh.rows("Sums", 1) == [[1]]
