"""Where a query starts and how far it may go: the planner's conversation with the server.

The time in an offset must not be later than any message behind the offset.  The server reads its
clock *after* it looked at the stream, so a message may slip in between the two.  The time of an
offset is therefore taken from one answer and the sequence from a later one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nats import jetstream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.connection import Connection
    from pyspark_nats.jetstream import StreamInfo
    from pyspark_nats.ranges import Offset
    from pyspark_nats.source_options import SourceOptions

    Places = dict[str, dict[str, int]]

#: A subscriber may hear of a message before the stream has stored it: how long to wait before each
#: look, seconds.
_SETTLE_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def earliest(info: StreamInfo) -> dict[str, int]:
    """The place before the first message that ``info``'s stream still has."""
    return {"sequence": max(0, info.first - 1), "time_ms": info.first_ms}


class Watch:
    """The streams of one query, asked and waited for."""

    def __init__(self, options: SourceOptions, connection: Connection) -> None:
        self._options = options
        self.connection = connection
        #: The ends as last seen; None before the first look.
        self.last_seen: Places | None = None
        #: Where a query with the trigger "available now" ends.
        self._frozen: Places | None = None
        self._has_answered = False

    def initial(self) -> Places:
        """Where a query without a checkpoint starts, by ``startingOffsets``."""
        starting = self._options.starting
        infos = self._infos()
        if starting == "latest":
            return self._ends(infos)
        given = {} if isinstance(starting, str) else starting
        return {
            name: {"sequence": given[name].sequence, "time_ms": given[name].time_ms}
            if name in given
            else earliest(infos[name])
            for name in self._options.streams
        }

    def freeze(self) -> None:
        """Take the ends as they are now for the ends of the query."""
        self._frozen = self._ends(self._infos())

    def latest(self, start: Offset, most: int | None) -> Places:
        """Where the batch that starts at ``start`` ends.

        A new place only if a stream has grown, or the wakeup is due; otherwise ``start`` again,
        after waiting for ``idleWaitMs`` (but for the first time).

        Args:
            start: the end of the batch before.
            most: sequences a stream at most; None for all.
        """
        if self._frozen is not None:
            ends = {
                name: end
                if end["sequence"] > start.get(name, _NOWHERE)["sequence"]
                else dict(start.get(name, end))
                for name, end in self._frozen.items()
            }
            return self._admitted(start, ends, most)
        infos = self._infos()
        # The first answer says that the query is up, so it does not wait.
        if self._has_answered and not self._is_due(start, infos):
            infos = self._wait(start, infos)
        self._has_answered = True
        if not self._is_due(start, infos):
            return {name: dict(place) for name, place in start.items()}
        return self._admitted(start, self._ends(infos), most)

    # --- looking

    def _infos(self) -> dict[str, StreamInfo]:
        infos = self.connection.riding(
            "asking for the streams' ends",
            lambda: jetstream.stream_infos(self.connection, self._options.streams),
        )
        self.last_seen = {
            name: {"sequence": info.last, "time_ms": info.time_ms} for name, info in infos.items()
        }
        return infos

    def _ends(self, earlier: Mapping[str, StreamInfo]) -> Places:
        """The ends of the streams now, with the time of an earlier answer."""
        now = self._infos()
        return {
            name: {"sequence": info.last, "time_ms": earlier[name].time_ms}
            for name, info in now.items()
        }

    def _is_due(self, start: Offset, infos: Mapping[str, StreamInfo]) -> bool:
        if any(info.last != start.get(name, _NOWHERE)["sequence"] for name, info in infos.items()):
            return True
        wakeup_ms = self._wakeup_ms()
        if wakeup_ms is None:
            return False
        # A wakeup that the batch before has reached already was its reader's to take away.
        is_new = any(place["time_ms"] < wakeup_ms for place in start.values())
        return is_new and all(info.time_ms >= wakeup_ms for info in infos.values())

    def _wakeup_ms(self) -> int | None:
        """The earliest time in the files of ``wakeupPath``; None for none."""
        if not self._options.wakeup_path:
            return None
        times: list[int] = []
        for path in sorted(Path(self._options.wakeup_path).glob("*")):
            try:
                times.append(int(path.read_text()))
            except (OSError, ValueError):
                # Being replaced right now, or taken away: it will be read at the next look.
                continue
        return min(times, default=None)

    # --- waiting

    def _wait(self, start: Offset, infos: dict[str, StreamInfo]) -> dict[str, StreamInfo]:
        """Wait for a message, the wakeup or ``idleWaitMs``, and look again."""
        wait_s = self._options.idle_wait_ms / 1000
        wakeup_ms = self._wakeup_ms()
        now_ms = min(info.time_ms for info in infos.values())
        if wakeup_ms is not None and wakeup_ms > now_ms:
            wait_s = min(wait_s, (wakeup_ms - now_ms) / 1000)
        deadline_s = time.monotonic() + wait_s

        def watch() -> dict[str, StreamInfo]:
            sids = {
                self.connection.subscribe(subject, most=1)
                for name, info in infos.items()
                for subject in self._subjects(name, info)
            }
            try:
                # A message may have come before the subscription.
                looked = self._looked()
                while not self._is_due(start, looked):
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0:
                        return looked
                    if not self.connection.wait_for_message(sids, left_s):
                        return self._looked()
                    looked = self._settled(start)
                    if not self._is_due(start, looked):
                        # A batch that was refused, or a marker: heard, but nothing to read.
                        remaining_s = deadline_s - time.monotonic()
                        if remaining_s > 0:
                            self.connection.wait_for_message(set(), min(remaining_s, 0.1))
                            looked = self._looked()
                return looked
            finally:
                if self.connection.is_open:
                    for sid in sids:
                        self.connection.unsubscribe(sid)

        return self.connection.riding("waiting for messages", watch)

    def _subjects(self, name: str, info: StreamInfo) -> tuple[str, ...]:
        subject = self._options.subject_of(name)
        return (subject,) if subject else info.subjects

    def _looked(self) -> dict[str, StreamInfo]:
        return jetstream.stream_infos(self.connection, self._options.streams)

    def _settled(self, start: Offset) -> dict[str, StreamInfo]:
        infos: dict[str, StreamInfo] = {}
        for pause_s in _SETTLE_S:
            if pause_s:
                time.sleep(pause_s)
            infos = self._looked()
            if self._is_due(start, infos):
                break
        return infos

    # --- admission

    def _admitted(self, start: Offset, ends: Places, most: int | None) -> Places:
        """Cut each stream's part of the batch to ``most`` sequences."""
        if most is None:
            return ends
        return {name: self._cut(name, start.get(name), end, most) for name, end in ends.items()}

    def _cut(
        self, name: str, start: Mapping[str, int] | None, end: dict[str, int], most: int
    ) -> dict[str, int]:
        first = start["sequence"] if start is not None else 0
        if end["sequence"] - first <= most:
            return end
        cut = self.connection.riding(
            "cutting a batch",
            lambda: jetstream.next_message(self.connection, name, first + most),
        )
        if cut is None or cut.sequence >= end["sequence"]:
            return end
        # The message at the cut is the last one admitted; those behind it are not older.
        return {"sequence": cut.sequence, "time_ms": cut.time_ms}


_NOWHERE: Mapping[str, int] = {"sequence": 0, "time_ms": 0}
