"""Sink ``nats``: order, and headers of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.testing.connectors import staged
from tests.support.nats_apps import APP

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def test_many_events_leave_in_order(nats_server: NatsServer) -> None:
    sink = (
        f"@sink(type='nats', server.urls='{nats_server.url}', destination='out', "
        "headers=\"'Key:{{k}}'\", @map(type='json', envelope='none'))"
    )

    async with staged(nats_server.url, APP.format("", sink)) as stage:
        await stage.js.add_stream(name="OUT", subjects=["out"])
        lines = [b'{"k":"k","n":%d}' % n for n in range(3000)]
        await stage.js.publish("mesh.Nats.T", b"\n".join(lines))
        stage.start("sink-T")

        async def all_out() -> bool:
            return bool((await stage.js.stream_info("OUT")).state.messages >= 3000)

        await stage.until("all", all_out)
        found = [(await stage.js.get_msg("OUT", n)) for n in (1, 1500, 3000)]
        assert [one.data for one in found] == [lines[0], lines[1499], lines[2999]]
        assert (found[0].headers or {})["Key"] == "k"


@pytest.mark.parametrize(
    ("headers", "odd", "reason"),
    [
        ("'K:{{k}}'", "x" * 70_000, "out: header size exceeds maximum allowed of 64k"),
        ("{{k}}", "'A(b:1'", "the name of a header has a sign that names don't have"),
        ("'Nats-Expected-Last-Msg-Id:{{k}}'", "7", "out: wrong last msg ID: "),
    ],
)
async def test_headers_that_a_stream_refuses_are_those_of_one_event(
    nats_server: NatsServer, headers: str, odd: str, reason: str
) -> None:
    sink = (
        f"@sink(type='nats', server.urls='{nats_server.url}', destination='out', "
        f"headers=\"{headers}\", @map(type='json', envelope='none'))"
    )
    async with staged(nats_server.url, APP.format("", sink)) as stage:
        await stage.js.add_stream(name="OUT", subjects=["out"])
        lines = [{"k": k, "n": n} for n, k in enumerate(("", odd, ""))]
        await stage.publish("T", *lines)
        stage.start("sink-T")
        (entry,) = await stage.until("the entry", stage.errors)
        assert entry["reason"].startswith(reason)

        async def others() -> bool:
            return bool((await stage.js.stream_info("OUT")).state.messages == 2)

        await stage.until("the others", others)
