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

#: Interval of looks at streams whose messages cause no notification, seconds.
_POLL_S: Final = 0.25
#: Interval of looks at idle streams that are followed: their positions must not expire; seconds.
_IDLE_S: Final = 600.0
#: Least and most time for an answer to a look, the pause after one that had none, and the time
#: after which the member fails, seconds: servers elect a leader of the stream meanwhile.
_PATIENCE_S: Final = (0.5, 5.0)
_AGAIN_S: Final = 0.25
_SILENCE_S: Final = 20.0


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
    #: Since when its streams have not answered, local monotonic clock, seconds; None if they do.
    unanswered_s: float | None = None
    #: The broker's clock minus the local monotonic clock, milliseconds.
    clock_ms: float = 0.0
    #: The broker's clock when the part was admitted, milliseconds.
    began_ms: int | None = None
    #: Most messages in its next run.
    rows_max: int = pacing.ROWS_FIRST
    _watch: offsets.StreamWatch | None = None

    def observe(self, connection: Connection) -> None:
        """Look for the streams, which must exist, and set the start position."""
        self._watch = offsets.StreamWatch(self.part.options, connection, lambda: self.timer_ms)
        self.at = {**self._watch.initial(), **(self.part.start or {})}
        self.began_ms = self._watch.clock_ms
        self.is_unknown = self.part.is_restored
        if self.part.is_restored:
            self.rows_max = pacing.ROWS_RESTORED
        options = self.part.options
        is_plain = not self.part.is_foreign and options.block_count <= _READERS_MAX
        self.follows = is_plain and len(self.at) == 1 and self.member.until is None

    def next_look_s(self, now_s: float) -> float | None:
        """Time of the next look without a notification, as ``now_s``; None for no look."""
        times = [now_s + _IDLE_S] if self.follows else []
        if self.timer_ms is not None:
            # By the server's clock; a look that is too early is followed by another one.
            times.append(max(now_s + 0.001, (self.timer_ms - self.clock_ms) / 1000))
        if self.part.is_foreign or self.watch.has_copies:
            times.append(now_s + _POLL_S)
        return min(times, default=None)

    def patience_s(self, now_s: float) -> float:
        """Most time of a look: other parts wait for it, so it is short at first."""
        passed_s = 0.0 if self.unanswered_s is None else now_s - self.unanswered_s
        return max(_PATIENCE_S[0], min(passed_s / 2, _PATIENCE_S[1]))

    def may_wait(self, now_s: float) -> bool:
        """Schedule another look after one without an answer; False if that took too long."""
        if self.unanswered_s is None:
            self.unanswered_s = now_s
        self.due_s = now_s + _AGAIN_S
        return now_s - self.unanswered_s < _SILENCE_S

    @property
    def read(self) -> dict[str, int]:
        """The last sequence that has come of each stream, whether or not it is the part's."""
        return {stream: max(at["sequence"], self.seen) for stream, at in self.at.items()}

    @property
    def watch(self) -> offsets.StreamWatch:
        """The observer of its streams."""
        assert self._watch is not None
        return self._watch


def even_ends(until: Mapping[str, int], places: Iterable[PartPosition]) -> dict[str, int]:
    """``until``, or further: all partitions that read a stream halt at the same position in it."""
    ends = dict(until)
    for place in places:
        for stream, at in place.at.items():
            ends[stream] = max(ends.get(stream, 0), at["sequence"])
    return ends
