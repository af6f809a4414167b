"""Objects of an object store, read over the connector's connection."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from nats.js.errors import ObjectNotFoundError

from mesh.errors import MeshError
from mesh.jetstream import objects, snapshots
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from pyspark_nats.connection import Connection
from pyspark_nats.connection_options import connection_options

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

#: Several chunks, the last of them short; none; less than one.
CONTENTS = {"large": os.urandom(1000) * 700, "empty": b"", "small/with some signs?": b"x"}


def test_what_was_put_is_read(nats_server: NatsServer) -> None:
    async def scene() -> None:
        client = await connect(NatsSettings(url=nats_server.url), "test")
        js = client.jetstream()
        await snapshots.ensure_buckets(js, replicas=1)
        store = await js.object_store(names.STATE_BUCKET)
        for name, content in CONTENTS.items():
            # The one that was there before has chunks of its own.
            await store.put(name, b"before")
            await store.put(name, content)
        await store.put("gone", b"x")
        await store.delete("gone")
        await asyncio.to_thread(read)
        await js.purge_stream(f"OBJ_{names.STATE_BUCKET}", subject=f"$O.{names.STATE_BUCKET}.C.>")
        await asyncio.to_thread(read_damaged)
        await close(client)

    def read() -> None:
        with Connection(connection_options({"servers": nats_server.url})) as connection:
            for name, content in CONTENTS.items():
                assert objects.read(connection, names.STATE_BUCKET, name) == content
            for name in ("gone", "never there"):
                with pytest.raises(ObjectNotFoundError):
                    objects.read(connection, names.STATE_BUCKET, name)

    def read_damaged() -> None:
        options = connection_options({"servers": nats_server.url})
        with (
            Connection(options) as connection,
            pytest.raises(MeshError, match="is not what was stored"),
        ):
            objects.read(connection, names.STATE_BUCKET, "large")

    asyncio.run(scene())
