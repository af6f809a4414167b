"""Instance of a sink: an outbox for each destination, or one for all that take turns."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.connect.contract import Context, FailedRecordsError, RefusedRecordsError, UnavailableError
from mesh.mapping.sinks import Misplaced, filler
from mesh.mapping.texts import text_of
from mesh.receiver.instance import ConnectorInstance
from mesh.receiver.outbox import Outbox
from mesh.receiver.outbox_items import Destination
from mesh.receiver.outcomes import described, is_outage, reason_of, written
from mesh.receiver.positions import TakenOverError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mesh.connect.contract import Record, Sink
    from mesh.model.cluster import ConnectorStatus
    from mesh.model.values import JsonMapping, JsonObject
    from mesh.receiver.opened import Opened
    from mesh.receiver.positions import Replayed


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class SinkInstance(ConnectorInstance):
    """Sends the events of a channel to the outside."""

    _outboxes: tuple[Outbox, ...] = ()

    async def _run(self) -> None:
        opened = self.opened
        self._outboxes = self._make_outboxes(opened)
        self._running()
        try:
            async with asyncio.TaskGroup() as tasks:
                for outbox in self._outboxes:
                    tasks.create_task(outbox.run())
        except BaseExceptionGroup as group:
            # One reason is enough: all outboxes have ended.
            taken = group.subgroup(TakenOverError)
            raise first_of(taken or group) from group

    def _make_outboxes(self, opened: Opened) -> tuple[Outbox, ...]:
        (group_input,) = self.group.inputs
        channel = group_input.channel
        js_stream = channel.js_stream()
        assignment = self.assignment
        skips = [(s.after, s.to) for s in assignment.skips if s.js_stream == js_stream]
        prefix = f"{assignment.app}/{channel.stream.name}/{assignment.app_incarnation}"
        outboxes = []
        for number, destination in enumerate(self._destinations(opened), 1):
            outboxes.append(
                Outbox(
                    self.environment.client,
                    self.environment.clock,
                    channel,
                    destination,
                    opened.mapper,
                    self.positions(js_stream, str(number)),
                    self.environment.retries(),
                    start=assignment.start.get(js_stream, 0),
                    floor=self.group.starts.get(js_stream, 0),
                    skips=skips,
                    group=self.group.name,
                    on_error=str(destination.context.options.get("on.error") or "WAIT").upper(),
                    faults=next(iter(self.group.outputs), None),
                    # One reader of the channel records what can't be read.
                    records_errors=group_input.records_errors and number == 1,
                    key_prefix=prefix,
                    changed=self._report,
                )
            )
        return tuple(outboxes)

    def _destinations(self, opened: Opened) -> list[Destination]:
        connector = opened.connector
        option_sets = connector.destinations or ({},)
        contexts = [
            self._context(opened, opened.values(self.environment, options, self._secrets), number)
            for number, options in enumerate(option_sets, 1)
        ]
        endpoints = [opened.endpoint(self.environment, options) for options in option_sets]
        sinks = [self.environment.make(opened.spec) for _ in contexts]
        name = connector.kind
        if not connector.strategy:
            return [self._destination(opened, name, sinks[0], contexts[0], endpoints[0])]
        if connector.strategy == "roundRobin":
            if any("{{" in text for options in connector.destinations for text in options.values()):
                raise ValueError("destinations that take turns have no {{attribute}} of their own")
            whole = RoundRobin(sinks, contexts)
            at = ", ".join(endpoints)
            return [self._destination(opened, name, whole, contexts[0], at)]
        key = connector.strategy_options.get("partitionKey", "")
        destinations = []
        for number, one_of in enumerate(zip(sinks, contexts, endpoints, strict=True)):
            one = self._destination(opened, f"{name} {number + 1}", *one_of)
            if connector.strategy == "partitioned":
                one.choose = _partitioned(key, len(sinks), number)
            destinations.append(one)
        return destinations

    def _context(self, opened: Opened, values: JsonObject, number: int) -> Context:
        assignment = self.assignment
        return Context(
            self.group.app,
            opened.stream.name,
            values,
            self.environment.access,
            opened.mapper.content_type,
            instance=assignment.instance,
            client=self.environment.client,
            producer=f"mesh-{assignment.app}-{assignment.app_incarnation}-{self.group.name}-{number}",
            attributes=tuple((a.name, str(a.type)) for a in opened.stream.attributes),
            epoch=assignment.epoch,
            header=getattr(opened.mapper, "header", b""),
        )

    def _destination(
        self, opened: Opened, name: str, sink: Any, context: Context, endpoint: str
    ) -> Destination:
        options = {option.name: option for option in opened.spec.options}
        filled = {
            name: filler(name, option.place, str(context.options[name]))
            for name, option in options.items()
            if option.place is not None and context.options.get(name)
        }

        def objection(texts: Mapping[str, str]) -> str | None:
            for name, text in texts.items():
                if type(text) is Misplaced:
                    return text.reason
                reason = options[name].refusal(text) if name in options else None
                if reason is not None:
                    return reason
            return None

        return Destination(
            name,
            sink,
            context,
            endpoint,
            dynamic={name: values for name, values in filled.items() if values is not None},
            objection=objection,
        )

    async def _replay(self, replayed: Replayed) -> str | None:
        for outbox in self._outboxes:
            if outbox.status.name == replayed.connector:
                return await outbox.replay(replayed)
        raise UnavailableError(f"{replayed.connector} does not run here")

    def _request_stop(self) -> None:
        for outbox in self._outboxes:
            outbox.stop()

    async def _count_waiting(self) -> None:
        for outbox in self._outboxes:
            await outbox.count_waiting()

    def _connectors(self) -> tuple[ConnectorStatus, ...]:
        return tuple(outbox.status for outbox in self._outboxes)

    def _counts(self) -> JsonObject:
        connectors = self._connectors()
        js_stream = self.group.inputs[0].channel.js_stream()
        return {
            "messages_in": sum(o.messages_in for o in self._outboxes),
            "events_in": sum(o.events_out + o.errors for o in self._outboxes),
            "events_out": sum(o.events_out for o in self._outboxes),
            "errors": sum(o.errors for o in self._outboxes),
            "behind": max((d.behind for d in connectors), default=0),
            "position": {js_stream: min((d.position for d in connectors), default=0)},
        }


class RoundRobin:
    """A sink of several destinations: each batch goes to the next one that answers."""

    def __init__(self, sinks: Sequence[Sink], contexts: Sequence[Context]) -> None:
        self.state: JsonMapping | None = None
        self._sinks = list(zip(sinks, contexts, strict=True))
        self._open: set[int] = set()
        self._next = 0

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """See ``Sink``; each destination is opened when its first batch is due."""

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """See ``Sink``."""
        outcomes: dict[int, str | None] = {}
        reasons = []
        for _ in self._sinks:
            number, self._next = self._next, (self._next + 1) % len(self._sinks)
            try:
                await self._ready(number)
                await self._write(number, records, outcomes)
                return [outcomes[at] for at in range(len(records))]
            except Exception as error:
                if not is_outage(error):
                    raise FailedRecordsError(described(error), outcomes) from error
                reasons.append(reason_of(error))
        raise UnavailableError("; ".join(dict.fromkeys(reasons)), outcomes=outcomes)

    async def _write(
        self, number: int, records: Sequence[Record], outcomes: dict[int, str | None]
    ) -> None:
        """Write the records that have no outcome yet, and add theirs."""
        while left := [at for at in range(len(records)) if at not in outcomes]:
            try:
                results = await written(self._sinks[number][0], [records[at] for at in left])
                outcomes |= dict(zip(left, results, strict=True))
            except RefusedRecordsError as error:
                outcomes |= {left[at]: reason for at, reason in error.reasons.items()}
            except (UnavailableError, FailedRecordsError) as error:
                outcomes |= {left[at]: outcome for at, outcome in error.outcomes.items()}
                if isinstance(error, UnavailableError) and error.is_lost:
                    await self._close(number)
                raise

    async def _ready(self, number: int) -> None:
        if number not in self._open:
            sink, context = self._sinks[number]
            await sink.open(context, None)
            self._open.add(number)

    async def close(self) -> None:
        """See ``Sink``."""
        for number in list(self._open):
            await self._close(number)

    async def _close(self, number: int) -> None:
        self._open.discard(number)
        await self._sinks[number][0].close()


def _partitioned(key: str, count: int, number: int) -> Callable[[pa.RecordBatch], Any]:
    """A function that marks the rows of destination ``number``, from 0, of ``count``."""

    def choose(rows: pa.RecordBatch) -> object:
        texts = text_of(rows.column(key)).to_pylist()
        return np.array([destination_of(text, count) == number for text in texts], bool)

    return choose


def destination_of(text: str, count: int) -> int:
    """The destination of a key's text, from 0: Java's ``abs(hashCode % count)``."""
    return abs(java_hash(text)) % count


@lru_cache(maxsize=65_536)
def java_hash(text: str) -> int:
    """Java's hash code of a string, as a signed number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
