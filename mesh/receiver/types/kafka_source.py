"""Source ``kafka``: partitions are assigned, not subscribed to, and read from stored offsets.

Several instances divide the partitions by a rule; each partition has a position of its own.

The client's own threads fetch.  A thread of the host's pool takes what has arrived, many records at
a time, so that the event loop never waits for a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload
from zlib import crc32

from mesh.clock import SystemClock
from mesh.connect.access import words
from mesh.connect.contract import Batch, ShardsChangedError, UnavailableError, library
from mesh.receiver.types.kafka import Reports, first_offsets, reason_of, settings, without_repeats
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

#: Records of one batch, and the wait for the first of them, seconds.
_RECORDS: Final = 20_000
_WAIT_S: Final = 0.2
#: Interval of looks for new partitions, and timeout of calls, seconds.
_LOOK_S: Final = 30.0
_CALL_S: Final = 5.0
_CLOCK: Final = SystemClock()


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


def _text(value: bytes) -> str | bytes:
    """Bytes as text; those that are none stay."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _properties(message: Message) -> Mapping[str, str | bytes]:
    headers: Any = message.headers() or ()
    # Of several headers with a name the last one counts, as with Kafka's own client.
    properties = {name.lower(): _text(value) for name, value in headers if value is not None}
    properties |= {
        "topic": str(message.topic()),
        "partition": str(message.partition()),
        "offset": str(message.offset()),
        "record.timestamp": str(message.timestamp()[1]),
        # In the original too, the time at which the source has the record.
        "event.timestamp": str(_CLOCK.wall_ms()),
    }
    key = message.key()
    if key is not None:
        properties["key"] = _text(key)
    return properties


def _name(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def shard_of(topic: str, number: int) -> str:
    """The name of a partition's position."""
    return f"{topic}/{number}"


def place_of(shard: str) -> tuple[str, int]:
    """Topic and number of a position's partition."""
    topic, _, number = shard.rpartition("/")
    return topic, int(number)


class KafkaSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._consumer: Consumer | None = None
        self._reports = Reports()

    async def shards(self, context: Context) -> Sequence[str]:
        """The partitions that this instance reads: ``topic/number``."""
        self._kafka = library("confluent_kafka", "kafka")
        options = self._options = context.options
        self._topics = words(options["topic.list"])
        self._only = {int(word) for word in words(options.get("partition.no.list"))}
        self._first = first_offsets(options.get("topic.offsets.map"))
        self._is_numbered = bool(options.get("seq.enabled"))
        self._index, self._count = context.index, context.count
        overrides = {
            "client.id": context.instance,
            "group.id": options["group.id"],
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "error_cb": self._reports,
        }
        config = settings(context, overrides)
        # The stored offset counts; where it has no record, those before it are lost.
        config.setdefault("auto.offset.reset", "error")
        config.setdefault("isolation.level", "read_committed")
        try:
            self._consumer = self._kafka.Consumer(config)
        except self._kafka.KafkaException as error:
            raise ValueError(f"the client refuses its settings: {reason_of(error)}") from error
        self._partitions: list[tuple[str, int]] = await self._in_thread(self._look)
        return [shard_of(*place) for place in self._partitions]

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Assign the partitions, each at its stored offset."""
        if self._consumer is None:
            await self.shards(context)
        stored = position or {}
        # Of a version that had one position for all partitions.
        whole = stored.get("") or {}
        self._numbers: dict[str, int] = dict(whole.get("numbers") or {})
        offsets: list[TopicPartition] = []
        for topic, number in self._partitions:
            entry = stored.get(shard_of(topic, number)) or {}
            for name, last in (entry.get("numbers") or {}).items():
                self._numbers[name] = max(last, self._numbers.get(name, -1))
            old_offset = (whole.get("offsets") or {}).get(topic, {}).get(str(number))
            first = self._first.get(topic, self._kafka.OFFSET_BEGINNING)
            offset = entry.get("offset", first if old_offset is None else old_offset)
            offsets.append(self._kafka.TopicPartition(topic, number, offset))
        assert self._consumer is not None
        self._consumer.assign(offsets)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await in_thread(call)
        except self._kafka.KafkaException as error:
            assert self._consumer is not None
            reported = self._reports.last_of(self._consumer)
            raise UnavailableError(reason_of(error, reported)) from error

    def _look(self) -> list[tuple[str, int]]:
        """The partitions that this instance reads, by topic and number."""
        assert self._consumer is not None
        self._checked_s = time.monotonic()
        partitions: list[tuple[str, int]] = []
        for topic in self._topics:
            metadata = self._consumer.list_topics(topic, timeout=_CALL_S).topics[topic]
            if metadata.error is not None:
                raise UnavailableError(f'topic "{topic}": {metadata.error.str()}')
            numbers = self._only or set(metadata.partitions)
            missing = numbers - set(metadata.partitions)
            if missing:
                raise UnavailableError(f'topic "{topic}" has no partition {min(missing)}')
            # More partitions of one topic leave those of the others where they are.
            shift = crc32(topic.encode()) + self._index - 1
            partitions += [(topic, n) for n in sorted(numbers) if (n - shift) % self._count == 0]
        return partitions

    async def read(self) -> Batch | None:
        """The records that have arrived; None after a short wait."""
        if time.monotonic() - self._checked_s > _LOOK_S:
            partitions = await self._in_thread(self._look)
            if partitions != self._partitions:
                raise ShardsChangedError
        messages: list[Message] = await self._in_thread(self._consume)
        if not messages:
            return None
        payloads: list[bytes] = [message.value() or b"" for message in messages]
        if self._is_numbered:
            results = without_repeats(payloads, self._numbers)
            pairs = [(m, p) for m, p in zip(messages, results, strict=True) if p is not None]
            messages, payloads = [m for m, _ in pairs], [p for _, p in pairs]
        more = {"numbers": dict(self._numbers)} if self._is_numbered else {}
        position = {
            shard_of(topic, number): {"offset": offset, **more}
            for (topic, number), offset in self._read.items()
        }
        names = _Lazy(messages, _name)
        return Batch(payloads, position, _Lazy(messages, _properties), names)

    def _consume(self) -> list[Message]:
        assert self._consumer is not None
        messages = self._consumer.consume(1, _WAIT_S)
        if messages:
            # A batch waits for nothing but its first record.
            messages += self._consumer.consume(_RECORDS, 0.01)
        for message in messages:
            if error := message.error():
                raise self._failure(message, error)
        #: Offset after the last record of each partition.
        self._read: dict[tuple[str, int], int] = {
            (m.topic(), m.partition()): m.offset() + 1  # type: ignore[misc,operator]  # no error
            for m in messages
        }
        return messages

    def _failure(self, message: Message, error: KafkaError) -> Exception:
        if error.code() != self._kafka.KafkaError._AUTO_OFFSET_RESET:
            failure: Exception = self._kafka.KafkaException(error)
            return failure
        return UnavailableError(
            f'topic "{message.topic()}" was made again, or records that were not read are '
            f"deleted: partition {message.partition()} has none at offset {message.offset()}. "
            "optional.configuration=\"'auto.offset.reset:earliest'\" reads on with its first one"
        )

    async def committed(self, position: JsonMapping) -> None:
        """Commit the offsets to the group, for tools; nothing waits for it or depends on it."""
        if self._options.get("enable.offsets.commit") and self._consumer is not None:
            offsets = [
                self._kafka.TopicPartition(*place_of(shard), values["offset"])
                for shard, values in position.items()
            ]
            with contextlib.suppress(self._kafka.KafkaException):
                self._consumer.commit(offsets=offsets, asynchronous=True)

    async def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)
