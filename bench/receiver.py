"""Rates of sources, sinks and mappers: ``python -m bench.receiver [--check]``.

The same run measures what bounds them: a bare HTTP server that publishes with an ack, and Arrow's
own reader of CSV.  ``--check`` fails if a ratio, a rate or the memory misses its target.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from bench.brokers import kafka, timed
from bench.chaos.endpoints import Endpoint, Manner
from mesh.clock import SystemClock
from mesh.connect.contract import NodeAccess
from mesh.jetstream import server
from mesh.mapping import sink_mapper, source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.settings import NatsSettings, ReceiverSettings, Settings
from mesh.testing.connectors import staged
from mesh.worker.children import HOST, SessionProcess
from mesh.worker.protocol import SessionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request

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
#: Targets: least values.
TARGETS: Final = {
    "http in / bare server": 0.5,
    "file in, events": 500_000,
    "csv in / Arrow alone": 0.7,
    "json in / Arrow alone": 0.7,
    "kafka in, events": 200_000,
    "kafka out, events": 200_000,
}
#: Targets: greatest values.
LIMITS: Final = {
    "start of a host, s": 2.0,
    "idle host, MB": 60.0,
    "idle host, % of a core": 0.5,
    "latency beside a silent one": 1.1,
    "latency beside a closed one": 1.1,
}
#: Seconds in which an idle host is observed, and events of each phase of latencies.
IDLE_S: Final = 20.0
LATENCIES: Final = 40
#: Rows of a mapper's run.
ROWS: Final = 20_000


def rate(count: int, work: Callable[[], Any]) -> float:
    """Items per second of processor time, of all threads, in the best of three runs."""
    took = []
    for _ in range(3):
        start_s = time.process_time()
        work()
        took.append(time.process_time() - start_s)
    return count / min(took)


def arrow_csv(data: bytes) -> pa.Table:
    """The same lines by Arrow's reader alone, in one thread."""
    options = pa.csv.ReadOptions(column_names=list(STREAM.names), use_threads=False)
    return pa.csv.read_csv(io.BytesIO(data), read_options=options)


def arrow_json(data: bytes, schema: pa.Schema) -> pa.Table:
    """The same objects by Arrow's reader alone, in one thread, with the same types."""
    return pa.json.read_json(
        io.BytesIO(data),
        pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa.json.ParseOptions(explicit_schema=schema),
    )


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
        if kind == "json":
            whole = b"\n".join(payloads)
            schema = pa.schema([pa.field("event", pa.struct(list(STREAM.arrow)))])
            found["json in, Arrow alone"] = rate(ROWS, partial(arrow_json, whole, schema))
    return found


def post(url: str, seconds: float, out: Any) -> None:
    """Post from a process of its own, on plain sockets; puts the requests per second."""
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(BODY)}"
    request = head.encode() + b"\r\n\r\n" + BODY

    async def client(end_s: float) -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        count = 0
        while not count or time.perf_counter() < end_s:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert answer.startswith(b"http/1.1 200"), answer
            await reader.readexactly(int(answer.partition(b"content-length: ")[2].split()[0]))
            count += 1
        writer.close()
        return count

    async def run() -> None:
        # The first requests import and connect.
        await client(0.0)
        end_s = time.perf_counter() + seconds
        counts = await asyncio.gather(*(client(end_s) for _ in range(CLIENTS)))
        out.put(sum(counts) / seconds)

    asyncio.run(run())


