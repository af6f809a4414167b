"""Inputs and outputs of an instance, derived from its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.model import names
from mesh.model.app import GroupSpec, Strategy
from mesh.model.cluster import Assignment

if TYPE_CHECKING:
    from mesh.model.app import Channel, GroupInput

#: Sequences in a block when instances share a channel round robin.
ROUND_ROBIN_BLOCK: Final = 256
#: Events of one message get consecutive positions, all lower than those of the next message.
POSITIONS_PER_MESSAGE: Final = 1 << 20

#: Columns that the source adds in a group without state, and that every step keeps.
METADATA: Final = ("_sequence", "_index", "_timestamp_ms", "_event_time_ms", "_error", "_data")

#: Columns of the sink's input: see ``pyspark_nats.sink.writer``.
SINK_SCHEMA: Final = (
    "stream string, subject string, data binary, content_type string, event_time_ms long, "
    "producer string, position long, first_position long"
)


@dataclass(frozen=True, slots=True)
class Wiring:
    """An instance with its group: names its partitions, producers and JetStream streams."""

    group: GroupSpec
    assignment: Assignment

    @property
    def is_keyed(self) -> bool:
        """Whether the group is divided by key, so that its partitions have owners."""
        return any(i.strategy is Strategy.BY_KEY for i in self.group.inputs)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The virtual partitions that this instance owns; just 0 without a keyed input."""
        if not self.is_keyed:
            return (0,)
        return tuple(range(self.assignment.index - 1, self.partition_count, self.group.parallel))

    @property
    def partition_count(self) -> int:
        """The virtual partitions that the group's instances own together."""
        keyed = (i.channel for i in self.group.inputs if i.strategy is Strategy.BY_KEY)
        return max((channel.partitions for channel in keyed), default=1)

    def input_streams(self, partition: int) -> dict[str, GroupInput]:
        """JetStream stream to input, for what ``partition`` reads."""
        return {js_stream_of(i, partition): i for i in self.group.inputs}

    def part(self, partition: int) -> str:
        """The name of the snapshots of ``partition``.

        A partition's name doesn't depend on its owner.  Instances that read a channel round robin
        have a position each, which is void when their number changes.
        """
        if self.group.parallel == 1 or self.is_keyed:
            return str(partition)
        return f"{self.assignment.index}of{self.group.parallel}"

    def producer(self, part: str) -> str:
        """The name of the markers of ``part`` of this group.

        It survives moves and restarts, and differs from that of an earlier app of the same name,
        and of an earlier text whose rows were numbered otherwise.
        """
        since = f"~{self.group.edit}" if self.group.edit else ""
        return f"{self.assignment.app_incarnation}-{self.group.name}{since}-{part}"

    def skips(self, js_stream: str) -> tuple[tuple[int, int], ...]:
        """Ranges of an input, each as (after, to), whose messages are skipped."""
        return tuple(
            (skip.after, skip.to) for skip in self.assignment.skips if skip.js_stream == js_stream
        )

    def outputs(self, stream: str) -> tuple[Channel, ...]:
        """The channels for events inserted into ``stream``; none for an internal stream."""
        return tuple(c for c in self.group.outputs if c.stream.name == stream)

    @property
    def errors(self) -> tuple[str, str]:
        """JetStream stream and subject for unreadable events."""
        return names.error_js_stream(self.group.app), names.error_subject(self.group.app)


def js_stream_of(group_input: GroupInput, partition: int) -> str:
    """The JetStream stream that ``partition`` reads of an input."""
    keyed = group_input.strategy is Strategy.BY_KEY
    return group_input.channel.js_stream(partition if keyed else 0)
