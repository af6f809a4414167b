"""Rates of the server alone, for single messages and atomic batches: bounds of exactly once.

Single messages that expect the last sequence of a marker are refused from a writer that another one
has replaced, as batches are; a writer that dies leaves some of them, where a batch leaves none.

A program on a socket sends prebuilt messages to one stream and only counts the acks.  Nothing reads
the stream, and nothing else runs.  A server on its own stages a batch for a stream on disk in files
of the batch's own, and for a stream with replicas, or in memory, in memory.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from bench.connector.harness import Figure
from bench.connector.plain import Publish, PublishAtomically
from bench.connector.wire import Wire
from mesh.jetstream import server

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES: Final = 300_000
SMALL: Final = 3_000
_BYTES: Final = 70
#: Batches under way; the server takes fifty in a stream.
_WINDOW: Final = 3
#: The marker is the stream's first message.
_EXPECTS_MARKER: Final = (
    "Nats-Expected-Last-Subject-Sequence: 1",
    "Nats-Expected-Last-Subject-Sequence-Subject: marker",
)


async def measure() -> list[Figure]:
    """Rates and the server's processor time."""
    return await asyncio.to_thread(_measure)


def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-batches-") as directory:
        running = server.start(Path(directory))
        try:
            plain = Publish(running.port, "out", _BYTES, 0, MESSAGES)
            single, _ = _rate(running, "file", plain.prepare)
            found = [Figure("messages of their own", single / 1000, "k/s")]
            expecting = replace(plain, header=_EXPECTS_MARKER)
            rate, _ = _rate(running, "file", expecting.prepare)
            found.append(
                Figure("the same, each expecting a marker's sequence", rate / 1000, "k/s",
                       limit=single / 1000)
            )  # fmt: skip
            for rows, count, storage in (
                (1000, MESSAGES, "file"),
                (1000, MESSAGES, "memory"),
                (1, SMALL, "file"),
                (1, SMALL, "memory"),
            ):
                job = PublishAtomically(running.port, "out", _BYTES, 0, count, _WINDOW, rows)
                rate, used_s = _rate(running, storage, job.prepare)
                note = f"{used_s / count * rows * 1000:.2f} ms of the server for a batch"
                found.append(
                    Figure(f"atomic batches of {rows:,} messages, stream in {storage}",
                           rate / 1000, "k/s", limit=single / 1000, note=note)
                )  # fmt: skip
            return found
        finally:
            running.stop()


def _rate(
    running: server.NatsServer, storage: str, prepare: Callable[[], Callable[[], int]]
) -> tuple[float, float]:
    """Messages per second, and processor time of the server in seconds.

    Raises:
        RuntimeError: the server did not store each message.
    """
    with Wire(running.port) as wire:
        subjects = ["out", "marker"]
        wire.call(
            "STREAM.CREATE.out", name="out", subjects=subjects, storage=storage, allow_atomic=True
        )
        Publish(running.port, "marker", _BYTES, 0, 1).prepare()()
        work = prepare()
        process = psutil.Process(running.process.pid)
        before = sum(process.cpu_times()[:2])
        started_s = time.perf_counter()
        count = work()
        took_s = time.perf_counter() - started_s
        used_s = sum(process.cpu_times()[:2]) - before
        stored = wire.call("STREAM.INFO.out")["state"]["messages"]
        if stored != count + 1:
            raise RuntimeError(f"{stored - 1} of {count} messages were stored")
        wire.call("STREAM.DELETE.out")
    return count / took_s, used_s
