"""Purge of a producer's old markers, of which only the last is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.sink import markers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.marker_cache import MarkerCache
    from pyspark_nats.sink.producer_state import Pair

#: Markers of a producer that a process writes before it purges the older ones.
MARKERS_MAX: Final = 256


def purge_old(
    connection: Connection, cache: MarkerCache, prefix: str, pairs: Iterable[Pair]
) -> None:
    """Purge old markers once there are many; they cost space only, so this may fail.

    Args:
        connection: to a server.
        cache: counts the markers written.
        prefix: of the subjects of markers.
        pairs: stream and producer of each.
    """
    due = [pair for pair in pairs if cache.written[pair] >= MARKERS_MAX]
    if not due or not cache.may_purge:
        return
    for pair in due:
        del cache.written[pair]
    try:
        markers.purge(connection, prefix, due)
    except RefusedError:
        cache.may_purge = False
    except (DisconnectedError, OSError):
        return
