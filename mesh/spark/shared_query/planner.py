"""Planner of the shared query's batches, by the positions of members and their streams.

The planner sleeps on one connection that is subscribed, for one message each, to the subjects of
all members' streams.  So idle streams cost nothing.  A message wakes the planner, which looks only
at the stream of that message.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from mesh.spark.shared_query import members, pacing
from mesh.spark.shared_query.work import ADMITTED, FAILED, REMOVED, UNANSWERED, WORK, WorkItem
from pyspark_nats.errors import ConnectorError, UnavailableError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.subscriptions import MessageListener
from pyspark_nats.source import offsets, planning
from pyspark_nats.source.polling import wakeup_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mesh.spark.shared_query.members import InputPartition, Member, Offsets
    from pyspark_nats.protocol.connection_options import ConnectionOptions

T = TypeVar("T")

#: A subscriber may receive a message before the stream has stored it: the pauses before further
#: looks, seconds.  The last ones are for messages that the member does not read.
_DOUBT_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
#: How long one stream may take to answer before the server is checked, seconds; then as long again.
_PATIENCE_S: Final = 5.0
#: Interval of looks at streams whose messages cause no notification, seconds.
_POLL_S: Final = 0.25


class _NoServerError(UnavailableError):
    """No server is available, for any member."""


@dataclass(eq=False, slots=True)
class _Offset:
    """A part and its position."""

    member: Member
    part: InputPartition
    watch: offsets.Watch
    at: Offsets
    #: Whether its restored state has not been loaded yet: a timer may be due in it.
    is_unknown: bool
    #: Time of its next timer on the local monotonic clock, seconds; None without one.
    due_s: float | None = None
    #: Where the part is to halt, by JetStream stream; None for no end.
    until: Mapping[str, int] | None = None
    #: Whether the part has reached ``until``.
    is_there: bool = False
    #: Most messages in its next batch.
    rows_max: int = pacing.ROWS_FIRST


@dataclass(slots=True)
class _Uncertain:
    """A stream with a notification but no new message yet."""

    #: Time of the next look, monotonic, seconds.
    at_s: float
    #: Looks so far.
    count: int = 1


@dataclass
class BatchPlanner:
    """Members and their positions, from which it plans batches; lives in the planner's process."""

    directory: Path
    connection: ConnectionOptions
    #: Subject on which the session announces changes of the members.
    nudge: str
    _places: dict[str, list[_Offset]] = field(default_factory=dict)
    _readers: dict[str, list[_Offset]] = field(default_factory=lambda: defaultdict(list))
    _doubts: dict[str, _Uncertain] = field(default_factory=dict)
    #: Streams to look at again without a notification: their parts have just worked.
    _again: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Calls wait for one stream's leader at a time, and delay the other members.
        self._asks = Connection(replace(self.connection, timeout_s=_PATIENCE_S))
        self._listener = MessageListener(Connection(self.connection))

    def next(self, wait_s: float) -> list[WorkItem]:
        """The work of the next batch, as soon as there is some; empty after ``wait_s``.

        Raises:
            UnavailableError: NATS remained unavailable.
        """
        ends_s = time.monotonic() + wait_s
        # A connection that broke without notice would stay silent.
        self._listener.check()
        while True:
            self._listener.listen({"": (self.nudge,)})
            heard = self._listener.poll()
            work = list(self._changed())
            armed = self._listener.listen(
                {
                    stream: places[0].part.subjects[stream]
                    for stream, places in self._readers.items()
                    if stream not in heard and stream not in self._doubts
                }
            )
            work += self._look(heard, armed)
            now_s = time.monotonic()
            if work or now_s >= ends_s or members.is_ending(self.directory):
                return work
            self._listener.wait(min(self._next_s(ends_s) - now_s, ends_s - now_s))

    def close(self) -> None:
        """Close the connections."""
        self._asks.close()
        self._listener.close()

    # --- members

    def _changed(self) -> Iterator[WorkItem]:
        """Admit and remove members according to the directory."""
        listed, out = members.listed(self.directory)
        for file_name in self._places.keys() - listed:
            self._drop(file_name)
        for file_name in sorted(out):
            instance, generation = members.split(file_name)
            yield WorkItem(REMOVED, instance, generation, file_name)
        for file_name in sorted(listed - self._places.keys()):
            member = members.read(self.directory, file_name)
            if member is not None:
                yield from self._in(file_name, member)

    def _drop(self, file_name: str) -> None:
        for place in self._places.pop(file_name):
            for stream in place.at:
                self._readers[stream].remove(place)
                if not self._readers[stream]:
                    del self._readers[stream]
                    self._again.discard(stream)
                    self._doubts.pop(stream, None)
                    self._listener.forget(stream)

    def _in(self, file_name: str, member: Member) -> Iterator[WorkItem]:
        try:
            places = self._query_streams(
                lambda: [self._place(member, part) for part in member.parts]
            )
        except _NoServerError:
            raise
        # A failure here concerns only this member, whatever its kind.
        except Exception as error:
            yield _word(FAILED, member, _error_text(error))
            return
        if member.until is not None:
            until = _even(member.until, places)
            for place in places:
                place.until = until
        self._places[file_name] = places
        for place in places:
            for stream in place.at:
                self._readers[stream].append(place)
            self._again.update(place.at)
            yield _word(ADMITTED, member, part=place.part.key, ends=place.at)

    def _place(self, member: Member, part: InputPartition) -> _Offset:
        watch = offsets.Watch(part.options, self._asks)
        # The streams must exist, also for parts with a start position.
        at = {**watch.initial(), **(part.start or {})}
        return _Offset(member, part, watch, at, part.is_restored)

    def _query_streams(self, step: Callable[[], T]) -> T:
        """Run a step that queries one member's streams.

        Raises:
            UnavailableError: they don't answer, though the server does.
            _NoServerError: no server is available.
        """
        try:
            return step()
        except UnavailableError:
            try:
                self._listener.check()
            except UnavailableError as error:
                raise _NoServerError(str(error)) from error
        # The server may have been unavailable until now.
        return step()

    # --- streams

    def _look(self, heard: set[str], armed: set[str]) -> Iterator[WorkItem]:
        """The work that is ready now.

        Args:
            heard: streams with a notification.
            armed: streams just subscribed to again, which may have stored messages in between.
        """
        now_s = time.monotonic()
        heard = heard & self._readers.keys()
        doubted = {stream for stream, doubt in self._doubts.items() if doubt.at_s <= now_s}
        streams = heard | doubted | (self._again | armed) & self._readers.keys()
        self._again = set()
        wanted = {id(p): p for stream in streams for p in self._readers[stream]}
        wanted |= {id(p): p for p in self._all() if p.due_s is not None and p.due_s <= now_s}
        quiet = heard | doubted
        for place in wanted.values():
            work = self._work(place)
            if work is not None:
                quiet -= place.at.keys()
                for stream in place.at:
                    self._doubts.pop(stream, None)
                self._again.update(place.at)
                yield work
        for stream in quiet:
            self._doubt(stream, now_s)

    def _doubt(self, stream: str, now_s: float) -> None:
        """Schedule another look at a stream with a notification but no new message."""
        doubt = self._doubts.pop(stream, None)
        count = doubt.count if doubt is not None else 0
        if count < len(_DOUBT_S):
            self._doubts[stream] = _Uncertain(now_s + _DOUBT_S[count], count + 1)

    def _all(self) -> Iterator[_Offset]:
        for places in self._places.values():
            yield from places

    def _work(self, place: _Offset) -> WorkItem | None:
        try:
            return self._query_streams(lambda: self._next_of(place))
        except _NoServerError:
            raise
        except Exception as error:
            # No more work for this part until the session has removed and admitted the member
            # again.
            place.due_s = None
            return _word(FAILED, place.member, _error_text(error))

    def _next_of(self, place: _Offset) -> WorkItem | None:
        member, options = place.member, place.part.options
        place.rows_max = pacing.allowed(
            place.rows_max, members.pace_file(Path(member.directory), place.part.key)
        )
        limits = pacing.limited(options.limits, place.rows_max)
        if place.until is None:
            ends = place.watch.latest_now(place.at, limits)
            if ends == place.at and not place.is_unknown:
                place.due_s = self._due_s(place)
                return None
        else:
            further = place.watch.towards(place.at, place.until, limits)
            if further is None:
                place.is_there = True
                is_through = all(one.is_there for one in self._places[member.file_name])
                return _word(REMOVED, member) if is_through else None
            ends = further
        (partition,) = planning.partitions(options, self._asks, place.at, ends)
        report = place.watch.report() or {}
        assert isinstance(partition, planning.NatsPartition)
        place.at, place.due_s, place.is_unknown = ends, None, False
        place.rows_max = pacing.increased(place.rows_max)
        return WorkItem(
            WORK,
            member.name,
            member.generation,
            member.file_name,
            place.part.key,
            partition.ranges,
            ends,
            sum(stream["messages_behind"] for stream in report.values()),
        )

    def _due_s(self, place: _Offset) -> float | None:
        """Time of the next look at a part without a notification."""
        due_ms = wakeup_ms(place.part.options.wakeup_path)
        now_s = time.monotonic()
        times = []
        if due_ms is not None:
            # By the server's clock; a look that is too early is followed by another one.
            times.append(now_s + max(1, due_ms - place.watch.clock_ms) / 1000)
        if place.part.is_foreign or place.watch.has_copies:
            times.append(now_s + _POLL_S)
        return min(times, default=None)

    def _next_s(self, ends_s: float) -> float:
        """Time of the next look without a notification."""
        times = [doubt.at_s for doubt in self._doubts.values()]
        times += [place.due_s for place in self._all() if place.due_s is not None]
        return min(times, default=ends_s)


def _even(until: Mapping[str, int], places: Iterable[_Offset]) -> dict[str, int]:
    """``until``, or further: all partitions that read a stream halt at the same position in it."""
    found = dict(until)
    for place in places:
        for stream, at in place.at.items():
            found[stream] = max(found.get(stream, 0), at["sequence"])
    return found


def _error_text(error: Exception) -> str:
    if isinstance(error, UnavailableError):
        return f"{UNANSWERED}: {error}"
    return str(error) if isinstance(error, ConnectorError) else f"{type(error).__name__}: {error}"


def _word(
    kind: str,
    member: Member,
    failure: str | None = None,
    *,
    part: str = "",
    ends: Offsets | None = None,
) -> WorkItem:
    return WorkItem(
        kind,
        member.name,
        member.generation,
        member.file_name,
        part,
        ends=ends,
        failure=failure,
    )
