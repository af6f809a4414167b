"""The task of a slot: who is at work, and who is blamed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import task
from mesh.spark.shared_query.members import UNANSWERED, WorkItem
from pyspark_nats.errors import UnavailableError
from pyspark_nats.source.ranges import StreamRange
from tests.support.shared_query import begun

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


def test_no_input_of_a_run_is_older_than_its_first_message() -> None:
    wanted = StreamRange("S", 3, 9, start_ms=100, end_ms=900)
    first = pa.RecordBatch.from_pydict({"time_ms": [700, 800]})
    assert task.first_input_ms([wanted], first) == 700
    assert task.first_input_ms([wanted], first.rename_columns(["_timestamp_ms"])) == 700
    # Rows of another stream may be older.
    assert task.first_input_ms([wanted, replace(wanted, stream="T", start_ms=50)], first) == 50
    assert task.first_input_ms([wanted], None) == 100
    assert task.first_input_ms([], None) == 0


def test_only_who_is_at_work_is_known_as_that(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(hand, "A")
    hand.publish("A", 1, 2)
    honest, seen = task.run, []

    def run(item: WorkItem, **given: Any) -> task.PartRun:
        work = hand.at_work.look()
        assert work is not None
        seen.append((work.instance, item.member.name))
        return honest(item, **given)

    monkeypatch.setattr(task, "run", run)
    # Each of the three streams may bring its messages in a round of its own.
    while len(seen) < 3:
        hand.step()
    assert [known for known, _ in seen] == [name for _, name in seen]
    assert hand.at_work.look() is None


def test_a_task_asks_for_the_server_before_it_blames_a_stream(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = begun(hand, "A")

    def unanswered(*_: object, **__: object) -> task.PartRun:
        raise UnavailableError("no answer from NATS within 10 s: publishing")

    monkeypatch.setattr(task, "run", unanswered)
    hand.publish("A", 1)
    while {status.state for status in app.statuses.values()} != {InstanceState.RETRYING}:
        hand.step(0.2)
    assert all(str(status.error).startswith(UNANSWERED) for status in app.statuses.values())


def test_a_task_whose_server_is_gone_blames_nobody(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    nats_server: NatsServer,
) -> None:
    begun(hand, "A")
    hand.publish("A", 1)
    monkeypatch.setattr(task, "_SERVER_S", 0.1)

    def unanswered(*_: object, **__: object) -> task.PartRun:
        nats_server.stop()
        raise UnavailableError("no answer from NATS within 10 s: publishing")

    monkeypatch.setattr(task, "run", unanswered)
    with pytest.raises(UnavailableError):
        hand.serving.round(5)
    assert hand.told == []
