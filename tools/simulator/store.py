"""The NATS server as the control plane sees it: keys with revisions, checked writes, watches."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mesh.control.snapshot import Records
from mesh.model import names
from mesh.model.cluster import NodeRecord
from tools.simulator.world import SimulatedLink, SimulatedProcess, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.simulator.world import World

#: The results of a write besides its revision.
CONFLICT = "conflict"
TIMEOUT = "timeout"
#: Typical delay of a message, seconds.
HOP_S = 0.001
#: Maximum time until a broken watch is created again, seconds.
WATCH_S = 2.0
#: Writes of this time can be lost, seconds.
HISTORY_S = 150.0


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """A write that the store has taken."""

    bucket: str
    key: str
    value: Any
    revision: int
    by: str


class Store:
    """The buckets; each is a stream with its own sequence."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sequences: Counter[str] = Counter()
        self._last: dict[tuple[str, str], StoredWrite] = {}
        self._watchers: dict[str, SimulatedWatch] = {}
        #: Called with each accepted write, and the record before it.
        self.on_stored: Callable[[StoredWrite], None] = lambda _: None
        self.refused = 0
        self.taken = 0
        #: Time of each write of a bucket, and the key's write before it.
        self._history: dict[str, deque[tuple[float, StoredWrite, StoredWrite | None]]] = {}

    def get(self, bucket: str, key: str) -> StoredWrite | None:
        """The last write of a key."""
        return self._last.get((bucket, key))

    def all(self) -> list[StoredWrite]:
        """The last write of each key, deletions too, in the order they were stored."""
        return sorted(self._last.values(), key=lambda one: (one.bucket, one.revision))

    def write(self, request: Write, by: str) -> int | str:
        """Accept a write or refuse it."""
        if request.expected is not None:
            key, revision = request.expected
            latest = self._last.get((request.bucket, key))
            if (latest.revision if latest is not None else 0) != revision:
                self.refused += 1
                return CONFLICT
        self._sequences[request.bucket] += 1
        number = self._sequences[request.bucket]
        stored = StoredWrite(request.bucket, request.key, request.value, number, by)
        self.on_stored(stored)
        history = self._history.setdefault(request.bucket, deque())
        history.append((self._world.now_s, stored, self._last.get((request.bucket, request.key))))
        while history[0][0] < self._world.now_s - HISTORY_S:
            history.popleft()
        self._last[request.bucket, request.key] = stored
        self.taken += 1
        for watch in self._watchers.values():
            watch.send(stored)
        return number

    def last_revision(self, bucket: str) -> int:
        """The sequence of a bucket's last write."""
        return self._sequences[bucket]

    def lose(self, bucket: str, seconds: float) -> None:
        """Lose the last writes of a bucket, as in a power failure; infinity empties it."""
        if math.isinf(seconds):
            self._last = {at: one for at, one in self._last.items() if at[0] != bucket}
            self._sequences[bucket] = 0
            self._history.pop(bucket, None)
        history = self._history.get(bucket, deque())
        while history and history[-1][0] > self._world.now_s - seconds:
            _, lost, before = history.pop()
            self._sequences[bucket] = lost.revision - 1
            if before is None:
                del self._last[bucket, lost.key]
            else:
                self._last[bucket, lost.key] = before
        for watch in self._watchers.values():
            watch.lose(bucket)

    def watch(
        self, process: SimulatedProcess, quiet_s: float, on_news: Callable[[], None]
    ) -> SimulatedWatch:
        """Watch all buckets from their present state on; replaces the process's earlier watch."""
        watch = SimulatedWatch(self._world, process, quiet_s, on_news, self)
        for stored in self.all():
            watch.records.take(
                stored.bucket, stored.key, stored.value, stored.revision, process.clock_s()
            )
        self._watchers[process.name] = watch
        return watch

    def forget(self, process: SimulatedProcess) -> None:
        """End the watch of a process that has ended."""
        self._watchers.pop(process.name, None)


