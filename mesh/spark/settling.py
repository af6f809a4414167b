"""Drain: stop an instance at an exact input position so that its successor needs no replay.

Its sources halt, the current batch commits, and the state at that position is uploaded.  The
instance is *drained* only if no output, its own or a killed predecessor's, stems from input after
that position.  Its successors may then differ in number or in text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.operators.base import State, part
from mesh.spark import stateless
from mesh.spark.state import LocalState, Position
from mesh.spark.wiring import POSITIONS_PER_MESSAGE
from pyspark_nats.sink import markers
from pyspark_nats.source import halting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mesh.model.app import Channel
    from mesh.spark.wiring import Wiring

#: ``{stream: {"sequence", "time_ms", ..}}``, in the form of the source.
Places = dict[str, dict[str, int]]


class Halt:
    """The halt of all sources of one query at a common position."""

    def __init__(self, paths: Sequence[Path], until: Mapping[str, int]) -> None:
        """Request the halt of all sources.

        Args:
            paths: the ``haltPath`` of each.
            until: the last sequence to read, by stream; nothing more of the others.
        """
        self._paths = tuple(paths)
        self.go_on(until)

    def go_on(self, until: Mapping[str, int]) -> None:
        """Continue to another position."""
        self._until = dict(until)
        for path in self._paths:
            halting.ask(path, self._until)

    def places(self) -> Places | None:
        """The common position; None until all sources have halted at the same one."""
        found = [halting.halted_positions(path) for path in self._paths]
        reached: Places = {}
        for places in found:
            for stream, place in (places or {}).items():
                if stream not in reached or place["sequence"] > reached[stream]["sequence"]:
                    reached[stream] = place
        if any(places is None for places in found):
            return None
        behind = any(
            place["sequence"] < reached[stream]["sequence"]
            for places in found
            for stream, place in (places or {}).items()
        )
        if behind:
            # Two queries of a group read one stream independently.
            self.go_on({stream: place["sequence"] for stream, place in reached.items()})
            return None
        return reached


def is_covered(
    wiring: Wiring, directory: Path, places: Mapping[int, Places], nats: Mapping[str, str]
) -> bool:
    """Whether no output stems from input after the positions where an instance has halted.

    A predecessor that was killed or is out of touch may have published more, and may even resume.
    This call fences it: from now on each marker has our epoch.

    Args:
        wiring: the instance's.
        directory: of its states.
        places: its halt positions by virtual partition; 0 without one.
        nats: options of the source and the sink for the NATS connection.

    Raises:
        ConnectorError: a newer instance has written a marker, or NATS did not answer.
    """
    last = last_positions(wiring, directory, places)
    out = markers.fenced(nats, list(last), wiring.assignment.epoch)
    return all(out[pair].position <= position for pair, position in last.items())


def last_positions(
    wiring: Wiring, directory: Path, places: Mapping[int, Places]
) -> dict[tuple[str, str], int]:
    """The highest position that each producer of an instance may have published, at ``places``.

    Args: as for ``is_covered``.

    Returns:
        By JetStream stream and producer; of the channels, not of the error stream.
    """
    found: dict[tuple[str, str], int] = {}
    if not wiring.group.stateful:
        for one in stateless.numbered(wiring):
            place = places[0][one.leg.input.channel.js_stream()]
            last = (place["sequence"] + 1) * POSITIONS_PER_MESSAGE - 1
            for stream in _js_streams(one.leg.output):
                found[stream, one.producer(wiring)] = last
        return found
    for partition in wiring.partitions:
        local = LocalState(directory / str(partition))
        position = Position.of(places[partition], wiring.input_streams(partition))
        manifest = local.manifest(position) or local.restored(position)
        scalars: Any = manifest.scalars if manifest is not None else {}
        own: Any = part(State({}, scalars), "own").scalars
        for channel in wiring.group.outputs:
            for stream in _js_streams(channel):
                found[stream, wiring.producer(str(partition))] = own.get("outputs", 0)
    return found


def _js_streams(channel: Channel) -> list[str]:
    return [channel.js_stream(partition) for partition in range(channel.partitions)]
