"""Rates of sources and sinks of brokers, a part of ``python -m bench.receiver``.

The same run measures what bounds them: a bare program of the client library with the same broker,
transactions of the same size included.  Times of processors are more steady than rates on a busy
machine: those of the host's threads alone, and of the host, the broker and NATS together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from mesh.receiver.types.kafka_sink import KafkaSink
from mesh.testing.connectors import staged
from tests.support.kafka import broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.testing.connectors import Stage
    from tests.support.kafka import Kafka

APP: Final = """@App:name('Kafka')
@source(type='kafka', bootstrap.servers='{0}', topic.list='in', group.id='g', @map(type='json'))
define stream S (k string, n int, v double);
@sink(type='kafka', bootstrap.servers='{0}', topic='out', @map(type='json', envelope='none'))
define stream T (k string, n int, v double);
from S select k, n, v insert into T;
"""
EVENT: Final = b'{"k":"key","n":7,"v":1.5}'
EVENTS: Final = 1_000_000
#: Events of a transaction of ours.
TOGETHER: Final = KafkaSink.events_max


@dataclass
class Meter:
    """Rates since its creation."""

    def __post_init__(self) -> None:
        self._start_s, self._own_s, self._all_s = time.perf_counter(), *_cpu_s()

    def rates(self, name: str, count: int) -> dict[str, float]:
        """Events per second, and seconds of processors per million events."""
        own_s, all_s = _cpu_s()
        return {
            f"{name}, events": count / (time.perf_counter() - self._start_s),
            f"{name}, own cpu s/M": (own_s - self._own_s) / count * 1e6,
            f"{name}, all cpu s/M": (all_s - self._all_s) / count * 1e6,
        }


def _cpu_s() -> tuple[float, float]:
    """Processor time of this process, and of it and its children."""
    own = time.process_time()
    times = (child.cpu_times() for child in psutil.Process().children(recursive=True))
    return own, own + sum(t.user + t.system for t in times)


async def timed(stage: Stage, group: str, name: str, count: int) -> dict[str, float]:
    """Rates of an instance, from its first events until it has passed on ``count`` in all."""
    stage.deadline_s = 300.0
    instance = stage.start(group)
    # The first ones import.
    await stage.until("the first rows", lambda: instance._counts()["events_out"])
    meter, first = Meter(), instance._counts()["events_out"]
    await stage.until("all rows", lambda: instance._counts()["events_out"] >= count)
    found = meter.rates(name, count - first)
    await instance.stop()
    return found


def alone(found: Kafka) -> Iterator[dict[str, float]]:
    """Rates of bare programs with the same broker: fills the topic ``in``, and reads it."""
    settings = {"linger.ms": 5, "transactional.id": "bare", "delivery.report.only.error": True,
                "queue.buffering.max.messages": 1_000_000}  # fmt: skip
    producer = Producer({**found.own, **settings})
    group = Consumer({**found.own, "group.id": "bare"})
    producer.init_transactions(10)
    meter = Meter()
    for number in range(EVENTS // TOGETHER):
        producer.begin_transaction()
        producer.produce_batch("in", [{"value": EVENT}] * TOGETHER)
        producer.flush(10)
        place = TopicPartition("bare", 0, number)
        producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
    yield meter.rates("kafka out, bare", EVENTS)
    group.assign([TopicPartition("in", 0, 0)])
    meter, count = Meter(), 0
    while count < EVENTS:
        count += len(group.consume(TOGETHER, 0.2))
    yield meter.rates("kafka in, bare", EVENTS)
    group.close()


async def kafka(url: str, directory: Path) -> dict[str, float]:
    """Rates of a topic into a channel, and of a channel into a topic; both of bare programs."""
    rates: dict[str, float] = {}
    with broker(directory / "kafka") as found:
        found.create("in", "out")
        for some in alone(found):
            rates |= some
        async with staged(url, APP.format(found.servers)) as stage:
            rates |= await timed(stage, "receiver-S", "kafka in", EVENTS)
            payload = b"\n".join([EVENT] * 1000)
            for _ in range(EVENTS // 1000):
                await stage.js.publish("mesh.Kafka.T", payload)
            rates |= await timed(stage, "sink-T", "kafka out", EVENTS)
    for way in ("in", "out"):
        rates[f"kafka {way} / bare"] = (
            rates[f"kafka {way}, events"] / rates[f"kafka {way}, bare, events"]
        )
    return rates
