"""Outbox: sends the events of a channel to one destination, and keeps its own position.

It reads the channel by sequence, maps the events, and writes them.  While the destination is away
it waits and tries again with a growing delay; nothing else waits for it.  Events that it refuses go
to the app's error stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from nats.errors import Error as NatsError

from mesh.connect.contract import Record, RefusedRecordsError, UnavailableError
from mesh.errors import MeshError
from mesh.logs import fields
from mesh.model import error_entry, names
from mesh.model.cluster import DoorStatus, InstanceState
from mesh.receiver.channel_reader import ChannelReader
from mesh.receiver.positions import Position, TakenOverError, initial
from pyspark_nats.decode import decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.connect.contract import Context, Sink
    from mesh.control.retries import Retries
    from mesh.mapping.contract import SinkMapper
    from mesh.model.app import Channel
    from mesh.receiver.channel_reader import Message
    from mesh.receiver.positions import PositionStore

log = logging.getLogger(__name__)

#: Messages and events that are written together.
_MESSAGES_MAX: Final = 500
_EVENTS_MAX: Final = 2000
#: Longest wait for messages, and interval of stored positions and of renewals, seconds.
_WAIT_S: Final = 1.0
_STORE_S: Final = 0.5
_RENEW_S: Final = 600.0
#: Bytes of messages whose events are in memory together as records.
_BYTES_MAX: Final = 512 << 10
#: Options of a record without dynamic ones.
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
#: Failures that end with the next attempt.
_FAILURES: Final = (UnavailableError, NatsError, TimeoutError, OSError, MeshError)
#: Part of a delay that is random, so that several outboxes don't try at the same time.
_JITTER: Final = 0.2


@dataclass
class Destination:
    """One destination of a sink: where to, and which events."""

    #: ``sink http 2``.
    name: str
    sink: Sink
    context: Context
    endpoint: str = ""
    #: Rows of a batch that it gets; None for all.
    choose: Callable[[pa.RecordBatch], Any] | None = None
    #: Values of dynamic options for each row, by name.
    dynamic: Mapping[str, Callable[[pa.RecordBatch], list[str]]] = field(default_factory=dict)


class _Item(NamedTuple):
    """A record with the place of its event."""

    record: Record
    message: Message
    place: int


class Outbox:
    """Sends the events of a channel to one destination until it is stopped."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        channel: Channel,
        destination: Destination,
        mapper: SinkMapper,
        positions: PositionStore,
        retries: Retries,
        *,
        start: int = 0,
        floor: int = 0,
        skips: Sequence[tuple[int, int]] = (),
        group: str = "",
        on_error: str = "WAIT",
        records_errors: bool = False,
        key_prefix: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed = changed
        self._client = client
        self._clock = clock
        self._channel = channel
        self._to = destination
        self._mapper = mapper
        self._positions = positions
        self._retries = retries
        self._start, self._floor, self._skips = start, floor, skips
        self._group = group
        self._on_error = on_error
        self._records_errors = records_errors
        self._key_prefix = key_prefix
        self._stored = Position()
        self._done = -1
        self._stored_s = 0.0
        self._attempts = 0
        self._stopping = asyncio.Event()
        self._reader: ChannelReader | None = None
        self.status = DoorStatus(destination.name, InstanceState.STARTING, destination.endpoint)
        self.messages_in = self.rows_out = self.errors = 0

    def stop(self) -> None:
        """Request the end; ``run`` returns after the write under way, or once it is cancelled."""
        self._stopping.set()
        if self._reader is not None:
            self._reader.wake()

    async def run(self) -> None:
        """Send until stopped.

        Raises:
            TakenOverError: a newer epoch has the position.
        """
        while not self._stopping.is_set():
            try:
                await self._run_once()
            except TakenOverError:
                raise
            # A connector is code of others; its failure must not end the other destinations.
            except Exception as error:
                await self._rest(error)
            finally:
                await self._close()
        if self._to.sink.state is None and self._done > self._stored.number:
            with contextlib.suppress(*_FAILURES):
                await self._store()

    async def _run_once(self) -> None:
        self._stored = initial(await self._positions.take_over(), self._start, self._floor)
        self._done = self._stored.number
        sink = self._to.sink
        await sink.open(self._to.context, self._stored.values or None)
        # A sink that stores its position with the records may be ahead of ours.
        self._done = max(self._done, getattr(sink, "position", None) or 0)
        if sink.state is not None or self._done != self._stored.number:
            await self._store()
        reader = self._reader = ChannelReader(
            self._client, self._channel.js_stream(), self._channel.subject(), self._done
        )
        self._say(InstanceState.RUNNING)
        while not self._stopping.is_set():
            messages = await reader.next(_MESSAGES_MAX, _WAIT_S)
            if messages:
                self.messages_in += len(messages)
                await self._send(messages)
            now_s = self._clock.monotonic_s()
            is_new = self._done > self._stored.number
            if now_s - self._stored_s >= (_STORE_S if is_new else _RENEW_S):
                await self._store()
            self._say(InstanceState.RUNNING)

    async def _send(self, messages: Sequence[Message]) -> None:
        """Write the events of messages; the position advances with them."""
        kept = [m for m in messages if not any(low < m.sequence <= to for low, to in self._skips)]
        for some in _portions(kept):
            await self._send_some(some)
        self._done = messages[-1].sequence

    async def _send_some(self, messages: Sequence[Message]) -> None:
        items = await self._items(messages)
        at = 0
        while at < len(items):
            end = min(at + _EVENTS_MAX, len(items))
            # A position is that of a whole message.
            while end < len(items) and items[end].message is items[end - 1].message:
                end += 1
            await self._write(items[at:end])
            self._done = items[end - 1].message.sequence
            if self._to.sink.state is not None:
                await self._store()
            at = end

    async def _items(self, messages: Sequence[Message]) -> list[_Item]:
        data = pa.array([m.data for m in messages], pa.binary())
        kinds = pa.array([m.content_type for m in messages], pa.string())
        items: list[_Item] = []
        first = 0
        while first < len(messages):
            found = decode_messages(
                data.slice(first), kinds.slice(first), self._channel.stream.arrow
            )
            if self._records_errors:
                for number, index, reason in found.errors:
                    message = messages[first + number]
                    await self._record(message, index, reason, message.data, "")
            rows, message_of, index_of = found.rows, found.message, found.index
            if self._to.choose is not None and rows.num_rows:
                mask = np.asarray(self._to.choose(rows), bool)
                rows, message_of = rows.filter(pa.array(mask)), message_of[mask]
                index_of = index_of[mask]
            items += self._mapped(rows, [messages[first + int(n)] for n in message_of], index_of)
            first += found.taken
        return items

    def _mapped(self, rows: pa.RecordBatch, messages: Sequence[Message], index: Any) -> list[_Item]:
        payloads = self._mapper.encode(rows)
        names = list(self._to.dynamic)
        columns = [values(rows) for values in self._to.dynamic.values()]
        # Events of a plain sink share one mapping.
        options = (
            [dict(zip(names, own, strict=True)) for own in zip(*columns, strict=True)]
            if names
            else [_NONE] * len(payloads)
        )
        prefix = self._key_prefix
        return [
            _Item(
                Record(f"{prefix}/{message.sequence}.{place}", payload, own, message.sequence),
                message,
                place,
            )
            for payload, message, place, own in zip(
                payloads, messages, index.tolist(), options, strict=True
            )
        ]

    async def _write(self, items: Sequence[_Item]) -> None:
        """Write records until each is written or refused."""
        left = list(items)
        while left:
            try:
                outcomes = await self._to.sink.write([item.record for item in left])
                if any(outcomes):
                    await self._settle(left, dict(enumerate(outcomes)))
                else:
                    self.rows_out += len(left)
                left = []
                self._attempts = 0
                self._retries = self._retries.running(self._clock.monotonic_s())
            except RefusedRecordsError as error:
                left = await self._settle(left, error.reasons)
            except UnavailableError as error:
                left = await self._settle(left, error.outcomes)
                self._attempts = 1 if error.outcomes else self._attempts + 1
                self._advance(left)
                if self._on_error == "WAIT" or self._attempts < 2:
                    await self._rest(error)
                    if self._stopping.is_set():
                        raise
                    continue
                if self._on_error == "STORE":
                    await self._settle(left, dict.fromkeys(range(len(left)), str(error)))
                else:
                    extra = fields(door=self._to.name, events=len(left), error=error)
                    log.warning("events were dropped", extra=extra)
                left = []

    def _advance(self, left: Sequence[_Item]) -> None:
        if left and self._to.sink.state is None:
            self._done = max(self._done, left[0].message.sequence - 1)

    async def _settle(
        self, items: Sequence[_Item], outcomes: Mapping[int, str | None]
    ) -> list[_Item]:
        """Record what was refused; the items without an outcome."""
        for at, reason in outcomes.items():
            if reason is None:
                self.rows_out += 1
                continue
            item = items[at]
            await self._record(
                item.message, item.place, reason, item.record.payload, item.record.key
            )
        return [item for at, item in enumerate(items) if at not in outcomes]

    async def _record(
        self, message: Message, index: int, reason: str, data: bytes, key: str
    ) -> None:
        self.errors += 1
        app = self._channel.app
        entry = error_entry.of_unreadable(
            self._channel.stream.name, message.sequence, index, message.time_ms, None,
            self._group, reason, data, is_event=bool(key), door=self._to.name,
            attempts=self._attempts + 1,
        )  # fmt: skip
        name = f"{self._key_prefix}/{message.sequence}.{index}/{self._to.name}"
        await self._client.jetstream().publish(
            names.error_subject(app), entry, headers={"Nats-Msg-Id": name}
        )

    async def _store(self) -> None:
        number, state = self._done, self._to.sink.state
        values = dict(state) if state is not None else {}
        stored = await self._positions.write(self._stored, number, values)
        if not stored.is_own or stored.number != number:
            # A lost answer, or a stranger's write: begin again from what is stored.
            raise UnavailableError("the position was written by another process")
        self._stored, self._stored_s = stored, self._clock.monotonic_s()

    async def _rest(self, error: Exception) -> None:
        now_s = self._clock.monotonic_s()
        self._retries = self._retries.failed(now_s)
        asked_s = getattr(error, "retry_after_s", None)
        rest_s = max(self._retries.rest_s, asked_s or 0.0) * (1 + _JITTER * random.random())
        reason = str(error) or type(error).__name__
        if self._retries.failures == 1:
            log.warning("sink waits", extra=fields(door=self._to.name, error=reason))
        self._say(InstanceState.RETRYING, reason, rest_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._stopping.wait()

    async def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()
        with contextlib.suppress(*_FAILURES):
            await self._to.sink.close()

    def _say(
        self, state: InstanceState, error: str | None = None, rest_s: float | None = None
    ) -> None:
        pending = self._reader.pending if self._reader is not None else 0
        retry_at_ms = None if rest_s is None else self._clock.wall_ms() + round(rest_s * 1000)
        is_news = self.status.state is not state
        self.status = replace(
            self.status,
            state=state,
            position=max(0, self._done),
            behind=pending,
            error=error,
            retry_at_ms=retry_at_ms,
            attempts=self._attempts,
        )
        if is_news:
            self._changed()


def _portions(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Successive messages of some bytes together; a larger one stands alone."""
    first = size = 0
    for at, message in enumerate(messages):
        if at > first and size + len(message.data) > _BYTES_MAX:
            yield messages[first:at]
            first, size = at, 0
        size += len(message.data)
    if messages:
        yield messages[first:]
