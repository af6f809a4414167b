"""Traces at the edges: ``traceparent`` of requests is stored, sinks refer to it and hand it on."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aio_pika
import httpx
import nats
import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from mesh.connect.contract import Batch, Record
from mesh.receiver.positions import EventLines
from mesh.receiver.sources import messages_with_traces
from mesh.receiver.types.rabbitmq import RabbitSink
from mesh.settings import TraceSettings
from mesh.telemetry import traces
from pyspark_nats.decode import DecodeResult
from tests.support.collector import PARENT, TRACE, collecting
from tests.support.connectors import Endpoint, staged
from tests.support.grpc_ends import grpc_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage
    from tests.support.collector import Collector
    from tests.support.environment import Variables
    from tests.support.kafka import Kafka


pytestmark = pytest.mark.nats

PRODUCER = Span.SpanKind.SPAN_KIND_PRODUCER

APP = """@App:name('Edges')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))
define stream S (n int);
@sink(type='http', publisher.url='{}', @map(type='json'))
define stream T (n int);
from S select n insert into T;
"""


@contextlib.contextmanager
def sending_to_a_collector(environment: Variables) -> Iterator[Collector]:
    """A collector for the spans of this process."""
    with collecting() as collector:
        environment.update(traces.variables(TraceSettings(collector.endpoint), "w1"))
        try:
            yield collector
        finally:
            traces.close()


async def test_a_trace_goes_from_the_request_of_a_source_to_the_request_of_a_sink(
    nats_server: NatsServer, environment: Variables
) -> None:
    async def scene(end: Endpoint) -> None:
        async with staged(nats_server, APP.format(end.url)) as stage, httpx.AsyncClient() as client:
            status = await stage.until_running(stage.start("receiver-S"))
            url = status.connectors[0].endpoint
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
            told.append(end.heads[0]["traceparent"])

    told: list[str] = []
    with sending_to_a_collector(environment) as collector:
        end = Endpoint()
        await end.open()
        try:
            await scene(end)
        finally:
            await end.close()
        traces.flush()
        (span,) = collector.until(bool)
        assert span.name.startswith("send sink http")
        assert span.kind == PRODUCER
        assert [link.trace_id.hex() for link in span.links] == [TRACE]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
        (count,) = [a for a in span.attributes if a.key == "messaging.batch.message.count"]
        assert count.value.int_value == 1
        # The request belongs to the span of the sink.
        assert told == [f"00-{TRACE}-{span.span_id.hex()}-01"]


SINK = """@App:name('{}')
define stream S (n int);
@sink({}, @map(type='json', envelope='none'))
define stream T (n int);
from S select n insert into T;
"""
OTHER_TRACE = "ab" * 16
OTHER = f"00-{OTHER_TRACE}-{'cd' * 8}-01"


async def sent(server: NatsServer, name: str, sink: str, done: Callable[[Stage], Any]) -> Any:
    """What ``done`` finds once two events of two traces have left."""
    async with staged(server, SINK.format(name, sink)) as stage:
        for n, parent in enumerate((PARENT, OTHER)):
            head = {"traceparent": parent}
            await stage.js.publish(f"mesh.{name}.T", b'{"n": %d}' % n, headers=head)
        stage.start("sink-T")
        found = await stage.until("the events", lambda: done(stage))
        for one in stage.running:
            await one.stop()
        return found


def are_of_writes(told: list[str], collector: Collector) -> bool:
    """Whether the headers of two events are those of the spans that refer to their traces."""
    traces.flush()

    def linked(spans: list[Any]) -> set[str]:
        return {link.trace_id.hex() for span in spans for link in span.links}

    spans = collector.until(lambda spans: linked(spans) == {TRACE, OTHER_TRACE})
    # Both events may be in one write, whose trace is the first one's.
    own = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in spans}
    return len(told) == 2 and set(told) == own


def test_requests_of_calls_have_the_trace_of_the_write_or_their_own(
    nats_server: NatsServer, environment: Variables
) -> None:
    async def scene(name: str, more: str) -> list[str]:
        end = Endpoint()
        await end.open()
        sink = f"type='http-call', sink.id='c', publisher.url='{end.url}'{more}"
        try:
            await sent(nats_server, name, sink, lambda _: len(end.bodies) == 2)
        finally:
            await end.close()
        return [head["traceparent"] for head in end.heads]

    with sending_to_a_collector(environment) as collector:
        assert are_of_writes(asyncio.run(scene("Calls", "")), collector)
        # A header of the app is the app's decision.
        mine = f"""headers="'Traceparent:{OTHER}'\""""
        assert asyncio.run(scene("Mine", f", {mine}")) == [OTHER, OTHER]


def test_calls_of_grpc_have_the_trace_of_the_write(
    nats_server: NatsServer, environment: Variables
) -> None:
    async def scene() -> list[str]:
        async with grpc_end() as end:
            sink = f"type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/p.A/B'"
            await sent(nats_server, "Rpc", sink, lambda _: len(end.calls) == 2)
            return [one.metadata["traceparent"] for one in end.calls]

    with sending_to_a_collector(environment) as collector:
        assert are_of_writes(asyncio.run(scene()), collector)


def test_messages_to_other_servers_have_the_trace_of_the_write(
    nats_server: NatsServer, environment: Variables
) -> None:
    async def stored(stage: Stage) -> list[str] | None:
        info = await stage.js.stream_info("traced-out")
        if info.state.messages < 2:
            return None
        found = [await stage.js.get_msg("traced-out", n) for n in (1, 2)]
        return [(one.headers or {})["traceparent"] for one in found]

    async def scene() -> Any:
        client = await nats.connect(nats_server.url)
        try:
            await client.jetstream().add_stream(name="traced-out", subjects=["traced.out"])
        finally:
            await client.close()
        sink = f"type='nats', server.urls='{nats_server.url}', destination='traced.out'"
        return await sent(nats_server, "Out", sink, stored)

    with sending_to_a_collector(environment) as collector:
        assert are_of_writes(asyncio.run(scene()), collector)


