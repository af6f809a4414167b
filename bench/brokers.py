"""Rates of sources and sinks of brokers: ``python -m bench.brokers``."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from mesh.jetstream import server
from mesh.testing.connectors import Stage, staged
from tests.support.kafka import broker

APP: Final = """@App:name('Kafka')
@source(type='kafka', bootstrap.servers='{0}', topic.list='in', group.id='g', @map(type='json'))
define stream S (k string, n int, v double);
@sink(type='kafka', bootstrap.servers='{0}', topic='out', @map(type='json', envelope='none'))
define stream T (k string, n int, v double);
from S select k, n, v insert into T;
"""
EVENT: Final = b'{"k":"key","n":7,"v":1.5}'
EVENTS: Final = 600_000


async def timed(stage: Stage, group: str, count: int) -> tuple[float, float]:
    """Rows per second until an instance has passed on ``count``, and per second of processor time.

    The latter counts all threads of the host and not the brokers; it is of use on a busy machine.
    """
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    instance = stage.start(group)
    await stage.until("all rows", lambda: instance._counts()["rows_out"] >= count)
    took_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    await instance.stop()
    return count / took_s, count / cpu_s


async def kafka(url: str, directory: Path) -> dict[str, float]:
    """Events per second of a topic into a channel, and of a channel into a topic."""
    with broker(directory / "kafka") as found:
        found.create("in", "out")
        producer = Producer({**found.own, "linger.ms": 50})
        for _ in range(EVENTS // 20_000):
            producer.produce_batch("in", [{"value": EVENT}] * 20_000)
            producer.flush()
        async with staged(url, APP.format(found.servers)) as stage:
            first = await timed(stage, "receiver-S", EVENTS)
            payload = b"\n".join([EVENT] * 1000)
            for _ in range(EVENTS // 1000):
                await stage.js.publish("mesh.Kafka.T", payload)
            second = await timed(stage, "sink-T", EVENTS)
    return {
        "kafka in, events": first[0],
        "kafka in, per cpu": first[1],
        "kafka out, events": second[0],
        "kafka out, per cpu": second[1],
    }


def main() -> None:
    """Print all rates."""
    with tempfile.TemporaryDirectory() as name:
        running = server.start(Path(name) / "nats")
        try:
            for what, per_s in asyncio.run(kafka(running.url, Path(name))).items():
                print(f"{what:24} {per_s:12,.0f} /s")
        finally:
            running.stop()


if __name__ == "__main__":
    main()
