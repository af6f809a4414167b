"""The buckets of the control plane, where servers have not found each other yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import BadRequestError

from mesh.errors import MeshError
from mesh.jetstream import channels
from mesh.model import names
from mesh.settings import ChannelSettings
from tests.support.jetstream import run

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer


class Starting:
    """JetStream of servers that have not found each other: at first none places anything.

    The duration of that state can't be controlled in a real cluster.
    """

    def __init__(self, js: JetStreamContext, refusals: float) -> None:
        self._js = js
        self.refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._js, name)

    async def create_key_value(self, *given: Any, **named: Any) -> Any:
        """Refused as a server does, and then done."""
        if self.refusals > 0:
            self.refusals -= 1
            raise BadRequestError(
                code=400,
                err_code=10005,
                description="no suitable peers for placement, peer offline",
            )
        return await self._js.create_key_value(*given, **named)


def test_they_wait_for_servers_that_can_hold_them(nats_server: NatsServer) -> None:
    async def play(js: JetStreamContext) -> None:
        starting: Any = Starting(js, refusals=2)
        await channels.ensure_buckets(starting, ChannelSettings())
        assert starting.refusals == 0
        for bucket in (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET):
            await js.key_value(bucket)

    run(nats_server, play)


def test_it_is_said_when_none_came(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PLACING_S", 0.0)

    async def play(js: JetStreamContext) -> None:
        starting: Any = Starting(js, refusals=float("inf"))
        with pytest.raises(MeshError, match="buckets of 3 replicas can't be made") as raised:
            await channels.ensure_buckets(starting, ChannelSettings(replicas=3))
        assert raised.value.code == "MESH-N123"
        assert "no suitable peers" in str(raised.value.detail)

    run(nats_server, play)


def test_what_does_not_pass_is_raised_at_once(nats_server: NatsServer) -> None:
    async def play(js: JetStreamContext) -> None:
        # A single server has no replicas.
        with pytest.raises(Exception, match="replicas > 1 not supported"):
            await channels.ensure_buckets(js, ChannelSettings(replicas=3))

    run(nats_server, play)
