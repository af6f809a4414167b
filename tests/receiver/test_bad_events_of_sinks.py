"""One bad event among good ones, for every type of sink: it is recorded, the others arrive once.

Each type has a row in ``ROWS``, with its real server.  A type without a row is a failure.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.model import names
from tests.support import sink_uses
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mesh.jetstream.server import NatsServer
    from tests.support.sink_uses import Use

pytestmark = pytest.mark.nats

APP = """@App:name('Bad')
define stream S (k string, n int);
SINK
define stream T (k string, n int);
from S select k, n insert into T;
"""
ROWS: dict[str, Callable[[pytest.FixtureRequest], AsyncIterator[Use]]] = {
    "file": sink_uses.file_use,
    "http": sink_uses.http_use,
    "http-call": sink_uses.http_call_use,
    "http-request": sink_uses.http_call_use,
    "http-service-response": sink_uses.http_response_use,
    "http-response": sink_uses.http_response_use,
    "grpc": sink_uses.grpc_use,
    "grpc-call": sink_uses.grpc_call_use,
    "grpc-service-response": sink_uses.http_response_use,
    "nats": sink_uses.nats_use,
    "inMemory": sink_uses.in_memory_use,
    "log": sink_uses.log_use,
    "sse-server": sink_uses.sse_use,
    "websocket-server": sink_uses.websocket_use,
    "prometheus": sink_uses.prometheus_use,
    "email": sink_uses.email_use,
    "s3": sink_uses.s3_use,
    "kafka": sink_uses.kafka_use,
    "rabbitmq": sink_uses.rabbitmq_use,
    "mqtt": sink_uses.mqtt_use,
    "websocket": sink_uses.websocket_client_use,
    "tcp": sink_uses.tcp_use,
    "rdbms": sink_uses.rdbms_use,
    "rdbms-call": sink_uses.rdbms_call_use,
}
#: Types whose server takes several seconds to start.
SLOW = {"rabbitmq"}


def test_every_type_of_sink_has_a_row() -> None:
    known = {s.name for s in registry.builtin_specs() if s.role is Role.SINK and s.implementation}
    assert known == ROWS.keys()


def _rows() -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.extended] if name in SLOW else [])
        for name in sorted(ROWS)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", _rows())
async def test_a_bad_event_is_recorded_and_the_others_arrive_once(
    nats_server: NatsServer, request: pytest.FixtureRequest, name: str
) -> None:
    async with contextlib.asynccontextmanager(ROWS[name])(request) as use:
        text = APP.replace("SINK", use.sink.replace("TYPE", name))
        async with staged(nats_server, text, use.access) as stage:
            if use.before is not None:
                await use.before(stage)

            async def have(*numbers: int) -> bool:
                return await use.arrived(stage) == list(numbers)

            # The second of four in one message, so that they are written together.
            ks = [use.good, use.bad, use.good, use.good]
            events = [{"k": k, "n": n} for k, n in zip(ks, (1, -2, 3, 4), strict=True)]
            lines = b"\n".join(json.dumps(event).encode() for event in events)
            await stage.js.publish(names.subject("Bad", "T"), lines)
            if not stage.running:
                stage.start("sink-T")
            await stage.until("the good ones", lambda: have(1, 3, 4))
            (entry,) = await stage.until("the bad one", stage.errors)
            assert use.reason in entry["reason"]
            assert json.loads(entry["event"]) == events[1]
            await stage.publish("T", {"k": use.good, "n": 5})
            await stage.until("the next one", lambda: have(1, 3, 4, 5))
            assert await stage.errors() == [entry]
