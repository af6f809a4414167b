"""Source ``kafka``: partitions are assigned, not subscribed to, and read from stored offsets.

The client's own threads fetch.  A thread of the host's pool takes what has arrived, many records at
a time, so that the event loop never waits for a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.extras import library
from mesh.receiver.types.kafka import first_offsets, reason_of, settings, without_repeats, words

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

    from mesh.connect.contract import Context

#: Records of one batch, and the wait for the first of them, seconds.
_RECORDS: Final = 20_000
_WAIT_S: Final = 0.2
#: Interval of looks for new partitions, and timeout of calls, seconds.
_LOOK_S: Final = 30.0
_CALL_S: Final = 5.0


T = TypeVar("T")


class _Lazy(Sequence[T]):
    """A value of each record, made when it is asked for."""

    def __init__(self, messages: Sequence[Message], make: Callable[[Message], T]) -> None:
        self._messages, self._make = messages, make

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return _Lazy(self._messages[at], self._make)
        return self._make(self._messages[at])


def _properties(message: Message) -> Mapping[str, str]:
    found = {
        "topic": str(message.topic()),
        "partition": str(message.partition()),
        "offset": str(message.offset()),
        "record.timestamp": str(message.timestamp()[1]),
    }
    key = message.key()
    if key is not None:
        found["key"] = key.decode(errors="replace")
    return found


def _name(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


class KafkaSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._consumer: Consumer | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Assign the partitions of the topics, each at its stored offset."""
        self._kafka = library("confluent_kafka", "kafka")
        options = self._options = context.options
        self._topics = words(options["topic.list"])
        self._only = {int(word) for word in words(options.get("partition.no.list"))}
        self._first = first_offsets(options.get("topic.offsets.map"))
        stored = position or {}
        self._offsets: dict[str, dict[str, int]] = {
            topic: dict(offsets) for topic, offsets in (stored.get("offsets") or {}).items()
        }
        self._numbers: dict[str, int] = dict(stored.get("numbers") or {})
        self._is_numbered = bool(options.get("seq.enabled"))
        self._assigned: set[tuple[str, int]] = set()
        self._looked_s = 0.0
        own = {
            "client.id": context.instance,
            "group.id": options["group.id"],
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
        given = settings(options, own)
        given.setdefault("isolation.level", "read_committed")
        try:
            self._consumer = self._kafka.Consumer(given)
        except self._kafka.KafkaException as error:
            raise ValueError(f"the client refuses its settings: {reason_of(error)}") from error
        await self._in_thread(self._assign)

    async def _in_thread(self, call: Any, *arguments: Any) -> Any:
        """A call that waits for a broker; it ends before a cancelled caller continues."""
        task = asyncio.create_task(asyncio.to_thread(call, *arguments))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The consumer must not be closed while a thread uses it.
            with contextlib.suppress(Exception):
                await task
            raise
        except self._kafka.KafkaException as error:
            raise UnavailableError(reason_of(error)) from error

    def _assign(self) -> None:
        """Add the partitions that are not assigned yet."""
        assert self._consumer is not None
        self._looked_s = time.monotonic()
        new: list[TopicPartition] = []
        for topic in self._topics:
            found = self._consumer.list_topics(topic, timeout=_CALL_S).topics[topic]
            if found.error is not None:
                raise UnavailableError(f'topic "{topic}": {found.error.str()}')
            numbers = self._only or set(found.partitions)
            missing = numbers - set(found.partitions)
            if missing:
                raise UnavailableError(f'topic "{topic}" has no partition {min(missing)}')
            known = self._offsets.setdefault(topic, {})
            for number in sorted(numbers):
                if (topic, number) not in self._assigned:
                    first = self._first.get(topic, self._kafka.OFFSET_BEGINNING)
                    offset = known.get(str(number), first)
                    new.append(self._kafka.TopicPartition(topic, number, offset))
        if new:
            self._consumer.incremental_assign(new)
            self._assigned |= {(one.topic, one.partition) for one in new}

    async def read(self) -> Batch | None:
        """The records that have arrived; None after a short wait."""
        if time.monotonic() - self._looked_s > _LOOK_S:
            await self._in_thread(self._assign)
        messages: list[Message] = await self._in_thread(self._consume)
        if not messages:
            return None
        payloads: list[bytes] = [message.value() or b"" for message in messages]
        if self._is_numbered:
            kept = without_repeats(payloads, self._numbers)
            pairs = [(m, p) for m, p in zip(messages, kept, strict=True) if p is not None]
            messages, payloads = [m for m, _ in pairs], [p for _, p in pairs]
        position: dict[str, Any] = {
            "offsets": {topic: dict(offsets) for topic, offsets in self._offsets.items()}
        }
        if self._is_numbered:
            position["numbers"] = dict(self._numbers)
        names = _Lazy(messages, _name)
        return Batch(payloads, position, _Lazy(messages, _properties), names)

    def _consume(self) -> list[Message]:
        assert self._consumer is not None
        found = self._consumer.consume(1, _WAIT_S)
        if found:
            # A batch waits for nothing but its first record.
            found += self._consumer.consume(_RECORDS, 0.01)
        errors = [message.error() for message in found]
        if any(errors):
            raise self._kafka.KafkaException(next(error for error in errors if error))
        for message in found:
            self._offsets[message.topic()][str(message.partition())] = message.offset() + 1  # type: ignore[index,operator]  # no error
        return found

    async def committed(self, position: Mapping[str, Any]) -> None:
        """Commit the offsets to the group, for tools; nothing waits for it or depends on it."""
        if self._options.get("enable.offsets.commit") and self._consumer is not None:
            offsets = [
                self._kafka.TopicPartition(topic, int(number), offset)
                for topic, numbers in position["offsets"].items()
                for number, offset in numbers.items()
            ]
            with contextlib.suppress(self._kafka.KafkaException):
                self._consumer.commit(offsets=offsets, asynchronous=True)

    async def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)
