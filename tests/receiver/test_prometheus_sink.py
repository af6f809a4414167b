"""Sink ``prometheus``: totals that are exact, and metrics that Prometheus reads."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.connect.contract import Context, NodeAccess, Record
from mesh.jetstream.server import free_port
from mesh.receiver.types.prometheus_sink import Metric, PrometheusSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.listened import app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


METRIC = (
    "@sink(type='prometheus', metric.type='counter', metric.name='requests_total',"
    " value.attribute='n', server.url='http://127.0.0.1:PORT', @map(type='keyvalue'))"
)


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
