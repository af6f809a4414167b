"""Calls of the lineage process: a manager's answers that take time and memory.

A manager computes none of this itself: it would hold up the loop that renews the leader's lease.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.jetstream import connection
from mesh.jetstream.blob_store import open_blob_store
from mesh.jetstream.connection import connector_options
from mesh.lineage.adopting import adopted
from mesh.lineage.bases import Bases
from mesh.lineage.outputs import compare_apps
from mesh.lineage.stored import stored_events
from mesh.lineage.why import Lineage
from mesh.model import codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.client import Client

    from mesh.model.begin import StartPosition
    from mesh.model.cluster import AppRecord
    from mesh.model.lineage import StoredStream
    from mesh.settings import NatsSettings


def why(
    nats: NatsSettings, record: AppRecord, store: str, stream: str, sequence: int, index: int
) -> object:
    """The lineage of an event, as JSON values; see ``Lineage.why``.  ``store``: of backups."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            pieces = open_blob_store(client.jetstream(), store, connector_options(nats))
            lineage = Lineage(client, record, bases=Bases(client, pieces, record))
            return codec.to_values(await lineage.why(stream, sequence, index))

    return asyncio.run(answer())


def compare(
    nats: NatsSettings,
    before: AppRecord,
    after: AppRecord,
    streams: Sequence[str],
    key: Sequence[str],
    ignored: Sequence[str],
) -> Any:
    """The comparison of two apps' outputs, as JSON values; see ``compare_apps``."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            return await compare_apps(client, before, after, streams, key, ignored)

    return asyncio.run(answer())


def adopt(
    nats: NatsSettings, record: AppRecord, group: str, number: int, base: str, end: str, files: str
) -> str:
    """The state of a fork's group where the app's group is; see ``mesh.lineage.adopting``."""

    async def answer() -> str:
        async with _connected(nats) as client:
            return await adopted(client, record, group, number, base, end, Path(files))

    return asyncio.run(answer())


def stored(
    nats: NatsSettings,
    streams: Sequence[StoredStream],
    last: int,
    since: StartPosition | None,
    until: StartPosition | None,
) -> Any:
    """The last events of streams in a range, and notes; see ``stored_events``."""

    async def answer() -> Any:
        async with _connected(nats) as client:
            return await stored_events(client, streams, last, since, until)

    return asyncio.run(answer())


@asynccontextmanager
async def _connected(nats: NatsSettings) -> AsyncIterator[Client]:
    client = await connection.connect(nats, "lineage")
    try:
        yield client
    except (NatsError, TimeoutError) as error:
        raise MeshError(
            "MESH-A503",
            "NATS did not answer",
            detail=f"{type(error).__name__}: {error}.",
            hint="Try again; 'nats server check jetstream' tells more.",
        ) from error
    finally:
        await connection.close(client)
