"""A Kafka-compatible broker of tests: noida-db, a single process without Java."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # as documented

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message


class Kafka:
    """A broker and a few verbs."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    @property
    def own(self) -> dict[str, Any]:
        """Settings of a client."""
        return {"bootstrap.servers": self.servers}

    def create(self, *topics: str, partitions: int = 1) -> None:
        """Create topics."""
        admin = AdminClient(self.own)
        made = admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
        for one in made.values():
            one.result(10)

    def send(
        self,
        topic: str,
        *payloads: bytes,
        partition: int = 0,
        key: str = "",
        headers: dict[str, str | bytes | None] | None = None,
    ) -> None:
        """Write records and wait for the acks."""
        producer = Producer(self.own)
        for payload in payloads:
            producer.produce(
                topic, payload, key=key or None, partition=partition, headers=headers or {}
            )
        assert producer.flush(10) == 0

    def records(self, topic: str, partitions: int = 1) -> list[tuple[int, Any, bytes]]:
        """Partition, key and payload of all committed records, by partition."""
        found = [
            (one.partition() or 0, one.key(), one.value() or b"")
            for one in self.messages(topic, partitions)
        ]
        return sorted(found, key=lambda one: one[0])

    def messages(self, topic: str, partitions: int = 1) -> list[Message]:
        """All committed records."""
        from confluent_kafka import TopicPartition

        settings = {"group.id": "look", "isolation.level": "read_committed",
                    "enable.partition.eof": True, "auto.offset.reset": "earliest"}  # fmt: skip
        consumer = Consumer({**self.own, **settings})
        found: list[Message] = []
        ended = 0
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            while ended < partitions:
                message = consumer.poll(10)
                assert message is not None, "the broker does not answer"
                if message.error() is not None:
                    ended += 1
                else:
                    found.append(message)
        finally:
            consumer.close()
        return found


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[Kafka]:
    """A broker on a free port with its data below ``directory``."""
    package = importlib.util.find_spec("noida_db")
    if package is None or package.origin is None:
        pytest.skip("noida-db is not installed")
    # The command of the package starts it as a child, which would stay.
    binary = str(Path(package.origin).with_name("noida-db"))
    call = [binary, "start", "--only", "kafka", "--kafka-port", "0", "--data-dir", str(directory)]
    process = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=directory.parent
    )
    try:
        assert process.stdout is not None
        shown = (re.search(r"kafka\s+(127\.0\.0\.1:\d+)", line) for line in process.stdout)
        found = next((match for match in shown if match), None)
        assert found is not None, "noida-db did not start"
        yield Kafka(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=10)
