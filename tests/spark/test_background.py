"""Output of large runs is published while the next run is computed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import background, serving
from mesh.spark.shared_query.background import BackgroundPublisher
from mesh.spark.shared_query.members import FAILED
from tests.support.shared_query import Hand, Instances

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.spark.shared_query.members import WorkItem

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

COUNT = 900
APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers[n > 0] select n * 10 as tenfold insert into Large;
"""
TWO = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='first')
from Numbers[n > 0] select n * 10 as tenfold insert into Large;
@dist(execGroup='second')
from Numbers#window.length(2) select sum(n) as total insert into Sums;
"""


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    made = Hand(tmp_path, nats_server)
    made.serving.report_s = 3600.0
    made.rows_first = 100
    yield made
    made.end()


@pytest.fixture(params=[("LARGE_RUN", 10), ("LARGE_RUN_BYTES", 100)], ids=["messages", "bytes"])
def published(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of rows of each run that is published in the background; runs are soon large."""
    monkeypatch.setattr(serving, *request.param)
    found: list[int] = []
    honest = BackgroundPublisher.publish

    def publish(
        self: BackgroundPublisher, owner: Any, publisher: Any, out: list[Any], done: Any
    ) -> None:
        found.append(sum(batch.num_rows for batch in out))
        honest(self, owner, publisher, out, done)

    monkeypatch.setattr(BackgroundPublisher, "publish", publish)
    return found


def _with_backlog(hand: Hand, text: str) -> Instances:
    app = Instances(hand, "B", app=text)
    hand.make(app.spec)
    hand.publish("B", *range(1, COUNT + 1))
    for one in app.by_group.values():
        one.start()
    return app


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_a_backlog_is_published_once_and_in_order(hand: Hand, published: list[int]) -> None:
    _with_backlog(hand, TWO)
    hand.until_rows("B", "Sums", COUNT)
    hand.until_rows("B", "Large", COUNT)
    assert published
    assert hand.rows("B", "Large") == [[n * 10] for n in range(1, COUNT + 1)]
    assert hand.rows("B", "Sums") == [[1], *([2 * n - 1] for n in range(2, COUNT + 1))]


def test_small_runs_of_others_do_not_wait_for_it(
    hand: Hand, published: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    publish, planned = background._publish, hand.serving.planner.next
    waiting: list[WorkItem] = []

    def published_later(*given: Any) -> None:
        assert goes_on.wait(30)
        publish(*given)

    def of_the_second(*given: Any) -> list[WorkItem]:
        items = [*waiting, *planned(*given)]
        waiting[:] = [one for one in items if one.member.io.group.name == "first" and published]
        return [one for one in items if one not in waiting]

    monkeypatch.setattr(background, "_publish", published_later)
    app = Instances(hand, "B", app=TWO)
    hand.make(app.spec)
    hand.publish("B", *range(1, COUNT + 1))
    app.by_group["first"].start()
    while not published:
        hand.step()
    monkeypatch.setattr(hand.serving.planner, "next", of_the_second)
    app.by_group["second"].start()
    hand.until_rows("B", "Sums", 1)
    assert hand.serving.background.owner is not None
    goes_on.set()
    monkeypatch.setattr(hand.serving.planner, "next", lambda *given: [*waiting, *planned(*given)])
    hand.step()
    monkeypatch.setattr(hand.serving.planner, "next", planned)
    hand.until_rows("B", "Large", COUNT)
    assert hand.rows("B", "Large") == [[n * 10] for n in range(1, COUNT + 1)]


def test_a_report_waits_for_the_output(hand: Hand, published: list[int]) -> None:
    hand.serving.report_s = 0.0
    _with_backlog(hand, APP)
    while not published:
        # The step ends with a report.
        hand.step()
    assert hand.serving.background.owner is None
    assert len(hand.rows("B", "Large")) >= sum(published)


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_what_is_not_published_fails_its_own_instance_and_is_published_later(
    hand: Hand, published: list[int]
) -> None:
    app = _with_backlog(hand, TWO)
    while not published:
        hand.step()
    hand.ask(("$JS.API.STREAM.DELETE.mesh-B-Large", b""))
    hand.until(FAILED, "first")
    assert app.statuses["first"].state is InstanceState.RETRYING
    assert app.statuses["second"].state is InstanceState.RUNNING
    hand.make(app.spec)
    hand.until_rows("B", "Sums", COUNT)
    app.by_group["first"].tick(10**9)
    hand.until_rows("B", "Large", COUNT)
    assert hand.rows("B", "Large") == [[n * 10] for n in range(1, COUNT + 1)]
