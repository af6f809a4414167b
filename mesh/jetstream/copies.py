"""Copies of a stream that differ: NATS does not notice it, and each reader may get either one.

If most servers of a stream lose acknowledged messages, with their power, the others of them give
the sequences to new messages.  A server that has kept the old ones keeps them under these
sequences: NATS compares only what follows.  Reads are answered by any server, so an event that is
lost and the one in its place may both be read.

After an election, and once all servers of the stream are back, the leader's first message since
then is compared with the other copies.  For it is the first one that can be in place of another.

A server may also try to catch up for minutes and never succeed, because its log and the leader's
don't fit.  Meanwhile it answers reads, so after some time it is compared in what it has.  Others
count as current before they answer reads, and a stream may have no message since; so copies that
are equal are compared again, after times that double.

Stream advisories of NATS: new leaders and lost quorums, noted in the journal.

For streams with replicas, a server announces elections and the lack of a majority
(``$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*`` and ``.QUORUM_LOST.*``).  No decision rests on
them; in the journal they explain a pause that has no other trace in the mesh.

The first election of a stream that a deploy makes is no news.  Its advisory may come after the
answer to the request that made the stream, and so after the app's record says that all is made.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson

from mesh.control.journal import of_different_copies, of_elections, of_lost_quorum
from mesh.jetstream.channels import js_streams
from mesh.jetstream.connection import UNREACHABLE, api_call, api_subject
from mesh.model import names
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.clock import Clock
    from mesh.jetstream.journal import Journal
    from mesh.jetstream.watch import ClusterView
    from mesh.model.values import JsonObject


_ADVISORIES: Final = "$JS.EVENT.ADVISORY.STREAM"
#: Time to gather elections: the new leaders of a lost server's streams are announced one by one.
GATHER_S: Final = 1.0
#: Beginnings of the names of the mesh's own buckets, as streams.
_BUCKETS: Final = (f"KV_{names.ROOT}_", f"OBJ_{names.ROOT}_")


@dataclass(eq=False, repr=False)
class Advisories:
    """Notes elections and lost quorums of the streams of the mesh."""

    #: Without permission to subscribe, nothing is noted.
    _client: Client
    _view: ClusterView
    _journal: Journal
    #: Only the leader notes entries.
    _leads: Callable[[], bool]
    _copies: Copies
    _clock: Clock
    #: When this began, and by stream of an app when the last election was heard of.
    _since_ms: int = 0
    _last_notice_ms: dict[str, int] = field(default_factory=dict)
    #: By app, empty for streams of no app: stream to its new leader.
    _elected: dict[str, dict[str, str]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen."""
        self._since_ms = self._clock.wall_ms()
        await self._client.subscribe(f"{_ADVISORIES}.LEADER_ELECTED.*", cb=self._take)
        await self._client.subscribe(f"{_ADVISORIES}.QUORUM_LOST.*", cb=self._take)

    async def stop(self) -> None:
        """Unsubscribe; the caller closes the connection."""
        if self._task is not None:
            await end([self._task])

    async def _take(self, message: Msg) -> None:
        try:
            advisory: JsonObject = orjson.loads(message.data)
            stream = str(advisory["stream"])
            leader = str(advisory.get("leader", ""))
            elected_ms = int(datetime.fromisoformat(advisory["timestamp"]).timestamp() * 1000)
        except (ValueError, KeyError, TypeError) as error:
            log.debug("advisory not understood", extra=fields(error=error))
            return
        is_lost = message.subject.startswith(f"{_ADVISORIES}.QUORUM_LOST.")
        last_notice_ms = self._last_notice_ms.get(stream, self._since_ms)
        users = self._users(stream)
        if users and not is_lost:
            # Of no other streams: a client may make up any number of them.
            self._last_notice_ms[stream] = self._clock.wall_ms()
        for app, created_ms in users.items():
            if created_ms is None:
                continue
            if is_lost:
                if self._leads():
                    self._journal.note(of_lost_quorum(app, stream))
                continue
            self._copies.note(stream, app, elected_ms)
            if last_notice_ms >= created_ms:
                self._elected.setdefault(app, {})[stream] = leader
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._note_elected())

    async def _note_elected(self) -> None:
        await asyncio.sleep(GATHER_S)
        elected, self._elected = self._elected, {}
        if self._leads():
            for app, leaders in elected.items():
                self._journal.note(of_elections(app, leaders))

    def _users(self, stream: str) -> dict[str, int | None]:
        """The apps that use a JetStream stream, and when each had it made, in ms since 1970.

        None stands for an app that is being made, 0 for a stream that was there before.  A stream
        that is the mesh's own has the empty name.
        """
        if stream == names.JOURNAL_STREAM or stream.startswith(_BUCKETS):
            return {"": 0}
        users: dict[str, int | None] = {}
        for app in self._view.snapshot().apps:
            record = app.value
            is_external = stream in record.spec.external_streams
            if is_external or any(stream == name for name, _ in js_streams(record.spec)):
                created_ms = 0 if is_external else record.deployed_at_ms
                users[record.spec.name] = None if record.making else created_ms
        return users


