"""Source ``prometheus`` with a real target: a client library, and what targets may show."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest

from mesh.connect.contract import Context, NodeAccess, Record
from mesh.jetstream.server import free_port
from mesh.model.cluster import InstanceState
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.prometheus import Metric, PrometheusSink, samples_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform, staged
from tests.support.listened import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


APP = """@App:name('Scrape')
@source(type='prometheus', target.url='http://127.0.0.1:PORT/metrics', metric.type='counter',
        metric.name='sales', scrape.interval='20 ms', username='u', password='p',
        headers="'X-A:1'", @map(type='keyvalue'))
define stream S (metric_name string, metric_type string, help string, subtype string, shop string,
                 value double);
from S select shop, value insert into T;
"""


METRIC = (
    "@sink(type='prometheus', metric.type='counter', metric.name='requests_total',"
    " value.attribute='n', server.url='http://127.0.0.1:PORT', @map(type='keyvalue'))"
)


@pytest.mark.nats
async def test_each_scrape_gives_the_samples_of_the_metric(nats_server: NatsServer) -> None:
    registry = CollectorRegistry()
    sales = Counter("sales", "Sales.", ["shop"], registry=registry)
    sales.labels("a").inc(2)
    statuses = [503]
    asked: list[Any] = []

    async def answer(request: Request) -> Response:
        asked.append(request.headers)
        return Response(statuses.pop() if statuses else 200, generate_latest(registry))

    servers = HttpServers()
    port = await servers.open("127.0.0.1", 0, "/metrics", answer)
    access = NodeAccess(egress=(f"127.0.0.1:{port}",))
    try:
        async with staged(nats_server.url, APP.replace("PORT", str(port)), access) as stage:
            stage.start("receiver-S")

            def retries() -> bool:
                return any(
                    "answered 503" in str(d.error) for r in stage.reports for d in r.connectors
                )

            await stage.until("the reason", retries)

            async def values() -> list[float]:
                return sorted({row["value"] for row in await stage.events("S")})

            await stage.until("a scrape", values)
            sales.labels("a").inc()

            async def both() -> bool:
                return await values() == [2.0, 3.0]

            await stage.until("the next value", both)
            assert (await stage.events("S"))[0] == {
                "metric_name": "sales", "metric_type": "counter", "help": "Sales.",
                "subtype": None, "shop": "a", "value": 2.0,
            }  # fmt: skip
            assert asked[0]["authorization"] == "Basic dTpw"
            assert asked[0]["x-a"] == "1"
            assert stage.reports[-1].state is InstanceState.RUNNING
    finally:
        await servers.close("127.0.0.1", port, "/metrics")


def test_histograms_and_summaries_have_subtypes() -> None:
    registry = CollectorRegistry()
    Histogram("h", "H", buckets=(1.0,), registry=registry).observe(0.5)
    Summary("s", "S", registry=registry).observe(2)
    text = generate_latest(registry).decode()
    found = samples_of(text, "h", "histogram", {})
    assert [(one["subtype"], one["le"], one["value"]) for one in found] == [
        ("bucket", "1.0", 1), ("bucket", "+Inf", 1), ("count", None, 1), ("sum", None, 0.5),
    ]  # fmt: skip
    found = samples_of(f'{text}s{{quantile="0.5"}} NaN\n', "s", "summary", {})
    assert [(one["subtype"], one["quantile"], one["value"]) for one in found] == [
        ("count", None, 1), ("sum", None, 2),
    ]  # fmt: skip


def test_texts_that_take_too_long_are_refused() -> None:
    text = "# TYPE g gauge\n"
    with pytest.raises(ValueError, match="more than 16384 characters"):
        samples_of(f'{text}g{{a="' + '\\"' * 10_000 + '"} 1\n', "g", "gauge", {})
    text = f"# HELP g {'x' * 16_000}\n{text}" + "g 1\n" * 5000
    with pytest.raises(ValueError, match="the help of g"):
        samples_of(text, "g", "gauge", {})


def test_names_types_and_labels_choose_samples() -> None:
    text = '# TYPE a_total counter\na_total{job="x",b="1"} 1\na_total{job="y"} 2\na 3\n'
    for name in ("a", "a_total"):
        assert [one["value"] for one in samples_of(text, name, "counter", {})] == [1, 2]
    assert [one["b"] for one in samples_of(text, "a", "counter", {"job": "x"})] == ["1"]
    assert samples_of(text, "a", "gauge", {}) == []
    with pytest.raises(ValueError):  # noqa: PT011  # the library's own
        samples_of("<html>\n", "a", "gauge", {})
    # What the library raises for it.
    with pytest.raises(LookupError):
        samples_of('{"a", ="b"} 5\n', "a", "gauge", {})


@pytest.mark.slow
@pytest.mark.nats
def test_totals_are_exact(nats_server: NatsServer, tmp_path: Path) -> None:
    text = app("", sink=METRIC.replace("PORT", str(free_port())))

    async def send(stage: Stage) -> None:
        await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})
        await stage.publish("T", {"k": "a", "n": -1}, {"k": "a", "n": 3})

    async def shown(stage: Stage) -> Any:
        url = text.partition("server.url='")[2].partition("'")[0]
        # Reading the authorities of TLS takes longer than the rest.
        async with httpx.AsyncClient(verify=False) as web:
            try:
                answer = await web.get(f"{url}/metrics")
            except httpx.HTTPError:
                return []
        return [line for line in answer.text.splitlines() if line.startswith("requests_total")]

    def is_whole(found: Any) -> bool:
        return 'requests_total{k="a"} 4' in found and 'requests_total{k="b"} 2' in found

    last: dict[str, list[str]] = {}

    async def kept(stage: Stage) -> Any:
        # The last instance has ended when the outcome is compared.
        found = await shown(stage)
        before = last.get(stage.spec.name, [])
        if found:
            before = last[stage.spec.name] = found
        return before if is_whole(before) else found

    use = ConnectorScenario(text, "sink-T", send, kept, is_whole)
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after store a position"} <= set(moments)


@pytest.mark.parametrize(("operation", "value"), [("add", 8), ("set", 3)])
async def test_a_gauge_is_added_to_or_set(operation: str, value: int) -> None:
    sink, port = PrometheusSink(), free_port()
    options = {
        "metric.type": "gauge", "value.attribute": "v", "publish.mode": "server",
        "gauge.operation": operation, "server.url": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    await sink.open(Context("A", "G", options, NodeAccess(listen=("127.0.0.1:0-65535",))), None)
    payloads = [b'{"v":5,"k":"a"}', b'{"v":3,"k":"a"}']
    try:
        assert await sink.write([Record("k", one) for one in payloads]) == [None, None]
        assert f'G{{k="a"}} {value}\n' in sink._metric.text().decode()
    finally:
        await sink.close()


def test_labels_that_would_spoil_the_metric_are_refused() -> None:
    for kind, label in (("histogram", "le"), ("summary", "quantile"), ("counter", "__name__")):
        metric = Metric(kind, "m", "Text.", (1.0,))
        assert "label" in str(
            metric.added(b'{"v":1,"%s":"x"}' % label.encode(), "v", metric.totals)
        )
    metric = Metric("counter", "m", "Text.", ())
    long = json.dumps({"v": 1, "k": "x" * 300_000}).encode()
    assert "characters" in str(metric.added(long, "v", metric.totals))


def test_an_event_that_would_make_a_total_infinite_is_refused() -> None:
    metric = Metric("counter", "m", "help", ())
    large = b'{"value":1.7e308}'
    assert metric.added(large, "value", metric.totals) is None
    before = metric.text()
    assert "range of a double" in (metric.added(large, "value", metric.totals) or "")
    assert metric.text() == before
    assert metric.added(b'{"value":1.7e308,"k":"a"}', "value", metric.totals) is None


def test_prometheus_reads_the_text() -> None:
    metric = Metric("histogram", "took", "Seconds.", (1.0, 0.5))
    for value in (0.1, 0.7, 3):
        payload = json.dumps({"v": value, "path": 'a"\\b'}).encode()
        assert metric.added(payload, "v", metric.totals) is None
    text = metric.text().decode()
    assert 'took_bucket{path="a\\"\\\\b",le="0.5"} 1\n' in text
    assert 'le="1"} 2\n' in text
    assert 'le="+Inf"} 3\n' in text
    for payload, reason in ((b'{"v":"x"}', "no number"), (b'{"v":1,"a-b":"x"}', "label")):
        assert reason in str(metric.added(payload, "v", metric.totals))
    if shutil.which("promtool"):
        call = ["promtool", "check", "metrics"]
        subprocess.run(call, input=metric.text(), check=True, capture_output=True)
