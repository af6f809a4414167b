"""Source ``prometheus`` with a real target: a client library, and what targets may show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest

from mesh.connect.contract import NodeAccess
from mesh.model.cluster import InstanceState
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.receiver.types.prometheus_source import samples_of
from mesh.testing.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

APP = """@App:name('Scrape')
@source(type='prometheus', target.url='http://127.0.0.1:PORT/metrics', metric.type='counter',
        metric.name='sales', scrape.interval='20 ms', username='u', password='p',
        headers="'X-A:1'", @map(type='keyvalue'))
define stream S (metric_name string, metric_type string, help string, subtype string, shop string,
                 value double);
from S select shop, value insert into T;
"""


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
