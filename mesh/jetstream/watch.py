"""A local view of the cluster's buckets, kept up to date by watching their streams.

Every entry carries its revision and when this observer first saw it, on the observer's own
monotonic clock: the age of a heartbeat or of the lease is measured from there, so clocks of two
machines are never compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from mesh.control.snapshot import ClusterSnapshot, Seen
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE
from mesh.jetstream.kv import OPERATION
from mesh.logs import fields
from mesh.model import codec, names
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceStatus,
    LeaseRecord,
    NodeOrder,
    NodeRecord,
)
from mesh.signals import end

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.clock import Clock

log = logging.getLogger(__name__)

#: (bucket, start of the key) to the record that is there.
_KINDS: Final[tuple[tuple[str, str, type[Any]], ...]] = (
    (names.CONTROL_BUCKET, names.LEASE_KEY, LeaseRecord),
    (names.CONTROL_BUCKET, "node.", NodeRecord),
    (names.CONTROL_BUCKET, "assignment.", Assignment),
    (names.APPS_BUCKET, "app.", AppRecord),
    (names.APPS_BUCKET, "node.", NodeOrder),
    (names.STATUS_BUCKET, "instance.", InstanceStatus),
)
#: A manager's own heartbeats come by several times in this; longer silence means that nobody
#: could be heard.
DEAF_S: Final = 1.5
#: After this long without a message it is asked whether the consumer is still there, seconds.
SILENCE_S: Final = 2.0
_BUCKETS: Final = (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET)


class ClusterView:
    """What the cluster's buckets hold, as this process has seen it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._js = client.jetstream()
        self._clock = clock
        self._entries: dict[tuple[str, str], Seen[Any]] = {}
        self._changed = asyncio.Event()
        self._heard_s = clock.monotonic_s()
        self._tasks: list[asyncio.Task[None]] = []
        #: Grows with each change; lets a waiter see what it missed.
        self.version = 0

    async def start(self) -> None:
        """Read what is there, and go on reading; returns when the view is complete."""
        complete = [asyncio.Event() for _ in _BUCKETS]
        self._tasks = [
            asyncio.create_task(self._follow(bucket, event))
            for bucket, event in zip(_BUCKETS, complete, strict=True)
        ]
        for event in complete:
            await event.wait()

    async def stop(self) -> None:
        """Stop reading."""
        await end(self._tasks)

    def snapshot(self) -> ClusterSnapshot:
        """Everything, as of now."""

        def all_of(kind: type[Any]) -> tuple[Any, ...]:
            return tuple(s for s in self._entries.values() if isinstance(s.value, kind))

        return ClusterSnapshot(
            now_s=self._clock.monotonic_s(),
            lease=self._entries.get((names.CONTROL_BUCKET, names.LEASE_KEY)),
            nodes=all_of(NodeRecord),
            apps=all_of(AppRecord),
            assignments=all_of(Assignment),
            statuses=all_of(InstanceStatus),
            orders=all_of(NodeOrder),
        )

    def revision(self, bucket: str, key: str) -> int:
        """The revision of a key's last write, a deletion too; 0 for one never written."""
        known = self._entries.get((bucket, key))
        return known.revision if known is not None else 0

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until ``version`` is above ``since``, or the time is over; the version then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.version <= since:
                    self._changed.clear()
                    await self._changed.wait()
        return self.version

    def took_write(self, bucket: str, key: str, value: Any, revision: int) -> None:
        """Note a write of our own, so that the next decision sees it before the watch does."""
        self._take(bucket, key, value, revision)

    async def _follow(self, bucket: str, complete: asyncio.Event) -> None:
        """Read a bucket from its start, over and over: a watch that breaks is made anew."""
        while True:
            try:
                await self._read(bucket, complete)
            except UNREACHABLE as error:
                log.debug("watch made anew", extra=fields(bucket=bucket, error=error))
                await asyncio.sleep(0.2)

    async def _read(self, bucket: str, complete: asyncio.Event) -> None:
        # A queue of our own: cancelling a wait in nats-py's next_msg does not always end it.
        messages: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await self._js.subscribe(
            f"$KV.{bucket}.>", stream=f"KV_{bucket}", ordered_consumer=True, cb=messages.put
        )
        try:
            info = await subscription.consumer_info()
            if not info.num_pending and not (info.delivered and info.delivered.consumer_seq):
                complete.set()
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        message = await messages.get()
                except TimeoutError:
                    # Silence may be a consumer that a restarted server has forgotten.
                    await subscription.consumer_info()
                    continue
                self._receive(bucket, message)
                if message.metadata.num_pending == 0:
                    complete.set()
        finally:
            with contextlib.suppress(*UNREACHABLE):
                await subscription.unsubscribe()

    def _receive(self, bucket: str, message: Msg) -> None:
        if bucket == names.CONTROL_BUCKET:
            self._hear()
        key = message.subject.removeprefix(f"$KV.{bucket}.")
        deleted = (message.headers or {}).get(OPERATION) in ("DEL", "PURGE")
        kind = next((k for b, start, k in _KINDS if b == bucket and key.startswith(start)), None)
        if kind is None:
            return
        try:
            value = None if deleted else codec.decode(kind, message.data)
        except MeshError as error:
            log.warning("record skipped", extra=fields(bucket=bucket, key=key, error=error.detail))
            return
        self._take(bucket, key, value, message.metadata.sequence.stream)

    def _hear(self) -> None:
        """Start the ages of nodes anew after a time in which none could be heard.

        Otherwise the first worker to beat after an outage would be the only one there, and would be
        given everything that the others are about to go on with.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._heard_s > DEAF_S:
            for at, seen in self._entries.items():
                if isinstance(seen.value, NodeRecord):
                    self._entries[at] = Seen(seen.value, seen.revision, now_s)
        self._heard_s = now_s

    def _take(self, bucket: str, key: str, value: Any, revision: int) -> None:
        known = self._entries.get((bucket, key))
        if known is not None and known.revision >= revision:
            return
        # A deletion leaves a tombstone with its revision, so that an older write seen late is
        # not taken for news.
        self._entries[bucket, key] = Seen(value, revision, self._clock.monotonic_s())
        self.version += 1
        self._changed.set()