async def posted(url: str, seconds: float = 3.0) -> float:
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

        async def bare(request: Request) -> Response:
            event = json.loads(await request.body())["event"]
            await stage.js.publish("mesh.Bench.S", json.dumps(event).encode())
            return Response(b'{"accepted":1}')

        application = Starlette(routes=[Route("/in", bare, methods=["POST"])])
        config = uvicorn.Config(application, port=0, access_log=False, log_level="warning")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        await stage.until("the bare server", lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        ours, alone = [], []
        # In turns: the load of the machine may change.
        for _ in range(3):
            ours.append(await posted(status.connectors[0].endpoint))
            alone.append(await posted(f"http://127.0.0.1:{port}/in"))
        server.should_exit = True
        await serving
    return {
        "http in, acked": statistics.median(ours),
        "http in, bare server": statistics.median(alone),
    }


async def files(url: str, directory: Path) -> dict[str, float]:
    """Lines per second of a file into a channel, and of a channel into a file."""
    count = 1_000_000
    path = directory / "in.csv"
    path.write_text("".join(f"key-{n % 100},{n},{n / 8}\n" for n in range(count)))
    source = f"@source(type='file', file.uri='{path}', @map(type='csv'))"
    sink = f"@sink(type='file', file.uri='{directory}/out.csv', @map(type='csv'))"
    async with staged(url, APP.format(source, sink), NodeAccess((str(directory),))) as stage:
        found = await timed(stage, "receiver-S", "file in", count)
        payload = b"\n".join([b'{"k":"key","n":7,"v":1.5}'] * 200)
        for _ in range(1000):
            await stage.js.publish("mesh.Bench.T", payload)
        return found | await timed(stage, "sink-T", "file out", 200_000)


def _has_more(end: Endpoint, count: int) -> bool:
    return len(end.found) > count


async def neighbours(url: str) -> dict[str, float]:
    """Latency at a destination while another one of the sink fails, to that of calm times."""
    near, far = Endpoint(), Endpoint()
    for end in (near, far):
        await end.become(Manner.WELL)
    spread = (
        "@sink(type='http', @map(type='json', envelope='none'), @distribution(strategy='broadcast',"
        f" @destination(publisher.url='{near.url}'), @destination(publisher.url='{far.url}')))"
    )
    clock, took = SystemClock(), dict[Manner, list[float]]()
    async with staged(url, APP.format("", spread)) as stage:
        await stage.until_running(stage.start("sink-T"))
        # In turns: the load of the machine may change.
        order = (Manner.WELL, Manner.SILENT, Manner.CLOSED) * 6
        for number, manner in enumerate((Manner.WELL, *order)):
            if number == 1:
                # The first ones import and connect.
                took.clear()
            await far.become(manner)
            for n in range(LATENCIES):
                count, sent_s = len(near.found), clock.monotonic_s()
                await stage.publish("T", {"k": "key", "n": n, "v": 1.5})
                await stage.until("it", partial(_has_more, near, count))
                took.setdefault(manner, []).append(1000 * (near.last_s - sent_s))
                await asyncio.sleep(0.005)
    for end in (near, far):
        await end.become(Manner.CLOSED)
    well = statistics.median(took[Manner.WELL])
    return {
        "latency, ms": well,
        "latency beside a silent one": statistics.median(took[Manner.SILENT]) / well,
        "latency beside a closed one": statistics.median(took[Manner.CLOSED]) / well,
    }


def idle(url: str) -> dict[str, float]:
    """Start, megabytes and processor time of a host that runs no instance."""
    receiver = ReceiverSettings(egress="127.0.0.1:1-65535")
    settings = Settings(nats=NatsSettings(url=url), receiver=receiver)

    async def measured() -> dict[str, float]:
        config = SessionConfig("bench", "", settings)
        host, clock = SessionProcess(config, (sys.executable, "-m", HOST)), SystemClock()
        started_s = clock.monotonic_s()
        await host.start()
        await anext(aiter(host.replies()))
        took_s = clock.monotonic_s() - started_s
        process = psutil.Process(host.pid)
        mb, before = process.memory_info().rss / (1 << 20), sum(process.cpu_times()[:2])
        await asyncio.sleep(IDLE_S)
        used_s = sum(process.cpu_times()[:2]) - before
        await host.stop()
        return {
            "start of a host, s": took_s,
            "idle host, MB": mb,
            "idle host, % of a core": 100 * used_s / IDLE_S,
        }

    return asyncio.run(measured())


def missed(found: dict[str, float]) -> list[str]:
    """The targets that were missed, in words."""
    few = [name for name, least in TARGETS.items() if found[name] < least]
    return few + [name for name, most in LIMITS.items() if found[name] > most]


def main() -> None:
    """Print all rates; with ``--check`` exit with 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="Rates of sources, sinks and mappers.")
    parser.add_argument("--check", action="store_true", help="fail on a missed target")
    checks = parser.parse_args().check
    found = mappers()
    with tempfile.TemporaryDirectory() as directory:
        running = server.start(Path(directory) / "nats")
        try:
            steps: tuple[Coroutine[Any, Any, dict[str, float]], ...] = (
                http(running.url), files(running.url, Path(directory)),
                kafka(running.url, Path(directory)), neighbours(running.url),
            )  # fmt: skip
            for step in steps:
                found |= asyncio.run(step)
            found |= idle(running.url)
        finally:
            running.stop()
    found["http in / bare server"] = found["http in, acked"] / found["http in, bare server"]
    for kind in ("csv", "json"):
        found[f"{kind} in / Arrow alone"] = found[f"{kind} in"] / found[f"{kind} in, Arrow alone"]
    for name, value in found.items():
        print(f"{name:28} {value:12,.2f}" if value < 1000 else f"{name:28} {value:12,.0f} /s")
    if checks and missed(found):
        sys.exit(f"missed: {', '.join(missed(found))}")


if __name__ == "__main__":
    main()
