"""Position of a part that a slot serves, and what its planner knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.spark.shared_query import pacing
from pyspark_nats.source import offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.spark.shared_query.members import InputPartition, Member, Offsets
    from pyspark_nats.protocol.connection import Connection

#: Most instances that divide a stream by blocks and follow it: each receives the whole of it.
_READERS_MAX: Final = 2


@dataclass(eq=False, slots=True)
class PartPosition:
    """A part and its position."""

    member: Member
    part: InputPartition
    at: Offsets = field(default_factory=dict)
    #: Whether its restored state has not been loaded yet: a timer may be due in it.
    is_unknown: bool = False
    #: Time of the next timer in its state, by the broker's clock, milliseconds; None without one.
    timer_ms: int | None = None
    #: Time of the next look without a notification, local monotonic clock, seconds.
    due_s: float | None = None
    #: Where the part is to halt, by JetStream stream; None for no end.
    until: Mapping[str, int] | None = None
    #: Whether the part has reached ``until``.
    is_there: bool = False
    #: Whether it may follow its stream, and the last sequence that came.
    follows: bool = False
    seen: int = 0
    #: The broker's clock minus the local monotonic clock, milliseconds.
    clock_ms: float = 0.0
    #: The broker's clock when the part was admitted, milliseconds.
    began_ms: int | None = None
    #: Most messages in its next run.
    rows_max: int = pacing.ROWS_FIRST
    _watch: offsets.Watch | None = None

    def observe(self, connection: Connection) -> None:
        """Look for the streams, which must exist, and set the start position."""
        self._watch = offsets.Watch(self.part.options, connection, lambda: self.timer_ms)
        self.at = {**self._watch.initial(), **(self.part.start or {})}
        self.began_ms = self._watch.clock_ms
        self.is_unknown = self.part.is_restored
        if self.part.is_restored:
            self.rows_max = pacing.ROWS_RESTORED
        options = self.part.options
        is_plain = not self.part.is_foreign and options.block_count <= _READERS_MAX
        self.follows = is_plain and len(self.at) == 1 and self.member.until is None

    @property
    def watch(self) -> offsets.Watch:
        """The observer of its streams."""
        assert self._watch is not None
        return self._watch


def even_ends(until: Mapping[str, int], places: Iterable[PartPosition]) -> dict[str, int]:
    """``until``, or further: all partitions that read a stream halt at the same position in it."""
    found = dict(until)
    for place in places:
        for stream, at in place.at.items():
            found[stream] = max(found.get(stream, 0), at["sequence"])
    return found
