"""Drain: stop an instance at an exact input position so that its successor needs no replay.

Its sources halt, the current batch commits, and the state at that position is uploaded.  The
instance is *drained* only if no output, its own or a killed predecessor's, stems from input after
that position.  Its successors may then differ in number or in text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.model import names
from mesh.operators.base import State, subset
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE
from mesh.spark.local_state import InputPosition
from mesh.spark.part_states import state_of
from mesh.spark.routes import positioned_routes
from pyspark_nats.sink import fencing
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
