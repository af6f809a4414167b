"""Objects of an object store, read over the connector's connection."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import objects, snapshots
from mesh.jetstream.connection import close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

#: Several chunks, the last of them short; none; less than one.
CONTENTS = {"large": os.urandom(1000) * 700, "empty": b"", "small/with some signs?": b"x"}


async def test_what_was_put_is_copied(nats_server: NatsServer, tmp_path: Path) -> None:
    def copy() -> None:
        paths = {name: tmp_path / str(number) for number, name in enumerate(CONTENTS)}
        with Connection(connection_options({"servers": nats_server.url})) as connection:
            objects.copy(connection, names.STATE_BUCKET, paths)
            for name in ("gone", "never there"):
                wanted = {**paths, name: tmp_path / "missing"}
                with pytest.raises(objects.ObjectMissingError, match=name):
                    objects.copy(connection, names.STATE_BUCKET, wanted)
        assert {name: path.read_bytes() for name, path in paths.items()} == CONTENTS

    def copy_damaged() -> None:
        options = connection_options({"servers": nats_server.url})
        with (
            Connection(options) as connection,
            pytest.raises(MeshError, match="differs from the stored one"),
        ):
            objects.copy(connection, names.STATE_BUCKET, {"large": tmp_path / "damaged"})

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
    await asyncio.to_thread(copy)
    await js.purge_stream(f"OBJ_{names.STATE_BUCKET}", subject=f"$O.{names.STATE_BUCKET}.C.>")
    await asyncio.to_thread(copy_damaged)
    await close(client)


def test_what_is_above_a_limit_is_copied_as_well(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several descriptions, several runs of objects, and one that is read through a range.
    for limit, value in (("_LOOKS", 2), ("_REQUEST_BYTES", 1000), ("_LARGE_BYTES", 3000)):
        monkeypatch.setattr(objects, limit, value)
    contents = {f"piece {size}": os.urandom(size) for size in (400, 500, 600, 2000, 5000, 1)}

    async def store() -> None:
        client = await connect(NatsSettings(url=nats_server.url), "test")
        await snapshots.ensure_buckets(client.jetstream(), replicas=1)
        bucket = await client.jetstream().object_store(names.STATE_BUCKET)
        for name, content in contents.items():
            await bucket.put(name, content)
        await close(client)

    asyncio.run(store())
    paths = {name: tmp_path / name for name in contents}
    with Connection(connection_options({"servers": nats_server.url})) as connection:
        objects.copy(connection, names.STATE_BUCKET, paths)
    assert {name: path.read_bytes() for name, path in paths.items()} == contents
