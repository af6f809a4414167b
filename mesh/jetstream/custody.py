"""Custody of the mesh's buckets while managers run: those that were deleted are made again.

    missing ──▶ named by /health/ready and mesh verify ──▶ made again ──▶ records put back

Any manager makes the bucket of control, without which none leads; the leader makes the others.  A
bucket that comes back empty gets the records back that the managers know, see ``ClusterView``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nats.js.errors import NotFoundError

from mesh.control.journal import JournalEntry
from mesh.control.verification import Finding, Severity
from mesh.jetstream import channels, kv
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import codec, names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.js import JetStreamContext

    from mesh.settings import ChannelSettings

log = logging.getLogger(__name__)

#: Time between two looks, seconds.
LOOK_S: Final = 10.0
#: The streams without which apps do not run, or have no story.
STREAMS: Final = (
    f"KV_{names.CONTROL_BUCKET}",
    f"KV_{names.APPS_BUCKET}",
    f"KV_{names.STATUS_BUCKET}",
    f"KV_{names.SNAPSHOTS_BUCKET}",
    f"OBJ_{names.STATE_BUCKET}",
    names.JOURNAL_STREAM,
)


async def missing(js: JetStreamContext) -> tuple[str, ...]:
    """The streams of the mesh that NATS does not have."""

    async def is_missing(stream: str) -> bool:
        try:
            await js.stream_info(stream)
        except NotFoundError:
            return True
        return False

    absences = await asyncio.gather(*map(is_missing, STREAMS))
    return tuple(stream for stream, gone in zip(STREAMS, absences, strict=True) if gone)


def reasons(streams: tuple[str, ...]) -> tuple[str, ...]:
    """Reasons against the readiness of a manager."""
    return tuple(
        f"NATS has no stream {one}: it was deleted, and a manager makes it again" for one in streams
    )


def findings(app: str, streams: tuple[str, ...]) -> list[Finding]:
    """The faults of an app of which nothing else can be said meanwhile."""
    text = "NATS does not have it: it was deleted while the cluster ran."
    remedy = f"The managers make it again within {LOOK_S:g} s; then verify the app again."
    return [Finding(Severity.FAULT, "bucket-missing", app, one, text, remedy) for one in streams]


@dataclass(eq=False, repr=False)
class Custody:
    """The looks of one manager after the mesh's buckets."""

    _js: JetStreamContext
    _settings: ChannelSettings
    _note: Callable[[JournalEntry], None]
    _leads: Callable[[], bool]
    #: As of the last look.
    missing: tuple[str, ...] = ()

    async def run(self) -> None:
        """Look again and again, without end."""
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(*UNREACHABLE):
                await self.look()

    async def look(self) -> None:
        """Find what is missing, and make what this manager has to make."""
        self.missing = await missing(self._js)
        if not self.missing:
            return
        log.error("buckets are missing", extra=fields(streams=self.missing))
        if self._leads():
            await channels.ensure_buckets(self._js, self._settings)
        elif STREAMS[0] in self.missing:
            await kv.ensure_bucket(self._js, names.CONTROL_BUCKET, self._settings.replicas)
        left = await missing(self._js)
        for stream in self.missing:
            if stream not in left:
                self._note(JournalEntry(f"made {stream} again", "NATS did not have it any more"))
        self.missing = left

    async def put_back(self, bucket: str, records: Mapping[str, object]) -> None:
        """Write the records of a bucket that was made again, empty, unless others have."""
        written = 0
        for key, record in records.items():
            with contextlib.suppress(kv.RevisionConflict):
                await kv.write(self._js, bucket, key, codec.encode(record), revision=0)
                written += 1
        if written:
            message = f"wrote {written} records of {bucket} again"
            self._note(JournalEntry(message, "it was made again, empty"))
