"""Sinks of gRPC with a real server: order, refusals, repeats, and answers that become events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from mesh.model.cluster import InstanceState
from mesh.testing.connectors import ConnectorScenario, conform, staged
from tests.support.grpc_apps import APP, ROWS, SERVICE
from tests.support.grpc_ends import Failure, event, grpc_end, payload_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

pytestmark = pytest.mark.nats


def sink(text: str, app: str = "Calls") -> str:
    return APP.replace("{app}", app).replace("SOURCE", "").replace("SINK", text)


async def test_payloads_are_called_in_order_with_headers_and_metadata(
    nats_server: NatsServer,
) -> None:
    async with grpc_end() as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/{SERVICE}/consume', "
            "headers=\"'of:{{n}}'\", sequence='fraud', metadata=\"'X-N:{{n}}'\", "
            "@map(type='json', @payload('{{n}}')))"
        )
        async with staged(nats_server.url, text) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            await stage.until("4 calls", lambda: len(end.calls) == 4)
            assert [one.method for one in end.calls] == [f"/{SERVICE}/consume"] * 4
            assert [one.message for one in end.calls] == [
                event(str(n), {"of": str(n), "sequence": "fraud"}) for n in range(4)
            ]
            assert [one.metadata["x-n"] for one in end.calls] == ["0", "1", "2", "3"]
            assert len({one.metadata["idempotency-key"] for one in end.calls}) == 4


@pytest.mark.parametrize(
    ("failure", "is_final"),
    [
        (Failure(grpc.StatusCode.UNAVAILABLE), False),
        (Failure(grpc.StatusCode.UNAVAILABLE, metadata=[("grpc-retry-pushback-ms", "1")]), False),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED), False),
        (Failure(grpc.StatusCode.UNKNOWN), False),
        (Failure(grpc.StatusCode.INTERNAL), False),
        (Failure(grpc.StatusCode.INVALID_ARGUMENT), True),
        (Failure(grpc.StatusCode.UNIMPLEMENTED), True),
        (Failure(grpc.StatusCode.PERMISSION_DENIED), True),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max"), True),
    ],
    ids=str,
)
async def test_a_status_refuses_an_event_or_has_it_sent_again(
    nats_server: NatsServer, failure: Failure, is_final: bool
) -> None:
    failures = [failure, failure]

    def answer(message: bytes) -> bytes | Failure:
        is_bad = message == b'{"n":1}' and (is_final or failures)
        return (failure if is_final else failures.pop()) if is_bad else b""

    async with grpc_end(answer) as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/p.A/B', "
            "@map(type='json', envelope='none'))"
        )
        async with staged(nats_server.url, text) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            expected = [0, 2, 3] if is_final else [0, 1, 2, 3]
            await stage.until("the calls", lambda: len(end.calls) == len(expected))
            assert [json.loads(one.message)["n"] for one in end.calls] == expected
            if is_final:
                (entry,) = await stage.until("the bad one", stage.errors)
                assert entry["reason"] == f"answered {failure.code.name}: {failure.details}"
            else:
                assert await stage.errors() == []


async def test_metadata_that_no_server_takes_refuses_its_event(nats_server: NatsServer) -> None:
    async with grpc_end() as end:
        url = f"grpc://127.0.0.1:{end.port}/p.A/B"
        text = sink(
            f"@sink(type='grpc', publisher.url='{url}', metadata=\"'{{{{k}}}}:{{{{v}}}}'\", "
            "@map(type='json', envelope='none', @payload('{{v}}')))"
        ).replace("T (n int)", "T (k string, v string)")
        text = text.replace("select n insert into T", "select 'k' as k, 'v' as v insert into T")
        async with staged(nats_server.url, text) as stage:
            named = ("user-agent", "te", "content-type", "content-length", "k" * 257)
            rows = [*((name, "x") for name in named), ("k", "v" * 20_000), ("k", "last")]
            await stage.publish("T", *({"k": k, "v": v} for k, v in rows))
            stage.start("sink-T")
            await stage.until("the last call", lambda: len(end.calls) == 1)
            assert end.calls[0].metadata["k"] == "last"
            reasons = [entry["reason"] for entry in await stage.errors()]
            assert len(reasons) == 6
            assert sum("metadata size exceeds hard limit" in one for one in reasons) == 1


async def test_a_server_that_comes_back_gets_what_it_missed(nats_server: NatsServer) -> None:
    async with grpc_end() as end:
        text = sink(
            f"@sink(type='grpc', publisher.url='grpc://127.0.0.1:{end.port}/{SERVICE}', "
            "@map(type='json'))"
        )
        async with staged(nats_server.url, text) as stage:
            await end.close()
            await stage.publish("T", *ROWS[:2])
            stage.start("sink-T")

            def is_away() -> bool:
                return any(
                    connector.state is InstanceState.RETRYING
                    for r in stage.reports
                    for connector in r.connectors
                )

            await stage.until("it is away", is_away)
            await end.open()
            await stage.until("2 calls", lambda: len(end.calls) == 2)
            await end.close()
            await stage.publish("T", *ROWS[2:])
            await end.open()
            await stage.until("4 calls", lambda: len(end.calls) == 4)
            found = [json.loads(payload_of(one.message))["event"]["n"] for one in end.calls]
            assert found == [0, 1, 2, 3]


CALLED = """@App:name('{app}')
@source(type='grpc-call-response', sink.id='{app}', @map(type='json',
        @attributes(n='$.n', of='trp:n', x='trp:x-of')))
