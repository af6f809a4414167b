"""Markers of a task's producers, as the leaders of their streams know them, with their checks.

Only the last one of a producer is read; old ones are purged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import ConnectorError, RefusedError, SchemaError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.sink import fencing, markers, producer_state, target_check
from pyspark_nats.sink.producer_state import ProducerState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.marker_cache import MarkerCache
    from pyspark_nats.sink.markers import Origin
    from pyspark_nats.sink.producer_state import Pair
    from pyspark_nats.sink.sink_options import SinkOptions

#: Markers of a producer that a process writes before it purges the older ones.
MARKERS_MAX: Final = 256


class ProducerMarkers:
    """Reads markers, and remembers them for later tasks of the thread."""

    def __init__(
        self, connection: Connection, options: SinkOptions, origin: Origin, cache: MarkerCache
    ) -> None:
        self._connection = connection
        self._options = options
        self._origin = origin
        self._cache = cache

    def state_of(self, pair: Pair) -> ProducerState:
        """State of a producer, with its marker if an earlier task knew it.

        Raises:
            SchemaError: the producer's name can't be part of a subject; RefusedError: the stream
                takes no atomic batches or no markers; others as ``producer_state.check_marker``.
        """
        if not pair[1] or set(pair[1]) & set(" *>\t\r\n"):
            raise SchemaError(
                f'producer "{pair[1]}" can\'t stand in the subject of its marker',
                hint="It has no white space and no wildcards.",
            )
        self._check_stream(pair[0])
        marker = self._cache.markers.get(pair)
        # Where another task found none, the stream may be another one by now.
        marker = marker if marker is not None and marker.sequence else None
        state = ProducerState(pair, marker, sequence=marker.sequence if marker else 0)
        self._check(state)
        return state

    def read(self, states: list[ProducerState]) -> None:
        """Read the markers of producers; of an ingest batch that is newer, its last position too.

        Raises:
            DisconnectedError, OSError: as any step under ``Connection.retry_while_unavailable``;
                others as ``producer_state.check_marker`` and ``target_check``.
        """
        prefix = self._options.marker_prefix
        requests = [(state.pair[0], markers.subject(prefix, *state.pair)) for state in states]
        stored = jetstream.last_messages(self._connection, requests)
        for state, message in zip(states, stored, strict=True):
            marker = markers.parse(message)
            if message is None:
                marker = target_check.vanished(self._connection, self._cache, prefix, state.pair)
            if marker.ingest is not None:
                epoch = self._options.epoch
                marker = fencing.settled(self._connection, prefix, state.pair, marker, epoch)
            state.marker = self._cache.markers[state.pair] = marker
            state.sequence, state.is_verified = marker.sequence, True
            self._check_read(state, is_stored=message is not None)
            if marker.sequence:
                self._cache.acknowledged[state.pair] = marker

    def forget(self, state: ProducerState) -> None:
        """Have the marker of a producer be read before it is used again."""
        state.marker, state.is_verified = None, False
        self._cache.markers.pop(state.pair, None)

    def _check_read(self, state: ProducerState, *, is_stored: bool) -> None:
        try:
            prefix, marker = self._options.marker_prefix, state.marker
            assert marker is not None
            if is_stored:
                target_check.check_acknowledged(
                    self._connection, self._cache, prefix, state.pair, marker
                )
            if not state.sequence:
                target_check.check_first(self._connection, state.pair, self._origin.began_ms)
        except ConnectorError:
            self.forget(state)
            raise
        self._check(state)

    def _check(self, state: ProducerState) -> None:
        """Check the writer of the marker, if the marker is known."""
        if state.marker is None:
            return
        try:
            producer_state.check_marker(state.pair, state.marker, self._options.epoch, self._origin)
        except ConnectorError:
            self.forget(state)
            raise

    def _check_stream(self, stream: str) -> None:
        """Check once that the stream accepts atomic batches and holds its markers."""
        if stream not in self._cache.streams:
            infos = self._connection.retry_while_unavailable(
                "looking at the stream", lambda: jetstream.stream_infos(self._connection, [stream])
            )
            producer_state.check_stream(infos[stream], self._options.marker_prefix)
            self._cache.streams[stream] = infos[stream]


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
