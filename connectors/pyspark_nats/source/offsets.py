"""Start and end offsets of a query's batches, as the planner negotiates them with the server.

The time in an offset must not be later than any message after the offset.  The server reads its
clock *after* it looked at the stream, so a message may arrive between the two.  The time of an
offset is therefore taken from one answer and the sequence from a later one.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from pyspark_nats.errors import DataLossError, OptionError
from pyspark_nats.protocol import jetstream
from pyspark_nats.source import polling, ranges
from pyspark_nats.source.polling import DataWaiter, Probe
from pyspark_nats.source.ranges import Backlog, admitted
from pyspark_nats.source.source_options import AtTime, StreamPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.source.pushdown import ReadBounds
    from pyspark_nats.source.ranges import Offset
    from pyspark_nats.source.source_options import Bound, ReadLimits, SourceOptions

    Places = dict[str, dict[str, int]]


def place(info: StreamInfo, sequence: int, time_ms: int) -> dict[str, int]:
    """An offset of the stream that ``info`` describes."""
    newest = {"newest": info.last, "newest_ns": info.last_ns} if info.last_ns else {}
    return {"sequence": sequence, "time_ms": time_ms, "created_ms": info.created_ms, **newest}


def earliest(info: StreamInfo) -> dict[str, int]:
    """The offset before the first message that ``info``'s stream still has."""
    return place(info, max(0, info.first - 1), info.first_ms)


#: Remedies for offsets after the end of a stream.
_HINTS = {
    "startingOffsets": 'Give "latest" for the next message, or a sequence of the stream.',
    "endingOffsets": 'Give "latest" for all messages, or a sequence of the stream.',
}
#: Delay of the answer of a halted query, seconds; Spark asks again at once.
_HALTED_S = 0.02


