"""Refusals of NATS, as a user is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.refusals import refusals
from mesh.manager.manager import running
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
async def test_a_user_is_told_which_bucket_is_missing(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, _):
        js = manager.client.jetstream()
        await js.delete_stream(f"KV_{names.SNAPSHOTS_BUCKET}")
        with pytest.raises(MeshError) as caught, refusals():
            await kv.open_bucket(js, names.SNAPSHOTS_BUCKET)
    assert caught.value.code == "MESH-N127"
    assert names.SNAPSHOTS_BUCKET in caught.value.message
    assert "BucketNotFoundError" not in caught.value.render()
