"""Drain: stop an instance at an exact input position so that its successor needs no replay.

Its sources halt, the current batch commits, and the state at that position is uploaded.  The
instance is *drained* only if no output, its own or a killed predecessor's, stems from input after
that position.  Its successors may then differ in number or in text.

Start offsets of an instance, from its snapshots and its assignment, and the check of its input.

A power failure may take the end of an input and leave the output.  New events then get sequences
whose output is published, so that they would be skipped.  So a group without state checks at its
start that the input of its published output still exists.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from mesh.model import names
from mesh.operators.base import State, subset
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE, InputPosition
from mesh.spark.part_states import state_of
from mesh.spark.routes import positioned_routes
from pyspark_nats.errors import DataLossError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import fencing, markers
from pyspark_nats.sink.producer_state import CLOCKS_MS
from pyspark_nats.source import polling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mesh.model.app import Channel
    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.task_states import TaskStates


#: ``{stream: {"sequence", "time_ms", ..}}``, in the form of the source.
Places = dict[str, dict[str, int]]


class Drain:
    """A drain in progress: halts the sources of one query at a common position."""

    def __init__(self, paths: Sequence[Path], until: Mapping[str, int]) -> None:
        """Request the halt of all sources.

        Args:
            paths: the ``haltPath`` of each.
            until: the last sequence to read, by stream; nothing more of the others.
        """
        self._paths = tuple(paths)
        self.advance(until)

    def advance(self, until: Mapping[str, int]) -> None:
        """Move the halt positions further."""
        self._until = dict(until)
        for path in self._paths:
            polling.ask(path, self._until)

    def places(self) -> Places | None:
        """The common position; None until all sources have halted at the same one."""
        positions = [polling.halted_positions(path) for path in self._paths]
        reached: Places = {}
        for places in positions:
            for stream, place in (places or {}).items():
                if stream not in reached or place["sequence"] > reached[stream]["sequence"]:
                    reached[stream] = place
        if any(places is None for places in positions):
            return None
        behind = any(
            place["sequence"] < reached[stream]["sequence"]
            for places in positions
            for stream, place in (places or {}).items()
        )
        if behind:
            # Two queries of a group may read one stream independently.
            self.advance({stream: place["sequence"] for stream, place in reached.items()})
            return None
        return reached


def has_no_output_beyond(
    io: InstanceIO,
    directory: Path,
    places: Mapping[int, Places],
    nats: Mapping[str, str],
    states: TaskStates | None = None,
) -> bool:
    """Whether no output stems from input after the positions where an instance has halted.

    A predecessor that was killed or cut off may have published more, and may even resume.
    This call fences it: from now on each marker has our epoch.

    Args:
        io: the instance's.
        directory: of its state.
        places: its halt positions by virtual partition; 0 without one.
        nats: options of the source and the sink for the NATS connection.
        states: the state's place, if it is not the directory.

    Raises:
        ConnectorError: a newer instance has written a marker, or NATS did not answer.
    """
    last = last_positions(io, directory, places, states)
    out = fencing.fenced(nats, list(last), io.assignment.epoch, prefix=names.MARKERS)
    return all(out[pair].position <= position for pair, position in last.items())


def last_positions(
    io: InstanceIO,
    directory: Path,
    places: Mapping[int, Places],
    states: TaskStates | None = None,
) -> dict[tuple[str, str], int]:
    """Highest position of each producer for the input up to ``places``.

    Args: as for ``has_no_output_beyond``.

    Returns:
        By JetStream stream and producer; for channels, not for the error stream.
    """
    positions: dict[tuple[str, str], int] = {}
    if not io.group.stateful:
        for one in positioned_routes(io):
            place = places[0][one.route.input.channel.js_stream()]
            last = (place["sequence"] + 1) * POSITIONS_PER_MESSAGE - 1
            for stream in _js_streams(one.route.output):
                positions[stream, one.producer(io)] = last
        return positions
    for partition in io.partitions:
        local = state_of(io, directory, partition, states)
        position = InputPosition.of(places[partition], io.input_streams(partition))
        manifest = local.manifest(position) or local.restored(position)
        scalars = manifest.scalars if manifest is not None else {}
        values = subset(State({}, scalars), "own").scalars
        for channel in io.group.outputs:
            for stream in _js_streams(channel):
                positions[stream, io.producer(str(partition))] = values.get("outputs", 0)
    return positions


def _js_streams(channel: Channel) -> list[str]:
    return [channel.js_stream(partition) for partition in range(channel.partitions)]


_HINT: Final = (
    'Events that were stored since would be skipped. "mesh restore --no-replay", or undeploy and '
    "deploy, to continue."
)


def start_offsets(
    io: InstanceIO, reached: Mapping[int, InputPosition]
) -> dict[str, dict[str, int]]:
    """Start offsets of an instance by JetStream stream; streams not named start at their beginning.

    If several partitions read a stream, the start is the lowest of their positions.  Each skips
    messages that it already processed.

    Input of earlier revisions of the group isn't read again.

    Args:
        io: of the instance.
        reached: the position of each partition with restored state; the others have none.
    """
    offsets: dict[str, dict[str, int]] = {}
    unread: set[str] = set()
    for partition in io.partitions:
        if partition not in reached:
            unread |= io.input_streams(partition).keys()
            continue
        for stream, offset in reached[partition].offsets.items():
            if stream not in offsets or offset["sequence"] < offsets[stream]["sequence"]:
                offsets[stream] = offset
    streams = {s for partition in io.partitions for s in io.input_streams(partition)}
    begun = {s: n for s, n in io.group.starts.items() if s in streams}
    starts = {stream: offset for stream, offset in offsets.items() if stream not in unread}
    starts = {s: {"sequence": n, "time_ms": 0} for s, n in begun.items()} | starts
    for stream, sequence in io.assignment.start.items():
        if stream not in streams:
            continue
        if stream not in starts or starts[stream]["sequence"] < sequence:
            starts[stream] = {"sequence": sequence, "time_ms": 0}
    return starts


def with_newest(
    offsets: Mapping[str, dict[str, int]], starts: Sequence[Mapping[str, dict[str, int]]]
) -> dict[str, dict[str, int]]:
    """``offsets`` with the newest messages that snapshots at the same positions knew.

    The source compares them: a channel that lost its end may use the sequences again.

    Args:
        offsets: by JetStream stream.
        starts: the offsets of each snapshot, by JetStream stream.
    """
    return {
        stream: next((s[stream] for s in starts if s.get(stream, {}).items() >= at.items()), at)
        for stream, at in offsets.items()
    }


def check_input(
    io: InstanceIO, starts: Mapping[str, Mapping[str, int]], nats: Mapping[str, str]
) -> None:
    """Check the input of each producer of an instance.

    Args:
        io: of the instance.
        starts: where it continues, by JetStream stream; the beginning of a stream without one.
        nats: options of the NATS connection.

    Raises:
        DataLossError: an input does not hold the messages that output was published for, or holds
            others in their place.
    """
    if io.group.stateful:
        return
    inputs = {
        (channel.js_stream(partition), one.producer(io)): one.route.input.channel.js_stream()
        for one in positioned_routes(io)
        for channel in (one.route.output,)
        for partition in range(channel.partitions)
    }
    with Connection(connection_options(nats)) as connection:
        by_pair = fencing.advanced(connection, names.MARKERS, list(inputs))
        newest: dict[str, tuple[int, int, str]] = {}
        for pair, marker in by_pair.items():
            sequence = marker.position // POSITIONS_PER_MESSAGE
            previous = newest.get(inputs[pair])
            if marker.sequence and (previous is None or previous[0] < sequence):
                subject = markers.subject(names.MARKERS, *pair)
                newest[inputs[pair]] = sequence, marker.time_ms, subject
        for js_stream, (sequence, time_ms, subject) in newest.items():
            if starts.get(js_stream, {}).get("sequence", 0) < sequence:
                connection.retry_while_unavailable(
                    "looking for the input",
                    partial(_check, connection, js_stream, sequence, time_ms, subject),
                )


def _check(
    connection: Connection, js_stream: str, sequence: int, time_ms: int, subject: str
) -> None:
    """Check that a message exists whose output was stored at ``time_ms``, by a marker."""
    last = jetstream.stream_infos(connection, [js_stream])[js_stream].last
    if last < sequence:
        raise DataLossError(
            f'stream "{js_stream}" does not hold sequences {last + 1} to {sequence} any more',
            detail=f"Output of them is published: {subject} says so.",
            hint=_HINT,
        )
    stored = jetstream.message(connection, js_stream, sequence)
    if stored is not None and stored.time_ms > time_ms + CLOCKS_MS:
        raise DataLossError(
            f'stream "{js_stream}" lost messages and used their sequences again',
            detail=f"Sequence {sequence} is younger than its output, by "
            f"{stored.time_ms - time_ms} ms.",
            hint=_HINT,
        )