define stream S (n int, of string, x string);
@sink(type='grpc-call', sink.id='{app}', publisher.url='grpc://127.0.0.1:PORT/SERVICE',
      @map(type='json', envelope='none'))
define stream T (n int);
from S select n insert into Out;
"""


async def test_answers_become_events_with_the_attributes_of_their_calls(
    nats_server: NatsServer,
) -> None:
    def answer(message: bytes) -> bytes | Failure:
        n = json.loads(payload_of(message))["n"]
        if n == 1:
            return Failure(grpc.StatusCode.NOT_FOUND)
        return b"\xff" if n == 2 else event(json.dumps({"n": n * 2}))

    async with grpc_end(answer) as end:
        text = CALLED.replace("PORT", str(end.port)).replace("SERVICE", SERVICE)
        async with staged(nats_server.url, text.replace("{app}", "Call")) as stage:
            await stage.publish("T", *ROWS)
            stage.start("sink-T")
            # Without the source the answer has no place: the sink waits.
            await stage.until("a call", lambda: end.calls)
            assert await stage.events("S") == []
            await stage.until_running(stage.start("receiver-S"))

            async def whole() -> bool:
                return len(await stage.events("S")) == 2

            await stage.until("2 answers", whole)
            assert await stage.events("S") == [
                {"n": n * 2, "of": str(n), "x": "the end"} for n in (0, 3)
            ]
            assert [entry["reason"] for entry in await stage.errors()] == [
                "answered NOT_FOUND: no",
                "the answer can't be read: the message is no Event",
            ]
            assert {one.method for one in end.calls} == {f"/{SERVICE}/process"}


async def test_calls_of_a_sink_are_repeated_with_their_key_only(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with grpc_end() as end:
        url = f"grpc://127.0.0.1:{end.port}/{SERVICE}/consume"
        text = sink(f"@sink(type='grpc', publisher.url='{url}', @map(type='json'))", "{app}")

        async def send(stage: Stage) -> None:
            await stage.publish("T", *ROWS)

        async def arrived(stage: Stage) -> list[str]:
            found: dict[str, str] = {}
            for one in list(end.calls):
                key, payload = one.metadata["idempotency-key"], payload_of(one.message)
                if key.startswith(f"{stage.spec.name}/"):
                    assert found.setdefault(key, payload) == payload
            return list(found.values())

        use = ConnectorScenario(
            text, "sink-T", send, arrived, lambda found: len(found) >= len(ROWS)
        )
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"before write", "after write"} <= set(moments)


@pytest.mark.extended
@pytest.mark.parametrize("group", ["sink-T", "receiver-S"])
async def test_answers_of_repeated_calls_are_stored_once(
    nats_server: NatsServer, tmp_path: Path, group: str
) -> None:
    other = "receiver-S" if group == "sink-T" else "sink-T"

    async def send(stage: Stage) -> None:
        # The other end runs calmly, beside the one that is killed.
        calm = stage.environment
        stage.environment = stage.calm
        try:
            await stage.until_running(stage.start(other))
        finally:
            stage.environment = calm
        await stage.publish("T", *ROWS)

    async def stored(stage: Stage) -> list[Any]:
        return sorted(row["n"] for row in await stage.events("S"))

    async with grpc_end(lambda message: message) as end:
        text = CALLED.replace("PORT", str(end.port)).replace("SERVICE", SERVICE)
        use = ConnectorScenario(text, group, send, stored, lambda found: len(found) >= len(ROWS))
        assert await conform(nats_server.url, use, tmp_path)
