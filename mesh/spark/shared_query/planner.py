"""Planner of a slot's work, by the positions of its parts and their streams.

A part that reads one stream of the mesh's own *follows* it: its messages come by themselves
(``pyspark_nats.source.tail``), and are the next work as they are.

The planner *looks* at the streams of the other parts, and at that of a follower which begins, or
has a gap or a due timer.  It sleeps on a connection that is subscribed, for one message each, to
the subjects of these streams, and looks only at the stream of a message that it received.

While servers elect, a stream does not answer, or no consumer is made: both are tried again later,
and other parts have their turn meanwhile.  The file is longer than 400 lines because followers and
looks share the parts.

Times at which items are due: a slot with many parts looks only at those that are due.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from mesh.model import names
from mesh.spark.shared_query import pacing
from mesh.spark.shared_query.members import ADMITTED, FAILED, REMOVED, UNANSWERED, WORK, WorkItem
from mesh.spark.shared_query.part_position import PartPosition, even_ends
from pyspark_nats.errors import ConnectorError, RefusedError, UnavailableError
from pyspark_nats.protocol.connection import Connection, DisconnectedError
from pyspark_nats.protocol.subscriptions import MessageListener, wait_any
from pyspark_nats.source import planning, ranges
from pyspark_nats.source.tail import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator

    from mesh.spark.shared_query.members import InputPartition, Member
    from pyspark_nats.protocol.connection_options import ConnectionOptions


K = TypeVar("K", bound="Hashable")

#: Obsolete entries, beyond as many as there are items, before all of them are removed.
_OLD_MAX: Final = 64


class DueQueue(Generic[K]):
    """Items with one time each, monotonic, seconds.

    >>> queue = DueQueue()
    >>> queue.set("a", 5.0), queue.set("b", 3.0), queue.set("a", 1.0)
    (None, None, None)
    >>> queue.next_s, queue.take(2.0), queue.next_s
    (1.0, ['a'], 3.0)
    """

    def __init__(self) -> None:
        self._at_s: dict[K, float] = {}
        #: The times of all items, with earlier ones that do not count any more.
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._at_s)

    def __contains__(self, item: object) -> bool:
        return item in self._at_s

    def set(self, item: K, at_s: float | None) -> None:
        """Have an item be due at a time instead of an earlier one given for it; None for never."""
        if at_s is None:
            self._at_s.pop(item, None)
        elif self._at_s.get(item) != at_s:
            self._at_s[item] = at_s
            heappush(self._heap, (at_s, next(self._numbers), item))
            if len(self._heap) > 2 * len(self._at_s) + _OLD_MAX:
                self._heap = [(s, next(self._numbers), one) for one, s in self._at_s.items()]
                heapify(self._heap)

    @property
    def next_s(self) -> float:
        """The earliest time; infinite without items."""
        while self._heap and self._at_s.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def take(self, now_s: float, most: int | None = None) -> list[K]:
        """Remove the items that are due by now, the longest due first; at most ``most``."""
        items: list[K] = []
        while self.next_s <= now_s and (most is None or len(items) < most):
            item = heappop(self._heap)[2]
            del self._at_s[item]
            items.append(item)
        return items


T = TypeVar("T")

#: A message may pass the server before the stream has stored it: the pauses before further looks,
#: seconds, and before the last one, as a server may stand still for a second.
_DOUBT_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_LATE_S: Final = 2.0
#: How long one stream may take to answer before the server is checked, seconds; then as long again.
_PATIENCE_S: Final = 5.0
#: Least and most time for the creation of a consumer, and the pause after one that failed, seconds:
#: a cluster without a leader makes none, and one that has just lost a server may place it there.
_FOLLOW_S: Final = (0.3, 2.0)
_FOLLOW_AGAIN_S: Final = 1.0
#: Interval of checks of the connection: one that broke without notice stays silent; seconds.
_CHECK_S: Final = 1.0
#: No streams with notifications, and none subscribed to again.
_NOTHING: Final[tuple[set[str], set[str]]] = (set(), set())


class _NoServerError(UnavailableError):
    """No server is available, for any member."""


@dataclass(slots=True)
class _Uncertain:
    """A stream that may store a message which has passed the server."""

    #: Time of the next look, monotonic, seconds.
    at_s: float
    #: Number of that look; ``len(_DOUBT_S)`` for the last, before which notifications may come.
    count: int


@dataclass
class RoundPlanner:
    """Parts of a slot and their positions, from which it plans rounds of work."""

    connection: ConnectionOptions
    #: Parts by the name of their member.
    places: dict[str, list[PartPosition]] = field(default_factory=dict)
    #: Parts that do not follow, by stream.
    readers: dict[str, list[PartPosition]] = field(default_factory=lambda: defaultdict(list))
    _doubts: dict[str, _Uncertain] = field(default_factory=dict)
    #: Streams to look at again without a notification: their parts have just worked.
    _again: set[str] = field(default_factory=set)
    #: Times of looks at parts without a notification.
    _looks: DueQueue[PartPosition] = field(default_factory=DueQueue)
    #: Parts that follow their streams, and parts that will once a consumer can be made.
    _following: set[PartPosition] = field(default_factory=set)
    to_follow: dict[PartPosition, None] = field(default_factory=dict)
    #: Parts at which only messages arrived that are none of theirs; see ``advanced``.
    _advanced: dict[PartPosition, None] = field(default_factory=dict)
    #: When the last wait has found that the descriptor which ends it is not readable, monotonic,
    #: seconds; 0 if it is.
    calm_s: float = 0.0
    _checked_s: float = 0.0
    _count: int = 0
    #: Time for the next creation of a consumer, and when it may be tried, monotonic, seconds.
    _follow_s: float = _FOLLOW_S[0]
    _follow_at_s: float = 0.0
    #: Pause before the last look at a stream with a notification, seconds.
    late_s: float = field(default=_LATE_S, kw_only=True)

    def __post_init__(self) -> None:
        # Calls wait for one stream's leader at a time, and delay the other members.
        self._asks = Connection(replace(self.connection, timeout_s=_PATIENCE_S))
        self.listener = MessageListener(Connection(self.connection))
        self.tails: Tails[PartPosition] = Tails(Connection(self.connection), self._asks)

    def next(self, wait_s: float, wakes: int | None = None) -> list[WorkItem]:
        """The work of the next round, as soon as there is some; empty after ``wait_s``.

        Args:
            wait_s: seconds.
            wakes: a file descriptor that ends the wait when it is readable; None for none.

        Raises:
            UnavailableError: NATS remained unavailable.
        """
        ends_s = time.monotonic() + wait_s
        if self.readers and time.monotonic() - self._checked_s > _CHECK_S:
            self.listener.check()
            self._checked_s = time.monotonic()
        is_first, has_received = True, False
        if self._is_calm:
            is_first = False
            has_received = self._wait(self._next_s(ends_s) - time.monotonic(), wakes)
        while True:
            if not has_received:
                self.tails.receive()
            work = self._arrived()
            # Of the other sockets nothing has come, where messages of followed streams have.
            notified, armed = self._notified() if self.readers or not has_received else _NOTHING
            came = {id(item.part) for item in work}
            work += self._look(notified, armed, came)
            self._count = len(work)
            now_s = time.monotonic()
            if work or now_s >= ends_s or (wakes is not None and not is_first):
                return work
            has_received = self._wait(self._next_s(ends_s) - now_s, wakes)
            is_first = False

    def _notified(self) -> tuple[set[str], set[str]]:
        """Streams with a notification, and streams that are subscribed to again."""
        notified = self.listener.poll()
        soon = {name for name, one in self._doubts.items() if one.count < len(_DOUBT_S)} | notified
        armed = self.listener.listen(
            {
                stream: places[0].part.subjects[stream]
                for stream, places in self.readers.items()
                if stream not in soon
            }
        )
        return notified, armed

    @property
    def _is_calm(self) -> bool:
        """Whether there is no work but what is in the sockets, or due at its time."""
        is_idle = not self.readers and not self._again and not self.tails.ready()
        is_followed = len(self.tails) == len(self._following)
        return is_idle and self.tails.connection.is_open and is_followed

    def close(self) -> None:
        """Close the connections."""
        self._asks.close()
        self.listener.close()
        self.tails.connection.close()

    def _wait(self, wait_s: float, wakes: int | None) -> bool:
        """Wait until something is there that may be work, at most ``wait_s``.

        Returns:
            Whether the messages of followed streams that have come are taken in.
        """
        connections = (self.listener.connection, self.tails.connection)
        others = () if wakes is None else (wakes,)
        ends_s = time.monotonic() + min(wait_s, self.listener.wait_max_s)
        while not self.listener.has_news:
            readable = wait_any(connections, others, ends_s - time.monotonic())
            self.calm_s = 0.0 if wakes in readable else time.monotonic()
            # Mostly these are signs of life of the consumers, with which there is nothing to do.
            if readable != [self.tails.connection]:
                break
            if self.tails.receive() or self.tails.ready():
                return True
        return False

    # --- members

    def admit(self, member: Member, keys: Collection[str]) -> Iterator[WorkItem]:
        """Take on some parts of a member; the reports on them."""
        places = [PartPosition(member, part) for part in member.parts if part.key in keys]

        def observe() -> None:
            for place in places:
                place.observe(self._asks)

        try:
            self._query_streams(observe)
        except _NoServerError:
            raise
        # A failure here concerns only this member, whatever its kind.
        except Exception as error:
            yield WorkItem(FAILED, member, failure=_error_text(error))
            return
        if member.until is not None:
            until = even_ends(member.until, places)
            for place in places:
                place.until = until
        self.places[member.file_name] = places
        for place in places:
            if place.follows:
                self._following.add(place)
            else:
                self._observe(place)
            yield WorkItem(ADMITTED, member, place.part, ends=place.at)

    def remove(self, name: str) -> bool:
        """Give no more work for a member; whether it was known."""
        places = self.places.pop(name, None)
        for place in places or ():
            self.tails.forget(place)
            self._looks.set(place, None)
            for some in (self.to_follow, self._advanced):
                some.pop(place, None)
            if place.follows:
                self._following.discard(place)
            else:
                self._forget_streams(place)
        return places is not None

    def _forget_streams(self, place: PartPosition) -> None:
        """Look at a part's streams no longer for its sake."""
        for stream in place.at:
            self.readers[stream].remove(place)
            if not self.readers[stream]:
                del self.readers[stream]
                self._again.discard(stream)
                self._doubts.pop(stream, None)
                self.listener.forget(stream)

    def place(self, member: Member, part: InputPartition) -> PartPosition:
        """The position of a part that is served."""
        return next(place for place in self.places[member.file_name] if place.part is part)

    def has(self, name: str) -> bool:
        """Whether parts of a member are served."""
        return name in self.places

    def ran(self, item: WorkItem, messages: int, took_ms: float, timer_ms: int | None) -> None:
        """Record a run of a part.

        Args:
            item: the work done.
            messages: how many it had, with those in blocks of other readers.
            took_ms: how long it took, as ``pacing.charged_ms``.
            timer_ms: time of the next timer in its state; None without one.
        """
        for place in self.places.get(item.member.file_name, ()):
            if place.part is item.part:
                fair_ms = pacing.ALONE_MS if self._count == 1 else pacing.FAIR_MS
                place.rows_max = pacing.next_limit(place.rows_max, messages, took_ms, fair_ms)
                place.timer_ms = timer_ms
                self._look_at(place, place.next_look_s(time.monotonic()))

    def advanced(self) -> list[PartPosition]:
        """The parts that have read messages without a run, since the last call."""
        places, self._advanced = list(self._advanced), {}
        return places

    def _look_at(self, place: PartPosition, at_s: float | None) -> None:
        """Look at a part's streams at a time without a notification; None for never."""
        place.due_s = at_s
        self._looks.set(place, at_s)

    def _observe(self, place: PartPosition) -> None:
        """Look at a part's streams from now on when messages are published to them."""
        place.follows = False
        self._following.discard(place)
        for stream in place.at:
            self.readers[stream].append(place)
        self._again.update(place.at)

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
                self.listener.check()
            except UnavailableError as error:
                raise _NoServerError(str(error)) from error
        # The server may have been unavailable until now.
        return step()

    # --- followed streams

    def _arrived(self) -> list[WorkItem]:
        """The work that has come by itself."""
        items = []
        for place in self.tails.ready():
            item = self._guarded(place, partial(self._taken, place))
            if item is not None:
                items.append(item)
        return items

    def _taken(self, place: PartPosition) -> WorkItem | None:
        ((stream, at),) = place.at.items()
        seen = max(at["sequence"], place.seen)
        taken = self.tails.take(place, seen, place.rows_max)
        if taken is None:
            return None
        came, behind = taken
        end = place.seen = int(came.sequence[-1])
        if end - seen != len(came):
            # A look finds out whether messages were deleted, or lost; a new reader begins after it.
            self.tails.forget(place)
            place.seen = 0
            self._look_at(place, 0.0)
            return None
        options = place.part.options
        subjects = options.subjects_of(stream)
        mine = came
        if options.blocks.count > 1:
            mine = came.take(options.blocks.owned(came.sequence))
        if subjects and len(mine):
            mine = mine.matching(subjects)
        few = mine.few_subjects if place.timer_ms is None else None
        if not len(mine) or (few is not None and all(map(names.is_marker, few))):
            # Markers, or blocks of others, only: the part stays where it is.
            self._advanced[place] = None
            return None
        # Later messages are not older than the last one.
        last = mine if mine.sequence[-1] == end else came.take(came.sequence == end)
        end_ns = int(last.time_ns[-1])
        reached = {"sequence": end, "time_ms": end_ns // 1_000_000}
        place.at = {stream: {**at, **reached, "newest": end, "newest_ns": end_ns}}
        place.is_unknown = False
        ((span,),) = ranges.plan([[(stream, subjects)]], {stream: at}, place.at)
        return WorkItem(
            WORK, place.member, place.part, (span,), place.at, behind, mine, place.began_ms
        )

    def _follow(self, place: PartPosition) -> None:
        """Follow a stream after the present position."""
        ((stream, at),) = place.at.items()
        try:
            if time.monotonic() < self._follow_at_s:
                raise DisconnectedError("the last consumer could not be made")
            self.tails.follow(place, stream, at["sequence"], self._follow_s)
        except RefusedError:
            # This account may not, or the stream has as many consumers as it may have.
            self._observe(place)
        except DisconnectedError:
            # The messages are found by looking meanwhile.
            self._observe(place)
            self.to_follow[place] = None
            if time.monotonic() >= self._follow_at_s:
                self._follow_s = min(2 * self._follow_s, _FOLLOW_S[1])
                self._follow_at_s = time.monotonic() + _FOLLOW_AGAIN_S
        else:
            self._follow_s = _FOLLOW_S[0]

    def _followers(self, now_s: float) -> Iterator[PartPosition]:
        """Parts to follow their streams again now; one at a time, as the attempt takes long."""
        if self.to_follow and now_s >= self._follow_at_s:
            place = next(iter(self.to_follow))
            del self.to_follow[place]
            self._forget_streams(place)
            place.follows = True
            self._following.add(place)
            yield place

    def _look(self, notified: set[str], armed: set[str], came: set[int]) -> Iterator[WorkItem]:
        """The work that is ready now.

        Args:
            notified: streams with a notification.
            armed: streams just subscribed to again, which may have stored messages in between.
            came: parts whose messages have come by themselves, by their ``id``.
        """
        now_s = time.monotonic()
        notified = notified & self.readers.keys()
        doubted = {stream for stream, doubt in self._doubts.items() if doubt.at_s <= now_s}
        streams = notified | doubted | (self._again | armed) & self.readers.keys()
        self._again = set()
        places = {id(p): p for stream in streams for p in self.readers[stream]}
        for place in (*self._followers(now_s), *self._due(now_s, came), *self._unfollowed()):
            places[id(place)] = place
        # Numbers of the next looks.  What passed before a subscription may be stored after this.
        counts = {stream: self._doubts[stream].count + 1 for stream in doubted}
        counts |= dict.fromkeys(armed & self.readers.keys(), len(_DOUBT_S))
        counts |= dict.fromkeys(notified, 0)
        for place in places.values():
            if place.unanswered_s is not None and (place.due_s or 0.0) > now_s:
                continue
            work = self._work(place)
            if work is not None:
                for stream in place.at:
                    counts.pop(stream, None)
                    self._doubts.pop(stream, None)
                if not place.follows:
                    self._again.update(place.at)
                yield work
        for stream, count in counts.items():
            self._doubt(stream, now_s, count)

    def _doubt(self, stream: str, now_s: float, count: int) -> None:
        """DueQueue look number ``count`` at a stream, if there are so many."""
        self._doubts.pop(stream, None)
        if count <= len(_DOUBT_S):
            self._doubts[stream] = _Uncertain(now_s + (*_DOUBT_S, self.late_s)[count], count)

    def _due(self, now_s: float, came: set[int]) -> list[PartPosition]:
        """Parts to look at now without a notification."""
        places = []
        for place in self._looks.take(now_s):
            # Time passes with messages, while there are some: timers are due after them.
            after_s = self.tails.expects_until_s(place) if place.follows else 0.0
            if after_s > now_s:
                self._looks.set(place, after_s)
            elif id(place.part) in came:
                self._looks.set(place, place.due_s)
            else:
                places.append(place)
        return places

    def _unfollowed(self) -> list[PartPosition]:
        """Parts without the reader that they need to follow their stream."""
        if len(self.tails) == len(self._following):
            return []
        return [place for place in self._following if place not in self.tails]

    def all_places(self) -> Iterator[PartPosition]:
        """The parts of all members."""
        for places in self.places.values():
            yield from places

    def _work(self, place: PartPosition) -> WorkItem | None:
        def step() -> WorkItem | None:
            try:
                with self._asks.patience(place.patience_s(time.monotonic())):
                    work = self._next_of(place)
            except UnavailableError:
                if place.may_wait(time.monotonic()):
                    return None
                work = self._query_streams(lambda: self._next_of(place))
            place.unanswered_s = None
            if place.follows and place not in self.tails:
                self._follow(place)
            return work

        work = self._guarded(place, step)
        self._looks.set(place, place.due_s)
        return work

    def _guarded(self, place: PartPosition, step: Callable[[], WorkItem | None]) -> WorkItem | None:
        """The work that a step finds; an error concerns only the part's member."""
        try:
            return step()
        except _NoServerError:
            raise
        except Exception as error:
            # The slot removes the member.
            self._look_at(place, None)
            return WorkItem(FAILED, place.member, failure=_error_text(error))

    def _next_of(self, place: PartPosition) -> WorkItem | None:
        member, options = place.member, place.part.options
        limits = pacing.limited(options.limits, place.rows_max)
        if place.until is None:
            ends = place.watch.latest_now(place.at, limits)
            place.clock_ms = place.watch.clock_ms - time.monotonic() * 1000
            if ends == place.at and not place.is_unknown:
                place.due_s = place.next_look_s(time.monotonic())
                return None
        else:
            further = place.watch.towards(place.at, place.until, limits)
            if further is None:
                place.is_there = True
                is_through = all(one.is_there for one in self.places[member.file_name])
                return WorkItem(REMOVED, member) if is_through else None
            ends = further
        (partition,) = planning.partitions(options, self._asks, place.at, ends)
        assert isinstance(partition, planning.NatsPartition)
        place.at, place.due_s, place.is_unknown = ends, None, False
        began_ms = place.began_ms
        return WorkItem(WORK, member, place.part, partition.ranges, ends, began_ms=began_ms)

    def _next_s(self, ends_s: float) -> float:
        """Time of the next look without a notification, or ``ends_s`` if that is earlier."""
        doubts = (doubt.at_s for doubt in self._doubts.values())
        follow_s = self._follow_at_s if self.to_follow else ends_s
        return min(ends_s, self.tails.check_s, self._looks.next_s, follow_s, *doubts)


def _error_text(error: Exception) -> str:
    if isinstance(error, UnavailableError):
        return f"{UNANSWERED}: {error}"
    return str(error) if isinstance(error, ConnectorError) else f"{type(error).__name__}: {error}"
