"""Stream advisories of NATS: new leaders and lost quorums, noted in the journal.

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

from mesh.control.journal import of_elections, of_lost_quorum
from mesh.jetstream.channels import js_streams
from mesh.model import names
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.clock import Clock
    from mesh.jetstream.copies import Copies
    from mesh.jetstream.journal import Journal
    from mesh.jetstream.watch import ClusterView
    from mesh.model.values import JsonObject

log = logging.getLogger(__name__)

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
