"""Faults of publishers: rollups, forged headers, bombs, events of another year."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.chaos.scene import ScenarioError
from mesh.jetstream.connection import connector_options
from mesh.model import names
from pyspark_nats.arrow import arrow, ipc_stream
from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from tests.support.secured import PUBLISHER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.chaos.scene import Scene

ARROW: Final = b"Content-Type: application/vnd.apache.arrow.stream"
MSGPACK: Final = b"Content-Type: application/msgpack"
YEAR_MS: Final = 365 * 86_400_000
#: Number of times that each bomb is published.
_TIMES: Final = 3


async def rollup_attempted(scene: Scene) -> None:
    """A publisher tries to delete the channel by a header."""
    scene.hit()
    for header in (b"Nats-Rollup: all", b"Nats-Rollup: sub"):
        if await asyncio.to_thread(_published, scene, [(b"{}", (header,))]):
            raise ScenarioError(f"the server took {header.decode()}")
        await scene.flow(50)


async def headers_forged(scene: Scene) -> None:
    """All events bring headers that the server writes."""
    scene.hit()
    for name, value in (
        ("Nats-Sequence", "4"),
        ("Nats-Sequence", "99999"),
        ("Nats-Sequence", "x"),
        ("Nats-Subject", f"mesh.{scene.name}.Other"),
        ("Nats-Time-Stamp", "2001-01-01T00:00:00Z"),
        ("Nats-Num-Pending", "0"),
        ("Nats-Batch-Commit", "1"),
    ):
        scene.headers = {name: value}
        await scene.flow(30)
    scene.headers = {}


async def bombs_amid_load(scene: Scene) -> None:
    """Messages that took an instance's memory or time: each is recorded, and no process ends."""
    before = scene.pids()
    scene.hit()
    bombs = _bombs()
    for bomb in bombs:
        if await asyncio.to_thread(_published, scene, [bomb] * _TIMES) != _TIMES:
            raise ScenarioError(f"the server refused {bomb[0][:40]!r}")
        await scene.flow(10)
    entries = names.error_js_stream(scene.name), names.error_subject(scene.name)
    count = len(bombs) * _TIMES

    async def recorded() -> bool:
        return await scene.outside.count(*entries) >= count

    await scene.outside.until(f"{count} entries", recorded)
    await scene.flow(50)
    if (found := await scene.outside.count(*entries)) != count:
        raise ScenarioError(f"{found} entries of {count} bombs")
    if scene.pids() != before:
        raise ScenarioError(f"a process was started again: {before} before, {scene.pids()} now")


async def year_jumped(scene: Scene) -> None:
    """From one event to the next a year passes."""
    scene.hit()
    scene.jumps.append((scene.published + 1, YEAR_MS))
    await scene.flow(100)


def _bombs() -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Payload and header lines of one bomb of each kind; none holds an event."""
    ahead_ms = time.time_ns() // 1_000_000 + YEAR_MS
    event = b'{"k":"k1","a":1,"v":2.0}'
    word = arrow.DictionaryArray.from_arrays(
        pa.array([0] * 3000, pa.int8()), pa.array(["w" * 60_000])
    )
    flags = pa.array([True]).take(pa.array([0] * 1_100_000, pa.int8()))
    return [
        (b"\x81\x90\x01", (MSGPACK,)),
        (b"\x91" * 1020 + b"\x01", (MSGPACK,)),
        (b"\xdd\xff\xff\xff\xff", (MSGPACK,)),
        (b"[" * 1000 + b"]" * 1000, ()),
        (b'{"k":"\xff"}' + b"x" * 900_000, ()),
        (event, (b"Content-Type: \xff",)),
        (_stream(pa.nulls(20_000_000)), (ARROW,)),
        (_stream(flags, "zstd"), (ARROW,)),
        (_stream(word), (ARROW,)),
        (event, (b"Mesh-Timestamp: %d" % ahead_ms,)),
        (event, (b"Mesh-Timestamp: 999999999999999999",)),
        (event, (b"Mesh-Timestamp: -1",)),
    ]


def _stream(values: Any, compression: Any = None) -> bytes:
    columns = [values, pa.nulls(len(values)), pa.nulls(len(values))]
    return ipc_stream(pa.RecordBatch.from_arrays(columns, names=["k", "a", "v"]), compression)


def _published(scene: Scene, messages: Sequence[tuple[bytes, tuple[bytes, ...]]]) -> int:
    """Publish messages with header lines as they are; how many the server stored."""
    given = connector_options(scene.stage.servers.settings(PUBLISHER))
    options = connection_options(given)
    with Connection(options) as broker:

        def send() -> int:
            inboxes = broker.reply_subjects(len(messages))
            for (payload, lines), reply in zip(messages, inboxes, strict=True):
                block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
                head = block if lines else b""
                broker.send(frames.publish(scene.subject, payload, reply=reply, header=head))
            stored = 0
            for answer in broker.replies(inboxes):
                try:
                    stored += "seq" in answer.json()
                except RefusedError:
                    continue
            return stored

        return broker.retry_while_unavailable("publishing", send)
