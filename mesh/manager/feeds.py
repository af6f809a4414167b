"""Feeds of one manager: calls that any manager answers, and the publishing, which the leader does.

    REST at any manager ──▶ record of the feed ──▶ leader: event, pause, event, ..
                                                     └ each second: the numbers of its events

A leader that takes over continues from these numbers.  Events that it publishes again have the ids
of the first ones, so the broker drops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.control.journal import JournalEntry
from mesh.control.simulating import check, next_event, rows_of, transition
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE, refusals
from mesh.jetstream.feed_store import FeedRecord, SentEvents
from mesh.jetstream.kv import RevisionConflict
from mesh.model.error_entry import SimulatedEvent
from mesh.model.simulation import BYTES_MAX, Feed, FeedState, feed_of, invalid
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.control.simulating import FileRow
    from mesh.jetstream.feed_store import FeedStore
    from mesh.manager.events import AppEvents
    from mesh.model.app import AppSpec, Channel
    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)

#: Interval of the leader's looks for feeds, and of its notes of what was published, seconds.
LOOK_S: Final = 1.0
FEEDS_MAX: Final = 100
FILES_MAX: Final = 100
#: With or without the mark that some editors write.
_ENCODING: Final = "utf-8-sig"


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """State of a feed, with the number of events of its last run and the reason of its end."""

    state: FeedState
    events: int
    reason: str = ""


@dataclass(eq=False, slots=True)
class _Run:
    """A run under way here; it ends soon after ``stop`` is set."""

    stop: asyncio.Event
    task: asyncio.Task[None]


@dataclass(eq=False, repr=False)
class Feeds:
    """Simulations: calls on them, and ``run``."""

    _store: FeedStore
    _events: AppEvents
    #: An app's spec; raises MESH-A404 for one that is not deployed.
    _spec: Callable[[str], AppSpec]
    _note: Callable[[JournalEntry], None]
    _now_ms: Callable[[], int]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, values: Any, *, by: str = "") -> str:
        """Store a new feed; its name.  MESH-A400; MESH-A409 for a name that is taken."""
        feed = _checked(values)
        with refusals():
            if len(feeds := await self._store.feeds()) >= FEEDS_MAX:
                raise MeshError("MESH-A409", f"there are {FEEDS_MAX} simulations already")
            if feed.name in feeds:
                raise MeshError("MESH-A409", f'simulation "{feed.name}" exists already')
            _, revision = await self._store.feed(feed.name)
            await self._put(feed.name, FeedRecord(values, by=by), revision)
        return feed.name

    async def update(self, name: str, values: Any, *, by: str = "") -> None:
        """Replace a feed, which stops; the new one may have another name.  MESH-A404."""
        feed = _checked(values)
        with refusals():
            _, revision = await self._get(name)
            if feed.name != name:
                other, of_other = await self._store.feed(feed.name)
                if other is not None:
                    raise MeshError("MESH-A409", f'simulation "{feed.name}" exists already')
                await self._put(feed.name, FeedRecord(values, by=by), of_other)
                await self._put(name, None, revision)
            else:
                await self._put(name, FeedRecord(values, by=by), revision)

    async def delete(self, name: str) -> None:
        """Delete a feed, which stops; MESH-A404."""
        with refusals():
            _, revision = await self._get(name)
            await self._put(name, None, revision)

    async def configuration(self, name: str) -> JsonObject:
        """The configuration of a feed; MESH-A404."""
        with refusals():
            return (await self._get(name))[0].configuration

    async def list_all(self) -> list[tuple[JsonObject, str]]:
        """The configurations of all feeds, each with the reason why it can't run."""
        entries = []
        with refusals():
            for record in (await self._store.feeds()).values():
                reason = ""
                try:
                    await self._load(feed_of(record.configuration))
                except MeshError as error:
                    reason = str(error)
                entries.append((record.configuration, reason))
        return entries

    async def status(self, name: str) -> FeedStatus:
        """The state of a feed; MESH-A404."""
        with refusals():
            record, _ = await self._get(name)
            sent = await self._store.sent(name)
        count = sum(sent.sent) if sent.run == record.run else 0
        return FeedStatus(record.state, count, record.reason)

    async def operate(self, name: str, action: str, *, by: str = "") -> tuple[int, str]:
        """Run, pause, resume or stop a feed: the HTTP status, and what is said.

        Raises:
            MeshError: MESH-A404; for ``run`` also what makes the feed unable to run.
        """
        with refusals():
            record, revision = await self._get(name)
            state, text = transition(action, record.state)
            if not isinstance(state, FeedState):
                return state, text
            feed = feed_of(record.configuration)
            new_record = replace(record, state=state, by=by, reason="")
            if action == "run":
                await self._load(feed)
                new_record = replace(new_record, run=secrets.token_hex(8), began_ms=self._now_ms())
            await self._put(name, new_record, revision)
        for app in feed.apps:
            self._note(JournalEntry(f"{text} simulation {name}", by=by and f"user {by}", app=app))
        return 200, text

    async def files(self) -> list[str]:
        """The names of files."""
        with refusals():
            return await self._store.files()

    async def put_file(self, name: str, data: bytes, *, is_new: bool) -> None:
        """Store a new file, or another content of one; MESH-A404, MESH-A409."""
        try:
            data.decode(_ENCODING)
        except UnicodeDecodeError as error:
            raise MeshError("MESH-A400", "a file of events is text in UTF-8") from error
        with refusals():
            files = await self._store.files()
            if is_new and name in files:
                raise MeshError("MESH-A409", f'file "{name}" exists already')
            if not is_new and name not in files:
                raise MeshError("MESH-A404", f'file "{name}" does not exist')
            if len(files) >= FILES_MAX and is_new:
                raise MeshError("MESH-A409", f"there are {FILES_MAX} files already")
            await self._store.put_file(name, data)

    async def delete_file(self, name: str) -> None:
        """Delete a file; MESH-A404."""
        with refusals():
            if name not in await self._store.files():
                raise MeshError("MESH-A404", f'file "{name}" does not exist')
            await self._store.delete_file(name)

    async def run(self, leads: Callable[[], bool]) -> None:
        """Publish the events of feeds that run, while this manager leads, without end."""
        runs: dict[tuple[str, str], _Run] = {}
        seen = -1
        try:
            while True:
                ended = [key for key, run in runs.items() if run.task.done()]
                for key in ended:
                    del runs[key]
                    seen = -1
                try:
                    seen = await self._look(runs, seen) if leads() else self._end(runs)
                except UNREACHABLE as error:
                    log.debug("simulations not read", extra=fields(error=error))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            await end([run.task for run in runs.values()])

    async def _look(self, runs: dict[tuple[str, str], _Run], seen: int) -> int:
        """Begin and stop runs as the records say; the version of the records."""
        version = await self._store.version()
        if version == seen:
            return seen
        feeds = await self._store.feeds() if version else {}
        run_records = {
            (name, record.run): record
            for name, record in feeds.items()
            if record.state is FeedState.RUN
        }
        for key in runs.keys() - run_records.keys():
            runs[key].stop.set()
        for key in run_records.keys() - runs.keys():
            stop = asyncio.Event()
            work = self._play(key[0], run_records[key], stop)
            runs[key] = _Run(stop, asyncio.create_task(work, name=f"simulation {key[0]}"))
        return version

    @staticmethod
    def _end(runs: dict[tuple[str, str], _Run]) -> int:
        """Stop all runs, which another manager continues."""
        for run in runs.values():
            run.stop.set()
        return -1

    async def _play(self, name: str, record: FeedRecord, stop: asyncio.Event) -> None:
        """Publish the events of a run until its end, or until ``stop``; the record tells why."""
        try:
            feed = feed_of(record.configuration)
            if not await self._publish(name, feed, record, stop):
                return
            reason = ""
        except MeshError as error:
            if error.code == "MESH-A503":
                log.debug("simulation waits for NATS", extra=fields(simulation=name))
                return
            reason = str(error)
        except (*UNREACHABLE, RevisionConflict) as error:
            # The next look begins it again, here or at the next leader.
            log.debug("simulation ended early", extra=fields(simulation=name, error=error))
            return
        # A simulation with a fault must not begin again and again.
        except Exception as error:
            log.exception("simulation failed", extra=fields(simulation=name))
            reason = f"{type(error).__name__}: {error}"
        with contextlib.suppress(RevisionConflict, *UNREACHABLE):
            now, revision = await self._store.feed(name)
            if now is not None and (now.run, now.state) == (record.run, FeedState.RUN):
                ended = replace(now, state=FeedState.STOP, reason=reason)
                await self._store.put_feed(name, ended, revision)

    async def _publish(
        self, name: str, feed: Feed, record: FeedRecord, stop: asyncio.Event
    ) -> bool:
        """Publish events after those that were; False if ``stop`` ended it."""
        rows = await self._load(feed)
        previous = await self._store.sent(name)
        is_same = previous.run == record.run and len(previous.sent) == len(feed.sources)
        sent = list(previous.sent) if is_same else [0] * len(feed.sources)
        revision = previous.revision
        loop = asyncio.get_running_loop()
        next_s = noted_s = loop.time()

        async def note() -> None:
            nonlocal revision, noted_s
            progress = SentEvents(record.run, tuple(sent), revision)
            revision, noted_s = await self._store.put_sent(name, progress), loop.time()

        # The number of another manager's run is refused from here on.
        await note()
        while not stop.is_set():
            event = next_event(feed, record.run, record.began_ms, rows, sent)
            if event is None:
                break
            source = feed.sources[event.source]
            one = SimulatedEvent(source.stream, event.values, event.time_ms)
            key = f"feed-{record.run}-{event.source}-{event.number}"
            await self._events.send(source.app, [one], keys=[key])
            sent[event.source] += 1
            if loop.time() - noted_s >= LOOK_S:
                await note()
            next_s = max(next_s + feed.pause_ms / 1000, loop.time() - LOOK_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await stop.wait()
        await note()
        return not stop.is_set()

    async def _load(self, feed: Feed) -> dict[int, Sequence[FileRow]]:
        """The lines of a feed's files by source, after a look at each source.

        Raises:
            MeshError: MESH-A404 for an app, a stream or a file that is not there, MESH-A400 for
                events that do not fit their stream.
        """
        rows: dict[int, Sequence[FileRow]] = {}
        for at, source in enumerate(feed.sources):
            types = [one.type for one in self._channel(source.app, source.stream).stream.attributes]
            if source.file:
                text = (await self._store.file(source.file)).decode(_ENCODING)
                rows[at] = await asyncio.to_thread(rows_of, source, text, types)
            elif len(source.attributes) != len(types):
                raise invalid(
                    f"stream {source.stream} has {len(types)} attributes, "
                    f"not {len(source.attributes)}"
                )
        return rows

    def _channel(self, app: str, stream: str) -> Channel:
        channel = self._spec(app).whole_channel(stream)
        if channel is None:
            raise MeshError("MESH-A404", f'app "{app}" has no stream "{stream}" on the wire')
        return channel

    async def _get(self, name: str) -> tuple[FeedRecord, int]:
        record, revision = await self._store.feed(name)
        if record is None:
            raise MeshError("MESH-A404", f'simulation "{name}" does not exist')
        return record, revision

    async def _put(self, name: str, record: FeedRecord | None, revision: int) -> None:
        try:
            await self._store.put_feed(name, record, revision)
        except RevisionConflict as error:
            raise MeshError(
                "MESH-A409", f'simulation "{name}" was changed meanwhile', hint="Try it again."
            ) from error
        self._changed.set()


def _checked(values: object) -> Feed:
    """The feed of a configuration; MESH-A400, MESH-A413."""
    feed = feed_of(values)
    check(feed)
    if len(orjson.dumps(values)) > BYTES_MAX:
        raise MeshError("MESH-A413", f"a simulation has {BYTES_MAX} bytes at most")
    return feed
