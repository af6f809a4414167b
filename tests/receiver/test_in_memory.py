"""Source and sink ``inMemory``: a topic joins two apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.testing.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

OUT = """@App:name('Out')
define stream S (k string, n int);
@sink(type='inMemory', topic='orders of {{k}}', @map(type='passThrough'))
define stream T (k string, n int);
from S select k, n insert into T;
"""
IN = """@App:name('In')
@source(type='inMemory', topic='orders of a', @map(type='passThrough'))
define stream S (k string, n int);
from S select k, n insert into T;
"""


@pytest.mark.slow
async def test_events_go_from_one_app_to_the_other(nats_server: NatsServer) -> None:
    async with staged(nats_server.url, OUT) as out, staged(nats_server.url, IN) as into:
        await out.publish("T", {"k": "a", "n": 0})
        await out.until_running(out.start("sink-T"))
        await out.until("its event", lambda: out.reports[-1].events_out == 1)
        first = into.start("receiver-S")

        async def begun() -> Any:
            return (await into.js.stream_info("mesh-In-S")).state.messages >= 2

        # The marker of the start, and where the topic begins for it.
        await into.until("begun", begun)
        await out.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2})

        async def count(number: int) -> bool:
            return len(await into.events("S")) == number

        await into.until("the event", lambda: count(1))
        await first.stop()
        await out.publish("T", {"k": "a", "n": 3})
        await out.until("4 events", lambda: out.reports[-1].events_out == 4)
        into.start("receiver-S", epoch=2)
        await into.until("the next", lambda: count(2))
        assert [e["n"] for e in await into.events("S")] == [1, 3]
