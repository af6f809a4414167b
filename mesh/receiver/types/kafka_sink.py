"""Sink ``kafka``: each write is a transaction, which also commits the position.

The position is the offset of a group of its own, in the first topic that is written; the group's
metadata holds the epoch and the last number of ``sequence.id``.  A producer of the same
transactional id that begins later fences the earlier one, and then reads the position: what an
earlier transaction has not committed is not there for readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import RefusedRecordsError, UnavailableError, library, payloads_of
from mesh.connect.spec import Kind, value_of
from mesh.receiver.types.kafka import Reports, reason_of, settings
from mesh.receiver.types.threads import in_thread
from mesh.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, KafkaError, Producer

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping, JsonObject

#: Timeouts of calls and of a transaction, seconds.
_CALL_S: Final = 10.0
_TRANSACTION_S: Final = 30
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Error codes: no such topic, none of that name, and none that the login may write.
_NO_TOPIC: Final = (3, 17, 29)
#: Group offsets belong to a partition; brokers don't ask whether it exists.
_PARTITION: Final = 0


def is_topic(name: str) -> bool:
    """Whether a topic may have this name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class KafkaSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None
    #: Records of a transaction: its commit costs the broker more than a few thousand records.
    events_max = 20_000

    def __init__(self) -> None:
        #: Sequence of the last record that a committed transaction has.
        self.position: int | None = None
        self._producer: Producer | None = None
        self._group: Consumer | None = None
        self._failed: list[tuple[KafkaError, bytes]] = []
        self._reports = Reports()
        #: Number of partitions by topic, of those that events have named.
        self._partition_counts: dict[str, int] = {}

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Fence earlier producers, and read the position."""
        self._kafka = library("confluent_kafka", "kafka")
        self._options, self._epoch = context.options, context.epoch
        self._prefix = context.options.get("sequence.id") or ""
        self._place = self._kafka.TopicPartition("mesh-positions", _PARTITION)
        name = context.producer or f"mesh-{context.instance}"
        producing = {**_USUAL, **settings(context,
            {
                "client.id": context.instance,
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_S * 1000,
                "delivery.report.only.error": True,
                "on_delivery": self._on_failure,
                "error_cb": self._reports,
            },
        )}  # fmt: skip
        overrides = {"client.id": context.instance, "group.id": name, "enable.auto.commit": False}
        reading = settings(context, overrides)
        try:
            self._producer = self._kafka.Producer(producing)
            self._group = self._kafka.Consumer(
                {k: v for k, v in reading.items() if k not in _OF_PRODUCERS}
            )
        except self._kafka.KafkaException as error:
            raise ValueError(f"the client refuses its settings: {reason_of(error)}") from error
        try:
            await in_thread(self._begin)
        except self._kafka.KafkaException as error:
            reported = self._reports.last_of(self._producer)
            raise UnavailableError(reason_of(error, reported)) from error

    async def check(self, context: Context) -> None:
        """Look for the topic; ``open`` would fence the producer that is running."""
        self._kafka = library("confluent_kafka", "kafka")
        admin = library("confluent_kafka.admin", "kafka").AdminClient(
            settings(context, {"client.id": context.instance, "error_cb": self._reports})
        )
        topic = str(context.options["topic"])
        try:
            # A question for one topic may create it.
            metadata = await in_thread(admin.list_topics, timeout=_CALL_S)
        except self._kafka.KafkaException as error:
            raise UnavailableError(reason_of(error, self._reports.last_of(admin))) from error
        if "{{" not in topic and topic not in metadata.topics:
            raise UnavailableError(f'there is no topic "{topic}"')

    def _begin(self) -> None:
        assert self._producer is not None
        assert self._group is not None
        self._producer.init_transactions(_CALL_S)
        (stored,) = self._group.committed([self._place], timeout=_CALL_S)
        epoch, _, number = (stored.metadata or "").partition(":")
        if epoch.isdecimal() and int(epoch) > self._epoch:
            raise UnavailableError(f"epoch {epoch} has taken over")
        self.position = stored.offset if stored.offset >= 0 else None
        self._number = int(number) if number.isdecimal() else 0

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Write all records in one transaction, or none."""
        try:
            refused = await in_thread(self._refusals, records)
            if refused:
                raise RefusedRecordsError(refused)
            await in_thread(self._transact, records)
        except self._kafka.KafkaException as error:
            # Whether it was committed is not known: the host opens the sink again and asks.
            raise ConnectionResetError(reason_of(error)) from error
        return [None] * len(records)

    def _refusals(self, records: Sequence[Record]) -> dict[int, str]:
        """Reasons against what events have made of options."""
        reasons: dict[int, str] = {}
        # All records have dynamic options or none: each would be made for nothing.
        for at, record in enumerate(records if records[0].options else ()):
            if (reason := self._refusal(record)) is not None:
                reasons[at] = reason
        return reasons

    def _refusal(self, record: Record) -> str | None:
        options = record.options
        if "key" in options and not options["key"]:
            return 'option "key" is empty'
        if isinstance(options.get("headers"), str):
            try:
                value_of(Kind.PAIRS, options["headers"])
            except ValueError as error:
                return f"headers: {error}"
        topic = str(options.get("topic", self._options["topic"]))
        if "topic" in options and not is_topic(topic):
            return f'"{topic[:80]}" is no name of a topic'
        number = options.get("partition.no")
        if number is not None and not (number.isdecimal() and len(number) < 10):
            return f'"{number[:80]}" is no number of a partition'
        if "topic" in options or number is not None:
            partitions = self._partitions(topic, int(number or 0))
            if isinstance(partitions, str):
                if "topic" not in options:
                    raise UnavailableError(partitions)
                return partitions
            if number is not None and int(number) >= partitions:
                return f'topic "{topic}" has no partition {number}'
        return None

    def _partitions(self, topic: str, number: int) -> int | str:
        """The number of a topic's partitions, asked again for a larger one; or why it has none."""
        assert self._producer is not None
        if number < self._partition_counts.get(topic, 0):
            return self._partition_counts[topic]
        metadata = self._producer.list_topics(topic, timeout=_CALL_S).topics[topic]
        error = metadata.error
        if error is not None and error.code() in _NO_TOPIC:
            return f'topic "{topic}": {error.str()}'
        if error is not None or not metadata.partitions:
            # A topic that was made by the question has no leader yet.
            raise UnavailableError(f'topic "{topic}" has no leader')
        self._partition_counts[topic] = len(metadata.partitions)
        return self._partition_counts[topic]

    def _transact(self, records: Sequence[Record]) -> None:
        assert self._producer is not None
        assert self._group is not None
        self._failed.clear()
        number = self._number + (len(records) if self._prefix else 0)
        # A replay is of an earlier event, and the position stays.
        sequence = max(records[-1].sequence, self.position or 0)
        self._producer.begin_transaction()
        try:
            self._produce(records)
            place = self._kafka.TopicPartition(
                self._place.topic, _PARTITION, sequence,
                metadata=f"{self._epoch}:{number}",
            )  # fmt: skip
            self._producer.flush(_CALL_S)
            if not self._failed:
                self._producer.send_offsets_to_transaction(
                    [place], self._group.consumer_group_metadata(), _CALL_S
                )
                self._producer.commit_transaction(_CALL_S)
                self._number, self.position = number, sequence
                return
        except self._kafka.KafkaException as error:
            # One in which a record has failed can be aborted; all others are for `write`.
            if not error.args[0].txn_requires_abort():
                raise
        except _Refused as error:
            self._producer.abort_transaction(_CALL_S)
            raise RefusedRecordsError({error.at: str(error)}) from error
        self._producer.abort_transaction(_CALL_S)
        self._raise(records)

    def _raise(self, records: Sequence[Record]) -> None:
        """Raise the reason of the first failed record."""
        if not self._failed:
            raise UnavailableError("the transaction was aborted")
        error, value = self._failed[0]
        if error.code() not in (self._kafka.KafkaError.MSG_SIZE_TOO_LARGE, _INVALID_RECORD):
            raise UnavailableError(str(error.str()))
        refused = {
            at: str(error.str())
            for at, record in enumerate(records)
            if value.endswith(record.payload) and len(value) - len(record.payload) < 64
        }
        raise RefusedRecordsError(refused) if refused else UnavailableError(str(error.str()))

    def _produce(self, records: Sequence[Record]) -> None:
        """Hand records to the client, those of one topic and partition together."""
        options = self._options
        is_plain = not records[0].options and not any(
            options.get(name) for name in ("key", "partition.no", "headers")
        )
        values = payloads_of(records)
        if self._prefix:
            head, first = self._prefix, self._number + 1
            values = [f"{head}:{first + at}~".encode() + v for at, v in enumerate(values)]
        if is_plain:
            self._produce_batch(str(options["topic"]), [{"value": value} for value in values])
            return
        topics: dict[str, list[JsonObject]] = {}
        places: dict[str, list[int]] = {}
        for at, (record, value) in enumerate(zip(records, values, strict=True)):
            record_options = {**options, **record.options}
            message: JsonObject = {"value": value}
            if record_options.get("key"):
                message["key"] = record_options["key"]
            if record_options.get("partition.no"):
                message["partition"] = int(record_options["partition.no"])
            pairs = record_options.get("headers")
            if pairs:
                message["headers"] = (
                    value_of(Kind.PAIRS, pairs) if isinstance(pairs, str) else pairs
                )
            topics.setdefault(record_options["topic"], []).append(message)
            places.setdefault(record_options["topic"], []).append(at)
        for topic, messages in topics.items():
            try:
                self._produce_batch(topic, messages)
            except _Refused as error:
                raise _Refused(places[topic][error.at], str(error)) from error

    def _produce_batch(self, topic: str, messages: list[JsonObject]) -> None:
        assert self._producer is not None
        if not topic:
            raise _Refused(0, "the topic has no name")
        if (traced := traces.outgoing()) or any("headers" in one for one in messages):
            self._produce_one_by_one(topic, messages, list(traced))
            return
        if self._producer.produce_batch(topic, messages) == len(messages):
            return
        for at, message in enumerate(messages):
            error: KafkaError | None = message.get("_error")
            if error is not None and error.code() != self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                self._failed.append((error, b""))
            elif error is not None:
                raise _Refused(at, str(error.str()))

    def _produce_one_by_one(
        self, topic: str, messages: list[JsonObject], traced: list[Any]
    ) -> None:
        """Hand over messages with headers, which the client's batches don't have."""
        assert self._producer is not None
        for at, message in enumerate(messages):
            headers = [*message.pop("headers", ()), *traced]
            try:
                self._producer.produce(topic, headers=headers, **message)
            except self._kafka.KafkaException as error:
                if error.args[0].code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise _Refused(at, reason_of(error)) from error
                self._failed.append((error.args[0], b""))

    def _on_failure(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failed.append((error, message.value() or b""))

    async def close(self) -> None:
        """Leave the brokers; an open transaction is aborted by them."""
        producer, self._producer = self._producer, None
        group, self._group = self._group, None
        if producer is not None:
            producer.purge()
            with contextlib.suppress(self._kafka.KafkaException):
                await asyncio.to_thread(producer.flush, 0)
        if group is not None:
            await asyncio.to_thread(group.close)


class _Refused(Exception):
    """The client does not take one record."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


#: Settings that an app may replace.  Keys go to the partitions to which Java's client sends them.
_USUAL: Final = {
    "linger.ms": 5, "partitioner": "murmur2_random", "queue.buffering.max.messages": 1_000_000,
}  # fmt: skip
#: Error code INVALID_RECORD of the protocol.
_INVALID_RECORD: Final = 87
#: Settings of producers that a consumer does not have.
_OF_PRODUCERS: Final = (
    "linger.ms", "compression.type", "compression.codec", "batch.size", "acks", "retries",
    "batch.num.messages", "message.timeout.ms", "delivery.timeout.ms", "request.timeout.ms",
    "queue.buffering.max.messages", "queue.buffering.max.kbytes", "max.in.flight",
    "compression.level", "partitioner", "request.required.acks", "message.send.max.retries",
)  # fmt: skip
