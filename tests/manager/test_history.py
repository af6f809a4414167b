"""Samples of a week: thinned, and within their bound.

Histories of Prometheus.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.manager.history import SPAN_S, MetricsHistory, Series, expressions, query_range
from mesh.manager.manager import running
from mesh.manager.telemetry import FIELDS, summed
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.telemetry import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer


FIELD = {"app": ("value",)}


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


def test_several_series_are_added_up() -> None:
    one = Series(0, 1, {"events_in": [1.0, None, None], "backlog_s": [5.0, None, 1.0]})
    other = Series(0, 1, {"events_in": [2.0, 3.0, None], "backlog_s": [4.0, 2.0, None]})
    found = summed([one, other])
    assert found.values == {"events_in": [3.0, 3.0, None], "backlog_s": [5.0, 2.0, 1.0]}


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
