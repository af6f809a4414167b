"""The backlog of a sink whose destination is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.connectors import staged
from tests.support.sink_apps import APP, SINK, endpoints, events

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


@pytest.mark.slow
async def test_what_a_destination_that_is_away_has_not_got_still_waits(
    nats_server: NatsServer,
) -> None:
    async with (
        endpoints() as (end,),
        staged(nats_server, APP.format(SINK.format(end.url))) as stage,
    ):
        await end.close()
        await stage.publish("T", *events(0, 5))
        stage.start("sink-T")

        def told() -> bool:
            report = stage.reports[-1] if stage.reports else None
            return bool(report and report.connectors and report.connectors[0].attempts)

        await stage.until("a failed attempt", told)
        said = stage.reports[-1]
        # It has read them, and nobody has got them.
        assert (said.messages_in, said.behind, said.connectors[0].behind) == (0, 5, 5)
        # Those that come meanwhile wait, too.
        await stage.publish("T", *events(5, 8))
        await stage.until("a count of all", lambda: stage.reports[-1].behind == 8)
        await end.open()
        await stage.until("nothing waits", lambda: not stage.reports[-1].behind)
        assert (stage.reports[-1].messages_in, stage.reports[-1].events_out) == (8, 8)
