"""Rates from reports, ages of backlogs, and samples of a week, thinned and within their bound."""

from __future__ import annotations

import asyncio
import json
import math
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.clock import SystemClock
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.errors import MeshError
from mesh.jetstream.history_store import MetricsHistoryStore
from mesh.manager.history import SPAN_S, MetricsHistory, Series
from mesh.manager.manager import running
from mesh.manager.prometheus import expressions, query_range
from mesh.manager.rates import Flow, Rates, total
from mesh.manager.telemetry import FIELDS, STORED, Telemetry, samples, summed, thinned
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    NodeMetrics,
    NodeRecord,
    NodeRole,
    StatisticsLevel,
)
from mesh.model.histogram import LATENCY_BOUNDS_S
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

SPEC = plan(
    "@App:name('Shop') define stream S (a int);"
    "@dist(execGroup='one', parallel='2') from S[a > 1] select a insert into T;"
).spec
FIELD = {"app": ("value",)}


def snapshot(*reports: InstanceStatus, now_s: float = 0.0, **more: Any) -> ClusterSnapshot:
    """The assignments of these reports, and the reports, as just received."""
    return ClusterSnapshot(
        now_s,
        apps=(Revisioned(AppRecord(SPEC, "i", 0, **more), 1, 0.0),),
        assignments=tuple(
            Revisioned(Assignment(r.instance, r.app, "one", 1, "i", r.worker, r.epoch, 1), 1, 0.0)
            for r in reports
        ),
        statuses=tuple(Revisioned(r, 1, now_s) for r in reports),
        nodes=(
            Revisioned(
                NodeRecord("w1", NodeRole.WORKER, "x", "", 1, metrics=NodeMetrics(50.0)), 1, 0.0
            ),
        ),
    )


def report(at_s: float, messages: int, behind: int = 0, epoch: int = 5, **more: Any) -> Any:
    values = {"instance": "Shop-one-1", "worker": "w1", "events_in": messages, **more}
    return InstanceStatus(
        app="Shop",
        epoch=epoch,
        state=InstanceState.RUNNING,
        at_ms=round(at_s * 1000),
        messages_in=messages,
        behind=behind,
        **values,
    )


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


def test_samples_are_of_apps_groups_and_nodes() -> None:
    rates = Rates()
    both = (report(1.0, 5), report(1.0, 7, instance="Shop-one-2"))
    later = (report(2.0, 15, behind=3), report(2.0, 9, instance="Shop-one-2"))
    rates.update(snapshot(*both))
    seen = snapshot(*later, now_s=1.0)
    rates.update(seen)
    found = samples(seen, rates)
    assert found["group", "Shop/one"][:4] == (12.0, 0.0, 0.0, 3.0)
    assert found["app", "Shop"] == found["group", "Shop/one"] == found["cluster", "all"]
    # Each instance of several; one that is alone is its group.
    assert found["instance", "Shop-one-2"][:4] == (2.0, 0.0, 0.0, 0.0)
    assert found["node", "worker/w1"][0] == 0.5
    assert all(len(row) == len(STORED[kind]) for (kind, _), row in found.items())
    off = samples(snapshot(*later, statistics=StatisticsLevel.OFF), rates)
    assert set(off) == {("node", "worker/w1")}


def filled(
    seconds: int, bytes_max: int = 10**9, apps: int = 1, start_s: int = 1200
) -> MetricsHistory:
    history = MetricsHistory(FIELD, bytes_max)
    for at_s in range(start_s, start_s + seconds):
        history.add(at_s, {("app", f"A{n}"): [(at_s * 7919 + n) % 65_536] for n in range(apps)})
    return history


def test_an_hour_is_kept_and_read_in_steps() -> None:
    history = filled(SPAN_S + 300)
    end_s = 1200 + SPAN_S + 300
    hour = history.read(("app", "A0"), end_s - SPAN_S, end_s, 1)
    assert hour is not None
    values = hour.values["value"]
    assert len(values) == SPAN_S
    for at_s, value in enumerate(values, end_s - SPAN_S):
        exact = (at_s * 7919) % 65_536
        assert value is not None
        assert exact * 0.992 - 1 <= value <= exact
    # Not more than an hour and a minute.
    before = history.read(("app", "A0"), 1200, 1200 + 180, 1)
    assert before is not None
    assert set(before.values["value"]) == {None}
    steps = history.read(("app", "A0"), end_s - 100, end_s, 10)
    assert steps is not None
    assert (steps.start_s, len(steps.values["value"])) == (end_s - 100, 10)
    assert history.read(("app", "B"), 0, 10, 1) is None