def test_records_of_a_topic_have_the_trace_of_the_write(
    nats_server: NatsServer, kafka: Kafka, environment: Variables
) -> None:
    async def written(_: Stage) -> list[Any] | None:
        found = await asyncio.to_thread(kafka.messages, "traced")
        return [dict(one.headers() or ()) for one in found] if len(found) == 2 else None

    kafka.create("traced")
    sink = f"type='kafka', bootstrap.servers='{kafka.servers}', topic='traced'"
    with sending_to_a_collector(environment) as collector:
        heads = asyncio.run(sent(nats_server, "Topic", sink, written))
        assert are_of_writes([head["traceparent"].decode() for head in heads], collector)


SOURCE = """@App:name('{}')
@source({}, @map(type='json'))
define stream S (n int);
from S select n insert into T;
"""


async def traces_of(server: NatsServer, name: str, source: str, count: int) -> list[Any]:
    """The ``traceparent`` of each message of events that a source has stored."""
    async with staged(server, SOURCE.format(name, source)) as stage:

        async def is_complete() -> bool:
            return len(await stage.events("S")) == count

        stage.start("receiver-S")
        await stage.until("the events", is_complete)
        for one in stage.running:
            await one.stop()
        last = (await stage.js.stream_info(f"mesh-{name}-S")).state.last_seq
        found = [await stage.js.get_msg(f"mesh-{name}-S", n) for n in range(1, last + 1)]
        events = [m for m in found if m.subject == f"mesh.{name}.S"]
        return [(m.headers or {}).get("traceparent") for m in events]


def test_events_of_a_topic_have_the_trace_of_its_first_record_with_one(
    nats_server: NatsServer, kafka: Kafka, environment: Variables
) -> None:
    kafka.create("led", "plain")
    kafka.send("led", b'{"n":0}')
    kafka.send("led", b'{"n":1}', headers={"Traceparent": b"\xff", "other": None})
    kafka.send("led", b'{"n":2}', b'{"n":3}', headers={"Traceparent": PARENT})
    kafka.send("led", b'{"n":4}', headers={"traceparent": OTHER})
    kafka.send("plain", b'{"n":0}')
    source = f"type='kafka', bootstrap.servers='{kafka.servers}', topic.list='{{}}', group.id='g'"
    source += ", threading.option='single.thread'"
    # Without a collector nothing is looked at.
    assert set(asyncio.run(traces_of(nats_server, "Off", source.format("led"), 5))) == {None}
    with sending_to_a_collector(environment):
        told = asyncio.run(traces_of(nats_server, "Led", source.format("led"), 5))
        # However many batches there were, a message of other events is of no trace.
        assert next(one for one in told if one is not None) == PARENT
        assert set(told) <= {PARENT, OTHER, None}
        told = asyncio.run(traces_of(nats_server, "Plain", source.format("plain"), 1))
        assert set(told) == {None}


@pytest.mark.slow
async def test_events_of_another_stream_have_the_trace_of_their_message(
    nats_server: NatsServer, environment: Variables
) -> None:
    with sending_to_a_collector(environment):
        client = await nats.connect(nats_server.url)
        try:
            js = client.jetstream()
            await js.add_stream(name="traced-in", subjects=["traced.in"])
            await js.publish("traced.in", b'{"n": 1}', headers={"traceparent": PARENT})
        finally:
            await client.close()
        source = f"type='nats', server.urls='{nats_server.url}', stream='traced-in'"
        assert (await traces_of(nats_server, "In", source, 1)) == [PARENT]


def test_each_message_has_the_first_trace_of_its_own_events(environment: Variables) -> None:
    rows = pa.record_batch({"n": pa.array(range(6), pa.int32())})
    # A payload of two events, one of none, and payloads of one each.
    message = np.array([0, 0, 2, 3, 4, 5])
    found = DecodeResult(rows, message, message, pa.nulls(6, pa.int64()), [], 6)
    properties = [
        {"traceparent": "no such thing"}, {"traceparent": OTHER}, {"traceparent": PARENT}, {},
        {}, {"traceparent": OTHER},
    ]  # fmt: skip
    batch = Batch([b""] * 6, {}, properties)
    payloads = [b"0\n1\n2", b"3\n4", b"5"]
    environment[traces.ENDPOINT_VARIABLE] = "http://127.0.0.1:1"
    assert [one.parent for one in messages_with_traces(found, payloads, batch)] == [
        PARENT,
        "",
        OTHER,
    ]
    assert messages_with_traces(found, payloads, replace(batch, properties=None)) == [
        EventLines(payload) for payload in payloads
    ]


def test_messages_to_rabbitmq_have_the_trace_of_the_write(environment: Variables) -> None:
    with sending_to_a_collector(environment):
        sink, trace = RabbitSink(), traces.begin("send sink rabbitmq")
        assert trace is not None
        sink.options, sink.content_type = {"headers": [("a", "b")]}, "text/plain"
        trace.look([PARENT])
        with trace.sending():
            ((name, told),) = traces.outgoing()
            message = sink.message(aio_pika, Record("k", b""))
        trace.end()
        assert dict(message.headers) == {"a": "b", name: told}
        assert TRACE in told
        assert traces.outgoing() == ()
