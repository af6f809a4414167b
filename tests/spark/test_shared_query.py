"""A slot of the shared query, with a real server and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.model.app import Format
from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import pacing
from mesh.spark.shared_query.members import ADMITTED, FAILED, REMOVED, WORK
from tests.support.shared_query import Hand, HandClock, Instances, OwnQuery, admitted, begun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

#: A server whose users see the messages of no stream.
DEAF = """
listen: 127.0.0.1:-1
jetstream: {}
authorization { default_permissions { publish: ">", subscribe: "_INBOX.>" }
  users: [{ user: deaf, password: deaf }] }
no_auth_user: deaf
"""
#: Three instances that divide a stream look at it; one or two follow it.
PASSED = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='copy') from Numbers select n insert into Copies;
@dist(execGroup='sums') from Copies select sum(n) as total insert into Sums;
"""
TURNS = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='large', parallel='3')
from Numbers[n > 1] select n * 10 as tenfold insert into Large;
"""


def test_instances_of_all_kinds_share_a_batch(hand: Hand) -> None:
    begun(hand, "A")
    hand.publish("A", 1, 2, 3, 4)
    hand.until_rows("A", "Sums", 4)
    hand.until_rows("A", "Large", 3)
    assert hand.rows("A", "Sums") == [[1], [3], [6], [9]]
    assert hand.rows("A", "Large") == [[20], [30], [40]]
    # There is no event; its timer is due.
    hand.until_rows("A", "Late", 4)
    assert hand.rows("A", "Late") == [[1], [2], [3], [4]]
    assert hand.step(0.1) == []


def test_one_that_leaves_goes_on_elsewhere_where_it_was(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until_rows("A", "Sums", 2)
    hand.publish("A", 3)
    app.by_group["sums"].stop()
    hand.until(REMOVED, "sums")
    app.by_group["sums"].join()
    assert app.statuses["sums"].state is InstanceState.STOPPED
    hand.publish("A", 4)
    hand.until(WORK, "large")
    again = Instances(hand, "A", app.stores)
    again.by_group["sums"].start()
    hand.until_rows("A", "Sums", 4)
    assert hand.rows("A", "Sums") == [[1], [3], [6], [9]]


def test_one_that_leaves_in_a_round_leaves_its_runs_to_its_successor(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.before_run = app.by_group["sums"].stop
    hand.until(REMOVED, "sums")
    app.by_group["sums"].join()
    hand.before_run = None
    assert hand.rows("A", "Sums") == []
    hand.until_rows("A", "Large", 1)
    again = Instances(hand, "A", app.stores)
    again.by_group["sums"].start()
    hand.until_rows("A", "Sums", 2)
    assert hand.rows("A", "Sums") == [[1], [3]]
    assert hand.rows("A", "Large") == [[20]]


def test_a_restored_part_begins_with_a_short_run_and_works_off_its_backlog_then(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1)
    hand.until_rows("A", "Sums", 1)
    app.by_group["sums"].stop()
    hand.until(REMOVED, "sums")
    hand.publish("A", *[1] * 50)
    again = Instances(hand, "A", app.stores)
    again.by_group["sums"].start()
    hand.until(ADMITTED, "sums")
    while len(hand.rows("A", "Sums")) == 1:
        hand.step()
    assert len(hand.rows("A", "Sums")) == 1 + pacing.ROWS_RESTORED
    hand.until_rows("A", "Sums", 51)
    assert hand.rows("A", "Sums") == [[1], [2], *[[3]] * 49]


def test_a_timer_is_due_where_it_was_restored(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1)
    hand.until(WORK, "late")
    app.by_group["late"].stop()
    hand.until(REMOVED, "late")
    app.by_group["late"].join()
    assert hand.rows("A", "Late") == []
    again = Instances(hand, "A", app.stores)
    again.by_group["late"].start()
    hand.until(ADMITTED, "late")
    while not hand.rows("A", "Late"):
        hand.until(WORK, "late")
    assert hand.rows("A", "Late") == [[1]]


def test_one_that_starts_again_from_before_doubles_nothing(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until_rows("A", "Sums", 2)
    hand.until_rows("A", "Large", 1)
    # As after a kill: nothing was shared.
    for group in ("sums", "large"):
        app.by_group[group].on_query_failed("killed", is_suspect=False)
    hand.publish("A", 3)
    hand.until_rows("A", "Sums", 3)
    hand.until_rows("A", "Large", 2)
    hand.step(0.5)
    assert hand.rows("A", "Sums") == [[1], [3], [6]]
    assert hand.rows("A", "Large") == [[20], [30]]


def test_what_fails_fails_for_one(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.ask(("$JS.API.STREAM.DELETE.mesh-A-Sums", b""))
    hand.publish("A", 1, 2)
    hand.until(FAILED, "sums")
    failed = app.statuses["sums"]
    assert failed.state is InstanceState.RETRYING
    assert "mesh-A-Sums" in str(failed.error)
    hand.publish("A", 3)
    hand.until_rows("A", "Large", 2)
    assert hand.rows("A", "Large") == [[20], [30]]
    hand.make(app.spec)
    app.by_group["sums"].tick(SystemClock().monotonic_s())
    hand.until_rows("A", "Sums", 3)
    assert hand.rows("A", "Sums") == [[1], [3], [6]]


def test_one_that_fails_again_rests_twice_as_long_until_it_has_run_for_a_while(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock, retry_s=1.0)
    sums = app.by_group["sums"]

    def rests_s() -> float:
        """Make it fail; the delay that it reports, after which it runs again."""
        hand.ask(("$JS.API.STREAM.DELETE.mesh-A-Sums", b""))
        hand.publish("A", 1)
        hand.until(FAILED, "sums")
        hand.make(app.spec)
        failed = app.statuses["sums"]
        assert failed.retry_at_ms is not None
        found = (failed.retry_at_ms - failed.at_ms) / 1000
        sums.tick(clock.now_s + found - 0.01)
        assert app.told("sums") is InstanceState.RETRYING
        clock.now_s += found
        sums.tick(clock.now_s)
        hand.until(ADMITTED, "sums")
        assert app.statuses["sums"].retry_at_ms is None
        return found

    assert [rests_s() for _ in range(3)] == [1.0, 2.0, 4.0]
    clock.now_s += 30.0
    assert rests_s() == 1.0


def _take_first_event(hand: Hand, app: Instances) -> None:
    """Its report comes at once."""
    hand.publish("A", 1)
    hand.until(WORK, "sums")
    hand.until_idle()
    assert app.statuses["sums"].messages_in == 1


def test_the_first_event_is_reported_at_once(hand: Hand) -> None:
    app = begun(hand, "A", HandClock())
    assert app.statuses["sums"].messages_in == 0
    _take_first_event(hand, app)
    hand.publish("A", 2)
    hand.until(WORK, "sums")
    hand.until_idle()
    assert app.statuses["sums"].messages_in == 1


def test_events_are_counted_on_both_sides_however_many_a_message_has(hand: Hand) -> None:
    app = Instances(hand, "A", app=PASSED)
    assert app.spec.channels[1].format is Format.ARROW
    admitted(hand, app)
    hand.store(b'[{"n":1},{"n":2},{"n":"x"},{"n":4}]')
    hand.until_rows("A", "Sums", 3)
    hand.until_idle()
    counts = {
        group: (one.events_in, one.events_out, one.errors) for group, one in app.statuses.items()
    }
    assert counts == {"copy": (4, 3, 1), "sums": (3, 3, 0)}
    assert app.statuses["copy"].messages_in == 1
    assert app.statuses["sums"].messages_in < 3


def test_one_at_rest_reports_its_rest_and_then_once_a_minute(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock)
    sums = app.by_group["sums"]

    def reports_s(duration_s: float) -> list[float]:
        """When it reports, seconds from now."""
        began_s, found = clock.now_s, []
        while clock.now_s < began_s + duration_s:
            before = app.statuses["sums"]
            clock.now_s += 0.25
            sums.tick(clock.now_s)
            hand.errands.submit(int).result()
            if app.statuses["sums"] is not before:
                found.append(clock.now_s - began_s)
        return found

    _take_first_event(hand, app)
    reports_s(150)
    for _ in range(2):
        hand.publish("A", 1)
        hand.until(WORK, "sums")
        # The change, the rest after it, and repeats.
        first, *later = reports_s(150)
        assert first <= 1.0
        assert [one - first for one in later] == [15.0, 75.0, 135.0]


def test_one_among_many_busy_ones_reports_less_often(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock)
    sums = app.by_group["sums"]
    reports: list[float] = []
    _take_first_event(hand, app)
    for _ in range(2):
        hand.publish("A", 1)
        hand.until(WORK, "sums")
        before, began_s = app.statuses["sums"], clock.now_s
        while app.statuses["sums"] is before:
            clock.now_s += 0.25
            assert sums.tick(clock.now_s, 100)
            hand.errands.submit(int).result()
        reports.append(clock.now_s - began_s)
    # Each has its own share of the interval, so that the reports of all do not come at once.
    assert 1 + 4 * 0.75 <= reports[1] <= 1 + 4 * 1.25 + 0.25


def test_a_suspect_is_set_apart_for_long(hand: Hand, own_queries: list[OwnQuery]) -> None:
    clock = HandClock()
    app = begun(hand, "A", clock)
    for group, one in app.by_group.items():
        one.on_query_failed("a Python worker exited unexpectedly", is_suspect=group == "sums")
    hand.until(ADMITTED, "large")
    assert app.told("sums") is InstanceState.RETRYING
    app.by_group["sums"].tick(clock.now_s)
    hand.step(0.1)
    (own,) = own_queries
    own.say(InstanceState.RUNNING)
    clock.now_s += 599
    own.say(InstanceState.RUNNING)
    assert own.stops == 0
    app.by_group["sums"].stop()
    app.by_group["sums"].join()
    assert own.stops == 1
    assert app.told("sums") is InstanceState.STOPPED


def test_one_that_is_asked_to_stop_before_it_is_in_ends(hand: Hand) -> None:
    app = Instances(hand, "A")
    hand.make(app.spec)
    one = app.by_group["large"]
    one.start()
    one.stop()
    hand.step(0.2)
    one.join()
    assert app.statuses["large"].state is InstanceState.STOPPED


def test_news_are_found_by_an_account_that_may_not_subscribe_to_them(
    serve: Callable[[str], NatsServer], tmp_path: Path
) -> None:
    running = serve(DEAF)
    hand = Hand(tmp_path, running)
    try:
        app = Instances(hand, "A", app=TURNS)
        admitted(hand, app)
        # The first look finds what is there, and only later ones need news.
        for number in (2, 3, 4):
            hand.publish("A", number)
            hand.until_rows("A", "Large", number - 1)
        assert hand.serving.planner.listener.wait_max_s < 1
    finally:
        hand.end()


def test_a_part_that_slept_writes_nothing_for_a_later_app_of_its_name(hand: Hand) -> None:
    app = begun(hand, "A")
    (places,) = (p for n, p in hand.serving.planner.places.items() if "large" in n)
    for place in places:
        # As if the channels had been made while it slept.
        assert place.began_ms is not None
        place.began_ms -= 60_000
    hand.publish("A", 1, 2)
    hand.until(FAILED, "large")
    assert "PYSPARK-NATS-FENCED" in str(app.statuses["large"].error)
    assert hand.rows("A", "Large") == []