def test_a_gap_is_none_and_time_does_not_go_back() -> None:
    history = MetricsHistory(FIELD, 10**9)
    for at_s in (100, 101, 104, 103, 300):
        history.add(at_s, {("app", "A"): [float(at_s % 100)]})
    found = history.read(("app", "A"), 99, 106, 1)
    assert found is not None
    assert found.values["value"] == [None, 0, 1, None, None, 4, None]
    later = history.read(("app", "A"), 299, 302, 1)
    assert later is not None
    assert later.values["value"] == [None, 0, None]


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 2)), max_size=60), st.data())
def test_a_row_that_comes_again_is_read_as_one_that_is_written_again(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    rows = [(0.0, 0.0), (1.0, 2.0), (3.0, 0.0)]
    repeated, written = (MetricsHistory({"app": ("a", "b")}, 10**6) for _ in range(2))
    at_s = 1000
    for passed_s, number in steps:
        at_s += passed_s if data.draw(st.booleans()) else 1
        repeated.add(at_s, {("app", "A"): rows[number]})
        written.add(at_s, {("app", "A"): list(rows[number])})
        if data.draw(st.booleans()):
            assert repeated.read(("app", "A"), at_s - 5, at_s + 1, 1) == written.read(
                ("app", "A"), at_s - 5, at_s + 1, 1
            )
    step_s = data.draw(st.sampled_from([1, 7, 60]))
    assert repeated.read(("app", "A"), 990, at_s + 9, step_s) == written.read(
        ("app", "A"), 990, at_s + 9, step_s
    )


def test_the_bound_holds_and_shortens_all_series_alike() -> None:
    most = 300_000
    history = filled(1800, most, apps=50)
    assert history.bytes <= most
    assert history.oldest_s > 1200
    starts = set()
    for n in range(50):
        found = history.read(("app", f"A{n}"), 1200, 3000, 60)
        assert found is not None
        starts.add(next(i for i, v in enumerate(found.values["value"]) if v is not None))
    assert len(starts) == 1
    # An app that is gone leaves nothing, an hour later.
    for at_s in range(3000, 3000 + SPAN_S + 120, 30):
        history.add(at_s, {("app", "Other"): [1.0]})
    assert history.keys() == [("app", "Other")]


def test_the_count_of_bytes_is_near_what_python_uses() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        history = filled(1201, apps=20)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # The samples are counted; what holds them depends on what else was freed before.
    assert used / 2 < history.bytes < used * 2


async def test_a_manager_samples_and_answers(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(SPEC.text)
        while not manager.view.snapshot().nodes:
            await manager.view.changed(manager.view.version, 5.0)
        service.telemetry.sample()
        past = await service.telemetry.past("node", "manager/m1", 60, 1)
        assert (past.source, past.step_s, len(past.values["cpu"])) == ("memory", 1, 60)
        assert (await service.overview()).apps[0].app == "Shop"
        week = await service.telemetry.past("node", "manager/m1", 7 * 86_400, 60)
        # The last ten minutes are those of the finer histories.
        assert week.step_s == 600
        assert any(value is not None for value in week.values["cpu"][-2:])
        for kind, name, seconds, code in (
            ("app", "Nothing", 60, "MESH-A404"),
            ("node", "manager/m1", 8 * 86_400, "MESH-A422"),
        ):
            with pytest.raises(MeshError, match=code):
                await service.telemetry.past(kind, name, seconds, 1)


class FakePrometheus(BaseHTTPRequestHandler):
    """Answers each query with one series; counts them."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query["query"][0])
        start = int(query["start"][0])
        result = [{"metric": {}, "values": [[start, "1.5"], [start + 60, "NaN"]]}]
        body = json.dumps({"status": "success", "data": {"result": result}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def prometheus_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


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


class Moment(SystemClock):
    """A clock that stands."""

    now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def flow_row(events: float, fast: float = 0.0, slow: float = 0.0) -> list[float]:
    """A row of an app: ``fast`` events of less than a millisecond, ``slow`` ones of 0.5 to 1 s."""
    row = dict.fromkeys(STORED["app"], 0.0)
    return list((row | {"events_in": events, "latency_0": fast, "latency_9": slow}).values())


async def test_a_week_is_thinned_and_percentiles_are_of_all_events_of_a_step() -> None:
    clock = Moment()
    telemetry = Telemetry(None, clock, ManagerSettings())  # type: ignore[arg-type]
    seconds, minutes, tens = telemetry.tiers
    now_s = clock.now_ms // 1000
    key = ("app", "Shop")
    # Each minute has 59 quick seconds and one with as many slow events as all the others.
    for at_s in range(now_s - 3600, now_s):
        is_slow = at_s % 60 == 0
        seconds.add(at_s, {key: flow_row(2.0, fast=0.0 if is_slow else 1.0, slow=59.0 * is_slow)})
    minute_s = now_s - 120
    rows = await thinned(seconds, minute_s, 60)
    assert set(rows) == {key}
    assert rows[key][0] == 2.0
    minutes.add(minute_s - 7200, {key: flow_row(5.0, fast=1.0)})
    tens.add(now_s - 2 * 86_400, {key: flow_row(7.0, slow=1.0)})
    hour = await telemetry.past("app", "Shop", 3600, 60)
    assert (hour.step_s, hour.values["events_in"][5]) == (60, 2.0)
    # Half of the events were quick, half slow: the median is the boundary, not a mean of medians.
    assert hour.values["latency_p50_s"][5] == pytest.approx(0.001, rel=0.05)
    assert hour.values["latency_p99_s"][5] == pytest.approx(0.99, rel=0.05)
    day = await telemetry.past("app", "Shop", 86_400, 60)
    place = (minute_s - 7200 - day.start_ms // 1000) // 60
    assert (day.step_s, day.values["events_in"][place], day.values["events_in"][-1]) == (60, 5, 2)
    assert day.values["events_in"][0] is None
    week = await telemetry.past("app", "Shop", 7 * 86_400, 1)
    assert (week.step_s, {v for v in week.values["events_in"] if v}) == (600, {2.0, 5.0, 7.0})
    # A time that was: its end is not now, and its steps are as long as what is kept of it.
    then = await telemetry.past("app", "Shop", 1200, 10, now_s - 2 * 86_400 + 1200)
    assert (then.step_s, then.values["events_in"]) == (600, [7.0, None])
    assert (await telemetry.past_of_apps(["Shop", "None"], 600, 10)).values == (  # type: ignore[union-attr]
        await telemetry.past("app", "Shop", 600, 10)
    ).values
    assert await telemetry.past_of_apps(["None"], 600, 10) is None


def test_several_series_are_added_up() -> None:
    one = Series(0, 1, {"events_in": [1.0, None, None], "backlog_s": [5.0, None, 1.0]})
    other = Series(0, 1, {"events_in": [2.0, 3.0, None], "backlog_s": [4.0, 2.0, None]})
    found = summed([one, other])
    assert found.values == {"events_in": [3.0, 3.0, None], "backlog_s": [5.0, 2.0, 1.0]}


@pytest.mark.nats
async def test_the_history_outlives_its_managers(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    store = MetricsHistoryStore(client, 1, 1_000_000)
    assert [one async for one in store.read()] == []
    rows = {("app", f"A{number}"): flow_row(float(number)) for number in range(1500)}
    rows["node", "worker/w1"] = [0.5, math.nan, 3.0, 0.0, 1.0]
    clock = Moment()
    now_s = clock.now_ms // 1000
    for _ in range(2):
        # Two managers that both think they lead store it once.
        await MetricsHistoryStore(client, 1, 1_000_000).put(60, 86_400, now_s - 120, rows)
    await client.jetstream().publish("mesh._history.60", b"no history")
    found = [one async for one in store.read()]
    assert [(step_s, at_s) for step_s, at_s, _ in found] == [(60, now_s - 120)] * 2
    read = {key: list(row) for _, _, some in found for key, row in some.items()}
    assert read["app", "A1499"] == rows["app", "A1499"]
    assert math.isnan(read["node", "worker/w1"][1])
    telemetry = Telemetry(None, clock, ManagerSettings())  # type: ignore[arg-type]
    assert await telemetry._load(store) == {60: now_s - 60}
    day = await telemetry.past("app", "A7", 86_400, 60)
    assert {value for value in day.values["events_in"] if value is not None} == {7.0}
    # Without a bound nothing is stored.
    await MetricsHistoryStore(client, 1, 0).put(60, 86_400, now_s, rows)
    assert len([one async for one in store.read()]) == 2
    await client.close()


def test_longer_histories_are_those_of_prometheus(prometheus_url: str) -> None:
    found = asyncio.run(query_range(prometheus_url, "app", "Shop", 600, 780, 60))
    assert found["events_in"] == [1.5, None, None]
    assert set(found) == set(FIELDS["app"])
    assert 'sum(rate(mesh_instance_events_in_total{app="Shop"}[60s]))' in FakePrometheus.asked
    group = expressions("group", 'Shop/a"b', 10)
    assert group["backlog"] == r'sum(mesh_instance_backlog_messages{app="Shop",group="a\"b"})'
    assert set(expressions("node", "worker/w1", 10)) == set(FIELDS["node"])
    with pytest.raises(MeshError, match="MESH-A502"):
        asyncio.run(query_range("http://127.0.0.1:1", "app", "Shop", 600, 780, 60))
