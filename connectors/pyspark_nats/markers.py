"""Markers: how far a producer's rows are out in a stream, kept in that stream itself.

A marker is the last message of every atomic batch that the sink publishes.  Its payload says the
position of the last row and the writer's epoch; only the newest marker of a producer is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_nats import connection_options, jetstream
from pyspark_nats.connection import Connection
from pyspark_nats.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_nats.jetstream import Stored


@dataclass(frozen=True, slots=True)
class Marker:
    """How far a producer is in a stream."""

    #: Position of the last row that is out; -1 when none is.
    position: int
    #: The epoch of the writer that left it; -1 when there is none.
    epoch: int
    #: The marker's own sequence, which the next one expects; 0 when there is none.
    sequence: int


NONE = Marker(-1, -1, 0)


def subject(prefix: str, stream: str, producer: str) -> str:
    """Where the markers of ``producer`` in ``stream`` stand."""
    return f"{prefix}.{stream}.{producer}"


def payload(position: int, epoch: int) -> bytes:
    """A marker's payload."""
    return json.dumps({"position": position, "epoch": epoch}).encode()


def parse(stored: Stored | None) -> Marker:
    """The marker in a message; ``NONE`` for none.

    Raises:
        RefusedError: the message is no marker.
    """
    if stored is None:
        return NONE
    try:
        values = json.loads(stored.data)
        return Marker(int(values["position"]), int(values["epoch"]), stored.sequence)
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(
            f'message {stored.sequence} on "{stored.subject}" is not a marker',
            detail=f"It holds {stored.data[:80]!r}.",
            hint="Nothing but the sink may publish there.",
        ) from error


def read(
    connection: Connection, prefix: str, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Marker]:
    """The markers of (stream, producer) pairs, as the leaders know them; one round trip."""
    pairs = list(dict.fromkeys(wanted))
    if not pairs:
        return {}
    asked = [(stream, subject(prefix, stream, producer)) for stream, producer in pairs]
    found = connection.riding("reading markers", lambda: jetstream.last_messages(connection, asked))
    return {pair: parse(stored) for pair, stored in zip(pairs, found, strict=True)}


def positions(
    given: Mapping[str, str],
    wanted: Sequence[tuple[str, str]],
    *,
    prefix: str = "mesh._marker",
) -> dict[tuple[str, str], Marker]:
    """How far producers are, over a connection of its own.

    Args:
        given: the connection's options, as for the source: ``servers``, ``user`` and so on.
        wanted: pairs of (JetStream stream, producer).
        prefix: the sink's ``markerPrefix``.

    Returns:
        The marker of each pair; ``NONE`` (position -1) where the producer has written nothing.

    Raises:
        UnavailableError: no answer within ``timeoutS``; RefusedError: a stream does not exist.
    """
    with Connection(connection_options.connection_options(given)) as connection:
        return read(connection, prefix, wanted)
