"""End of ingest batches that have had no rows for a while, or whose producers end."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_nats.errors import ConnectorError
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import DisconnectedError, shared
from pyspark_nats.sink import markers
from pyspark_nats.sink.marker_cache import PINGS, caches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.marker_cache import MarkerCache, OpenBatch
    from pyspark_nats.sink.markers import Marker
    from pyspark_nats.sink.producer_state import Pair

log = logging.getLogger(__name__)

#: Producer, its batch, and its marker.
_Idle: TypeAlias = "tuple[Pair, OpenBatch, Marker]"

#: Purpose of the connection over which they are published.
PUBLISHING: Final = "publishing"
#: Time without rows after which a marker ends a batch, seconds.
REST_S: Final = 4.0


def next_s() -> float | None:
    """When ``end_idle`` has to be called, monotonic, seconds; None while there is no batch."""
    open_ones = (list(cache.ingests.values()) for cache in caches().values() if cache.ingests)
    used_s = (one.used_s for some in open_ones for one in some)
    return min((at_s + REST_S for at_s in used_s), default=None)


def end_idle(rest_s: float = REST_S) -> None:
    """End the batches of this thread's publishers without rows for ``rest_s``, by a marker.

    Otherwise a successor would read all that others have stored since.  So a failure costs nothing
    but a longer search.
    """
    now_s = time.monotonic()
    _end_where(lambda _, batch: now_s - batch.used_s >= rest_s)


def end_of(producers: Collection[str]) -> None:
    """End the batches of these producers, which publish no more in this thread.

    Their successors need not search for the end of them, which takes several answers of the server
    for each.  A failure costs no more than that.
    """
    _end_where(lambda pair, _: pair[1] in producers)


def _end_where(is_due: Callable[[Pair, OpenBatch], bool]) -> None:
    for (options, prefix, _), cache in caches().items():
        if not (batches := _taken(cache, is_due)):
            continue
        connection = shared(options, PUBLISHING)
        if not connection.is_open:
            # A server that is away is no reason to wait.
            continue
        try:
            _end(connection, cache, prefix, batches)
        except (ConnectorError, DisconnectedError, OSError) as error:
            log.info("ingest batches not ended: %s", error)
            connection.close()


def _taken(cache: MarkerCache, is_due: Callable[[Pair, OpenBatch], bool]) -> list[_Idle]:
    """The batches that are due, which no run uses from now on."""
    batches: list[_Idle] = []
    with cache.lock:
        for pair, ingest in list(cache.ingests.items()):
            if is_due(pair, ingest):
                del cache.ingests[pair]
                marker = cache.markers.get(pair)
                if marker is not None:
                    batches.append((pair, ingest, marker))
    return batches


def _end(connection: Connection, cache: MarkerCache, prefix: str, batches: list[_Idle]) -> None:
    inbox = cache.inbox(connection, PINGS)
    for pair, ingest, _ in batches:
        # Nothing waits for this answer; the marker counts.
        reply = f"{ingest.reply(inbox)}.{ingest.sent + 1}.3.$FI"
        connection.send(frames.publish(markers.subject(prefix, *pair), b"", reply=reply))
    calls = [
        (markers.subject(prefix, *pair), markers.payload(marker), marker.sequence)
        for pair, _, marker in batches
    ]
    for (pair, _, marker), sequence in zip(batches, markers.put(connection, calls), strict=True):
        cache.written[pair] += 1
        with cache.lock:
            # A run may have begun meanwhile.
            if cache.markers.get(pair) is marker:
                if sequence is None:
                    del cache.markers[pair]
                else:
                    cache.markers[pair] = replace(marker, sequence=sequence)
