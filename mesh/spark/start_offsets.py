"""Start offsets of an instance, from its snapshots and its assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.local_state import InputPosition


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
