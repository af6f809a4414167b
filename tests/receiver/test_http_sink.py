"""Sink ``http``: answers that are tried again, dynamic addresses, and values without a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.connectors import staged
from tests.support.sink_apps import APP, SINK, endpoints, events, numbers

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_these_answers_are_tried_again(nats_server: NatsServer, status: int) -> None:
    async with endpoints() as (end,):
        end.statuses = [200, status, status]
        async with staged(nats_server, APP.format(SINK.format(end.url))) as stage:
            await stage.publish("T", *events(0, 3))
            stage.start("sink-T")
            await stage.until("3 events", lambda: len(end.bodies) == 3)
            assert numbers(end) == [0, 1, 2]
            assert await stage.errors() == []


@pytest.mark.parametrize("enabled", ["", ", basic.auth.enabled='false'"])
async def test_a_dynamic_address_and_a_reference(
    nats_server: NatsServer, caplog: Any, enabled: str
) -> None:
    sink = (
        f"@sink(type='http', ref='vault'{enabled}, "
        "publisher.url='{}?k={{{{k}}}}', "
        "headers=\"'X-N:{{{{n}}}}'\", @map(type='json', @payload('{{{{n}}}}')))"
    )

    async with endpoints() as (end,):
        text = APP.format(sink.format(end.url))
        async with staged(nats_server, text) as stage:
            await stage.publish("T", *events(4, 5))
            stage.start("sink-T")
            await stage.until("1 event", lambda: len(end.bodies) == 1)
            assert end.bodies == [4]
            assert end.heads[0]["x-n"] == "4"
            login = end.heads[0].get("authorization", "none")
            assert login.startswith("none" if enabled else "Basic ")
            assert "hunter2" not in caplog.text
            assert not any("hunter2" in str(r) for r in stage.reports)


async def test_values_that_make_no_request_are_refused_and_hold_nothing_up(
    nats_server: NatsServer,
) -> None:
    sink = (
        "@sink(type='http', publisher.url='{}?k=1', headers=\"'X-K:{{{{k}}}}'\", @map(type='json'))"
    )

    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(sink.format(end.url))) as stage,
    ):
        values = ("a", "b\r\nX-Other: c", "d\x00", "e")
        await stage.publish("T", *({"k": k, "n": n} for n, k in enumerate(values)))
        stage.start("sink-T")
        await stage.until("the last", lambda: 3 in numbers(end))
        assert numbers(end) == [0, 3]
        assert not any("x-other" in head for head in end.heads)

        async def entries() -> bool:
            return len(await stage.errors()) == 2

        await stage.until("2 entries", entries)
