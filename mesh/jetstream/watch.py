"""A local view of the cluster's buckets, kept up to date by watching their streams.

A watch reads its bucket from the start, and again whenever it breaks.  A bucket that lost its last
writes, or was restored, breaks the watches of all its readers, since consumers are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import NotFoundError

from mesh.control.snapshot import Records, kind_of
from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE
from mesh.jetstream.kv import OPERATION, is_at_end, subject
from mesh.model import codec, names
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.clock import Clock
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.values import JsonMapping

log = logging.getLogger(__name__)

#: Time without a message after which the consumer is checked, seconds.
SILENCE_S: Final = 2.0
#: A consumer missing for so long is created again: its server may be lost.
ANSWER_S: Final = 1.5
#: A bucket that was made again, empty, counts as it is after this, seconds.
EMPTY_S: Final = 5.0
#: Time after which such a bucket is read again, seconds.
_AGAIN_S: Final = 0.1
#: Buckets whose records managers put back.
_PUT_BACK: Final = (names.APPS_BUCKET, names.STATUS_BUCKET)
_BUCKETS: Final = (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET)


async def _leave(_bucket: str, _records: JsonMapping) -> None:
    """Managers alone put records back."""


class ClusterView:
    """Contents of the cluster's buckets, as this process has seen them."""

    def __init__(self, client: Client, clock: Clock, *, quiet_s: float = 1.0) -> None:
        """A view that has seen nothing; ``quiet_s`` is half of a node's term, see ``Records``."""
        self._client = client
        self._js = client.jetstream()
        self._clock = clock
        self._records = Records(clock.monotonic_s(), quiet_s)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        #: Bucket to its messages; None has it read again.
        self._queues: dict[str, asyncio.Queue[Msg | None]] = {b: asyncio.Queue() for b in _BUCKETS}
        #: Called with a bucket that has lost writes.
        self.on_loss: Callable[[str], None] = lambda _: None
        #: By bucket and key: the reason why the newest record can't be read.
        self.unreadable: dict[tuple[str, str], str] = {}
        #: Called with a bucket that was made again, empty, and the records that it had.
        self.on_emptied: Callable[[str, JsonMapping], Awaitable[None]] = _leave
        #: Bucket to the time at which it was found so.
        self._emptied_s: dict[str, float] = {}
        #: Bucket to the time at which its stream was made.
        self._created: dict[str, datetime | None] = {}

    async def start(self) -> None:
        """Read the buckets and follow them; returns when the view is complete.

        Raises:
            Exception: what ended the reading of a bucket before.
        """
        complete = [asyncio.Event() for _ in _BUCKETS]
        self._tasks = [
            asyncio.create_task(self._follow(bucket, event))
            for bucket, event in zip(_BUCKETS, complete, strict=True)
        ]

        async def wait_complete() -> None:
            for event in complete:
                await event.wait()

        ready = asyncio.create_task(wait_complete())
        await asyncio.wait({ready, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        await end([ready])
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Stop reading."""
        await end(self._tasks)

    @property
    def tasks(self) -> dict[str, asyncio.Task[None]]:
        """The tasks that read the buckets, by their names."""
        return {f"view of {b}": task for b, task in zip(_BUCKETS, self._tasks, strict=False)}

    @property
    def version(self) -> int:
        """Grows with each change, so that a waiter notices missed changes."""
        return self._records.version

    @property
    def news(self) -> int:
        """Grows with each change that may matter to a decision."""
        return self._records.news

    def snapshot(self) -> ClusterSnapshot:
        """Everything, as of now."""
        return self._records.snapshot(self._clock.monotonic_s())

    def revision(self, bucket: str, key: str) -> int:
        """The revision of a key's last write, a deletion too; 0 for one never written."""
        return self._records.revision(bucket, key)

    async def changed(self, since: int, timeout_s: float) -> int:
        """Wait until ``version`` is above ``since``, or the time is over; the version then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.version <= since:
                    self._changed.clear()
                    await self._changed.wait()
        return self.version

    async def news_after(self, since: int, timeout_s: float) -> int:
        """Wait until ``news`` is above ``since``, or the time is over; ``news`` then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.news <= since:
                    self._changed.clear()
                    await self._changed.wait()
        return self.news

    def took_write(self, bucket: str, key: str, value: object, revision: int) -> None:
        """Apply our own write at once, so that the next decision sees it before the watch does."""
        self._take(bucket, key, value, revision)

    async def check(self, bucket: str, key: str) -> None:
        """Read a key back after a refused write, and the whole bucket if it has gone back."""
        revision = self.revision(bucket, key)
        stream, stored = f"KV_{bucket}", 0
        try:
            async with asyncio.timeout(ANSWER_S):
                stored = (await self._js.get_last_msg(stream, subject(bucket, key))).seq or 0
        except NotFoundError:
            log.debug("refused key is not there", extra=fields(bucket=bucket, key=key))
        except UNREACHABLE as error:
            log.debug("refused key not read", extra=fields(bucket=bucket, key=key, error=error))
            return
        if stored < revision:
            self._queues[bucket].put_nowait(None)

    async def _follow(self, bucket: str, complete: asyncio.Event) -> None:
        """Read a bucket from its start, and again whenever the watch breaks."""
        while True:
            try:
                await self._read(bucket, complete)
            except UNREACHABLE as error:
                log.debug("watch created again", extra=fields(bucket=bucket, error=error))
                await asyncio.sleep(0.2)

    async def _read(self, bucket: str, complete: asyncio.Event) -> None:
        # A queue of our own: cancelling a wait in nats-py's next_msg does not always end it.
        messages = self._queues[bucket] = asyncio.Queue()
        subscription = await self._js.subscribe(
            f"$KV.{bucket}.>", stream=f"KV_{bucket}", ordered_consumer=True, cb=messages.put
        )
        try:
            info = await subscription.consumer_info()
            #: Key to record and revision; None once the whole bucket was read.
            records: dict[str, tuple[Any, int]] | None = {}
            upto = info.delivered.stream_seq if info.delivered else 0
            received = 0
            if is_at_end(info, received):
                records = await self._take_all(bucket, {}, upto)
                complete.set()
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        message = await messages.get()
                except TimeoutError:
                    # Silence may be a consumer that a restarted server has forgotten.
                    async with asyncio.timeout(ANSWER_S):
                        info = await subscription.consumer_info()
                    if records is not None and is_at_end(info, received):
                        upto = info.delivered.stream_seq if info.delivered else 0
                        records = await self._take_all(bucket, records, upto)
                        complete.set()
                    continue
                if message is None:
                    log.warning("bucket has gone back, read again", extra=fields(bucket=bucket))
                    return
                received = message.metadata.sequence.consumer
                read = self._record(bucket, message)
                if records is None:
                    if read is not None:
                        self._take(bucket, *read)
                    continue
                if read is not None:
                    records[read[0]] = read[1], read[2]
                if message.metadata.num_pending == 0:
                    records = await self._take_all(
                        bucket, records, message.metadata.sequence.stream
                    )
                    complete.set()
        finally:
            with contextlib.suppress(*UNREACHABLE):
                await subscription.unsubscribe()

    async def _take_all(
        self, bucket: str, records: dict[str, tuple[object, int]], upto: float
    ) -> dict[str, tuple[Any, int]] | None:
        """Apply a bucket that was read up to a sequence; returns None."""
        # Before the request: a write that is acknowledged meanwhile is not ahead of the stream.
        revision = self._records.last_revision(bucket)
        info = await self._js.stream_info(f"KV_{bucket}")
        is_recreated = info.created != self._created.setdefault(bucket, info.created)
        if is_recreated and not records and await self._is_awaited(bucket):
            self._queues[bucket].put_nowait(None)
            return records
        if info.state.last_seq < revision or is_recreated:
            extra = fields(bucket=bucket, known=revision, last=info.state.last_seq)
            log.warning("bucket has lost writes, or was made again", extra=extra)
            self.on_loss(bucket)
            self._created[bucket], upto = info.created, math.inf
        self._records.take_all(bucket, records, upto, self._clock.monotonic_s())
        self._changed.set()
        return None

    async def _is_awaited(self, bucket: str) -> bool:
        """Whether the records of a bucket that was made again, empty, are about to come back."""
        records = self._records.values(bucket) if bucket in _PUT_BACK else {}
        now_s = self._clock.monotonic_s()
        if not records or now_s - self._emptied_s.setdefault(bucket, now_s) > EMPTY_S:
            self._emptied_s.pop(bucket, None)
            return False
        await self.on_emptied(bucket, records)
        await asyncio.sleep(_AGAIN_S)
        return True

    def _record(self, bucket: str, message: Msg) -> tuple[str, object, int] | None:
        """The key, record and revision of a message; None for a record that can't be read."""
        if bucket == names.CONTROL_BUCKET:
            self._records.hear(self._clock.monotonic_s())
        key = message.subject.removeprefix(f"$KV.{bucket}.")
        deleted = (message.headers or {}).get(OPERATION) in ("DEL", "PURGE")
        kind = kind_of(bucket, key)
        if kind is None:
            return None
        try:
            value = None if deleted else codec.decode(kind, message.data)
        except MeshError as error:
            log.warning("record skipped", extra=fields(bucket=bucket, key=key, error=error.detail))
            self.unreadable[bucket, key] = f"{error.detail or error}"
            return None
        self.unreadable.pop((bucket, key), None)
        return key, value, message.metadata.sequence.stream

    def _take(self, bucket: str, key: str, value: object, revision: int) -> None:
        if self._records.take(bucket, key, value, revision, self._clock.monotonic_s()):
            self._changed.set()