class StreamWatch:
    """Observes the streams of one query: ends, batches and waits."""

    def __init__(
        self,
        options: SourceOptions,
        connection: Connection,
        wakeup_ms: Callable[[], int | None] | None = None,
    ) -> None:
        self._options = options
        self.connection = connection
        self._waiter = DataWaiter(options, connection, wakeup_ms)
        #: The last known state of the streams, and the end of the batch planned from it.
        self._seen: dict[str, StreamInfo] = {}
        self._batch_end: Places = {}
        #: The end of a query with the trigger "available now".
        self._frozen: Places | None = None
        self._has_answered = False
        #: The connection, by number, on which the streams were compared with a start offset.
        self._compared = 0
        #: Time of the last batch, monotonic; the first batch does not wait for a minimum size.
        self._batch_s = -float("inf")

    def initial(self) -> Places:
        """The start offset of a query without a checkpoint, by ``startingOffsets`` and the like."""
        return self._written("startingOffsets", self._options.starting)

    def final(self) -> Places:
        """The end offset of a batch query, by ``endingOffsets`` and the like."""
        return self._written("endingOffsets", self._options.ending)

    def _written(self, option: str, bounds: Mapping[str, Bound]) -> Places:
        """The offsets of bounds; OptionError for one that a person wrote, after a stream's end."""
        places = self._bounds(bounds)
        for name, info in self._seen.items():
            bound = bounds.get(name)
            is_written = isinstance(bound, StreamPoint) and not (bound.time_ms or bound.created_ms)
            if is_written and places[name]["sequence"] > info.last:
                raise OptionError(
                    f'option "{option}" is after the end of stream "{name}"',
                    detail=f"It counts {places[name]['sequence']} as read; the last message is "
                    f"{info.last}.",
                    hint=_HINTS[option],
                )
        return places

    def narrowed(self, start: Places, end: Places, bounds: ReadBounds) -> tuple[Places, Places]:
        """The part of start..end within ``bounds``."""
        first: Places = {}
        last: Places = {}
        for name in start:
            low, high = bounds.first - 1, end[name]["sequence"]
            if bounds.last is not None:
                high = min(high, bounds.last)
            if bounds.streams is not None and name not in bounds.streams:
                high = 0
            if bounds.first_ms is not None:
                low = max(low, self._sequence_before(name, bounds.first_ms, high))
            if bounds.last_ms is not None:
                high = min(high, self._sequence_before(name, bounds.last_ms + 1, high))
            # After the last message there is none to read, and none that was lost.
            low = min(low, end[name]["sequence"])
            first[name] = start[name] | {"sequence": max(low, start[name]["sequence"])}
            last[name] = end[name] | {"sequence": high}
        return first, last

    def _sequence_before(self, name: str, moment_ms: int, default: int) -> int:
        message = self.connection.retry_while_unavailable(
            "looking for a time", lambda: jetstream.message_at(self.connection, name, moment_ms)
        )
        return default if message is None else message.sequence - 1

    def freeze(self) -> None:
        """Make the present ends the ends of the query."""
        self._frozen = self._ends(self._infos())

    def latest(self, start: Offset, limits: ReadLimits | None) -> Places:
        """The end offset of the batch that starts at ``start``.

        A new offset only if there is something to read, or the wakeup is due.  Otherwise ``start``
        again, after waiting for ``idleWaitMs`` (but for the first time).

        Args:
            start: the end of the previous batch.
            limits: bounds of the batch; None for none.
        """
        if self._frozen is not None:
            infos = self._infos()
            self._compare(start, infos)
            ends = {
                name: end if _is_ahead(end, start.get(name)) else dict(start.get(name, end))
                for name, end in self._frozen.items()
            }
            return self._admitted(start, infos, ends, limits)
        until = polling.last_sequences(self._options.halt_path)
        if until is not None:
            return self._halting(start, until, limits)
        look = self._waiter.look(start)
        # The first answer reports that the query is up, so it does not wait.
        if self._has_answered and not self._is_due(look, limits):
            look = self._waiter.wait(start, look, lambda new: self._is_due(new, limits))
        self._has_answered = True
        return self._next_end(start, look, limits)

    def latest_now(self, start: Offset, limits: ReadLimits | None) -> Places:
        """``latest`` without waiting, for callers that wait for many queries at once."""
        return self._next_end(start, self._waiter.look(start), limits)

    @property
    def clock_ms(self) -> int:
        """The server's clock in the last answers, the earliest of all streams."""
        return min(info.time_ms for info in self._seen.values())

    @property
    def has_copies(self) -> bool:
        """Whether a stream copies other streams, which sends no notification."""
        return any(info.is_copy for info in self._seen.values())

    def _next_end(self, start: Offset, look: Probe, limits: ReadLimits | None) -> Places:
        self._seen = dict(look.infos)
        self._compare(start, look.infos)
        if not self._is_due(look, limits):
            self._batch_end = {name: dict(end) for name, end in start.items()}
            return self._batch_end
        self._batch_s = time.monotonic()
        return self._admitted(start, look.infos, self._ends(look.infos), limits)

    def report(self) -> dict[str, dict[str, int]] | None:
        """The ends of the streams as last seen, and the batch's distance from them."""
        if not self._seen:
            return None
        report: dict[str, dict[str, int]] = {}
        for name, info in self._seen.items():
            end = self._batch_end.get(name)
            behind = info.last - end["sequence"] if end else 0
            behind = max(0, min(behind, info.messages))
            report[name] = place(info, info.last, info.time_ms) | {
                "messages_behind": behind,
                "bytes_behind": round(behind * info.message_bytes),
            }
        return report

    def _halting(
        self, start: Offset, until: Mapping[str, int], limits: ReadLimits | None
    ) -> Places:
        """The next offset up to ``until``; ``start`` if it is reached, which is reported."""
        ends = self.towards(start, until, limits)
        if ends is not None:
            return ends
        polling.tell(self._options.halt_path, until, start)
        # Only the end of the query follows.
        time.sleep(_HALTED_S)
        return {name: dict(place) for name, place in start.items()}

    def towards(
        self, start: Offset, until: Mapping[str, int], limits: ReadLimits | None
    ) -> Places | None:
        """The next offset towards ``until``; None if nothing is left to read.

        Args:
            start: the end of the previous batch.
            until: the last sequence to read, by stream; nothing more of the others.
            limits: bounds of the batch; None for none.
        """
        infos = self._infos()
        self._compare(start, infos)
        firsts = {name: first_of(start.get(name), place) for name, place in start.items()}
        left = {
            name: min(info.last, until[name])
            for name, info in infos.items()
            if until.get(name, 0) > firsts.get(name, 0)
        }
        if not left:
            return None
        ends = {name: dict(place) for name, place in start.items()}
        for name, end in self._ends(infos).items():
            if left.get(name, 0) > firsts.get(name, 0):
                ends[name] = self._cut(infos[name], start.get(name), left[name], end)
        return self._admitted(start, infos, ends, limits)

    # --- state of the streams

    def _infos(self) -> dict[str, StreamInfo]:
        self._seen = self.connection.retry_while_unavailable(
            "asking for the streams' ends",
            lambda: jetstream.stream_infos(self.connection, self._options.streams),
        )
        return self._seen

    def _compare(self, start: Offset, infos: Mapping[str, StreamInfo]) -> None:
        """Check once on each connection that no stream lost messages and reused their sequences.

        A server that lost its end has been restarted, which ends its connections.

        Raises:
            DataLossError: a stream did; ``failOnDataLoss`` is true.
        """
        if self.connection.open_count == self._compared or not self._options.fail_on_data_loss:
            return
        open_count = self.connection.open_count
        for name, at in start.items():
            info = infos.get(name)
            if info is None or "newest" not in at or _is_another(at, place(info, 0, 0)):
                continue
            stored = self.connection.retry_while_unavailable(
                "looking for a message that was read",
                partial(jetstream.message, self.connection, name, at["newest"]),
            )
            if ranges.is_reused(at, info.last, stored.time_ns if stored else None):
                raise DataLossError(
                    f'stream "{name}" lost messages and used their sequences again',
                    detail=f"It is read up to {at['sequence']}; sequence {at['newest']}, which it "
                    "had then, is now absent or another message. Messages after its new end were "
                    "not read. This happens when a server loses power.",
                    hint='Set option "failOnDataLoss" to "false", or another start, to continue.',
                )
        self._compared = open_count

    def _ends(self, earlier: Mapping[str, StreamInfo]) -> Places:
        """The present ends of the streams, with the time of an earlier answer."""
        return {
            name: place(info, info.last, earlier[name].time_ms)
            for name, info in self._infos().items()
        }

    def _bounds(self, bounds: Mapping[str, Bound]) -> Places:
        infos = self._infos()
        ends = self._ends(infos)
        return {
            name: self._bound(bounds.get(name, bounds[""]), infos[name], ends[name])
            for name in self._options.streams
        }

    def _bound(self, bound: Bound, info: StreamInfo, end: dict[str, int]) -> dict[str, int]:
        if isinstance(bound, AtTime):
            before = self._sequence_before(info.name, bound.time_ms, end["sequence"])
            # After the last message this is the present end, and time continues from there.
            return place(info, before, min(bound.time_ms, end["time_ms"]))
        if isinstance(bound, StreamPoint):
            # An offset written by a person refers to the present stream; an old offset may not.
            created_ms = bound.created_ms or (0 if bound.time_ms else info.created_ms)
            offset = {"sequence": bound.sequence, "time_ms": bound.time_ms}
            if bound.newest:
                offset |= {"newest": bound.newest, "newest_ns": bound.newest_ns}
            return offset | ({"created_ms": created_ms} if created_ms else {})
        return earliest(info) if bound == "earliest" else end

    # --- admission

    def _is_due(self, look: Probe, limits: ReadLimits | None) -> bool:
        if look.is_woken:
            return True
        if not look.fresh:
            return False
        if limits is None or look.sequences >= limits.offsets_min:
            return True
        return time.monotonic() - self._batch_s >= limits.delay_max_ms / 1000

    def _admitted(
        self,
        start: Offset,
        infos: Mapping[str, StreamInfo],
        ends: Places,
        limits: ReadLimits | None,
    ) -> Places:
        """Cut each stream's part of the batch, so that all together stay within the limits."""
        if limits is None or limits.are_none:
            self._batch_end = ends
            return ends
        firsts = {name: first_of(start.get(name), end) for name, end in ends.items()}
        backlogs = {
            name: Backlog(max(0, end["sequence"] - firsts[name]), infos[name].message_bytes)
            for name, end in ends.items()
        }
        takes = admitted(backlogs, limits.offsets_max, limits.bytes_max)
        self._batch_end = {
            name: self._cut(infos[name], start.get(name), firsts[name] + takes[name], end)
            for name, end in ends.items()
        }
        return self._batch_end

    def _cut(
        self, info: StreamInfo, start: Mapping[str, int] | None, last: int, end: dict[str, int]
    ) -> dict[str, int]:
        """The offset at ``last``, if it is before ``end``."""
        if last >= end["sequence"]:
            return end
        if not self._options.range_markers:
            # No range markers need the time, and the earlier bound is still valid.  To look the
            # message up would have the server load a block of its file that is read only later.
            is_same = start is not None and start.get("created_ms", 0) == info.created_ms
            return place(info, last, start["time_ms"] if start and is_same else info.first_ms)
        cut = self.connection.retry_while_unavailable(
            "cutting a batch",
            lambda: jetstream.next_message(self.connection, info.name, last),
        )
        if cut is None or cut.sequence >= end["sequence"]:
            return end
        # The message at the cut is the last one admitted; later messages are not older.
        return place(info, cut.sequence, cut.time_ms)


def not_before(start: Places, end: Places) -> Places:
    """``end``, or ``start`` if a batch query's end is before its start: then it is empty."""
    return {
        name: end[name] if end[name]["sequence"] > place["sequence"] else {**place}
        for name, place in start.items()
    }


def first_of(start: Mapping[str, int] | None, end: Mapping[str, int]) -> int:
    """The sequence before a batch that ends at ``end``: 0 in a stream created again."""
    if start is None or _is_another(start, end):
        return 0
    return start["sequence"]


def _is_ahead(end: Mapping[str, int], start: Mapping[str, int] | None) -> bool:
    return start is None or _is_another(start, end) or end["sequence"] > start["sequence"]


def _is_another(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return ranges.is_another(one.get("created_ms", 0), other.get("created_ms", 0))
