"""The end of an incarnation's producers: no writer of it is accepted any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mesh.jetstream import stream_positions

if TYPE_CHECKING:
    from collections.abc import Collection

    from nats.aio.client import Client

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord


async def end(
    client: Client, app: AppRecord, groups: Collection[GroupSpec], js_streams: Collection[str]
) -> None:
    """End the writers of an incarnation: those that have written, and those that have not yet.

    Args:
        client: the connection.
        app: the incarnation.
        groups: its groups, in each revision that may still run.
        js_streams: the streams that it may have written; those that are gone are left out.
    """
    # Only here: it brings Spark's Python along.
    from mesh.spark.producers import producers

    pairs = await asyncio.to_thread(producers, groups, app.incarnation)
    for js_stream in sorted(js_streams):
        writers = [producer for stream, producer in pairs if stream == js_stream]
        if await stream_positions.state(client, js_stream) is not None:
            await stream_positions.end_producers(client, js_stream, app.incarnation, writers)