@dataclass
class SimulatedWatch:
    """The changes of the store that a process receives, with the delays and losses of its link.

    Heartbeats are delivered when the process reads, with the time of their arrival: between two
    reads the difference is not visible, and most messages are heartbeats.
    """

    world: World
    process: SimulatedProcess
    quiet_s: float
    on_news: Callable[[], None]
    store: Store
    records: Records = field(init=False)
    _pending: dict[str, deque[tuple[float, StoredWrite]]] = field(default_factory=dict)
    _beats: dict[str, tuple[float, NodeRecord]] = field(default_factory=dict)
    _came_s: dict[str, float] = field(default_factory=dict)
    #: Arrival of the next pending message, simulated seconds.
    _next_s: float = math.inf
    #: Buckets that are not followed: the server has forgotten the consumer.
    _lost: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.records = Records(self.process.clock_s(), self.quiet_s)

    def send(self, stored: StoredWrite) -> None:
        """A write is on its way to this watch."""
        if stored.bucket in self._lost:
            return
        world, link = self.world, self.process.link
        came_s = world.now_s + world.delay_s(HOP_S)
        if link.down_cut_s > world.now_s:
            came_s = max(came_s, link.down_cut_s + world.random.uniform(0.1, WATCH_S))
        # A bucket's messages arrive in order.
        came_s = max(came_s, self._came_s.get(stored.bucket, 0.0))
        self._came_s[stored.bucket] = came_s
        self._next_s = min(self._next_s, came_s)
        self._pending.setdefault(stored.bucket, deque()).append((came_s, stored))
        if not self._is_plain_beat(stored, came_s):
            self.process.soon(came_s, self._look)

    def cut(self, until_s: float) -> None:
        """Deliver nothing before ``until_s``, including messages under way."""
        came_s = until_s + self.world.random.uniform(0.1, WATCH_S)
        for bucket, pending in self._pending.items():
            held = deque((max(due_s, came_s), stored) for due_s, stored in pending)
            self._pending[bucket] = held
            if held:
                self._came_s[bucket] = held[-1][0]
                self.process.soon(held[-1][0], self._look)

    def lose(self, bucket: str) -> None:
        """Stop following a bucket; it is read again in a while."""
        self._lost.add(bucket)
        self._pending.pop(bucket, None)
        self._came_s.pop(bucket, None)
        self._beats.clear()
        self._read_later(bucket)

    def _read_later(self, bucket: str) -> None:
        after_s = max(self.world.now_s, self.process.link.down_cut_s)
        again_s = after_s + self.world.random.uniform(0.1, WATCH_S)
        self.process.soon(again_s, lambda: self._read(bucket))

    def _read(self, bucket: str) -> None:
        """Read a bucket from its start, and follow it from there; as ``mesh.jetstream.watch``."""
        if bucket not in self._lost:
            return
        if self.process.link.down_cut_s > self.world.now_s:
            self._read_later(bucket)
            return
        self._lost.discard(bucket)
        records = {s.key: (s.value, s.revision) for s in self.store.all() if s.bucket == bucket}
        last, clock_s = self.store.last_revision(bucket), self.process.clock_s()
        upto = last if last >= self.records.last_revision(bucket) else math.inf
        if bucket == names.CONTROL_BUCKET:
            self.records.hear(clock_s)
        self.records.take_all(bucket, records, upto, clock_s)
        self.on_news()

    def catch_up(self) -> Records:
        """Deliver the messages that have arrived by now."""
        now_s = self.world.now_s
        if now_s < self._next_s:
            return self.records
        self._next_s = math.inf
        # A paused process reads messages of the meantime only when it resumes.
        read_s = self.process.paused_s
        for bucket, pending in self._pending.items():
            while pending and pending[0][0] <= now_s:
                came_s, one = pending.popleft()
                clock_s = self.process.clock_s(max(came_s, min(read_s, now_s)))
                if bucket == names.CONTROL_BUCKET:
                    self.records.hear(clock_s)
                self.records.take(bucket, one.key, one.value, one.revision, clock_s)
            if pending:
                self._next_s = min(self._next_s, pending[0][0])
        return self.records

    def _look(self) -> None:
        news = self.records.news
        if self.catch_up().news != news:
            self.on_news()

    def _is_plain_beat(self, stored: StoredWrite, came_s: float) -> bool:
        """Whether this is a heartbeat without news that arrives in time."""
        if not isinstance(stored.value, NodeRecord):
            return False
        value = stored.value
        before = self._beats.get(stored.key)
        self._beats[stored.key] = came_s, value
        if before is None or came_s - before[0] > self.quiet_s * 0.9:
            return False
        old = before[1]
        return (value.incarnation, value.ready, value.leaving) == (
            old.incarnation,
            old.ready,
            old.leaving,
        )


def send(
    world: World,
    store: Store,
    process: SimulatedProcess,
    request: Write,
    answer: Callable[[int | str], None],
) -> None:
    """Send a write through the process's link; ``answer`` is called once, in the process."""
    _ask(world, process, request.limit_s, lambda: store.write(request, process.name), answer)


def read(
    world: World,
    store: Store,
    process: SimulatedProcess,
    key: tuple[str, str],
    limit_s: float,
    answer: Callable[[StoredWrite | str | None], None],
) -> None:
    """Read a bucket's key through the process's link; ``answer`` is called once, in the process."""
    _ask(world, process, limit_s, lambda: store.get(*key), answer)


def _ask(
    world: World,
    process: SimulatedProcess,
    limit_s: float,
    serve: Callable[[], Any],
    answer: Callable[[Any], None],
) -> None:
    life, is_answered = process.life, False

    def give(result: Any) -> None:
        nonlocal is_answered
        if not is_answered and process.life == life:
            is_answered = True
            answer(result)

    process.soon(process.true_s(process.clock_s() + limit_s), lambda: give(TIMEOUT))
    link, random = process.link, world.random
    is_lost, arrives_s = False, world.now_s + world.delay_s(HOP_S)
    if link.up_cut_s > world.now_s:
        # TCP resends data that a cut held back, unless the connection is given up meanwhile.
        is_lost = random.random() < 0.5
        arrives_s = link.up_cut_s + random.uniform(0.0, 1.0)
    elif link.flaky_s > world.now_s and random.random() < 0.25:
        is_lost = True

    def arrive() -> None:
        result = serve()
        lost = link.flaky_s > world.now_s and random.random() < 0.25
        if not lost:
            back_s = world.now_s + world.delay_s(HOP_S)
            if link.down_cut_s > world.now_s:
                back_s = link.down_cut_s + random.uniform(0.0, 1.0)
            process.soon(back_s, lambda: give(result))

    if not is_lost:
        world.at(arrives_s, arrive)


__all__ = [
    "CONFLICT",
    "TIMEOUT",
    "SimulatedLink",
    "SimulatedWatch",
    "Store",
    "StoredWrite",
    "read",
    "send",
]
