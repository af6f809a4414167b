"""The view of the control plane's bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.jetstream import channels, kv, watch
from mesh.model import names
from mesh.settings import ChannelSettings
from tests.support.first_reads import Shrinking, run

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


def test_a_view_is_complete_though_the_last_message_never_comes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENCE_S", 0.1)

    async def play(client: Client) -> None:
        js = client.jetstream()
        await channels.ensure_buckets(js, ChannelSettings())
        for key in ("app.a", "app.b"):
            await kv.put(js, names.APPS_BUCKET, key, None)
        view = watch.ClusterView(client, SystemClock())
        view._js = Shrinking(js)  # type: ignore[assignment]
        await view.start()
        await view.stop()

    run(nats_server, play)
