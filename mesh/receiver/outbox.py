"""Outbox: sends the events of a channel to one destination, and keeps its own position.

It reads the channel by sequence, maps the events, and writes them.  While its destination is away,
it alone waits.  Refused events go to the stream's fault stream, or else to the app's error stream.
The file is longer than 400 lines because writes, refusals and the position are of one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from nats.errors import Error as NatsError

from mesh.connect.contract import Record, RefusedRecordsError, UnavailableError
from mesh.errors import MeshError
from mesh.jetstream.channel_reader import ChannelReader
from mesh.mapping.events import Refusal
from mesh.model.cluster import ConnectorStatus, InstanceState
from mesh.receiver.outbox_items import OutboxRecords, finished, items_of, portions
from mesh.receiver.outcomes import (
    AWAY,
    REFUSED,
    Recorder,
    Search,
    Step,
    described,
    is_outage,
    reason_of,
    written,
)
from mesh.receiver.positions import SourcePosition, TakenOverError, check_input, initial
from mesh.telemetry import traces
from mesh.telemetry.logs import fields
from pyspark_nats.decode import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.retries import Retries
    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.mapping.events import SinkMapper
    from mesh.model.app import Channel
    from mesh.receiver.outbox_items import Destination, Items
    from mesh.receiver.positions import PositionStore, Replayed


log = logging.getLogger(__name__)

#: Messages and events that are written together.
_MESSAGES_MAX: Final = 500
_EVENTS_MAX: Final = 2000
#: Longest wait for messages, and interval of stored positions and of renewals, seconds.
_WAIT_S: Final = 1.0
_STORE_S: Final = 0.5
_RENEW_S: Final = 600.0
#: Failures that end with the next attempt.
_FAILURES: Final = (UnavailableError, NatsError, TimeoutError, OSError, MeshError)
#: Part of a delay that is random, so that several outboxes don't try at the same time.
_JITTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class MappedItems:
    """Decodes, chooses and maps the events of a channel."""

    to: Destination
    mapper: SinkMapper
    recorder: Recorder
    #: Whether events that can't be read are recorded here: one of several readers does it.
    records_errors: bool

    async def items(self, messages: Sequence[ChannelMessage]) -> AsyncIterator[Items]:
        """The records of the messages, some at a time."""
        channel, to = self.recorder.channel, self.to
        data = pa.array([m.data for m in messages], pa.binary())
        kinds = pa.array([m.content_type for m in messages], pa.string())
        first = 0
        while first < len(messages):
            result = decode_messages(data.slice(first), kinds.slice(first), channel.stream.arrow)
            for number, index, reason in result.errors if self.records_errors else ():
                await self.recorder.record_unreadable(messages[first + number], index, reason)
            rows, message_of, index_of = result.rows, result.message, result.index
            if to.choose is not None and rows.num_rows:
                mask = np.asarray(to.choose(rows), bool)
                rows, message_of = rows.filter(pa.array(mask)), message_of[mask]
                index_of = index_of[mask]
            chunk = messages[first : first + result.taken]
            prefix = self.recorder.key_prefix
            yield await self._accepted(
                items_of(to, self.mapper, prefix, rows, chunk, message_of, index_of)
            )
            first += result.taken

    async def _accepted(self, items: Items) -> Items:
        """The items that have a payload and good values of dynamic options."""
        refused = [at for at, one in enumerate(items.payloads) if type(one) is Refusal]
        for at in refused:
            item = items[at]
            await self.recorder.record(item, item.record.payload.decode(), item.event)
        items = items.without(refused)
        reasons = [self.to.objection(options) for options in items.options]
        for at, reason in enumerate(reasons):
            if reason is not None:
                await self.recorder.record(items[at], reason, items.payloads[at])
        items = items.without([at for at, one in enumerate(reasons) if one is not None])
        return finished(items, self.mapper, self.to)


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
        faults: Channel | None = None,
        records_errors: bool = False,
        key_prefix: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed = changed
        self._client = client
        self._clock = clock
        self._channel = channel
        self._to = destination
        self._positions = positions
        self._retries = retries
        self._start, self._floor, self._skips = start, floor, skips
        self._group = group
        self._on_error = on_error
        self._recorder = Recorder(client, channel, faults, group, destination.name, key_prefix)
        self._mapping = MappedItems(destination, mapper, self._recorder, records_errors)
        self._key_prefix = key_prefix
        self._stored = SourcePosition()
        self._done = -1
        self._stored_s = 0.0
        self._attempts = 0
        self._stopping = asyncio.Event()
        self._reader: ChannelReader | None = None
        self._in_hand: Sequence[ChannelMessage] = ()  # of the last read
        self._read = 0
        self._replays: list[tuple[Replayed, asyncio.Future[str | None]]] = []
        self.status = ConnectorStatus(
            destination.name, InstanceState.STARTING, destination.endpoint
        )
        self.events_out = 0

    @property
    def errors(self) -> int:
        """Number of events that were recorded."""
        return self._recorder.count

    @property
    def messages_in(self) -> int:
        """Number of messages that are done: what a failing destination holds up still waits."""
        return self._read - self._undone

    @property
    def _undone(self) -> int:
        return sum(message.sequence > self._done for message in self._in_hand)

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
        await self._open()
        if self._to.sink.state is not None or self._done != self._stored.number:
            await self._store()
        reader = self._reader = ChannelReader(
            self._client, self._channel.js_stream(), self._channel.subject(), self._done
        )
        self._say(InstanceState.RUNNING)
        while not self._stopping.is_set():
            messages = await reader.next(_MESSAGES_MAX, _WAIT_S)
            if messages:
                self._in_hand, self._read = messages, self._read + len(messages)
                await self._send(messages)
            await self._write_replayed()
            now_s = self._clock.monotonic_s()
            is_new = self._done > self._stored.number
            if now_s - self._stored_s >= (_STORE_S if is_new else _RENEW_S):
                await self._store()
            self._say(InstanceState.RUNNING)

    async def _open(self) -> None:
        sink = self._to.sink
        await sink.open(self._to.context, self._stored.values or None)
        # A sink that stores its position with the records may be ahead of ours.
        position: int = getattr(sink, "position", None) or 0
        if position > self._done:
            await check_input(self._client, self._channel.js_stream(), self._to.name, position)
            self._done = position

    async def _send(self, messages: Sequence[ChannelMessage]) -> None:
        """Write the events of messages; the position advances with them."""
        unsent = [m for m in messages if not any(low < m.sequence <= to for low, to in self._skips)]
        for some in portions(unsent):
            await self._send_some(some)
        self._done = messages[-1].sequence

    async def _send_some(self, messages: Sequence[ChannelMessage]) -> None:
        events_max: int = getattr(self._to.sink, "events_max", _EVENTS_MAX)
        async for items in self._mapping.items(messages):
            at = 0
            while at < len(items):
                # A position is that of a whole message.
                end = items.end_of_message(min(at + events_max, len(items)))
                some = items[at:end]
                await self._write(some)
                self._done = some.last.sequence
                if self._to.sink.state is not None:
                    await self._store()
                at = end

    async def _write(self, left: Items) -> None:
        """Write records until each is written or refused."""
        trace = traces.begin(f"send {self._to.name}", mesh_group=self._group)
        if trace is None:
            return await self._written(left)
        trace.look((message.headers or {}).get(traces.HEADER) for message in left.messages)
        count = left.count_events()
        try:
            with trace.sending():
                await self._written(left)
        finally:
            trace.end(messaging_batch_message_count=count)

    async def _written(self, items: Items) -> None:
        """Write the items, in parts from the moment at which one of them fails by itself."""
        parts, search = [items], Search()
        while parts:
            left = parts.pop()
            if not left:
                await self._pass(parts)
                continue
            # The position is that of a whole message, and its other part is not written yet.
            most = parts[-1][0].message.sequence - 1 if parts else None
            try:
                outcomes = await written(self._to.sink, OutboxRecords(left, most))
            except RefusedRecordsError as error:
                parts.append(await self._settle(left, error.reasons))
            except UnavailableError as error:
                left = await self._settle(left, error.outcomes)
                parts.append(await self._wait(left, error))
            except Exception as error:
                # A lost connection is for `run`, and so is a newer owner of the position.
                if is_outage(error) or isinstance(error, TakenOverError):
                    raise
                parts += await self._search(left, error, search)
            else:
                if any(outcomes):
                    await self._settle(left, dict(enumerate(outcomes)))
                else:
                    self.events_out += left.count_events()
                parts.append(left[:0])
                search.written()
                self._attempts = 0
                self._retries = self._retries.running(self._clock.monotonic_s())

    async def _search(self, left: Items, error: Exception, search: Search) -> list[Items]:
        """Take the next step to the item that fails; the parts to write, the first one last."""
        done = getattr(error, "outcomes", {})
        left = await self._settle(left, done)
        step = search.step(len(left), None in done.values())
        if step is Step.REFUSE:
            reason = f"the sink fails at it: {described(error)}"
            left = await self._settle(left, dict.fromkeys(range(len(left)), reason))
        elif step is Step.AGAIN:
            await self._rest(error)
            if self._stopping.is_set():
                raise error
        await self._open_again()
        if hasattr(self._to.sink, "position"):
            left = left.after(self._done)
        return list(reversed(left.divided())) if step is Step.DIVIDE and len(left) > 1 else [left]

    async def _wait(self, left: Items, error: UnavailableError) -> Items:
        """Wait for the destination, or give the items up as ``on.error`` says; those to write."""
        self._attempts = 1 if error.outcomes else self._attempts + 1
        self._advance(left)
        if self._on_error == "WAIT" or self._attempts < 2:
            await self._rest(error)
            if self._stopping.is_set():
                raise error
            if error.is_lost:
                await self._open_again()
            return left
        if self._on_error in ("STORE", "STREAM"):
            await self._settle(left, dict.fromkeys(range(len(left)), str(error)), AWAY)
        else:
            extra = fields(connector=self._to.name, events=left.count_events(), error=error)
            log.warning("events were dropped", extra=extra)
        return left[:0]

    async def _open_again(self) -> None:
        """Open the sink again, after an error that leaves it in no known state."""
        with contextlib.suppress(Exception):
            await self._to.sink.close()
        await self._open()

    async def _pass(self, parts: Sequence[Items]) -> None:
        """Store the position before the next part, as an opened sink undoes later writes."""
        if parts and parts[-1]:
            self._done = max(self._done, parts[-1][0].message.sequence - 1)
            if self._to.sink.state is not None:
                await self._store()

    async def count_waiting(self) -> None:
        """Have the server count the messages that wait: more come while a write takes long."""
        if (reader := self._reader) is not None and (self._undone or reader.pending):
            await reader.count()
            self.status = replace(self.status, behind=reader.pending + self._undone)

    async def replay(self, replayed: Replayed) -> str | None:
        """Write a payload again, between others; None, or the reason why it is refused.

        Raises:
            UnavailableError: the destination is away.
        """
        if self.status.state is not InstanceState.RUNNING:
            raise UnavailableError(self.status.error or "it is starting")
        outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._replays.append((replayed, outcome))
        if self._reader is not None:
            self._reader.wake()
        return await outcome

    async def _write_replayed(self) -> None:
        while self._replays:
            replayed, outcome = self._replays.pop(0)
            key = f"{self._key_prefix}/{replayed.sequence}.{replayed.index}"
            try:
                # A sink that keeps its own position stays where it is.
                at = max(0, self._done)
                record = Record(key, replayed.payload, replayed.options, at)
                reason = self._to.objection(replayed.options)
                try:
                    if reason is None:
                        (reason,) = await written(self._to.sink, [record])
                except RefusedRecordsError as error:
                    reason = error.reasons[0]
                if self._to.sink.state is not None:
                    await self._store()
                outcome.set_result(reason)
                self.events_out += reason is None
            except BaseException as error:
                # The sink may have to be opened again; the entry stays.
                if not outcome.done():
                    if isinstance(error, Exception) and not is_outage(error):
                        outcome.set_result(f"the sink fails at it: {described(error)}")
                    else:
                        outcome.set_exception(UnavailableError(reason_of(error)))
                raise

    def _advance(self, left: Items) -> None:
        if left and self._to.sink.state is None:
            self._done = max(self._done, left[0].message.sequence - 1)

    async def _settle(
        self, items: Items, outcomes: Mapping[int, str | None], kind: str = REFUSED
    ) -> Items:
        """Record what was refused; the items without an outcome.  ``kind``: class of the reason."""
        for at, reason in outcomes.items():
            if reason is None:
                self.events_out += items.count_events(at)
                continue
            await self._recorder.record(
                items[at], reason, items.payloads[at], kind, self._attempts + 1
            )
        return items.without(outcomes)

    async def _store(self) -> None:
        number, state = self._done, self._to.sink.state
        values = dict(state) if state is not None else {}
        stored = await self._positions.write(self._stored, number, values)
        if not stored.is_current or stored.number != number:
            # A lost answer, or a stranger's write: begin again from what is stored.
            raise UnavailableError("the position was written by another process")
        self._stored, self._stored_s = stored, self._clock.monotonic_s()

    async def _rest(self, error: Exception) -> None:
        now_s = self._clock.monotonic_s()
        self._retries = self._retries.failed(now_s)
        retry_after_s = getattr(error, "retry_after_s", None)
        rest_s = max(self._retries.rest_s, retry_after_s or 0.0) * (1 + _JITTER * random.random())
        reason = reason_of(error)
        if self._retries.failures == 1:
            log.warning("sink waits", extra=fields(connector=self._to.name, error=reason))
        self._say(InstanceState.RETRYING, reason, rest_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._stopping.wait()

    async def _close(self) -> None:
        for _, outcome in self._replays:
            outcome.set_exception(UnavailableError(self.status.error or "it is starting"))
        self._replays.clear()
        self._read, self._in_hand = self._read - self._undone, ()  # these are read again
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()
        with contextlib.suppress(Exception):
            await self._to.sink.close()

    def _say(
        self, state: InstanceState, error: str | None = None, rest_s: float | None = None
    ) -> None:
        # Without a reader, what waited when it ended waits at least.
        behind = reader.pending + self._undone if (reader := self._reader) else self.status.behind
        retry_at_ms = None if rest_s is None else self._clock.wall_ms() + round(rest_s * 1000)
        is_news = self.status.state is not state
        self.status = replace(
            self.status,
            state=state,
            position=max(0, self._done),
            behind=behind,
            error=error,
            retry_at_ms=retry_at_ms,
            attempts=self._attempts,
        )
        if is_news:
            self._changed()
