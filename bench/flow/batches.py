"""Rates of the server alone, for single messages and batches: bounds of exactly once.

A program on a socket sends prebuilt messages to one stream and only counts the acks.  Nothing reads
the stream, and nothing else runs.  A server on its own stages an atomic batch for a stream on disk
in files of the batch's own, and for a stream with replicas, or in memory, in memory.  It stores an
ingest batch as it comes.
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
from bench.connector.plain import Job, Publish, PublishAtomically, PublishIngested
from bench.connector.wire import Wire
from bench.mesh import harness
from tests.support.secured import FEEDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.chaos.servers import Servers

MESSAGES: Final = 300_000
SMALL: Final = 3_000
_BYTES: Final = 70
#: Batches under way; the server takes fifty in a stream.
_WINDOW: Final = 3
#: As the sink's rows have.
_HEADER: Final = (
    "Mesh-Row:01234567 12345678901 12345 89abcdef",
    "Content-Type: application/json",
)


async def measure() -> list[Figure]:
    """Rates and the server's processor time."""
    return await asyncio.to_thread(_measure)


def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-batches-") as directory:
        running = harness.servers(Path(directory))
        access = harness.access(running, FEEDER)
        try:
            plain = Publish(access, "out", _BYTES, 0, MESSAGES)
            single, _ = _rate(running, "file", plain.prepare)
            found = [Figure("messages of their own", single / 1000, "k/s")]
            job: Job = replace(plain, header=_HEADER)
            rate, _ = _rate(running, "file", job.prepare)
            found.append(
                Figure("the same, with the header of a row", rate / 1000, "k/s",
                       limit=single / 1000)
            )  # fmt: skip
            # Streams with replicas have none: see _rate.
            if len(running.names) == 1:
                job = PublishIngested(access, "out", _BYTES, 0, MESSAGES, _HEADER)
                rate, used_s = _rate(running, "file", job.prepare)
                note = f"{used_s / MESSAGES * 1e6:.1f} s of the server for a million"
                found.append(
                    Figure("ingest batch with it", rate / 1000, "k/s", limit=single / 1000,
                           note=note)
                )  # fmt: skip
            for rows, count, storage in (
                (1000, MESSAGES, "file"),
                (1000, MESSAGES, "memory"),
                (1, SMALL, "file"),
                (1, SMALL, "memory"),
            ):
                job = PublishAtomically(access, "out", _BYTES, 0, count, _WINDOW, rows)
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
    running: Servers, storage: str, prepare: Callable[[], Callable[[], int]]
) -> tuple[float, float]:
    """Messages per second, and processor time of the server in seconds.

    Raises:
        RuntimeError: the server did not store each message.
    """
    with Wire(harness.access(running, FEEDER)) as wire:
        wire.call(
            "STREAM.CREATE.out", name="out", subjects=["out"], storage=storage,
            allow_atomic=True, allow_batched=len(running.names) == 1,
            num_replicas=len(running.names),
        )  # fmt: skip
        work = prepare()
        processes = [psutil.Process(running.pid(name)) for name in running.names]
        before = harness.cpu_s(processes)
        started_s = time.perf_counter()
        count = work()
        took_s = time.perf_counter() - started_s
        used_s = harness.cpu_s(processes) - before
        stored = wire.call("STREAM.INFO.out")["state"]["messages"]
        if stored != count:
            raise RuntimeError(f"{stored} of {count} messages were stored")
        wire.call("STREAM.DELETE.out")
    return count / took_s, used_s
