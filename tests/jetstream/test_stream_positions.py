"""Markers whose rows follow them, as backups, forks and the end of an incarnation find them.

Sizes of streams and times of snapshots, as the leader's metrics have them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pytest

from mesh.clock import SystemClock
from mesh.jetstream import channel_reader, channels, stream_positions
from mesh.jetstream.connection import close, connect
from mesh.jetstream.stream_positions import size_of, survey
from mesh.model import names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ChannelSettings, NatsSettings
from pyspark_nats.arrow import arrow
from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import marker_cache, messages_out, publish
from pyspark_nats.sink.sink_options import sink_options
from tests.support.ingest import leave_unconfirmed
from tests.support.nats_versions import skip_without_ingest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer


pytestmark = pytest.mark.nats

STREAM, SUBJECT = "mesh-Shop-Out", "mesh.Shop.Out"
PRODUCER = "inc-sums-0"


def rows(first: int, count: int) -> pa.RecordBatch:
    data = pa.array([b'{"n":%d}' % n for n in range(first, first + count)], pa.binary())
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": data}),
        stream=STREAM, subject=SUBJECT, producer=PRODUCER, first_position=first,
    )  # fmt: skip


class Writer:
    """A slot's publisher of one producer."""

    def __init__(self, url: str, epoch: int = 3) -> None:
        given = {"servers": url, "epoch": str(epoch), "markerPrefix": names.MARKERS}
        self.options = sink_options(given)
        self.connection = Connection(self.options.connection)

    def publisher(self) -> publish.RowPublisher:
        return publish.RowPublisher(self.connection, self.options, is_long_lived=True)

    def write(self, *runs: pa.RecordBatch) -> None:
        for run in runs:
            self.publisher().write(run)

    def leave(self, run: pa.RecordBatch) -> None:
        """Store rows without the marker that follows them."""
        leave_unconfirmed(self.publisher(), run)


@asynccontextmanager
async def _written(
    server: NatsServer, *, is_left: bool = True
) -> AsyncIterator[tuple[Client, Writer]]:
    """A channel's stream with 1,005 rows, and 25 after the newest marker."""
    client = await connect(NatsSettings(url=server.url), "test")
    skip_without_ingest(client)
    marker_cache.clear()
    writer = Writer(server.url)
    try:
        await channels.ensure_stream(client, STREAM, SUBJECT, ChannelSettings())
        # The caches of publishers belong to a thread.
        writer.write(rows(0, 5), rows(5, 1000))
        if is_left:
            writer.leave(rows(1005, 25))
        yield client, writer
    finally:
        writer.connection.close()
        marker_cache.clear()
        await close(client)


async def _stored(client: Client) -> dict[str, object]:
    subject = f"{names.marker_subject(STREAM)}.{PRODUCER}"
    found = await client.jetstream().get_last_msg(STREAM, subject)
    values: dict[str, object] = orjson.loads(found.data or b"")
    return values


async def test_a_backup_has_the_position_of_the_last_row(nats_server: NatsServer) -> None:
    async with _written(nats_server) as (client, _):
        stored = await _stored(client)
        assert stored["position"] == 1004
        assert stored["ingest"]
        cut = await stream_positions.cut(client, STREAM, "inc")
        assert cut is not None
        assert orjson.loads(cut.markers["sums-0"])["position"] == 1029
        # A new incarnation begins there, and its marker has no batch.
        await stream_positions.begin_producers(client, cut, "other")
        told = await stream_positions.markers(client, STREAM)
        assert told is not None
        begun = orjson.loads(told[1]["other-sums-0"])
        assert (begun["position"], begun.get("ingest")) == (1029, None)
        assert orjson.loads(told[1][PRODUCER])["position"] == 1029


async def test_an_ended_producer_adds_no_row_to_its_batch(nats_server: NatsServer) -> None:
    async with _written(nats_server) as (client, writer):
        before = (await client.jetstream().stream_info(STREAM)).state.last_seq
        await stream_positions.end_producers(client, STREAM, "inc", [PRODUCER])
        with pytest.raises(StaleWriterError):
            writer.write(rows(1030, 500))
        found = [one async for one in channel_reader.read(client, STREAM, before + 1, 2**40)]
        assert [one.subject for one in found] == [f"{names.marker_subject(STREAM)}.{PRODUCER}"]


async def test_rows_tell_their_producer_and_position(nats_server: NatsServer) -> None:
    async with _written(nats_server) as (client, _):
        known = await stream_positions.producers(client, STREAM)
        found = [
            row
            async for one in channel_reader.read(client, STREAM, 1, 2**40, SUBJECT)
            if (row := messages_out.parse(one.headers.get(messages_out.HEADER))) is not None
        ]
        assert [row.position for row in found] == list(range(5, 1030))
        assert {known[row.producer] for row in found} == {PRODUCER}


async def test_streams_of_an_older_server_take_atomic_batches(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_INGEST_SINCE", (99, 0))
    async with _written(nats_server, is_left=False) as (client, _):
        stored = await _stored(client)
        assert (stored["position"], stored.get("ingest")) == (1004, None)


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