log = logging.getLogger(__name__)

#: Time between attempts, while servers are away.
ATTEMPT_S: Final = 5.0
#: An election is forgotten after this many attempts: an hour.
ATTEMPTS_MAX: Final = 720
#: Attempts before an election is forgotten by a manager that does not lead: a minute.
FOLLOWING_MAX: Final = 12
#: Attempts before a server that has not caught up is compared: 30 s, longer than most need.
CATCHING_UP_MAX: Final = 6
#: Elections of a stream that are remembered, the last ones: a client may make up any number.
_ELECTIONS_MAX: Final = 16
#: Streams that are compared at once: one without a leader answers after a while only.
_AT_ONCE: Final = 8
#: Reads of one message: any server answers, and of three all are met with 99.5 % probability.
_READS: Final = 16
#: Times in a row that a difference is seen: a key that is written again differs for a moment.
_SEEN: Final = 3
_TIMEOUT_S: Final = 5.0


@dataclass(eq=False)
class _Pending:
    """A stream to be compared."""

    #: Those that use it; the empty name stands for the mesh itself.
    apps: set[str] = field(default_factory=set)
    #: Times of its elections, ms since 1970.
    elected_ms: set[int] = field(default_factory=set)
    attempts: int = 0
    #: Number of the next attempt that compares.
    next_attempt: int = 0


@dataclass(eq=False, repr=False)
class Copies:
    """Compares the copies of streams after elections; the leading manager reports what differs."""

    _client: Client
    _journal: Journal
    #: Other managers compare nothing.
    _leads: Callable[[], bool]
    _elected: asyncio.Event = field(default_factory=asyncio.Event)
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    #: Pause between attempts, seconds.
    attempt_s: float = field(default=ATTEMPT_S, kw_only=True)

    def note(self, stream: str, app: str, elected_ms: int) -> None:
        """Compare a stream of an app (of all, if empty) soon; it has elected a leader then."""
        pending = self._pending.setdefault(stream, _Pending())
        pending.apps.add(app)
        pending.elected_ms.add(elected_ms)
        if len(pending.elected_ms) > _ELECTIONS_MAX:
            pending.elected_ms.remove(min(pending.elected_ms))
        pending.attempts = pending.next_attempt = 0
        self._elected.set()

    async def watch(self) -> None:
        """Compare streams as they elect leaders, without end."""
        while True:
            await self._elected.wait()
            await asyncio.sleep(self.attempt_s)
            async with asyncio.TaskGroup() as attempts:
                for stream in self._pending:
                    attempts.create_task(self._attempt(stream))
            if not self._pending:
                self._elected.clear()

    async def _attempt(self, stream: str) -> None:
        pending = self._pending.pop(stream)
        is_due = self._leads() and pending.attempts >= pending.next_attempt
        if is_due and await self._tell(stream, pending):
            return
        # After a fault of NATS no manager may lead: the next leader has to know of the elections.
        attempts_max = ATTEMPTS_MAX if self._leads() else FOLLOWING_MAX
        pending.attempts += 1
        if pending.attempts <= attempts_max:
            # There may have been another election meanwhile.
            later = self._pending.setdefault(stream, pending)
            later.apps |= pending.apps
            later.elected_ms |= pending.elected_ms

    async def _tell(self, stream: str, pending: _Pending) -> bool:
        """Note in which sequences the copies differ; whether they do."""
        times, with_lagging = sorted(pending.elected_ms), pending.attempts >= CATCHING_UP_MAX
        try:
            async with self._limit:
                ranges = await different_sequences(
                    self._client, stream, times, with_lagging=with_lagging
                )
        except (*UNREACHABLE, ValueError, KeyError) as error:
            log.debug("copies not compared", extra=fields(stream=stream, error=error))
            return False
        for first, last in ranges:
            log.error("copies differ", extra=fields(stream=stream, first=first, last=last))
            for app in sorted(pending.apps):
                self._journal.note(of_different_copies(app, stream, first, last))
        pending.next_attempt = max(CATCHING_UP_MAX, 2 * pending.attempts)
        return bool(ranges)


