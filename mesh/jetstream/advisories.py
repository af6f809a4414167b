"""What NATS tells of its streams by itself: a new leader, a lost quorum.

Of streams with replicas a server announces who was elected, and that a majority is missing
(``$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*`` and ``.QUORUM_LOST.*``).  Nothing here acts on it;
it goes into the journal, where it explains a pause of which a mesh sees nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.control.journal import of_elections, of_lost_quorum
from mesh.jetstream.channels import js_streams
from mesh.logs import fields
from mesh.model import names
from mesh.signals import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.jetstream.journal import Journal
    from mesh.jetstream.watch import ClusterView

log = logging.getLogger(__name__)

_ADVISORIES: Final = "$JS.EVENT.ADVISORY.STREAM"
#: Who leads the streams of a lost server is told stream by stream; that long it is gathered.
GATHER_S: Final = 1.0
#: How the names of the mesh's own buckets begin, as streams.
_BUCKETS: Final = (f"KV_{names.ROOT}_", f"OBJ_{names.ROOT}_")


class Advisories:
    """Notes who was elected to lead the streams of the mesh, and which have lost their quorum."""

    def __init__(
        self, client: Client, view: ClusterView, journal: Journal, leads: Callable[[], bool]
    ) -> None:
        """Advisories that nobody listens to yet.

        Args:
            client: the connection; without the permission to subscribe nothing is noted.
            view: which streams the apps use.
            journal: where it is noted.
            leads: whether this manager does; of several, one is to note it.
        """
        self._client = client
        self._view = view
        self._journal = journal
        self._leads = leads
        #: By app, empty for what is nobody's own: stream to its new leader.
        self._elected: dict[str, dict[str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen."""
        await self._client.subscribe(f"{_ADVISORIES}.LEADER_ELECTED.*", cb=self._take)
        await self._client.subscribe(f"{_ADVISORIES}.QUORUM_LOST.*", cb=self._take)

    async def stop(self) -> None:
        """Note nothing more; the connection is closed by whoever made it."""
        if self._task is not None:
            await end([self._task])

    async def _take(self, message: Msg) -> None:
        try:
            told: dict[str, Any] = orjson.loads(message.data)
            stream = str(told["stream"])
            leader = str(told.get("leader", ""))
        except (ValueError, KeyError, TypeError) as error:
            log.debug("advisory not understood", extra=fields(error=error))
            return
        # Looked up at once: a new stream's first election comes before its app is written down.
        for app in self._users(stream):
            if message.subject.startswith(f"{_ADVISORIES}.QUORUM_LOST."):
                if self._leads():
                    self._journal.note(of_lost_quorum(app, stream))
            else:
                self._elected.setdefault(app, {})[stream] = leader
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._note_elected())

    async def _note_elected(self) -> None:
        await asyncio.sleep(GATHER_S)
        elected, self._elected = self._elected, {}
        if self._leads():
            for app, leaders in elected.items():
                self._journal.note(of_elections(app, leaders))

    def _users(self, stream: str) -> list[str]:
        """The apps that use a JetStream stream; one that is the mesh's own has the empty name."""
        if stream == names.JOURNAL_STREAM or stream.startswith(_BUCKETS):
            return [""]
        return [
            app.value.spec.name
            for app in self._view.snapshot().apps
            if stream in app.value.spec.given_streams
            or any(stream == name for name, _ in js_streams(app.value.spec))
        ]
