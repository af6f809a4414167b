"""Services whose host is killed: each request is stored, and answered with its own event."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
import httpx
import pytest

from mesh.model.cluster import InstanceState
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support.grpc_apps import SERVICE
from tests.support.grpc_ends import call, event, payload_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
@source(type='TYPE', source.id='1', receiver.url='URL', @map(type='json', @attributes(ATTRIBUTES)))
define stream S (id string, n int);
@sink(type='TYPE-response', source.id='1', message.id='{{id}}',
      @map(type='json', @payload('{{n}}')))
define stream T (id string, n int);
from S select id, n insert into T;
"""
HTTP = (
    APP.replace("TYPE", "http-service")
    .replace("URL", "http://127.0.0.1:0/in")
    .replace("ATTRIBUTES", "id='trp:messageId', n='n'")
)
GRPC = (
    APP.replace("TYPE", "grpc-service")
    .replace("URL", f"grpc://127.0.0.1:0/{SERVICE}/process")
    .replace("ATTRIBUTES", "id='trp:message.id', n='n'")
)
REQUESTS: Final = 3


async def post(endpoint: str, n: int) -> str | None:
    async with httpx.AsyncClient() as client:
        with suppress(httpx.HTTPError):
            answer = await client.post(endpoint, json={"n": n}, timeout=20)
            return answer.text if answer.status_code == 200 else None
    return None


async def ask(endpoint: str, n: int) -> str | None:
    with suppress(grpc.aio.AioRpcError):
        return payload_of(await call(endpoint, event(json.dumps({"n": n})), timeout_s=20.0))
    return None


def served(
    text: str, request: Callable[[str, int], Awaitable[str | None]], group: str
) -> ConnectorScenario:
    """A client that repeats a request until it is answered, and a query between source and sink.

    The outcome has the answers, the numbers that are stored, and the entries of the error stream.
    """
    answers: dict[str, list[str]] = {}
    other = "sink-T" if group == "receiver-S" else "receiver-S"

    async def relay(stage: Stage) -> None:
        done = 0
        while True:
            with suppress(TimeoutError):
                for row in (await stage.events("S"))[done:]:
                    await stage.publish("T", row)
                    done += 1
            await asyncio.sleep(0)

    async def answered(stage: Stage, n: int) -> bool:
        ends = [d for r in stage.reports for d in r.connectors if "://" in d.endpoint]
        if not ends or ends[-1].state is not InstanceState.RUNNING:
            return False
        answer = await request(ends[-1].endpoint, n)
        answers.setdefault(stage.spec.name, []).extend([answer] if answer is not None else [])
        return answer is not None

    async def drive(stage: Stage) -> None:
        killed, stage.environment = stage.environment, stage.calm
        stage.start(other)
        stage.environment = killed
        relaying = asyncio.create_task(relay(stage))
        for n in range(REQUESTS):
            await stage.until("an answer", partial(answered, stage, n))
        relaying.cancel()

    async def outcome(stage: Stage) -> Any:
        stored = [row["n"] for row in await stage.events("S")]
        failed = [entry["reason"] for entry in await stage.errors()]
        if group == "receiver-S":
            # A request without an answer is another one when it is sent again.
            stored, failed = list(dict.fromkeys(stored)), []
        return answers.get(stage.spec.name, []), stored, failed

    return ConnectorScenario(text, group, drive, outcome, lambda found: len(found[0]) == REQUESTS)


@pytest.mark.slow
async def test_requests_of_a_service_are_answered_whenever_its_source_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    moments = await conform(nats_server.url, served(HTTP, post, "receiver-S"), tmp_path)
    assert {"before publish", "after publish"} <= set(moments)


@pytest.mark.slow
async def test_requests_of_a_service_are_answered_once_whenever_its_sink_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    moments = await conform(nats_server.url, served(HTTP, post, "sink-T"), tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


async def test_calls_of_a_service_are_answered_whenever_its_source_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    moments = await conform(nats_server.url, served(GRPC, ask, "receiver-S"), tmp_path)
    assert {"before publish", "after publish"} <= set(moments)


async def test_calls_of_a_service_are_answered_once_whenever_its_sink_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    moments = await conform(nats_server.url, served(GRPC, ask, "sink-T"), tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)