async def different_sequences(
    client: Client, stream: str, since_ms: list[int], *, with_lagging: bool = False
) -> list[tuple[int, int]]:
    """The sequences under which servers hold different messages, as (first, last).

    Args:
        client: the connection.
        stream: the JetStream stream; without copies, or without direct reads, nothing differs.
        since_ms: times of elections, ms since 1970, rising: differences begin after one of them.
        with_lagging: compare a server that has not caught up, in the messages that it has.

    Raises:
        OSError: a server of the stream is away, or has not caught up and does not differ so far;
            others of NATS.
    """
    info = await _ask(client, f"STREAM.INFO.{stream}", {})
    replicas = info.get("cluster", {}).get("replicas", [])
    if not replicas or not info["config"].get("allow_direct"):
        return []
    is_lagging = any(not one.get("current") for one in replicas)
    if any(one.get("offline") for one in replicas) or (is_lagging and not with_lagging):
        raise OSError(f"not all servers of {stream} are there")
    state = info["state"]
    if not state["messages"]:
        return []
    ranges: list[tuple[int, int]] = []
    for elected_ms in since_ms:
        first = await _first_since(
            client, stream, elected_ms, state["first_seq"], state["last_seq"]
        )
        if first is None or (ranges and first <= ranges[-1][1]):
            continue
        if await _differs(client, stream, first, is_lagging):
            low, high = first, int(state["last_seq"])
            while low < high:
                middle = (low + high + 1) // 2
                if await _differs(client, stream, middle, is_lagging):
                    low = middle
                else:
                    high = middle - 1
            ranges.append((first, low))
    if is_lagging and not ranges:
        raise OSError(f"a server of {stream} has not caught up")
    return ranges


async def _ask(client: Client, what: str, request: JsonObject) -> JsonObject:
    response = await api_call(client, what, request, _TIMEOUT_S)
    if "error" in response:
        raise OSError(f"{what}: {response['error'].get('description')}")
    return response


async def _stored(client: Client, stream: str, sequence: int) -> tuple[int, str]:
    """Sequence and time of the leader's first message from ``sequence`` on."""
    request = {"seq": sequence, "next_by_subj": ">"}
    message = (await _ask(client, f"STREAM.MSG.GET.{stream}", request))["message"]
    return int(message["seq"]), str(message["time"])


async def _first_since(
    client: Client, stream: str, since_ms: int, first: int, last: int
) -> int | None:
    """The leader's first message that is not older than ``since_ms``; None without one."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        sequence, time = await _stored(client, stream, middle)
        if datetime.fromisoformat(time).timestamp() * 1000 < since_ms:
            low = sequence + 1
        else:
            high = middle
    return (await _stored(client, stream, low))[0] if low <= last else None


async def _differs(client: Client, stream: str, sequence: int, is_lagging: bool) -> bool:
    """Whether a server has another message than the leader under a sequence, or none.

    ``is_lagging``: a server may not have stored or deleted it yet, which is no difference.
    """
    for _ in range(_SEEN):
        if not await _differs_now(client, stream, sequence, is_lagging):
            return False
    return True


async def _differs_now(client: Client, stream: str, sequence: int, is_lagging: bool) -> bool:
    stored_seq, time = await _stored(client, stream, sequence)
    expected = time if stored_seq == sequence else None
    request = orjson.dumps({"seq": sequence})
    for _ in range(_READS):
        direct_get = api_subject(client, f"DIRECT.GET.{stream}")
        answer = await client.request(direct_get, request, timeout=_TIMEOUT_S)
        stored = (answer.headers or {}).get("Nats-Time-Stamp")
        if stored != expected and not (is_lagging and None in (stored, expected)):
            return True
    return False
