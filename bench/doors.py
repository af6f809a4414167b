"""Rates of sources, sinks and mappers: ``python -m bench.doors``.

The same run measures what bounds them: a bare HTTP server that publishes with an ack, and Arrow's
own reader of CSV.
"""

from __future__ import annotations

import asyncio
import io
import json
import multiprocessing
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pyarrow as pa
import pyarrow.csv

from bench.brokers import kafka
from mesh.connect.contract import Access
from mesh.jetstream import server
from mesh.mapping import sink_mapper, source_mapper
from mesh.model.cluster import InstanceState
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver.http_server import HttpServers, Request, Response
from mesh.testing.connectors import Stage, staged

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STREAM: Final = StreamSchema(
    "S",
    (
        Attribute("k", AttributeType.STRING),
        Attribute("n", AttributeType.INT),
        Attribute("v", AttributeType.DOUBLE),
    ),
)
APP: Final = """@App:name('Bench')
{}
define stream S (k string, n int, v double);
{}
define stream T (k string, n int, v double);
from S select k, n, v insert into T;
"""
BODY: Final = b'{"event":{"k":"key","n":7,"v":1.5}}'
CLIENTS: Final = 32
#: Rows of a mapper's run.
ROWS: Final = 20_000


def rate(count: int, work: Callable[[], Any]) -> float:
    """Items per second of the fastest of three runs."""
    took = []
    for _ in range(3):
        start_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - start_s)
    return count / min(took)


def arrow_csv(data: bytes) -> pa.Table:
    """The same lines by Arrow's reader alone, in one thread."""
    options = pa.csv.ReadOptions(column_names=list(STREAM.names), use_threads=False)
    return pa.csv.read_csv(io.BytesIO(data), read_options=options)


def mappers() -> dict[str, float]:
    """Rows per second of the mappers, and their ratios to Arrow's own reader."""
    rows = pa.RecordBatch.from_pylist(
        [{"k": f"key-{n % 100}", "n": n, "v": n / 8} for n in range(ROWS)], schema=STREAM.arrow
    )
    found: dict[str, float] = {}
    for kind in ("json", "csv", "xml", "text", "keyvalue", "msgpack", "avro", "protobuf"):
        encoder = sink_mapper(kind, {}, (), STREAM)
        options = {"delimiter": "~~~~~~~~~~"} if kind == "text" else {}
        decoder = source_mapper(kind, options, (), STREAM)
        payloads = encoder.encode(rows)
        found[f"{kind} out"] = rate(ROWS, partial(encoder.encode, rows))
        found[f"{kind} in"] = rate(ROWS, partial(decoder.decode, payloads))
        if kind == "csv":
            whole = b"\n".join(payloads)
            found["csv in, Arrow alone"] = rate(ROWS, partial(arrow_csv, whole))
    return found


def post(url: str, seconds: float, out: Any) -> None:
    """Post from a process of its own; puts the requests per second."""

    async def client(session: httpx.AsyncClient, end_s: float) -> int:
        count = 0
        while time.perf_counter() < end_s:
            answer = await session.post(url, content=BODY)
            assert answer.status_code == 200, answer.text
            count += 1
        return count

    async def run() -> None:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CLIENTS)) as session:
            await session.post(url, content=BODY)
            end_s = time.perf_counter() + seconds
            counts = await asyncio.gather(*(client(session, end_s) for _ in range(CLIENTS)))
        out.put(sum(counts) / seconds)

    asyncio.run(run())


async def posted(url: str, seconds: float = 5.0) -> float:
    """Requests per second of a client process."""
    out: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=post, args=(url, seconds, out))
    process.start()
    found: float = await asyncio.to_thread(out.get)
    await asyncio.to_thread(process.join)
    return found


async def http(url: str) -> dict[str, float]:
    """Acked requests per second, of the source and of a bare server."""
    source = "@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='json'))"
    async with staged(url, APP.format(source, "")) as stage:
        status = await stage.until_running(stage.start("receiver-S"))
        ours = await posted(status.doors[0].endpoint)
        servers = HttpServers()

        async def bare(request: Request) -> Response:
            body = await request.body(1 << 20)
            await stage.js.publish("mesh.Bench.S", json.dumps(json.loads(body or b"")).encode())
            return Response(200)

        port = await servers.open("127.0.0.1", 0, "/in", bare)
        alone = await posted(f"http://127.0.0.1:{port}/in")
        await servers.close("127.0.0.1", port, "/in")
    return {"http in, acked": ours, "http in, bare server": alone}


async def files(url: str, directory: Path) -> dict[str, float]:
    """Lines per second of a file into a channel, and of a channel into a file."""
    count = 1_000_000
    path = directory / "in.csv"
    path.write_text("".join(f"key-{n % 100},{n},{n / 8}\n" for n in range(count)))
    source = f"@source(type='file', file.uri='{path}', @map(type='csv'))"
    sink = f"@sink(type='file', file.uri='{directory}/out.csv', @map(type='csv'))"
    async with staged(url, APP.format(source, sink), Access((str(directory),))) as stage:
        first = await timed(stage, "receiver-S", count)
        payload = b"\n".join([b'{"k":"key","n":7,"v":1.5}'] * 200)
        for _ in range(1000):
            await stage.js.publish("mesh.Bench.T", payload)
        second = await timed(stage, "sink-T", 200_000)
    return {"file in, lines": first, "file out, events": second}


async def timed(stage: Stage, group: str, count: int) -> float:
    """Rows per second until an instance has reported ``count`` of them."""
    start_s = time.perf_counter()
    instance = stage.start(group)

    def done() -> bool:
        doors = instance._counts()
        return bool(doors["rows_out"] >= count)

    await stage.until("all rows", done)
    took_s = time.perf_counter() - start_s
    await instance.stop()
    assert stage.reports[-1].state is InstanceState.STOPPED
    return count / took_s


def main() -> None:
    """Print all rates."""
    found = mappers()
    with tempfile.TemporaryDirectory() as directory:
        running = server.start(Path(directory) / "nats")
        try:
            steps: tuple[Coroutine[Any, Any, dict[str, float]], ...] = (
                http(running.url), files(running.url, Path(directory)),
                kafka(running.url, Path(directory)),
            )  # fmt: skip
            for step in steps:
                found |= asyncio.run(step)
        finally:
            running.stop()
    for name, per_s in found.items():
        print(f"{name:24} {per_s:12,.0f} /s")


if __name__ == "__main__":
    main()
