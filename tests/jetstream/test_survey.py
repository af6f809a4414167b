"""Sizes of streams and times of snapshots, as the leader's metrics have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.jetstream import channels
from mesh.jetstream.connection import close, connect
from mesh.jetstream.survey import size_of, survey
from mesh.model import names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ChannelSettings, NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

SPEC = plan(
    "@App:name('A') define stream S (a int);"
    "@dist(execGroup='g') from S#window.length(2) select a insert into T;"
).spec


async def test_streams_and_snapshots_of_apps_are_found(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    try:
        settings = ChannelSettings(max_bytes=1_000_000)
        await channels.ensure_buckets(client.jetstream(), settings)
        await channels.ensure_channels(client, SPEC, settings)
        record = AppRecord(SPEC, "inc", 0)
        empty = await survey(client, [record])
        assert empty.snapshots_s == {}
        js = client.jetstream()
        await js.publish("mesh.A.S", b"x" * 10_000)
        bucket = await js.key_value(names.SNAPSHOTS_BUCKET)
        before_s = SystemClock().wall_ms() / 1000
        for part in ("0", "1"):
            await bucket.put(f"inc.g.{part}", b"manifest" * 1000)
        await bucket.put("other.g.0", b"of an app that is not deployed")
        await bucket.delete("inc.g.1")
        found = await survey(client, [record])
        sizes = {one.js_stream: one for one in found.channels}
        assert set(sizes) == {"mesh-A-S", "mesh-A-T", "mesh-A-errors-"}
        assert 0.01 < (sizes["mesh-A-S"].limit_ratio or 0) < 0.02
        assert sizes["mesh-A-S"].replica_lag == 0
        assert found.snapshots_s is not None
        assert set(found.snapshots_s) == {("A", "g")}
        assert abs(found.snapshots_s["A", "g"] - before_s) < 30
    finally:
        await close(client)


def test_the_lag_is_that_of_the_slowest_replica() -> None:
    info = {
        "config": {"name": "s", "max_bytes": -1},
        "state": {"bytes": 5},
        "cluster": {"replicas": [{"name": "n2"}, {"name": "n3", "lag": 7}]},
    }
    size = size_of(info, "A")
    assert (size.replica_lag, size.limit_ratio) == (7, None)
