"""Small runs do not wait for the confirmation of their output, which comes before their report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import task
from mesh.spark.shared_query.members import FAILED
from mesh.store.engine import engine_of
from pyspark_nats.sink import ingest, publish
from tests.support.databases import new_database
from tests.support.shared_query import Hand, Instances, admitted
from tests.support.trades import end_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

APP = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='large')
from Numbers[n > 0] select n * 10 as tenfold insert into Large;
@dist(execGroup='sums')
from Numbers#window.length(2) select sum(n) as total insert into Sums;
"""
ONE = """@App:name('{name}')
define stream Numbers (n int);
from Numbers[n > 0] select n * 10 as tenfold insert into Large;
"""
SUMS = [[1], *([2 * n - 1] for n in range(2, 61))]
LARGE = [[10 * n] for n in range(1, 61)]


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    made = Hand(tmp_path, nats_server)
    made.serving.report_s = 3600.0
    yield made
    made.end()


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each confirmation."""
    found: list[int] = []
    finish = publish.RowPublisher.finish

    def finishing(publisher: Any) -> None:
        found.append(1)
        finish(publisher)

    monkeypatch.setattr(publish.RowPublisher, "finish", finishing)
    return found


def _publish(hand: Hand, first: int, last: int) -> None:
    """Each event is a run of its own, of each part."""
    for n in range(first, last + 1):
        hand.publish("C", n)
        hand.until_rows("C", "Large", n)
        hand.until_rows("C", "Sums", n)


def _kept(hand: Hand) -> int:
    parts = (one for parts in hand.serving.served.values() for one in parts.values())
    return sum(one.publisher is not None for one in parts)


@pytest.mark.slow
def test_runs_are_confirmed_together_before_the_report(hand: Hand, finished: list[int]) -> None:
    hand.serving.confirm_s = 3600.0
    admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 60)
    assert _kept(hand) == 2
    assert len(finished) <= 4
    hand.serving.report_s = 0.0
    hand.report_at(0.0)
    hand.step(0.1)
    assert _kept(hand) == 0
    assert hand.rows("C", "Sums") == SUMS
    assert hand.rows("C", "Large") == LARGE


def test_they_are_confirmed_in_time_without_a_report(hand: Hand) -> None:
    hand.serving.confirm_s = 0.0
    admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 5)
    assert _kept(hand) == 0


def test_the_last_runs_of_a_burst_are_confirmed_without_a_further_event(hand: Hand) -> None:
    hand.serving.confirm_s = 0.3
    admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 5)
    while _kept(hand):
        # Nothing but this would end the wait.
        hand.step(3600.0)


def test_parts_that_are_due_together_wait_for_the_server_together(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.serving.confirm_s = 3600.0
    names = [f"T{n}" for n in range(4)]
    # Each app has an epoch of its own.
    for number, name in enumerate(names, 1):
        admitted(hand, Instances(hand, name, app=ONE, epoch=number))
    for n in range(1, 4):
        for name in names:
            hand.publish(name, n)
            hand.until_rows(name, "Large", n)
    assert _kept(hand) == 4
    sent: list[str] = []
    for kind in ("_ping", "_mark"):
        step = getattr(ingest.IngestPath, kind)

        def noted(path: Any, *given: Any, kind: str = kind, step: Any = step) -> Any:
            sent.append(kind)
            return step(path, *given)

        monkeypatch.setattr(ingest.IngestPath, kind, noted)
    hand.serving.confirm_s = 0.0
    for parts in hand.serving.served.values():
        for one in parts.values():
            hand.serving.confirms.set(one, 0.0)
    hand.step(0.0)
    assert _kept(hand) == 0
    assert sent == ["_ping"] * 4 + ["_mark"] * 4
    for name in names:
        hand.publish(name, 4)
        hand.until_rows(name, "Large", 4)
        assert hand.rows(name, "Large") == LARGE[:4]


def test_parts_that_begin_batches_together_wait_for_the_server_together(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.serving.confirm_s = 3600.0
    hand.serving.together_s = 3600.0
    monkeypatch.setattr(ingest, "_BUSY_S", 3600.0)
    names = [f"B{n}" for n in range(4)]
    for number, name in enumerate(names, 1):
        admitted(hand, Instances(hand, name, app=ONE, epoch=number))
        hand.publish(name, 1)
        hand.until_rows(name, "Large", 1)
    sent: list[str] = []
    for kind in ("_mark", "_send_rows"):
        step = getattr(ingest.IngestPath, kind)

        def noted(path: Any, *given: Any, kind: str = kind, step: Any = step) -> Any:
            sent.append(kind)
            return step(path, *given)

        monkeypatch.setattr(ingest.IngestPath, kind, noted)
    for name in names:
        hand.publish(name, 2)
    hand.step()
    assert sent == ["_mark"] * 4 + ["_send_rows"] * 4
    for name in names:
        assert hand.rows(name, "Large") == LARGE[:2]


@pytest.mark.parametrize("fault", ["closed", "refused"])
def test_a_part_whose_confirmation_fails_is_confirmed_in_another_way_and_so_are_the_others(
    hand: Hand, fault: str
) -> None:
    hand.serving.confirm_s = 3600.0
    names = [f"F{n}" for n in range(3)]
    for number, name in enumerate(names, 1):
        admitted(hand, Instances(hand, name, app=ONE, epoch=number))
    for n in range(1, 4):
        for name in names:
            hand.publish(name, n)
            hand.until_rows(name, "Large", n)
    parts = [one for parts in hand.serving.served.values() for one in parts.values()]
    second = parts[1].publisher
    assert second is not None
    path = second.atomic.ingest
    assert path is not None
    if fault == "closed":
        second.atomic.connection.close()
    else:
        # As if another writer had replaced its marker.
        for kept in path.sent.values():
            kept.ingest.sequence += 1000
    for one in parts:
        hand.serving.confirms.set(one, 0.0)
    hand.step(0.0)
    assert _kept(hand) == 0
    for n in range(4, 7):
        for name in names:
            hand.publish(name, n)
            hand.until_rows(name, "Large", n)
            assert hand.rows(name, "Large") == LARGE[:n]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("connected", [True, False])
def test_what_was_sent_over_a_lost_connection_is_stored_once(hand: Hand, connected: bool) -> None:
    hand.serving.confirm_s = 3600.0
    app = admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 30)
    assert _kept(hand) == 2
    parts = [one for parts in hand.serving.served.values() for one in parts.values()]
    # The parts of a slot have one connection for their output.
    connection = parts[0].publisher.atomic.connection  # type: ignore[union-attr]
    connection.close()
    if connected:
        # As when another part has opened it again.
        connection.retry_while_unavailable("connecting", lambda: None)
    _publish(hand, 31, 60)
    assert {status.state for status in app.statuses.values()} == {InstanceState.RUNNING}
    assert hand.rows("C", "Sums") == SUMS
    assert hand.rows("C", "Large") == LARGE


@pytest.mark.slow
def test_an_instance_that_fails_before_goes_back_to_its_last_report(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.serving.confirm_s = 3600.0
    app = admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 30)
    assert _kept(hand) == 2
    finish = publish.RowPublisher.finish
    failed: list[Any] = []

    def failing(publisher: Any) -> None:
        if len(failed) < 2:
            failed.append(publisher)
            raise KeyError("what nobody thought of")
        finish(publisher)

    monkeypatch.setattr(publish.RowPublisher, "finish", failing)
    hand.report_at(0.0)
    hand.step(0.1)
    assert len(failed) == 2
    assert _kept(hand) == 0
    assert {status.state for status in app.statuses.values()} == {InstanceState.RETRYING}
    for instance in app.by_group.values():
        instance.tick(1e12)
    while {status.state for status in app.statuses.values()} != {InstanceState.RUNNING}:
        hand.step(0.1)
    _publish(hand, 31, 60)
    assert hand.rows("C", "Sums") == SUMS
    assert hand.rows("C", "Large") == LARGE


def test_parts_that_write_to_databases_do_not_delay_the_others_for_ever(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.serving.reports_max = 1
    monkeypatch.setattr(task.PartRun, "has_committed", True)
    admitted(hand, Instances(hand, "C", app=APP))
    told: list[tuple[str, str]] = []
    for n in range(1, 7):
        hand.publish("C", n)
        told += hand.step(1.0)
    assert {group for _, group in told} == {"large", "sums"}


def test_nothing_is_told_of_a_member_after_its_failure(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.serving.confirm_s = 3600.0
    app = """@App:name('{name}')
    define stream Numbers (n int);
    define stream Others (n int);
    @dist(execGroup='both')
    from Numbers[n > 0] select n insert into Large;
    @dist(execGroup='both')
    from Others[n > 0] select n insert into Large;
    """
    admitted(hand, Instances(hand, "C", app=app))
    call = ("mesh.C.Others", b'{"n": 1000}')
    for n in range(1, 20):
        # The server has a second writer wait more often at first.
        if _kept(hand) == 2:
            break
        hand.broker.retry_while_unavailable("publishing", lambda: hand.broker.requests([call]))
        hand.publish("C", n)
        hand.until_rows("C", "Large", 2 * n)
    assert _kept(hand) == 2
    finish = publish.RowPublisher.finish
    finished: list[Any] = []

    def failing_at_the_second(publisher: Any) -> None:
        finished.append(publisher)
        if len(finished) == 2:
            raise KeyError("what nobody thought of")
        finish(publisher)

    monkeypatch.setattr(publish.RowPublisher, "finish", failing_at_the_second)
    hand.report_at(0.0)
    kinds = [kind for kind, _ in hand.step(0.1)]
    assert FAILED in kinds
    assert kinds[-1] == FAILED


def test_refused_rows_are_told_before_the_database_forgets_them(hand: Hand, tmp_path: Path) -> None:
    # As if other parts were due all the time.
    hand.serving.reports_max = 0
    store = new_database(None, tmp_path, "refused")
    with engine_of(store.database).begin() as connection:
        connection.execute(sa.text("CREATE TABLE T (n integer PRIMARY KEY, CHECK (n < 100))"))
    definition = store.store().removesuffix(")") + ", kept='false', on.error='STORE')"
    app = f"""@App:name('{{name}}')
    define stream Numbers (n int);
    {definition} @PrimaryKey('n') define table T (n int);
    from Numbers select n update or insert into T on T.n == n;
    """
    admitted(hand, Instances(hand, "C", app=app))
    kept = []
    for n in range(101, 107):
        hand.publish("C", n)
        hand.step(1.0)
        kept.append(_kept(hand))
    told, left = hand.errors("C"), store.rows("select count(*) from mesh_refused")
    end_partitions()
    assert len(told) == 6
    assert left == [(2,)]
    assert kept == [0] * 6


def test_a_marker_alone_is_no_run_of_a_group_with_state(hand: Hand) -> None:
    admitted(hand, Instances(hand, "C", app=APP))
    _publish(hand, 1, 1)
    (parts,) = (one for name, one in hand.serving.served.items() if "sums" in name)
    (part,) = parts.values()
    runs, read = part.runs, part.place.read if part.place is not None else {}
    hand.broker.requests([("mesh._marker.mesh-C-Numbers.other", b"{}")])
    hand.receive("mesh-C-Numbers", 2)
    hand.step(0.5)
    assert part.runs == runs
    assert part.place is not None
    assert part.place.read == {stream: at + 1 for stream, at in read.items()}
    _publish(hand, 2, 3)
    assert hand.rows("C", "Sums") == SUMS[:3]
