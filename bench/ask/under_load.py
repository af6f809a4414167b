"""On-demand reads while events come in: a whole mesh, one worker, clients of NATS.

An aggregation of four partitions has a million groups; another one an hour of minutes of a thousand
groups.  Events come in first alone and then beside one client that asks, without a pause.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from bench.ask.reads import BUCKETS, GROUPS, GROUPS_OF_RANGE, RANGE_MS, median
from bench.ask.through_nats import PARTITIONS, POINT_MS
from bench.connector.harness import Figure, figure
from bench.mesh import harness
from mesh.clock import SystemClock
from mesh.manager.desired_state import DesiredState
from mesh.manager.queries import Queries
from mesh.model import names
from mesh.settings import QuerySettings, Settings
from pyspark_nats.arrow import ipc_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.mesh.harness import View

RATE: Final = 50_000
#: Part of the rate of ingest that is left beside reads.
_KEPT: Final = 0.95
_SECONDS: Final = 20.0
#: Time limit for the last events to be counted, seconds.
_COUNTED_S: Final = 300.0
_BATCH: Final = 1_000
#: Messages published at once.
_CHUNK: Final = 200
_START_MS: Final = 1_700_000_040_000
_TEXT: Final = f"""@App:name('Ask')
define stream S (k string, p double, q long);
define stream R (k string, p double, q long, ts long);
@dist(execGroup='cells', partitions='{PARTITIONS}')
define aggregation A from S select k, avg(p) as ap, sum(q) as sq group by k
aggregate every min...year;
@dist(execGroup='minutes', partitions='{PARTITIONS}')
define aggregation B from R select k, avg(p) as ap, sum(q) as sq group by k
aggregate by ts every min...year;
"""
_ALL: Final = "from {of} {on} within 0L, 2000000000000L per '{per}' select {select}"
_COUNTED: Final = _ALL.format(of="A", on="", per="years", select="sum(sq) as n")


@dataclass(frozen=True, slots=True)
class _Asked:
    """The times of queries, milliseconds, and the rate of ingest meanwhile, events a second."""

    took_ms: list[float]
    rate: float


async def measure() -> list[Figure]:
    """Rates of ingest and times of reads."""
    limits = QuerySettings(rows_max=10**6, bytes_max=10**8, timeout_s=60.0)
    environment: dict[str, Any] = {
        "MESH_QUERIES_ROWS_MAX": str(limits.rows_max),
        "MESH_QUERIES_BYTES_MAX": str(limits.bytes_max),
        "MESH_QUERIES_TIMEOUT_S": str(limits.timeout_s),
    }
    async with harness.mesh(1, **environment) as view:
        await view.service.deploy(_TEXT)
        await view.until_running("Ask")
        clock = SystemClock()
        queries = Queries(
            view.client,
            view.view,
            DesiredState(view.client, view.view, clock),
            Settings(queries=limits),
            clock,
        )
        try:
            return await _measured(view, queries)
        finally:
            await queries.stop()


async def _measured(view: View, queries: Queries) -> list[Figure]:
    await _fill(view)
    count = GROUPS
    await _until_counted(view, count)
    keys = iter(np.random.default_rng(7).integers(0, GROUPS, 10**6).tolist())
    whole = _ALL.format(of="B", on="", per="minutes", select="AGG_TIMESTAMP, k, ap, sq")

    async def point() -> None:
        key = next(keys)
        text = _ALL.format(of="A", on=f"on k == 'key-{key}'", per="hours", select="k, ap, sq")
        (row,) = (await _ask(view, text))["records"]
        assert row[0] == f"key-{key}"

    async def range_of_minutes() -> None:
        # Too long for one message: a manager is asked as by REST.
        records = (await queries.ask("Ask", whole)).records
        assert records.count(b"],[") + 1 == BUCKETS * GROUPS_OF_RANGE

    calm_ms = await _asking(point, asyncio.sleep(5.0))
    alone, count = await _load(view, count, None)
    points, count = await _load(view, count, point)
    ranges, count = await _load(view, count, range_of_minutes)
    lost = f"{alone.rate:,.0f} events/s without reads"
    load = f"while {RATE:,} events/s come in"
    return [
        figure(f"point of {GROUPS:,} groups through NATS, no load: p50", calm_ms, "ms"),
        _figure(f"point of {GROUPS:,} groups through NATS, {load}: p50", points, POINT_MS),
        _figure(f"{BUCKETS} x {GROUPS_OF_RANGE:,}, as by REST, {load}: p50", ranges, RANGE_MS),
        Figure("ingest beside points", points.rate, "events/s", _KEPT, limit=alone.rate, note=lost),
        Figure("ingest beside ranges", ranges.rate, "events/s", _KEPT, limit=alone.rate, note=lost),
    ]  # fmt: skip


def _figure(name: str, asked: _Asked, most_ms: float) -> Figure:
    p99 = float(np.percentile(asked.took_ms, 99))
    note = f"99 % below {p99:.0f} ms, {len(asked.took_ms)} queries"
    return median(name, asked.took_ms, most_ms, note)


async def _load(
    view: View, count: int, read: Callable[[], Awaitable[None]] | None
) -> tuple[_Asked, int]:
    """Let events come in, beside reads if any; and how many events there are then."""
    url = view.cluster.servers.url
    began_s = time.perf_counter()
    publisher = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.ask.publisher", url, "mesh.Ask.S", str(RATE), str(_SECONDS),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    published = asyncio.create_task(publisher.communicate())
    took_ms = [] if read is None else await _asking(read, published)
    sent = int((await published)[0])
    await _until_counted(view, count + sent)
    return _Asked(took_ms, sent / (time.perf_counter() - began_s)), count + sent


async def _asking(read: Callable[[], Awaitable[None]], until: Awaitable[Any]) -> list[float]:
    """Durations of queries, one after the other, in milliseconds."""
    ending = asyncio.ensure_future(until)
    took_ms = []
    while not ending.done():
        began_s = time.perf_counter()
        await read()
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return took_ms


async def _ask(view: View, text: str) -> Any:
    reply = await view.client.request(names.query_subject("Ask"), text.encode(), timeout=60)
    answer = json.loads(reply.data)
    assert "records" in answer, answer
    return answer


async def _until_counted(view: View, count: int) -> None:
    """Return when a stored state has all events."""
    async with asyncio.timeout(_COUNTED_S):
        while True:
            if (await _ask(view, _COUNTED))["records"] == [[count]]:
                return
            await asyncio.sleep(0.1)


async def _fill(view: View) -> None:
    """An event of each group of A, and of each group and minute of B."""
    keys = np.arange(GROUPS)
    await _publish(view, "S", [_text(keys), pa.array(keys / 8), pa.array(np.ones_like(keys))])
    keys = np.tile(np.arange(GROUPS_OF_RANGE), BUCKETS)
    at = _START_MS + np.repeat(np.arange(BUCKETS) * 60_000, GROUPS_OF_RANGE)
    columns = [_text(keys), pa.array(keys / 8), pa.array(np.ones_like(keys)), pa.array(at)]
    await _publish(view, "R", columns)


def _text(keys: Any) -> pa.Array[Any]:
    return pa.array([f"key-{key}" for key in keys.tolist()])


async def _publish(view: View, stream: str, columns: list[pa.Array[Any]]) -> None:
    table = pa.table(columns, names=["k", "p", "q", "ts"][: len(columns)])
    batches = table.to_batches(max_chunksize=_BATCH)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    for first in range(0, len(batches), _CHUNK):
        await asyncio.gather(
            *(
                view.js.publish(f"mesh.Ask.{stream}", ipc_stream(batch), headers=headers)
                for batch in batches[first : first + _CHUNK]
            )
        )
