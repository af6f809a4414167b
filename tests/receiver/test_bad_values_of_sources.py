"""One bad value among good ones, for every type of source: it is refused, the others are read once.

Each type has a row in ``ROWS``, with its real server.  A type without a row is a failure.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.spec import Role
from tests.support import source_uses
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mesh.jetstream.server import NatsServer
    from tests.support.source_uses import Use

pytestmark = pytest.mark.nats

APP = """@App:name('Bad')
SOURCE
define stream S (ATTRIBUTES);
MORE
from S select n insert into T;
"""
ROWS: dict[str, Callable[[pytest.FixtureRequest], AsyncIterator[Use]]] = {
    "file": source_uses.file_use,
    "email": source_uses.email_use,
    "fileeventlistener": source_uses.file_events_use,
    "http": source_uses.http_use,
    "http-service": source_uses.service_use,
    "http-request": source_uses.service_use,
    "http-call-response": source_uses.call_response_use,
    "http-response": source_uses.call_response_use,
    "grpc": source_uses.grpc_use,
    "grpc-service": source_uses.grpc_service_use,
    "grpc-call-response": source_uses.grpc_call_response_use,
    "prometheus": source_uses.prometheus_use,
    "nats": source_uses.nats_use,
    "inMemory": source_uses.in_memory_use,
    "kafka": source_uses.kafka_use,
    "rabbitmq": source_uses.rabbitmq_use,
    "mqtt": source_uses.mqtt_use,
    "websocket": source_uses.websocket_use,
    "websocket-server": source_uses.websocket_server_use,
    "sse": source_uses.sse_use,
    "tcp": source_uses.tcp_use,
    "syslog": source_uses.syslog_use,
    "cdc": source_uses.cdc_use,
    "rdbms-call-response": source_uses.rdbms_call_response_use,
}
#: Types whose server takes several seconds to start.
SLOW = {"rabbitmq"}


def test_every_type_of_source_has_a_row() -> None:
    known = {s.name for s in registry.builtin_specs() if s.role is Role.SOURCE and s.implementation}
    assert known == ROWS.keys()


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.extended] if name in SLOW else [])
        for name in sorted(ROWS)
    ],
)
async def test_a_bad_value_is_refused_and_the_others_are_read_once(
    nats_server: NatsServer, request: pytest.FixtureRequest, name: str
) -> None:
    async with contextlib.asynccontextmanager(ROWS[name])(request) as use:
        text = APP.replace("SOURCE", use.source.replace("TYPE", name))
        text = text.replace("ATTRIBUTES", use.attributes).replace("MORE", use.more)
        async with staged(nats_server, text, use.access) as stage:
            instance = stage.start("receiver-S")
            if name != "nats":
                await stage.until_running(instance)
            await use.send(stage)

            async def both() -> bool:
                return [event["n"] for event in await stage.events("S")] == [1, 3]

            await stage.until("the good ones", both)
            if use.reason:
                (entry,) = await stage.until("the bad one", stage.errors)
                assert use.reason in entry["reason"]
            # A successor begins behind all of them.
            await instance.stop()
            before: list[Any] = await stage.errors()
            await stage.until_running(stage.start("receiver-S", epoch=2))
            assert await both()
            assert await stage.errors() == before
            assert len(before) == (1 if use.reason else 0)
