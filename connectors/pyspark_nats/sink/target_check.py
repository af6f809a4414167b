"""Checks that a target stream is the one that a writer knows, and still holds what it acknowledged.

They are made when a marker was read: at the first rows of a producer, and after any doubt.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_nats.errors import DataLossError, RefusedError, StaleWriterError
from pyspark_nats.protocol import jetstream
from pyspark_nats.sink import markers
from pyspark_nats.sink.markers import NONE
from pyspark_nats.sink.producer_state import CLOCKS_MS

if TYPE_CHECKING:
    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.sink.marker_cache import MarkerCache
    from pyspark_nats.sink.markers import Marker
    from pyspark_nats.sink.producer_state import Pair


def check_acknowledged(
    connection: Connection, cache: MarkerCache, prefix: str, pair: Pair, current: Marker
) -> None:
    """Check that a stream still holds what it acknowledged to this process.

    Args:
        connection: to a server.
        cache: of this thread; a loss is reported once.
        prefix: of the subjects of markers.
        pair: stream and producer.
        current: the producer's last marker as it was read, with the position of its last row.

    Raises:
        DataLossError: it does not, as after a power failure of its server.  The next task continues
            after what is stored.
    """
    prior = cache.acknowledged.get(pair)
    is_newer = prior is not None and current.sequence >= prior.sequence
    if prior is None or (is_newer and current.position >= prior.position):
        return
    stream, producer = pair
    info = jetstream.stream_infos(connection, [stream])[stream]
    if cache.streams[stream].created_ms != info.created_ms:
        # The stream was made again; a new task may write to it.
        del cache.acknowledged[pair]
        return
    if is_newer:
        raise _data_loss(
            connection,
            cache,
            pair,
            f'stream "{stream}" does not hold the last rows of producer "{producer}" any more',
            f"It had acknowledged rows up to position {prior.position}, and has rows up to "
            f"{current.position}.",
        )
    _check_sequence(connection, cache, prefix, pair, prior, info)
    del cache.acknowledged[pair]


def vanished(connection: Connection, cache: MarkerCache, prefix: str, pair: Pair) -> Marker:
    """The marker of a producer whose stream holds none: as this process knows it, without sequence.

    A stream that was purged, or whose markers have expired, holds none of a producer that has
    written.  Its rows up to there were stored, and are not written again.

    Args: as for ``check_acknowledged``.

    Returns:
        ``NONE`` for a producer that has not written as far as known, and for a stream that was made
        again; with the ingest batch whose rows may follow.

    Raises:
        DataLossError: as ``check_acknowledged``.
    """
    prior = cache.acknowledged.get(pair)
    if prior is None:
        return NONE
    info = jetstream.stream_infos(connection, [pair[0]])[pair[0]]
    if cache.streams[pair[0]].created_ms != info.created_ms:
        del cache.acknowledged[pair]
        return NONE
    _check_sequence(connection, cache, prefix, pair, prior, info)
    # The marker after its last rows may have been refused for this reason.
    position = max(prior.position, cache.stored.get(pair, -1))
    return without_sequence(replace(prior, position=position))


def without_sequence(marker: Marker) -> Marker:
    """A marker that its stream does not hold any more; its batch is known by the sequence."""
    batch = marker.ingest
    if batch is not None:
        batch = replace(batch, since=batch.since or marker.sequence)
    return replace(marker, sequence=0, ingest=batch)


def _check_sequence(
    connection: Connection,
    cache: MarkerCache,
    prefix: str,
    pair: Pair,
    prior: Marker,
    info: StreamInfo,
) -> None:
    """Check that the sequence of a known marker was not lost, or used again."""
    stream, producer = pair
    first = str(info.last + 1)
    if info.last >= prior.sequence:
        stored = jetstream.message(connection, stream, prior.sequence)
        if stored is None or stored.subject == markers.subject(prefix, *pair):
            # A marker that expired, or was deleted, is no loss.
            return
        first = "some"
    raise _data_loss(
        connection,
        cache,
        pair,
        f'stream "{stream}" does not hold sequences {first} to {prior.sequence} any more',
        f'It had acknowledged rows of producer "{producer}" up to there.',
    )


def _data_loss(
    connection: Connection, cache: MarkerCache, pair: Pair, message: str, detail: str
) -> DataLossError:
    """The error for a loss; it names other streams that have lost rows of the producer as well.

    Its next task continues after what all of them store, so one report is enough.
    """
    priors = {p: m for p, m in cache.acknowledged.items() if p[1] == pair[1] and p != pair}
    infos: dict[str, StreamInfo] = {}
    # A stream that is gone has no end.
    with suppress(RefusedError):
        infos = jetstream.stream_infos(connection, [stream for stream, _ in priors])
    # Not before: without an answer the loss would be forgotten.
    del cache.acknowledged[pair]
    others = []
    for (stream, producer), prior in priors.items():
        if stream in infos and infos[stream].last < prior.sequence:
            del cache.acknowledged[stream, producer]
            first = infos[stream].last + 1
            others.append(f'Nor does stream "{stream}" hold {first} to {prior.sequence}.')
    return DataLossError(
        message,
        detail=" ".join([detail, *others, "This happens when a server loses power."]),
        hint="What is stored continues from there; what was published since may be lost.",
    )


def check_first(connection: Connection, pair: Pair, began_ms: int | None) -> None:
    """Check, before the first marker of a producer, that its stream is not a later one.

    A writer that was paused may wake up when its stream was deleted and made again for others,
    where no marker refuses it.

    Args:
        connection: to a server.
        pair: stream and producer.
        began_ms: when the writer began, by a server's clock; None if it is not known.

    Raises:
        StaleWriterError: the stream was made after that.
    """
    if began_ms is None:
        return
    stream, producer = pair
    info = jetstream.stream_infos(connection, [stream])[stream]
    if info.created_ms > began_ms + CLOCKS_MS:
        raise StaleWriterError(
            f'stream "{stream}" was made after the writer of producer "{producer}" had begun',
            detail="It belongs to others now.",
            hint="This writer was replaced; it must stop.",
        )
