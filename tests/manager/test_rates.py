"""Rates and latencies from reports, and ages of backlogs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.manager.rates import Flow, Rates, total
from mesh.model.cluster import Assignment
from mesh.model.histogram import LATENCY_BOUNDS_S
from tests.support.telemetry import report, snapshot


def test_rates_are_differences_over_the_time_of_the_worker() -> None:
    rates = Rates()
    rates.update(snapshot(report(100.0, 10)))
    assert rates.flow("Shop-one-1") == Flow()
    rates.update(
        snapshot(
            report(102.0, 30, events_in=70, events_out=8, errors=2, batch_ms_p50=20.0), now_s=2.0
        )
    )
    # A message may have many events.
    assert rates.flow("Shop-one-1") == Flow(10.0, 30.0, 4.0, 1.0, 0, 0.0, 0.02)
    # The same report again says nothing new, until it is too old for a present rate.
    same = snapshot(report(102.0, 30, events_out=8, errors=2), now_s=2.0)
    rates.update(same)
    assert rates.flow("Shop-one-1").messages == 10.0
    old = ClusterSnapshot(60.0, None, (), same.apps, same.assignments, same.statuses)
    rates.update(old)
    assert rates.flow("Shop-one-1") == Flow(batch_s=0.02)
    # Another epoch counts from nothing, and is no step back.
    rates.update(snapshot(report(110.0, 3, epoch=6), now_s=10.0))
    assert rates.flow("Shop-one-1") == Flow()
    assert rates.moves == {}
    rates.update(snapshot(report(112.0, 3, epoch=7, worker="w2"), now_s=12.0))
    assert rates.moves == {"Shop": 1}


def test_a_report_of_an_earlier_epoch_is_no_flow() -> None:
    rates = Rates()
    seen = snapshot(report(1.0, 10, behind=5))
    rates.update(seen)
    (placed,) = seen.assignments
    later = Revisioned(Assignment("Shop-one-1", "Shop", "one", 1, "i", "w1", 6, 1), 2, 0.0)
    assert placed.value.epoch == 5
    rates.update(ClusterSnapshot(1.0, None, (), seen.apps, (later,), seen.statuses))
    assert rates.flow("Shop-one-1") == Flow()


def test_the_age_of_a_backlog_is_when_what_waits_arrived() -> None:
    rates = Rates()
    ages = []
    # 10 messages a second arrive; it reads all, then nothing for three seconds, then 20 a second.
    for at_s, read in enumerate([10, 20, 20, 20, 20, 40, 60, 80, 90]):
        arrived = 10 * (at_s + 1)
        rates.update(snapshot(report(at_s, read, behind=arrived - read), now_s=at_s))
        ages.append(rates.flow("Shop-one-1").backlog_s)
    # Those of second 2 are unread at seconds 2 to 4; at second 5 the oldest is of second 4.
    assert ages == [0, 0, 0, 1, 2, 1, 0, 0, 0]


def test_a_burst_after_a_silence_is_as_old_as_the_burst() -> None:
    rates = Rates()
    rates.update(snapshot(report(100.0, 10)))
    for at_s in range(101, 177):
        rates.update(snapshot(report(at_s, 10), now_s=at_s))
    rates.update(snapshot(report(177.0, 10, behind=500), now_s=177.0))
    assert rates.flow("Shop-one-1").backlog_s == 0.0
    rates.update(snapshot(report(178.0, 110, behind=400), now_s=178.0))
    assert rates.flow("Shop-one-1").backlog_s == 1.0


def test_waiting_messages_that_are_deleted_do_not_age_later_ones() -> None:
    rates = Rates()
    rates.update(snapshot(report(100.0, 10, behind=50)))
    rates.update(snapshot(report(110.0, 10, behind=50), now_s=10.0))
    assert rates.flow("Shop-one-1").backlog_s == 10.0
    rates.update(snapshot(report(111.0, 10, behind=0), now_s=11.0))
    rates.update(snapshot(report(120.0, 10, behind=5), now_s=20.0))
    assert rates.flow("Shop-one-1").backlog_s == 0.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=2, max_size=60))
def test_an_age_is_that_of_a_queue(steps: list[tuple[int, int]]) -> None:
    rates, queue, read, arrived = Rates(), [], 0, 0
    for at_s, (coming, most) in enumerate(steps):
        queue += [at_s] * coming
        arrived += coming
        done = min(most, len(queue))
        del queue[:done]
        read += done
        rates.update(snapshot(report(at_s, read, behind=len(queue)), now_s=at_s))
        assert rates.flow("Shop-one-1").backlog_s == (at_s - queue[0] if queue else 0)


def test_latencies_are_those_of_the_events_since_the_report_before() -> None:
    rates = Rates()
    none = (0,) * (len(LATENCY_BOUNDS_S) + 1)
    first = tuple(100 * (place == 3) for place in range(len(none)))
    second = tuple(100 * (place == 3) + 8 * (place == 9) for place in range(len(none)))
    rates.update(snapshot(report(1.0, 100, latencies=first)))
    assert rates.flow("Shop-one-1").latencies == ()
    rates.update(snapshot(report(3.0, 108, latencies=second), now_s=2.0))
    latencies = rates.flow("Shop-one-1").latencies
    assert (sum(latencies), latencies[9]) == (4.0, 4.0)
    assert total([Flow(latencies=latencies), Flow(), Flow(latencies=latencies)]).latencies[9] == 8.0
    # Of another version of a worker: other buckets.
    rates.update(snapshot(report(4.0, 109, latencies=(1, 2)), now_s=3.0))
    assert rates.flow("Shop-one-1").latencies == ()
