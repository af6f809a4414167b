"""The journal as a JetStream stream: entries are queued, stored in order, and read back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from nats.errors import MaxPayloadError
from nats.js import api
from nats.js.errors import NotFoundError

from mesh.control.journal import JournalEntry
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE, listen
from mesh.model import codec, names
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.clock import Clock

log = logging.getLogger(__name__)

#: Retention of entries, and their greatest number for each app.
MAX_AGE_S: Final = 30 * 86_400
ENTRIES_MAX: Final = 20_000
#: Most entries of an app, and of the cluster, that a reader gets.
READ_MAX: Final = 2000
#: Most entries that wait for a server that is away; the oldest are lost first.
WAITING_MAX: Final = 10_000
#: Time for a process that ends to store its queued entries.
FLUSH_S: Final = 1.0


async def ensure_stream(js: JetStreamContext, replicas: int) -> None:
    """Make the stream, if it isn't there."""
    try:
        await js.stream_info(names.JOURNAL_STREAM)
    except NotFoundError:
        await js.add_stream(
            api.StreamConfig(
                name=names.JOURNAL_STREAM,
                subjects=[f"{names.journal_subject('')[:-1]}>"],
                max_age=MAX_AGE_S,
                max_msgs_per_subject=ENTRIES_MAX,
                num_replicas=replicas,
                # An entry sent again, because its answer was lost, counts once.
                duplicate_window=120,
            )
        )


@dataclass(eq=False, repr=False)
class Journal:
    """Stores the entries of one process in their order."""

    #: Its loss and return are noted as well.
    _client: Client
    #: The author, as in ``JournalEntry.by``.
    _by: str
    _clock: Clock
    _: KW_ONLY
    #: The worker whose process this is; empty for a manager's.
    worker: str = ""
    _lost_s: float | None = None
    _id: str = field(default_factory=lambda: secrets.token_hex(6))
    _count: int = 0
    _waiting: deque[tuple[str, JournalEntry]] = field(
        default_factory=lambda: deque(maxlen=WAITING_MAX)
    )
    _noted: asyncio.Event = field(default_factory=asyncio.Event)
    _all_stored: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._js = self._client.jetstream()
        self._all_stored.set()

    def note(self, entry: JournalEntry) -> None:
        """Queue an entry, with the present time if it has none; does not wait.

        One about something that can't be an app, as a file of another name, is of the cluster.
        """
        self._count += 1
        app = entry.app if names.is_app_name(entry.app) else ""
        at_ms = entry.at_ms or self._clock.wall_ms()
        whole = replace(entry, by=entry.by or self._by, at_ms=at_ms, app=app)
        self._waiting.append((f"{self._id}-{self._count}", whole))
        self._all_stored.clear()
        self._noted.set()

    @property
    def tasks(self) -> dict[str, asyncio.Task[None]]:
        """The task that stores, by its name."""
        return {"journal": self._task} if self._task is not None else {}

    async def stored(self) -> None:
        """Wait until all queued entries are stored."""
        await self._all_stored.wait()

    def start(self) -> None:
        """Begin to store."""
        self._task = asyncio.create_task(self._store())
        listen(self._client, self._connection_changed)

    async def stop(self) -> None:
        """Store what is left, for a moment, and end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self.stored()
        if self._task is not None:
            await end([self._task])

    def _connection_changed(self, is_connected: bool) -> None:
        now_s = self._clock.monotonic_s()
        if not is_connected:
            self._lost_s = now_s
            self.note(JournalEntry("lost its connection to NATS", worker=self.worker))
        elif self._lost_s is not None:
            away = f"after {now_s - self._lost_s:.1f} s"
            self.note(JournalEntry("is connected to NATS again", away, worker=self.worker))

    async def _store(self) -> None:
        while True:
            while self._waiting:
                number, entry = self._waiting[0]
                try:
                    await self._js.publish(
                        names.journal_subject(entry.app),
                        codec.encode(entry),
                        headers={"Nats-Msg-Id": number},
                    )
                except Exception as error:
                    if isinstance(error, UNREACHABLE) and not isinstance(error, MaxPayloadError):
                        log.debug("journal entry not stored", extra=fields(error=error))
                        await asyncio.sleep(0.2)
                        continue
                    # No attempt would store this one, and the next ones wait.
                    log.exception("journal entry dropped", extra=fields(text=entry.text))
                # Others may have pushed it out meanwhile.
                if self._waiting and self._waiting[0][0] == number:
                    self._waiting.popleft()
            self._noted.clear()
            self._all_stored.set()
            await self._noted.wait()


async def read(js: JetStreamContext, app: str) -> list[JournalEntry]:
    """The last ``READ_MAX`` entries of ``app``, and those of the cluster, as they were stored."""
    if not names.is_app_name(app):
        return []
    entries: list[tuple[int, bytes]] = []
    for subject in (names.journal_subject(app), names.journal_subject("")):
        subscription = await js.subscribe(
            subject, stream=names.JOURNAL_STREAM, ordered_consumer=True
        )
        try:
            info = await subscription.consumer_info()
            last: deque[tuple[int, bytes]] = deque(maxlen=READ_MAX)
            left = info.num_pending or 0
            if info.delivered is not None:
                left += info.delivered.consumer_seq
            while left > 0:
                message = await subscription.next_msg(timeout=5)
                stored = message.metadata.sequence.stream
                last.append((stored, message.data))
                left = message.metadata.num_pending
            entries += last
        finally:
            with contextlib.suppress(*UNREACHABLE):
                await subscription.unsubscribe()
    return list(_readable(data for _, data in sorted(entries)))


def _readable(entries: Iterable[bytes]) -> Iterator[JournalEntry]:
    """The entries that can be read: one of another version hides no other."""
    for data in entries:
        try:
            yield codec.decode(JournalEntry, data)
        except MeshError as error:
            log.warning("entry of the journal can't be read", extra=fields(error=error))
