"""Traces at the edges: a request's ``traceparent`` is stored, and a sink's span refers to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh import traces
from mesh.settings import TraceSettings
from tests.support.collector import PARENT, TRACE, collecting
from tests.support.doors import Endpoint, staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('Edges')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
define stream S (n int);
@sink(type='http', publisher.url='{}', @map(type='json'))
define stream T (n int);
from S select n insert into T;
"""


def test_a_trace_goes_from_the_request_of_a_source_to_the_request_of_a_sink(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(end: Endpoint) -> None:
        async with staged(nats_server, APP.format(end.url)) as stage, httpx.AsyncClient() as client:
            status = await stage.until_running(stage.start("receiver-S"))
            url = status.doors[0].endpoint
            for parent in (PARENT, "no such thing"):
                head = {"traceparent": parent}
                answer = await client.post(url, content=b'{"event":{"n":1}}', headers=head)
                assert answer.status_code == 200
            stored = [await stage.js.get_msg("mesh-Edges-S", n) for n in (1, 2)]
            assert [(m.headers or {}).get("traceparent") for m in stored] == [PARENT, None]
            # The group between them is Spark's; its output continues the trace.
            head = {"traceparent": PARENT}
            await stage.js.publish("mesh.Edges.T", b'{"n": 1}', headers=head)
            stage.start("sink-T")
            await stage.until("the event", lambda: end.bodies)
            for one in stage.running:
                await one.stop()

    async def run() -> None:
        end = Endpoint()
        await end.open()
        try:
            await scene(end)
        finally:
            await end.close()

    with collecting() as collector:
        for name, value in traces.variables(TraceSettings(collector.endpoint), "w1").items():
            monkeypatch.setenv(name, value)
        try:
            asyncio.run(run())
            traces.flush()
            (span,) = collector.until(bool)
            assert span.name.startswith("send sink http")
            assert [link.trace_id.hex() for link in span.links] == [TRACE]
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
            (count,) = [a for a in span.attributes if a.key == "messaging.batch.message.count"]
            assert count.value.int_value == 1
        finally:
            traces.close()
